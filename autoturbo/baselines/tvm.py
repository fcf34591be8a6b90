"""TVM v0.8's operator fusion (Relay ``FuseOps``), every group a kernel with its output in DDR.

The pass (graphturbo.md, section 8.1): a post-dominator tree, then union-find groups grown in three
phases by operator class. On our machine a group becomes one kernel whose inner tensors never leave
the tile loop, whose outputs go to DDR, and whose work is spread over the cores of a cluster;
kernels do not overlap. The batches per cluster tried are those whose kernels' inputs and outputs
fit the global buffer, through which they pass (GraphTurbo, OSDI '23, section 5: "limited by the
LLB"); for ResNet-50 and BERT this limit gives the batches of the paper's Table 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autoturbo.baselines.ladder import layer_by_layer
from autoturbo.graph.arrays import whole_bytes
from autoturbo.graph.layers import Layer, layers_from
from autoturbo.graph.operators import Graph, Operator, Pattern
from autoturbo.schedule.context import SchedulingContext, make_context
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.simplify import simplified

MAX_GROUP = 256
"""Most operators of a fused group, TVM's default."""


@dataclass(slots=True)
class _Dominator:
    """Post-dominator of an operator and the strongest pattern on the way to it."""

    parent: int
    depth: int
    pattern: Pattern


@dataclass(slots=True)
class _Group:
    """Root of a union-find set."""

    pattern: Pattern
    size: int = 1


def tvm(model_scheduler: ModelScheduler) -> Iterator[Schedule]:
    """Yield every batch per cluster that fits the global buffer; one sample where none does."""
    choices = model_scheduler.batch_choices()
    room = (
        # without a global buffer tensors pass through the cores' own
        model_scheduler.target.gb.capacity
        or model_scheduler.target.cores * model_scheduler.target.lb.capacity
    )
    for batches in choices:
        context = fused_problem(model_scheduler, batches)
        # the last choice has the fewest samples: something has to run
        if largest_working_set(context) <= room or batches == choices[-1]:
            yield layer_by_layer(
                model_scheduler.model, context, model_scheduler.share(batches), "tvm", Scope.DDR
            )


def outputs_at(name: str, scope: Scope) -> Callable[[ModelScheduler], Iterator[Schedule]]:
    """Return TVM's kernels with outputs at another scope: the first rungs of the ablation.

    GraphTurbo, OSDI '23, section 5.3 (Fig. 15), keeps TVM's kernel generator and only changes
    where a kernel's output is declared: ``gb_outputs`` has it in GB, ``lb_outputs`` ("outputs in
    L1") in LB. What does not fit goes one level down, as the paper's allocator does it (section
    4.3). Kept from TVM: its kernels, one for each group of operators, unsplit, in the order of the
    graph, and nothing that overlaps across kernels. Not kept: the limit on the batches per cluster,
    which comes from passing every tensor through GB; the paper chose batches by autotuning
    executions (section 5.1), so every divisor is a candidate.
    """

    def candidates(model_scheduler: ModelScheduler) -> Iterator[Schedule]:
        for batches in model_scheduler.batch_choices():
            context = fused_problem(model_scheduler, batches)
            yield layer_by_layer(
                model_scheduler.model, context, model_scheduler.share(batches), name, scope
            )

    return candidates


gb_outputs, lb_outputs = (outputs_at("gb_outputs", Scope.GB), outputs_at("lb_outputs", Scope.LB))


def fused_problem(model_scheduler: ModelScheduler, batches: int) -> SchedulingContext:
    """Return the model for some samples, normalisations expanded, with FuseOps' layers."""
    context = model_scheduler.context(batches)
    graph = simplified(context.graph)
    layers = fused_layers(graph)
    return make_context(graph, context.target, context.dtype, layers, context.chip, context.alike)


def fused_layers(graph: Graph) -> tuple[Layer, ...]:
    """Return the groups that FuseOps makes, as layers."""
    return layers_from(graph, fuse(graph))


def fuse(graph: Graph) -> list[list[int]]:
    """Return the operator indices of each group."""
    return _Fuser(graph).run()


class _Fuser:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tree = _post_dominators(graph)
        self.parent = list(range(len(graph.operators)))
        self.groups = [_Group(op.pattern) for op in graph.operators]

    def run(self) -> list[list[int]]:
        """Return the groups after two phases; the third is for tuples, which our graphs lack."""
        for phase in (0, 1):
            for index in range(len(self.graph.operators)):
                self._visit(index, phase)
        members: dict[int, list[int]] = {}
        for index in range(len(self.graph.operators)):
            members.setdefault(self.root(index), []).append(index)
        return list(members.values())

    def root(self, index: int) -> int:
        """Return the representative of an operator's group."""
        while self.parent[index] != index:
            self.parent[index] = self.parent[self.parent[index]]
            index = self.parent[index]
        return index

    def _visit(self, index: int, phase: int) -> None:
        group, dominator = self.groups[self.root(index)], self.tree[index]
        sink = dominator.parent
        if group.pattern is Pattern.OPAQUE or sink < 0 or self.root(sink) == self.root(index):
            return
        if self.groups[self.root(sink)].size + group.size > MAX_GROUP:
            return
        allowed = _condition(group.pattern, dominator.pattern, phase)
        path = self._path(index, sink, allowed) if allowed else None
        if path is not None:
            self._commit(index, sink, path)

    def _path(
        self, source: int, sink: int, allowed: Callable[[Pattern, bool], bool]
    ) -> set[int] | None:
        """Return operators from a source to its post-dominator, if the condition holds on all."""
        visited: set[int] = set()
        stack = [source]
        while stack:
            for reader in _readers(self.graph, stack.pop()):
                if reader in visited:
                    continue
                if not allowed(self.groups[self.root(reader)].pattern, reader == sink):
                    return None
                visited.add(reader)
                if reader != sink:
                    stack.append(reader)
        return visited

    def _commit(self, source: int, sink: int, path: set[int]) -> None:
        target = self.root(sink)
        for index in (source, *sorted(path - {sink})):
            root = self.root(index)
            if root != target:
                self.groups[target].size += self.groups[root].size
                self.groups[target].pattern = max(
                    self.groups[target].pattern, self.groups[root].pattern
                )
                self.parent[root] = target


def _condition(
    pattern: Pattern, to_sink: Pattern, phase: int
) -> Callable[[Pattern, bool], bool] | None:
    """Return the condition on patterns along the path; None if not fused in this phase."""
    if pattern is Pattern.OUT_ELEMENTWISE_FUSABLE:
        fits = phase == 0 and to_sink is Pattern.ELEMENTWISE
        return (lambda kind, _: kind <= Pattern.BROADCAST) if fits else None
    if pattern <= Pattern.BROADCAST:
        fits = to_sink <= Pattern.INJECTIVE or to_sink is Pattern.REDUCE
        return _broadcast_condition if fits else None
    if pattern is Pattern.INJECTIVE and phase == 1:
        return lambda kind, _: kind <= Pattern.INJECTIVE
    return None


def _broadcast_condition(kind: Pattern, is_sink: bool) -> bool:
    return kind <= (Pattern.OUT_ELEMENTWISE_FUSABLE if is_sink else Pattern.INJECTIVE)


def _readers(graph: Graph, index: int) -> list[int]:
    readers = (r for t in graph.operators[index].outputs for r in graph.consumers[t])
    return sorted(set(readers))


def _post_dominators(graph: Graph) -> list[_Dominator]:
    tree = [_Dominator(-1, 1, Pattern.OPAQUE) for _ in graph.operators]
    outputs = set(graph.outputs)
    for index in range(len(graph.operators) - 1, -1, -1):
        if outputs & set(graph.operators[index].outputs) or not _readers(graph, index):
            continue
        tree[index] = _common(graph, tree, index)
    return tree


def _common(graph: Graph, tree: list[_Dominator], index: int) -> _Dominator:
    """Return the readers' least common ancestor, with the strongest edge on the way."""
    readers = _readers(graph, index)
    pattern = max(_edge(graph, index, reader) for reader in readers)
    node = readers[0]
    for other in readers[1:]:
        node, pattern = _ancestor(tree, node, other, pattern)
        if node < 0:
            return _Dominator(-1, 1, Pattern.OPAQUE)
    return _Dominator(node, tree[node].depth + 1, pattern)


def _ancestor(
    tree: list[_Dominator], first: int, second: int, pattern: Pattern
) -> tuple[int, Pattern]:
    while first != second:
        if first < 0 or second < 0:
            return -1, Pattern.OPAQUE
        deeper_first = tree[first].depth >= tree[second].depth
        deeper_second = tree[second].depth >= tree[first].depth
        if deeper_first:
            pattern, first = max(pattern, tree[first].pattern), tree[first].parent
        if deeper_second:
            pattern, second = max(pattern, tree[second].pattern), tree[second].parent
    return first, pattern


def _edge(graph: Graph, index: int, reader: int) -> Pattern:
    """Return the reader's class; elementwise for a broadcast of an argument in output shape."""
    consumer: Operator = graph.operators[reader]
    if consumer.pattern is not Pattern.BROADCAST:
        return consumer.pattern
    shape = graph.tensors[consumer.outputs[0]].shape
    given = set(graph.operators[index].outputs) & set(consumer.inputs)
    same = all(graph.tensors[t].shape == shape for t in given)
    return Pattern.ELEMENTWISE if same else Pattern.BROADCAST


def largest_working_set(context: SchedulingContext) -> int:
    """Return the most bytes of inputs and outputs of any kernel of one cluster."""
    size = whole_bytes(context.arrays, [tensor.elements for tensor in context.graph.tensors])
    return max(
        sum(int(size[t]) for t in (*layer.inputs, *layer.outputs)) for layer in context.layers
    )
