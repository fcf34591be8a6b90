"""What instructions move and compute: the same for all tiles of a layer.

Amounts follow from a layer's stage, its streams, how it is cut and the rules, whatever an
instruction waits for: the instruction builder takes them from here, and so does the estimate
(:mod:`autoturbo.simulate.estimate`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.stages import Stage
from autoturbo.schedule.codegen.tiling import (
    FROM_DDR,
    IN_LB,
    TO_CORES,
    Rule,
    Tiling,
    tile_counts,
    weight_passes,
)
from autoturbo.schedule.codegen.work import Flags, Floats
from autoturbo.schedule.memory.timeline import IN_DDR, IN_GB, LATE_DDR, LATE_GB, OUT_DDR, OUT_GB


class Role(IntEnum):
    """What an instruction does.

    ``FETCH`` brings from DDR, to GB where there is one and else to LB, ``PASS`` from GB to LB:
    weights, inputs that were there before the kernel, and inputs that the kernel itself made and
    spilled (``LATE``; what comes from other cores too). ``MULTIPLY`` and ``APPLY`` compute on the
    matrix and the vector engine. ``STORE`` takes results from LB to GB, ``SAVE`` to DDR.
    """

    FETCH_WEIGHTS = 0
    PASS_WEIGHTS = 1
    FETCH_INPUT = 2
    PASS_INPUT = 3
    FETCH_LATE = 4
    PASS_LATE = 5
    MULTIPLY = 6
    APPLY = 7
    STORE = 8
    SAVE = 9


class Amount(IntEnum):
    """Quantities of an instruction.

    ``DDR`` and ``GB`` bytes of the cluster, ``CORE`` bytes of one core over its link (its transfer
    engine, or DDR's DMA where there is no GB between), ``LOCAL`` bytes of LB that a compute
    instruction touches, the product ``COUNT`` x ``ROWS`` x ``COLUMNS`` x ``DEPTH``, ``VECTOR`` and
    ``SPECIAL`` operations; ``RUN`` the consecutive bytes in DDR of which ``DDR`` consists,
    ``GB_WRITTEN`` the part of ``GB`` that is written and not read, ``EXCHANGED`` the part of
    ``CORE`` that comes from other cores, ``STEPS`` those of a recurrence that it stands for (0: it
    is what it is).
    """

    DDR = 0
    GB = 1
    CORE = 2
    LOCAL = 3
    COUNT = 4
    ROWS = 5
    COLUMNS = 6
    DEPTH = 7
    VECTOR = 8
    SPECIAL = 9
    RUN = 10
    GB_WRITTEN = 11
    EXCHANGED = 12
    STEPS = 13


AMOUNT_COLUMNS = len(Amount)


class Roles:
    """What the instructions of layers move and compute, the same for all tiles of a layer.

    Attributes:
        stages: of the layers, by column.
        streams: bytes that they move from and to GB and DDR, by column.
        rules: by column.
        tiles: how the layers are cut, by column.
        has_gb: whether there is a global buffer, per layer.
        amounts: ``(roles, layers, AMOUNT_COLUMNS)``.
        emits: whether tiles of a layer have instructions of a role, ``(roles, layers)``.
    """

    def __init__(self, stages: Floats, streams: Ints, rules: Ints, resident: Ints) -> None:
        """Find the amounts of all roles.

        Args:
            stages: of templates.
            streams: bytes that the layers move from and to GB and DDR.
            rules: of :meth:`InstructionRules.as_array`, a row for each layer.
            resident: per layer, where the weights are already: 0 in DDR only, 1 in GB, 2 in LB.
        """
        self.stages, self.streams, self.rules = stages.T, streams.T, rules.T
        self.tiles = tile_counts(stages, streams, rules, resident).T
        self.has_gb: Flags = self.rules[Rule.HAS_GB] > 0
        self.amounts = np.zeros((len(Role), len(stages), AMOUNT_COLUMNS))
        self.emits = np.zeros((len(Role), len(stages)), np.bool_)
        self._weights(resident)
        self._inputs()
        self._work()
        self._results()

    def _reduced(self) -> Floats:
        """Return the share of a layer's results that one tile of results is."""
        cut = self.tiles[[Tiling.PRODUCTS, Tiling.COLUMNS, Tiling.ROWS]]
        return np.asarray(1.0 / cut.prod(axis=0))

    def _note(self, role: Role, emitted: Flags, amounts: Mapping[Amount, Floats]) -> None:
        self.emits[role] = emitted
        for amount, values in amounts.items():
            self.amounts[role, :, amount] = values

    def _move(self, role: Role, emitted: Flags, size: Floats, run: Stage, core: Floats) -> None:
        """Note moves of bytes between DDR and GB, or the cores where there is none."""
        far = np.where(self.has_gb, size, 0.0)
        self._note(role, emitted, {
            Amount.DDR: size, Amount.RUN: np.minimum(self.stages[run], size), Amount.GB: far,
            Amount.GB_WRITTEN: far if role != Role.SAVE else np.zeros(len(far)),
            Amount.CORE: np.where(self.has_gb, 0.0, core),
        })  # fmt: skip

    def _weights(self, resident: Ints) -> None:
        """Note weight tiles: without GB straight to the cores, once for all if broadcast."""
        stages, tiles, has_gb = self.stages, self.tiles, self.has_gb
        weighty, once = stages[Stage.WEIGHTS] > 0, self.rules[Rule.BROADCAST] > 0
        count = tiles[[Tiling.PRODUCTS, Tiling.COLUMNS, Tiling.DEPTHS]].prod(axis=0)

        def tile(source: int, whole: Flags) -> tuple[Floats, Floats]:
            share = weight_passes(stages, tiles, self.rules, source) / count
            core = stages[Stage.CORE_WEIGHTS] * share
            return np.where(whole, stages[Stage.WEIGHTS] * share, core * stages[Stage.CORES]), core

        size, core = tile(FROM_DDR, has_gb | once)
        emitted = weighty & (resident == 0)
        self._move(Role.FETCH_WEIGHTS, emitted, size, Stage.RUN_WEIGHTS, core)
        size, core = tile(TO_CORES, once)
        emitted = weighty & has_gb & (resident != IN_LB)
        self._note(Role.PASS_WEIGHTS, emitted, {Amount.GB: size, Amount.CORE: core})

    def _inputs(self) -> None:
        """Note inputs from before the kernel, and what it spilled or other cores made."""
        stages, streams, tiles, rules = self.stages, self.streams, self.tiles, self.rules
        cores, has_gb = rules[Rule.CORES], self.has_gb
        share = 1.0 / (tiles[Tiling.PRODUCTS] * tiles[Tiling.ROWS])
        share = share / np.where(tiles[Tiling.ROWS_OUTSIDE] > 0, 1, tiles[Tiling.DEPTHS])
        for role, column in ((Role.FETCH_INPUT, IN_DDR), (Role.FETCH_LATE, LATE_DDR)):
            size = streams[column] * share
            self._move(role, size > 0, size, Stage.RUN_READ, size / cores)
        size = (streams[IN_DDR] + streams[IN_GB]) * share
        amounts = {Amount.GB: size, Amount.CORE: size / cores}
        self._note(Role.PASS_INPUT, has_gb & (size > 0), amounts)
        size = np.where(has_gb, streams[LATE_GB] * share + streams[LATE_DDR] * share, 0.0)
        core = (stages[Stage.EXCHANGED] + stages[Stage.STATE]) * share
        steps = np.where(stages[Stage.STATE] > 0, stages[Stage.SEQUENCE], 0.0) * share
        self._note(Role.PASS_LATE, (core > 0) | (size > 0), {
            Amount.GB: size, Amount.CORE: core + size / cores, Amount.EXCHANGED: core,
            Amount.STEPS: steps,
        })  # fmt: skip

    def _work(self) -> None:
        """Note matrix and vector work."""
        stages, share = self.stages, self._reduced()
        matrix = stages[Stage.MACS] > 0
        self._note(Role.MULTIPLY, matrix, self._tile_shape())
        moved, written = stages[Stage.MOVED] * share, stages[Stage.WRITTEN] * share
        work = stages[Stage.VECTOR] + stages[Stage.SPECIAL]
        after = np.where(work > 0, 2.0 * written, 0.0) + moved
        read = (stages[Stage.READ] + self._weight_reads()) * share
        self._note(Role.APPLY, ~matrix | (work + moved > 0), {
            Amount.VECTOR: stages[Stage.VECTOR] * share,
            Amount.SPECIAL: stages[Stage.SPECIAL] * share,
            Amount.STEPS: stages[Stage.SEQUENCE] * share,
            Amount.LOCAL: np.where(matrix, after, np.maximum(read + written, 2.0 * moved)),
        })  # fmt: skip

    def _results(self) -> None:
        """Note results that leave LB."""
        cores, share = self.rules[Rule.CORES], self._reduced()
        gb, ddr = self.streams[OUT_GB] * share, self.streams[OUT_DDR] * share
        size = gb + ddr
        amounts = {Amount.GB: size, Amount.GB_WRITTEN: size, Amount.CORE: size / cores}
        self._note(Role.STORE, self.has_gb & (size > 0), amounts)
        self._move(Role.SAVE, ddr > 0, ddr, Stage.RUN_WRITTEN, ddr / cores)

    def _weight_reads(self) -> Floats:
        """Return the bytes of weights that a core reads from LB: of a recurrence, at every step."""
        steps = np.maximum(self.stages[Stage.SEQUENCE], 1.0)
        return np.asarray(self.stages[Stage.CORE_WEIGHTS] * steps)

    def _tile_shape(self) -> dict[Amount, Floats]:
        """Return the product of one tile and the bytes of LB that it touches.

        Partial sums are read and written at twice the width of the result. Where nothing between
        LB and the array holds operands, each block of rows reads the weights and each block of
        columns the inputs.
        """
        stages, tiles, rules = self.stages, self.tiles, self.rules
        products, columns = tiles[Tiling.PRODUCTS], tiles[Tiling.COLUMNS]
        depths, rows = tiles[Tiling.DEPTHS], tiles[Tiling.ROWS]
        count = stages[Stage.COUNT]
        count = np.where(count > 0, count, 1.0)  # a fraction of fast types
        high, wide = stages[Stage.ROWS] / rows, stages[Stage.COLUMNS] / columns
        again = rules[Rule.REREADS] > 0
        down = np.where(again, np.ceil(high / rules[Rule.NATIVE_ROWS]), 1.0)
        across = np.where(again, np.ceil(wide / rules[Rule.NATIVE_COLUMNS]), 1.0)
        local = (
            stages[Stage.READ] / (products * rows * depths) * across
            + self._weight_reads() / (products * columns * depths) * down
            + stages[Stage.WRITTEN] / (products * rows * columns) * np.where(depths == 1, 1.0, 4.0)
        )
        return {
            Amount.COUNT: count / products, Amount.ROWS: high, Amount.COLUMNS: wide,
            Amount.DEPTH: stages[Stage.DEPTH] / depths, Amount.LOCAL: local,
            Amount.STEPS: stages[Stage.SEQUENCE] / products,
        }  # fmt: skip

    def weight_tiles(self) -> Ints:
        """Return the weight tiles that layers load, repetitions included."""
        cut = self.tiles[[Tiling.PRODUCTS, Tiling.COLUMNS, Tiling.DEPTHS]]
        times = np.where(self.tiles[Tiling.ROWS_OUTSIDE] > 0, self.tiles[Tiling.ROWS], 1)
        return np.where(self.stages[Stage.WEIGHTS] > 0, cut.prod(axis=0) * times, 0)
