"""AStitch's stitch operators: which memory-intensive operators become one kernel.

AStitch (ASPLOS '22, section 4.1; graphturbo.md, section 8.2): products and convolutions are
boundaries with kernels of their own; between them, maximal connected sub-graphs of memory-
intensive operators are stitched, and *remote stitching* joins stitch operators that do not
depend on each other. Neither may close a cycle: an operator between two stitched ones would have
to run both after and before their kernel.

AStitch names element-wise operators, broadcasts and reductions. Operators that only rearrange
data (transpose, gather, concatenation) count with them, as they do in the compiler it extends;
softmax and normalisations, which exporters leave whole, count as reductions. Pooling windows and
operators that no rule describes are boundaries.
"""

from __future__ import annotations

from autoturbo.graph.domain import AxisKind
from autoturbo.graph.operators import Engine, Graph, Operator, Pattern


def is_memory_intensive(operator: Operator) -> bool:
    """Return whether an operator may be stitched."""
    if operator.engine is Engine.MATRIX or operator.opaque or operator.pattern is Pattern.OPAQUE:
        return False
    return all(axis.kind is not AxisKind.WINDOW for axis in operator.axes)


def stitch_ops(graph: Graph) -> list[list[int]]:
    """Return the operators of each kernel, boundaries alone, in a topological order of kernels."""
    contraction = Contraction(graph)
    stitchable = [is_memory_intensive(operator) for operator in graph.operators]
    for index in range(len(graph.operators)):
        for producer in _producers(graph, index) if stitchable[index] else ():
            if stitchable[producer]:
                contraction.join(producer, index)
    _remote_stitching(contraction, stitchable)
    return [contraction.members[root] for root in contraction.in_order()]


def _producers(graph: Graph, index: int) -> list[int]:
    return sorted({graph.producer[t] for t in graph.operators[index].inputs} - {-1})


def _remote_stitching(contraction: Contraction, stitchable: list[bool]) -> None:
    """Join every stitch operator with the first earlier one that it is independent of."""
    reach = contraction.reach()
    joined: list[int] = []
    for root in contraction.in_order():
        if not stitchable[root]:
            continue
        partner = next((j for j in joined if _independent(reach, j, root)), None)
        if partner is None:
            joined.append(root)
        elif contraction.join(partner, root):
            # a join makes new ways, which the pairs after it must see
            joined[joined.index(partner)] = contraction.root(partner)
            reach = contraction.reach()


def _independent(reach: dict[int, int], first: int, second: int) -> bool:
    """Return whether neither node is reached from the other."""
    return not (reach[first] >> second & 1 or reach[second] >> first & 1)


class Contraction:
    """A graph whose operators are joined into nodes while it stays free of cycles.

    A node is named by one of its operators, its root.
    """

    def __init__(self, graph: Graph) -> None:
        count = len(graph.operators)
        self.members: dict[int, list[int]] = {i: [i] for i in range(count)}
        self.before = {i: set(_producers(graph, i)) for i in range(count)}
        self.after: dict[int, set[int]] = {i: set() for i in range(count)}
        for index, producers in self.before.items():
            for producer in producers:
                self.after[producer].add(index)
        self._parent = list(range(count))

    def root(self, index: int) -> int:
        """Return the node that contains an operator."""
        while self._parent[index] != index:
            index = self._parent[index]
        return index

    def join(self, first: int, second: int) -> bool:
        """Merge two nodes; return False, and change nothing, if that would close a cycle."""
        a, b = self.root(first), self.root(second)
        if a == b or self._leads(a, b) or self._leads(b, a):
            return False
        self._parent[b] = a
        self.members[a] = sorted(self.members[a] + self.members.pop(b))
        self._rewire(self.before, self.after, a, b)
        self._rewire(self.after, self.before, a, b)
        return True

    @staticmethod
    def _rewire(one: dict[int, set[int]], other: dict[int, set[int]], a: int, b: int) -> None:
        for neighbour in one.pop(b):
            other[neighbour].discard(b)
            if neighbour != a:
                other[neighbour].add(a)
                one[a].add(neighbour)
        one[a].discard(b)

    def _leads(self, start: int, end: int) -> bool:
        """Return whether a path leads from one node to another through a third."""
        # operators are joined in order: what begins after the end's last one leads nowhere back
        latest = self.members[end][-1]
        stack = [node for node in self.after[start] if node != end]
        seen = set(stack)
        while stack:
            for node in self.after[stack.pop()]:
                if node == end:
                    return True
                if node not in seen and self.members[node][0] < latest:
                    seen.add(node)
                    stack.append(node)
        return False

    def in_order(self) -> list[int]:
        """Return the nodes in topological order; ties by the first operator."""
        import heapq

        waits = {node: len(before) for node, before in self.before.items()}
        ready = [(self.members[node][0], node) for node, count in waits.items() if not count]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            node = heapq.heappop(ready)[1]
            order.append(node)
            for after in self.after[node]:
                waits[after] -= 1
                if not waits[after]:
                    heapq.heappush(ready, (self.members[after][0], after))
        return order

    def reach(self) -> dict[int, int]:
        """Return, per node, the nodes that depend on it, as bits of one number."""
        reached: dict[int, int] = {}
        for node in reversed(self.in_order()):
            bits = 0
            for after in self.after[node]:
                bits |= reached[after] | 1 << after
            reached[node] = bits
        return reached
