"""Grouping layers into sub-graphs: GraphTurbo, OSDI '23, section 3.2, Algorithm 2.

Straight, diamond and branch patterns are merged, each followed by fresh splits, until a round
merges nothing. Rule (i), straight and branch merges of a producer P into a consumer Q: ``f(Q) >=
a * f(P)`` (a large factor must not leak to what follows a down-sampling) and ``f(merged) <= b *
f(Q)``. Rule (ii), diamonds: ``f(merged) <= b * max(f)`` over what is merged. The paper has
``a = b = 1``; here they are knobs.

Readings of ours: the sides of a diamond may be chains of sub-graphs that straight merges could not
join (a down-sampling block, whose first convolution needs a larger factor than its second); a
merge whose result no split makes fit is refused, although infinity <= infinity; a sub-graph whose
output leaves the model counts the outside as one more consumer. Printed, rounds end when no
pattern's count of sub-graphs falls, which is when a round merges nothing; the best split of a
merged sub-graph is computed when it is asked for, not after each pass.

Up-sampling networks need another rule (i), says section 3.6 without giving it: what follows an
up-sampling has the larger factor, and as printed it would leak back to what precedes. Here a
producer P that is merged with what up-samples its output is never split more than it was before:
all merges, then and later, also ask ``f(merged) <= b * f(P)`` (docs/decisions/0006-upsampling.md).
Networks that do not up-sample are grouped as published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.graph.layers import Layer
from autoturbo.graph.operators import Operator
from autoturbo.schedule.alike import Alike
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.schedule.layer_sets import Flags, Rules, layers_at
from autoturbo.schedule.merging import Merger
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.split import DIMS, POLICIES, Split, SplitRules
from autoturbo.schedule.stores import Recent

_GROUPINGS, _SUBGRAPHS = 1024, 1 << 14
"""Groupings that a problem remembers at most, and their sub-graphs together."""


@dataclass(frozen=True, slots=True)
class SubGraph:
    """Layers that form one kernel per instance.

    Attributes:
        index: position in topological order.
        layers: indices into :attr:`Problem.layers`, in topological order; the last makes the
            output.
        split: how it is cut into instances.
    """

    index: int
    layers: tuple[int, ...]
    split: Split

    def recut(self, split: Split) -> SubGraph:
        """The same layers, cut otherwise."""
        return SubGraph(self.index, self.layers, split)


@dataclass(frozen=True, slots=True)
class GroupRules:
    """The knobs that Algorithm 2 reads."""

    splits: SplitRules
    producer_ratio: float = 1.0
    merged_ratio: float = 1.0
    max_layers: int = 1 << 30
    order: str = "sdb"
    cuts: frozenset[str] = frozenset()
    merges: frozenset[str] = frozenset()

    @staticmethod
    def of(knobs: Knobs) -> GroupRules:
        """Read them from a setting."""
        return GroupRules(
            splits=SplitRules.of(knobs),
            producer_ratio=_number(knobs.producer_factor_ratio, 1.0),
            merged_ratio=_number(knobs.merged_factor_ratio, 1.0),
            max_layers=int(_number(knobs.max_layers, 1 << 30)),
            order="sdb" if knobs.merge_order == AUTO else knobs.merge_order,
            cuts=frozenset(o.layer for o in knobs.overrides if o.boundary == "cut"),
            merges=frozenset(o.layer for o in knobs.overrides if o.boundary == "merge"),
        )


def _number(value: str | float, default: float) -> float:
    return default if value == AUTO else float(value)


def group(problem: Problem, rules: GroupRules) -> tuple[SubGraph, ...]:
    """Algorithm 2: sub-graphs in topological order, remembered."""
    found = problem.memory.get("groupings")
    if not isinstance(found, Recent):
        found = Recent[GroupRules, tuple[SubGraph, ...]](_GROUPINGS, _SUBGRAPHS, len)
        problem.memory["groupings"] = found
    known: Recent[GroupRules, tuple[SubGraph, ...]] = found
    return known.get(rules, lambda: _group(problem, rules))


def _group(problem: Problem, rules: GroupRules) -> tuple[SubGraph, ...]:
    rows = group_rows(problem, rules_table(problem, [rules]))[0].tolist()
    return tuple(subgraph_of(problem, index, row) for index, row in enumerate(rows))


def group_rows(problem: Problem, rules: Rules) -> tuple[Ints, Ints]:
    """Algorithm 2 by several rules at once: :meth:`autoturbo.schedule.merging.Merger.rows`.

    Args:
        problem: whose layers.
        rules: of :func:`rules_table`.
    """
    return _merger(problem).rows(rules)


def subgraph_of(problem: Problem, index: int, row: Sequence[int]) -> SubGraph:
    """The sub-graph of a row of :data:`autoturbo.schedule.merging.FOUND`."""
    return SubGraph(index, layers_in(problem, row[1]), Split.of_row(row[2:]))


def layers_in(problem: Problem, number: int) -> tuple[int, ...]:
    """The layers of a set by its number in :data:`autoturbo.schedule.merging.FOUND`, in order."""
    return _merger(problem).layers(number)


def layer_sets_of(problem: Problem) -> tuple[Ints, Ints]:
    """Return where the rows of each set start, by its number, and all rows of layers."""
    return _merger(problem).sets


def layer_at(problem: Problem, sets: Ints, places: Ints) -> Ints:
    """The layers at some places of sets by number, ``(sets,)``; any layer where a place is not."""
    found: Ints = layers_at(*layer_sets_of(problem), sets, places)
    return found


def alike(problem: Problem, sets: Ints) -> Ints:
    """Numbers of sets of layers, the same for those that are alike, ``(sets,)``.

    See :mod:`autoturbo.schedule.alike`.

    Args:
        problem: whose layers.
        sets: by number in :data:`autoturbo.schedule.merging.FOUND`.
    """
    found = problem.memory.get("alike")
    if not isinstance(found, Alike):
        found = problem.memory["alike"] = Alike(problem.renewed())
    return found.of(sets, *_merger(problem).sets)


def _merger(problem: Problem) -> Merger:
    """What groups a problem's layers, remembered; it outlives the problem's books."""
    found = problem.memory.get("merger")
    if not isinstance(found, Merger):
        found = Merger(problem.renewed(), _enlarging(problem), _opaque(problem))
        problem.memory["merger"] = found
    return found


def rules_table(problem: Problem, rules: Sequence[GroupRules]) -> Rules:
    """Rules for compiled code, one row each."""
    splits = [own.splits for own in rules]
    return Rules(
        room=np.asarray([int(problem.cluster_lb_bytes * s.lb_fill) for s in splits], np.int64),
        limit=np.asarray([s.recompute_limit for s in splits], np.float64),
        policy=np.asarray([POLICIES[s.policy] for s in splits], np.int64),
        key=np.asarray([["ofd".index(key) for key in s.key] for s in splits], np.int64),
        dims=np.asarray([DIMS.index(s.dims) for s in splits], np.int64),
        producer_ratio=np.asarray([own.producer_ratio for own in rules], np.float64),
        merged_ratio=np.asarray([own.merged_ratio for own in rules], np.float64),
        max_layers=np.asarray([own.max_layers for own in rules], np.int64),
        order=np.asarray([["sdb".index(x) for x in own.order] for own in rules], np.int64),
        cuts=np.stack([_flags(problem, own.cuts) for own in rules]),
        merges=np.stack([_flags(problem, own.merges) for own in rules]),
    )


def _flags(problem: Problem, names: frozenset[str]) -> Flags:
    """Per layer, whether it is named."""
    found = np.zeros(len(problem.layers), np.bool_)
    if names:
        found[[layer.index for layer in problem.layers if layer.name in names]] = True
    return found


def upsamples(problem: Problem, layer: Layer) -> bool:
    """Whether a layer makes several output positions out of one input position.

    A layer is a straight line, so what it reads passes all of its operators.
    """
    return any(_enlarges(problem, problem.graph.operators[index]) for index in layer.operators)


def _enlarges(problem: Problem, operator: Operator) -> bool:
    """Along a dimension other than channels the output advances faster than an input, and grows.

    A reshape or a pixel shuffle also advances faster, but has as many elements as before; where the
    whole of a dimension is read (a resize by a fraction), its extents are compared.
    """
    if operator.opaque or not operator.outputs:
        return False
    return any(
        not problem.graph.tensors[tensor].constant and _stretches(problem, operator, position)
        for position, tensor in enumerate(operator.inputs)
    )


def _stretches(problem: Problem, operator: Operator, position: int) -> bool:
    source = problem.graph.tensors[operator.inputs[position]]
    made = problem.graph.tensors[operator.outputs[0]]
    if made.elements <= source.elements or len(made.shape) != len(source.shape):
        return False
    read, written = operator.input_maps[position].dims, operator.output_maps[0].dims
    steps = {axis: abs(step) for dim in read for axis, step in dim.terms}
    for dim in problem.loop_order[operator.outputs[0]][:-1]:
        faster = any(abs(step) > steps.get(axis, abs(step)) for axis, step in written[dim].terms)
        if faster or (read[dim].whole and made.shape[dim] > source.shape[dim]):
            return True
    return False


def _enlarging(problem: Problem) -> frozenset[int]:
    """The layers that up-sample, remembered."""
    found = problem.memory.get("enlarging")
    if not isinstance(found, frozenset):
        found = frozenset(layer.index for layer in problem.layers if upsamples(problem, layer))
        problem.memory["enlarging"] = found
    return found


def _opaque(problem: Problem) -> frozenset[int]:
    """The layers with an opaque operator, remembered."""
    found = problem.memory.get("opaque")
    if not isinstance(found, frozenset):
        operators = problem.graph.operators
        layers = (
            x.index for x in problem.layers if any(operators[op].opaque for op in x.operators)
        )
        found = frozenset(layers)
        problem.memory["opaque"] = found
    return found
