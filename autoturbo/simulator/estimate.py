"""Time of a kernel in closed form: the simulator's sums without its order.

Tiles, amounts and seconds of instructions are the simulator's own; they are multiplied by how many
there are instead of being issued one by one. What engines wait for each other is left out: a kernel
takes at least as long as its busiest engine, and as its layers one after another where their
results are needed. Partial tiles count as their mean. A thousand kernels cost some milliseconds:
each step is taken for the layers of all kernels at once.
"""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.durations import Rate, own_share
from autoturbo.schedule.codegen.instructions import (
    DMA_IN,
    ENGINE_OF,
    ENGINES,
    MATRIX_ENGINE,
    VECTOR_ENGINE,
)
from autoturbo.schedule.codegen.tiling import IN_LB, Amount, Role, Roles, Tiling, TilingRules
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.work import Floats
from autoturbo.simulator.kernels import durations, memory_seconds


class Estimate(IntEnum):
    """Columns of the result of :func:`estimates`.

    ``SECONDS`` of the kernel; ``LAYERS`` if its layers ran one after another, engines side by side,
    and ``SERIAL`` if all instructions did; ``CHAIN`` of first fetch, computation and last store.
    ``BUSY`` seconds of each engine, in the order of ENGINES (not all have a name here); bytes
    read from and written to DDR and moved at GB.
    """

    SECONDS = 0
    LAYERS = 1
    SERIAL = 2
    CHAIN = 3
    BUSY_DMA_IN = 4
    BUSY_MATRIX = 6
    BUSY_DMA_OUT = 8
    DDR_READ = 9
    DDR_WRITTEN = 10
    GB = 11


ESTIMATES = Estimate.GB + 1

BUSY = slice(Estimate.BUSY_DMA_IN, Estimate.BUSY_DMA_OUT + 1)


def estimates(
    rows: Ints, stages: Floats, streams: Ints, rules: Ints, resident: Ints, rates: Floats
) -> Floats:
    """Return seconds and bytes of kernels, ``(kernels, ESTIMATES)``.

    Args:
        rows: Where the layers of each kernel begin in ``stages`` and ``streams``, and where the
            last one's end.
        stages: Stages of the kernels' templates.
        streams: Bytes that layers move from and to GB and DDR.
        rules: Per kernel of one target, a row with its rules.
        resident: Per kernel, where its weights are already: 0 in DDR only, 1 in GB, 2 in LB.
        rates: Rates of :func:`autoturbo.simulator.kernels.rates_of`.
    """
    owner = np.repeat(np.arange(len(rules)), np.diff(rows))
    each, kept = TilingRules(*rules[owner].T), resident[owner]
    layers = _Layers(Roles(stages, streams, each, kept, rates), rates)
    _work(layers)
    _weights(layers)
    _inputs(layers)
    fetching, layers.fill = layers.fill, np.zeros(len(owner))
    _outputs(layers)
    return _kernels(layers, fetching, owner, TilingRules(*rules.T))


class _Layers:
    """Layers of kernels, and the time of their instructions.

    Attributes:
        roles: Roles of the instructions, with the layers by column.
        results: Tiles of results.
        slots: Slots of the roles.
        alone: 1 where DDR is read and written without a global buffer between, else 0.
        busy: Seconds of each engine, ``(ENGINES, layers)``.
        work: Seconds of computing.
        least: Seconds that a layer takes because there are so few slots.
        fill: Seconds until the first of its tiles is there.
        terms: Terms that are added up over kernels, by :class:`Estimate`.
    """

    def __init__(self, roles: Roles, rates: Floats) -> None:
        self.roles, self.rates, count = roles, rates, roles.stages.shape[1]
        self.slots, self.alone = roles.slots, ~roles.has_gb
        self.busy = np.zeros((len(ENGINES), count))
        self.work, self.least, self.fill = np.zeros((3, count))
        tiles = roles.tiles
        self.results = tiles[[Tiling.PRODUCTS, Tiling.COLUMNS, Tiling.ROWS]].prod(axis=0)
        self.terms = defaultdict[int, list[Floats]](list)

    def issue(
        self, role: Role, count: Ints, work: Floats | None = None, slots: Floats | float = 1.0
    ) -> None:
        """Add ``count`` instructions of a role to each layer that has some.

        Args:
            role: Role of the instructions.
            count: Instructions per layer, ``(layers,)``.
            work: Seconds of work that follow each of them before its slot is free; None if there
                are none.
            slots: Number of slots that the role has.
        """
        emits, engine = self.roles.emits[role], ENGINE_OF[role]
        where, amounts = np.flatnonzero(emits), self.roles.amounts[role]
        if not len(where):
            return
        length, latency = np.zeros((2, len(emits)))
        length[where], latency[where] = durations(engine, amounts[where], self.rates)
        count = count * emits
        self.busy[engine] += count * length
        self.terms[Estimate.SERIAL].append(count * latency)
        if work is not None:
            self.fill = self.fill + (length + latency)
            trip = (length + latency + work) / slots
            self.least = np.maximum(self.least, count * np.maximum(length, trip))
        stored = self.rates[Rate.STORED] * count
        self.terms[Estimate.GB].append(amounts[:, Amount.GB] * stored)
        column = Estimate.DDR_READ if engine == DMA_IN else Estimate.DDR_WRITTEN
        own = own_share(amounts[:, Amount.ALIKE], self.rates)
        self.terms[column].append(amounts[:, Amount.DDR] * stored * own)


def _work(k: _Layers) -> None:
    """Add matrix and vector work."""
    k.issue(Role.MULTIPLY, k.results * k.roles.tiles[Tiling.DEPTHS])
    k.issue(Role.APPLY, k.results)
    both = k.busy[MATRIX_ENGINE] + k.busy[VECTOR_ENGINE]
    steps = k.roles.stages[Stage.SEQUENCE] > 0  # each ends before the next begins
    k.work = np.where(steps, both, np.maximum(k.busy[MATRIX_ENGINE], k.busy[VECTOR_ENGINE]))
    k.least = np.where(steps, both, 0.0)


def _weights(k: _Layers) -> None:
    """Add weight tiles from DDR and to the cores."""
    count = k.roles.weight_tiles()
    work = k.work / np.maximum(count, 1)
    # With a GB a slot there is free once its tile is passed on: no work follows.
    k.issue(Role.FETCH_WEIGHTS, count, work * k.alone, k.slots)
    k.issue(Role.PASS_WEIGHTS, count, work, k.slots)


def _inputs(k: _Layers) -> None:
    """Add the inputs of tiles from outside LB."""
    tiles, steps = k.roles.tiles, k.roles.stages[Stage.SEQUENCE] > 0
    count = tiles[[Tiling.PRODUCTS, Tiling.ROWS, Tiling.DEPTHS]].prod(axis=0)
    anew = count * np.where(tiles[Tiling.KEPT] == IN_LB, 1, tiles[Tiling.COLUMNS])
    # From DDR again only where inputs stay nowhere; from GB to the cores unless they are in LB.
    fetched, work = np.where(tiles[Tiling.KEPT] == 0, anew, count), k.work / anew
    k.issue(Role.FETCH_INPUT, fetched, work * k.alone, k.slots)
    k.issue(Role.PASS_INPUT, anew, work, k.slots)
    # what the kernel itself made: two tiles at a time, from the layer's begin on
    k.issue(Role.FETCH_LATE, anew, work, 2.0)
    fill = k.fill
    k.issue(Role.PASS_LATE, anew, work, np.where(steps, 1.0, 2.0))
    # Of steps the first is fetched beside what else is, and its seconds are in the least.
    beside = np.maximum(2.0 * fill - k.fill, 0.0)
    k.fill = np.where(steps & k.roles.emits[Role.PASS_LATE], beside, k.fill)


def _outputs(k: _Layers) -> None:
    """Add results that leave LB."""
    work = k.work / k.results
    k.issue(Role.STORE, k.results, work, k.slots)
    k.issue(Role.SAVE, k.results, work * k.alone, k.slots)


def _kernels(k: _Layers, fetching: Floats, owner: Ints, rules: TilingRules[Ints]) -> Floats:
    """Return the sums over the layers of kernels, each with its rules.

    Layers are added one after another, as in the simulator: another order rounds differently.

    Args:
        k: The layers of all kernels.
        fetching: Seconds until the first tile of each layer is there, ``(layers,)``.
        owner: Per layer, the kernel that it belongs to.
        rules: Rules of the kernels.
    """
    count = len(rules.across)
    computed = np.maximum(k.busy[[MATRIX_ENGINE, VECTOR_ENGINE]].max(axis=0), k.least)
    begins, ends = np.diff(owner, prepend=-1) > 0, np.diff(owner, append=count) > 0
    k.terms[Estimate.LAYERS] = [np.maximum(k.busy.max(axis=0), k.least) + fetching + k.fill]
    k.terms[Estimate.SERIAL].append(k.busy.sum(axis=0))
    k.terms[Estimate.CHAIN] = [computed, fetching * begins, k.fill * ends]
    k.terms |= {Estimate.BUSY_DMA_IN + engine: [busy] for engine, busy in enumerate(k.busy)}
    out = np.zeros((ESTIMATES, count))
    for column, terms in k.terms.items():
        # Layer by layer, all terms of one before the next, which is the simulator's order of sums.
        kernel, values = np.repeat(owner, len(terms)), np.column_stack(terms).ravel()
        out[column] = np.bincount(kernel, values, count)
    memory = memory_seconds(
        out[Estimate.BUSY_DMA_IN] + out[Estimate.BUSY_DMA_OUT],
        out[Estimate.DDR_READ], out[Estimate.DDR_WRITTEN], out[Estimate.GB], k.rates,
    )  # fmt: skip
    across = np.maximum(out[BUSY].max(axis=0), out[Estimate.CHAIN])
    seconds = np.where(rules.across, across, out[Estimate.LAYERS])
    seconds = np.where(rules.serial, out[Estimate.SERIAL], seconds)
    out[Estimate.SECONDS] = np.maximum(seconds, memory)
    return out.T
