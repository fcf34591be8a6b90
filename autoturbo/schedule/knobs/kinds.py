"""What a knob is: which values it takes, what ``"auto"`` is, what is worth trying, its number.

A knob is an object, and whoever needs to know what a value means asks it: the search space, the
features of the cost model, importance, remedies, the command line and the docs. So a new knob is
its class, or an object of one of these, and the pass that reads it.

What depends on the model and the target it is told (:class:`Here`); a knob of a sub-graph is told
the sub-graph as well (:class:`InSubGraph`).
"""

from __future__ import annotations

import abc
import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from autoturbo.errors import KnobsError, Location

if TYPE_CHECKING:
    from autoturbo.hardware.target import Target

AUTO: Final = "auto"
"""The value of a knob that leaves the decision to the published heuristic."""

Value = str | int | float

KnobScope = Literal["model", "subgraph", "layer"]
"""What a knob is about: all sub-graphs, the one that a layer ends up in, or the layer alone."""

KnobGroup = Literal["outer", "inner"]
"""Knobs that mean something together: the axis that is cut first and its parts, and the second."""

MIDDLE_PRIORITY = 5
"""Priority of a sub-graph that has none of its own."""

ANY = 1 << 30
"""Layers of a model that is not known: more than any has."""

MOST_PARTS = 64
"""Instances of a sub-graph along one dimension that a search tries at most."""

RAGGED = (2, 3, 4, 6, 8, 12, 16)
"""Instances that a search tries where they need not divide the extent."""

UNLIMITED = 20.0
"""``log2`` of "no limit": more layers than any model has."""

_LEAST = 2.0**-10
"""The number that stands for 0 before its logarithm is taken."""

_NEARBY = 2
"""Numbers of parts on either side that are neighbours."""


class Stage(enum.IntEnum):
    """The passes, in their order."""

    SHARE = enum.auto()
    PARTITION = enum.auto()
    ORDER = enum.auto()
    BIND = enum.auto()
    PLACE = enum.auto()
    MEMORY = enum.auto()
    CODEGEN = enum.auto()


@dataclass(frozen=True, slots=True)
class Here:
    """Facts on the model and the target that the model's knobs depend on.

    Attributes:
        share: Samples of the busiest cluster.
        layers: Layers of the model.
        whole: Whether the samples cannot be told apart, so that a pass takes them all.
        target: The accelerator; None where it is not known, which then has a place for everything.
        orders: Orders of the layers with which the heuristic's kernels differ, the first one as the
            heuristic has it.
    """

    share: int = 1
    layers: int = ANY
    whole: bool = False
    target: Target | None = None
    orders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InSubGraph:
    """Facts on a sub-graph that its knobs depend on.

    Attributes:
        target: The accelerator.
        extents: Extents of the dimensions that can be split, by position in the loop order.
        spreads: Dimensions that can be spread over cores.
        read: Whether other layers read its output.
        weights: Whether it reads weights.
    """

    target: Target
    extents: dict[int, int]
    spreads: tuple[int, ...]
    read: bool
    weights: bool


class Need(NamedTuple):
    """Property of a target that a value needs.

    Attributes:
        field: The target's field that decides, as its file has it.
        met: Whether a target has it.
        lacking: Text on a target without it.
    """

    field: str
    met: Callable[[Target], bool]
    lacking: str


GLOBAL_BUFFER = Need("gb.capacity_kib", lambda target: target.gb.capacity > 0, "it has no GB")
LOADS_OVER_KERNELS = Need(
    "engines.dma.prefetch_over_kernels",
    lambda target: target.dma.prefetch_over_kernels and target.gb.capacity > 0,
    "its DMA fetches nothing for a kernel to come",
)
SEVERAL_CLUSTERS = Need("clusters", lambda target: target.clusters > 1, "it has one cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob(abc.ABC):
    """A decision of the scheduler.

    Attributes:
        stage: The first pass that reads it; nothing before depends on it.
        help: Text on what it decides, in one line.
        published: Text on what ``"auto"`` is.
        choices: The values that a search tries besides ``"auto"`` on every model and target; empty
            where they depend on them.
        scope: Scope of the decision: the model, a sub-graph or a layer.
        group: Group of knobs that it means something together with.
        upon: The model's knob that its effect depends on; for one of the same name that is the
            value which ``"auto"`` inherits.
        over: The model's knob that says what ``"auto"`` is, where its name is another one.
        unseen: Whether it may change a latency where the kernel's own statistics stay the same: it
            decides what its neighbours find near them, or what the statistics leave out.
        needs: Needs of some of its values.
        searched: Whether a search tries it unasked; others are there to be set, or allowed.
        opens: Values that a search tries on the first warm start, because the costs by which that
            was made leave them out.
    """

    stage: Stage
    help: str
    published: str
    choices: tuple[Value, ...] = ()
    scope: KnobScope = "model"
    group: KnobGroup | None = None
    upon: str | None = None
    over: str | None = None
    unseen: bool = False
    needs: tuple[tuple[Value, Need], ...] = ()
    searched: bool = True
    opens: tuple[Value, ...] = ()

    @abc.abstractmethod
    def check(self, value: object, at: Location, prefix: str = "") -> None:
        """Refuse a value that it does not take; ``prefix`` names the knob if ``at`` does not.

        Raises:
            KnobsError: It takes other words or numbers, or the number is out of its range.
        """

    @abc.abstractmethod
    def accepted(self) -> str:
        """Return the values that it takes besides ``"auto"``, for people."""

    def missing(self, value: Value, target: Target) -> Need | None:
        """Return the need of a value that a target does not meet; None where nothing is missing."""
        if value == AUTO or not self.needs:
            return None
        return next((n for v, n in self.needs if v == value and not n.met(target)), None)

    def auto(self, here: Here) -> Value | None:
        """Return the value that ``"auto"`` is; None where it has no other name."""
        del here
        return None

    @abc.abstractmethod
    def canonical(self, value: Value, here: Here) -> Value:
        """Return ``"auto"`` for a value that means the same, else the value as it is written."""

    def offered(self, here: Here) -> tuple[Value, ...]:
        """Return the values worth trying for a model on a target, besides ``"auto"``."""
        target = here.target
        return tuple(
            c
            for c in self.choices
            if self.canonical(c, here) != AUTO and (target is None or not self.missing(c, target))
        )

    def offered_in(self, subgraph: InSubGraph) -> tuple[Value, ...]:
        """Return the values worth trying for a sub-graph, besides ``"auto"``."""
        return tuple(c for c in self.choices if not self.missing(c, subgraph.target))

    def idle(self, value: Value, model: Value) -> bool:
        """Return whether a sub-graph's value changes nothing, given the model's knob.

        Args:
            value: The sub-graph's.
            model: The value of the knob :attr:`upon`.
        """
        return value != AUTO and value == (self.auto(NOWHERE) if model == AUTO else model)

    @abc.abstractmethod
    def number(self, value: Value, here: Here) -> float:
        """Return a value as a number for a model: close values are close numbers."""

    def limits(self, here: Here) -> tuple[float, float] | None:
        """Return the least and the greatest number that it takes; None for words."""
        del here
        return None

    def neighbours(self, value: Value, offered: Sequence[Value]) -> tuple[Value, ...]:
        """Return the values to try first from a value, among those that are offered."""
        return tuple(other for other in offered if other != value)


NOWHERE: Final = Here()
"""A model and a target of which nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words(Knob):
    """A knob of words.

    Attributes:
        word: The name of what ``"auto"`` is; it is accepted and means ``"auto"``.
        untried: Words that are accepted and that no search tries.
    """

    word: str | None = None
    untried: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """Return the accepted words."""
        return tuple(
            dict.fromkeys((AUTO, *map(str, self.choices), *self.untried, self.word or AUTO))
        )

    def check(self, value: object, at: Location, prefix: str = "") -> None:
        """Refuse what is none of the words."""
        if not isinstance(value, str) or value not in self.words:
            words = ", ".join(self.words)
            raise KnobsError(f"{prefix}{value!r} is not a value of it", at, f"one of {words}")

    def accepted(self) -> str:
        """Return the words but for ``"auto"``."""
        return ", ".join(f"`{word}`" for word in self.words[1:])

    def auto(self, here: Here) -> Value | None:
        """Return the word for what ``"auto"`` is."""
        del here
        return self.word

    def canonical(self, value: Value, here: Here) -> Value:
        """Return the word; ``"auto"`` for its other name."""
        del here
        return value if value in (*self.choices, *self.untried) else AUTO

    def number(self, value: Value, here: Here) -> float:
        """Return the position among the words, from 1; 0 for what is none of them."""
        known, words = self.auto(here) if value == AUTO else value, (*self.choices, *self.untried)
        return float(words.index(known) + 1) if known in words else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers(Knob):
    """A knob of numbers.

    Attributes:
        low: The least that is accepted.
        high: The greatest; None for no limit.
        published_number: The number that ``"auto"`` is on every model and target; None where there
            is none.
    """

    low: float
    high: float | None = None
    published_number: float | None = None

    @property
    def whole(self) -> bool:
        """Return whether its numbers are integers."""
        return not any(isinstance(choice, float) for choice in self.choices)

    def check(self, value: object, at: Location, prefix: str = "") -> None:
        """Refuse what is no number, or out of range."""
        if value == AUTO:
            return
        kinds, kind = ((int,), "a whole number") if self.whole else ((int, float), "a number")
        # To Python ``True`` is an integer too.
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise KnobsError(f"{prefix}{value!r} is not {kind}", at)
        high = math.inf if self.high is None else self.high
        if not self.low <= float(value) <= high:
            span = f"at least {self.low}" if self.high is None else f"from {self.low} to {high}"
            raise KnobsError(f"{prefix}{value!r} is out of range", at, span)

    def accepted(self) -> str:
        """Return the kind of number and its range."""
        kind = "whole" if self.whole else "number"
        limit = f"{self.low:g} or more" if self.high is None else f"{self.low:g} to {self.high:g}"
        return f"{kind}, {limit}"

    def auto(self, here: Here) -> Value | None:
        """Return the number that ``"auto"`` is."""
        del here
        return self.published_number

    def canonical(self, value: Value, here: Here) -> Value:
        """Return the number as it is offered, 2 for 2.0; ``"auto"`` for what that is."""
        if value in (AUTO, self.auto(here)):
            return AUTO
        return next((choice for choice in self.choices if choice == value), value)

    def number(self, value: Value, here: Here) -> float:
        """Return the logarithm to the base 2; of what ``"auto"`` is for that."""
        known = self.auto(here) if value == AUTO else value
        return UNLIMITED if known is None else math.log2(max(float(known), _LEAST))

    def limits(self, here: Here) -> tuple[float, float] | None:
        """Return the range of its numbers."""
        del here
        return self.low, math.inf if self.high is None else self.high


class Samples(Numbers):
    """Samples that a cluster processes at once: divisors of its share of the batch."""

    __slots__ = ()

    def auto(self, here: Here) -> Value | None:
        """Return the whole share."""
        return here.share

    def offered(self, here: Here) -> tuple[Value, ...]:
        """Return the divisors of the share, the largest first; none where it cannot be cut."""
        # Every pass takes equally many samples; the whole share is what "auto" is.
        share = 1 if here.whole else here.share
        return tuple(b for b in range(share - 1, 0, -1) if share % b == 0)

    def limits(self, here: Here) -> tuple[float, float] | None:
        """Return 1 and the share."""
        return self.low, here.share


class Layers(Numbers):
    """A limit of layers: that of the whole model is none."""

    __slots__ = ()

    def auto(self, here: Here) -> Value | None:
        """Return the layers of the model."""
        return here.layers

    def canonical(self, value: Value, here: Here) -> Value:
        """Return the limit; ``"auto"`` for one that no sub-graph can exceed."""
        return AUTO if value == AUTO or float(value) >= here.layers else value

    def number(self, value: Value, here: Here) -> float:
        """Return the logarithm to the base 2, that of no limit for ``"auto"``."""
        return UNLIMITED if value == AUTO else Numbers.number(self, value, here)

    def limits(self, here: Here) -> tuple[float, float] | None:
        """Return 1 and the layers of the model."""
        return self.low, here.layers


class Dimensions(Numbers):
    """A dimension of the output, counted from the outermost loop: one of those to be split."""

    __slots__ = ()

    def number(self, value: Value, here: Here) -> float:
        """Return the position from 1; 0 for ``"auto"``."""
        del here
        return 0.0 if value == AUTO else float(value) + 1

    def offered_in(self, subgraph: InSubGraph) -> tuple[Value, ...]:
        """Return the dimensions that can be split, where there are several."""
        return tuple(subgraph.extents) if len(subgraph.extents) > 1 else ()


class SpreadDimensions(Dimensions):
    """A dimension of the output, counted from the outermost loop: one to be spread over cores."""

    __slots__ = ()

    def offered_in(self, subgraph: InSubGraph) -> tuple[Value, ...]:
        """Return the dimensions that can be spread, where there are several."""
        return subgraph.spreads if len(subgraph.spreads) > 1 else ()


class Parts(Numbers):
    """A number of instances along the dimension that is split first."""

    __slots__ = ()

    def number(self, value: Value, here: Here) -> float:
        """Return the logarithm to the base 2; -1 for ``"auto"``, less than any."""
        return -1.0 if value == AUTO else Numbers.number(self, value, here)

    def offered_in(self, subgraph: InSubGraph) -> tuple[Value, ...]:
        """Return 1 and the numbers of parts that its dimensions can be cut into."""
        return (1, *parts_of(subgraph.extents)) if subgraph.extents else ()

    def neighbours(self, value: Value, offered: Sequence[Value]) -> tuple[Value, ...]:
        """Return the next numbers below and above; there are too many to try them all."""
        numbers = sorted(int(choice) for choice in offered)
        if value == AUTO:
            return tuple(numbers)
        below = [n for n in numbers if n < int(value)][-_NEARBY:]
        above = [n for n in numbers if n > int(value)][:_NEARBY]
        return (*below, *above)


class InnerParts(Numbers):
    """A number of parts inside every one of the first split."""

    __slots__ = ()

    def offered_in(self, subgraph: InSubGraph) -> tuple[Value, ...]:
        """Return the numbers of parts, where there is a second dimension to cut."""
        return parts_of(subgraph.extents) if len(subgraph.extents) > 1 else ()


def parts_of(extents: dict[int, int]) -> tuple[int, ...]:
    """Return the divisors of extents, and the ragged numbers of parts, ascending."""
    sizes = set(extents.values())
    dividing = {n for size in sizes for n in range(2, min(size, MOST_PARTS) + 1) if size % n == 0}
    return tuple(sorted(dividing | {n for n in RAGGED if n <= max(sizes)}))


class Cores(Numbers):
    """Cores that work on an instance."""

    __slots__ = ()

    def number(self, value: Value, here: Here) -> float:
        """Return the logarithm to the base 2; -1 for ``"auto"``, which is all of them."""
        return -1.0 if value == AUTO else Numbers.number(self, value, here)

    def offered_in(self, subgraph: InSubGraph) -> tuple[Value, ...]:
        """Return the divisors of the cluster's cores, the largest first."""
        cores = subgraph.target.cores
        return tuple(n for n in range(cores - 1, 0, -1) if cores % n == 0)


class Priority(Numbers):
    """A rank among sub-graphs; it matters where the instances are ordered by it."""

    __slots__ = ()

    def idle(self, value: Value, model: Value) -> bool:
        """Return whether the instances are ordered by something else."""
        return value != AUTO and model != "priority"


class LayerOrder(Words):
    """An order of the layers: one with which something is merged otherwise."""

    __slots__ = ()

    def offered(self, here: Here) -> tuple[Value, ...]:
        """Return the orders with which the heuristic's kernels differ from those before."""
        return here.orders[1:]


class Boundary(Words):
    """A cut or a merge behind a layer."""

    __slots__ = ()

    def offered_in(self, subgraph: InSubGraph) -> tuple[Value, ...]:
        """Return both, where another layer reads the output."""
        return self.choices if subgraph.read else ()


class WeightWords(Words):
    """A knob of words on weights."""

    __slots__ = ()

    def offered_in(self, subgraph: InSubGraph) -> tuple[Value, ...]:
        """Return the words, where there are weights."""
        return Words.offered_in(self, subgraph) if subgraph.weights else ()


class WeightShare(Numbers):
    """Room for weights."""

    __slots__ = ()

    def offered_in(self, subgraph: InSubGraph) -> tuple[Value, ...]:
        """Return the shares, where there are weights."""
        return self.choices if subgraph.weights else ()


FAR: Final = 1024
"""Steps ahead that are further than there is room."""


class FetchAhead(WeightShare):
    """Steps before a layer at which its weights may be fetched."""

    __slots__ = ()

    def missing(self, value: Value, target: Target) -> Need | None:
        """Return the need of fetching ahead; None for 0, or where the target meets it."""
        needs = value not in (AUTO, 0)
        return LOADS_OVER_KERNELS if needs and not LOADS_OVER_KERNELS.met(target) else None

    def offered_in(self, subgraph: InSubGraph) -> tuple[Value, ...]:
        """Return the steps, where there are weights and the target can."""
        return Knob.offered_in(self, subgraph) if subgraph.weights else ()


def own_of(knob: Knob, name: str) -> Knob:
    """Return the knob by which one sub-graph overrides the model's knob of a name.

    Its ``"auto"`` is the model's value, so what the model's ``"auto"`` is, is a choice too.
    """
    auto = knob.auto(NOWHERE)
    return replace(
        knob,
        choices=knob.choices if auto is None else (auto, *knob.choices),
        published="as the model's",
        scope="subgraph",
        upon=name,
        opens=(),
    )
