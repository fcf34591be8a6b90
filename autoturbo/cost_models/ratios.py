"""Ratios of a kernel's estimates, and the seconds that predictions are relative to.

Physics first: a kernel's time on a target that no model has seen is mostly what the simulator says
of it alone; how far the rest of a schedule moves it follows from where its time goes, and that is
much the same everywhere. Sizes and rates of targets enter as fractions only: whether tensors fit
what they may be kept in, and what moving them takes of a kernel's time.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from autoturbo.schedule.context import STAGING_SHARE
from autoturbo.schedule.work import Floats
from autoturbo.simulator.plan import COLUMNS

_AT: Final = {name: column for column, name in enumerate(COLUMNS)}

_ENGINES: Final = ("dma_in_s", "transfer_s", "matrix_s", "vector_s", "dma_out_s")

RATIOS: Final = (
    "far_near", "copy", "copy_gb", "results",
    *(name.removesuffix("_s") for name in _ENGINES),
    "layers", "serial", "chain", "late", "near_ddr", "weights", "exchanged", "core_weights",
    "weights_shared", "cores_used", "near",
    "held_near", "far_held", "footprint_lb", "output_lb", "whole_output_lb", "whole_input_lb",
    "whole_output_gb", "whole_gb", "footprint_ddr_s", "footprint_gb_s",
    "engines", "matrix_near", "vector_near", "both_near", "transfer_near", "weights_near",
    "ddr_near", "late_near", "overhead_near", "layers_near", "chain_near", "copied_near", "fetched",
)  # fmt: skip
"""Columns of :func:`ratios`: logarithms of far over near, of copies from DDR and from GB and of
results to DDR over near; busy engines over far; logarithms over far of layers one after another,
of all instructions one after another and of what has to follow each other; logarithms of bytes
spilled, moved with the boundary near, and of weights, over bytes of DDR, of exchanged ones over
those of GB, and of the footprint over a core's weights; whether parts share weights; logarithms of
cores at work and of near in microseconds; of held (:func:`base_seconds`) over near and of far over
held; of the footprint, a part's output, the whole output and the whole input over the room that
weight tiles leave in LB; of the whole output and of both over the room in GB; of what moving the
footprint once takes, from DDR and from GB, over near; and over near of the busiest engine with its
overheads, of engines, of matrix and vector work one after the other, of what weights, what comes
from DDR and what spills take, of overheads, of layers and of what has to follow each other, of what
comes from DDR with copies, and of the kernel if all of that had been fetched before."""

NEAR_UNIT: Final = 1e-6
"""Seconds that the column ``near`` is in."""

_TINY: Final = 1e-12

_LITTLE: Final = 1e-4
"""Shares of a kernel's time below which nothing is told apart."""


def is_planned(columns: int) -> bool:
    """Return whether a number of columns is that of :data:`autoturbo.simulator.plan.COLUMNS`."""
    return columns == len(COLUMNS)


def base_seconds(statistics: Floats) -> Floats:
    """Return the seconds that predictions are relative to, ``(sub-graphs,)``.

    They hold with all boundary tensors outside LB: in GB if they fit there as a whole, else in DDR.
    One second where the statistics are others than the evaluator's.
    """
    if not is_planned(statistics.shape[1]):
        return np.ones(len(statistics))
    c = _columns(statistics)
    fits = c["whole_input_bytes"] + c["whole_output_bytes"] <= c["gb_room_bytes"]
    seconds: Floats = np.maximum(np.where(fits, _held(c), c["far_s"]), _TINY)
    return seconds


def _columns(statistics: Floats) -> dict[str, Floats]:
    return {name: statistics[:, column] for name, column in _AT.items()}


def _held(c: dict[str, Floats]) -> Floats:
    """Return seconds with boundary tensors in GB, from the estimates for LB and DDR.

    The time is that of LB, except that what never fits LB comes from GB in place of DDR. It is no
    shorter than the busiest engine, where weights alone come from DDR.
    """
    weights = np.maximum(c["near_ddr_bytes"] - c["late_bytes"], 0)
    busiest = np.maximum.reduce([
        c["matrix_s"], c["vector_s"], c["transfer_s"], _seconds(weights, c["ddr_bandwidth"]),
        _seconds(c["gb_bytes"], c["gb_bandwidth"]),
    ])  # fmt: skip
    without = c["near_s"] - _seconds(c["late_bytes"], c["ddr_bandwidth"])
    seconds: Floats = np.maximum(without, busiest + c["overhead_s"]) + c["copy_gb_s"]
    return seconds


def _seconds(size: Floats, bandwidth: Floats) -> Floats:
    """Return transfer times; zero without such a memory: then nothing fits it either."""
    seconds: Floats = size / np.where(bandwidth > 0, bandwidth, np.inf)
    return seconds


def ratios(statistics: Floats, weight_buffer_fraction: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return columns :data:`RATIOS`, one row per kernel.

    Args:
        statistics: :data:`autoturbo.simulator.plan.COLUMNS`.
        weight_buffer_fraction: The knob's number, ``log2`` of the share of LB that weight
            tiles may have; more than all of it for the weight buffer alone, ``(sub-graphs,)``.
    """
    c = _columns(statistics)
    near, far = np.maximum(c["near_s"], _TINY), np.maximum(c["far_s"], _TINY)
    # One byte more: some kernels move none.
    moved = c["ddr_bytes"] + 1
    columns = [
        _log(far, near), _log(c["copy_s"], near), _log(c["copy_gb_s"], near),
        _log(far - near - c["copy_s"], near),
        *(c[name] / far for name in _ENGINES),
        *(_log(c[name], far) for name in ("layers_s", "serial_s", "chain_s")),
        _log(c["late_bytes"], moved), _log(c["near_ddr_bytes"], moved),
        _log(c["weight_bytes"], moved), _log(c["exchanged_bytes"], c["gb_bytes"] + 1),
        _log(c["core_weight_bytes"], c["footprint_bytes"] + 1), c["weights_shared"],
        np.log(np.maximum(c["cores_used"], 1)), np.log(near / NEAR_UNIT),
        *_room_ratios(c, near, far, weight_buffer_fraction), *_near_ratios(c, near),
    ]  # fmt: skip
    return np.stack(columns, axis=1).astype(np.float32)


def _room_ratios(
    c: dict[str, Floats], near: Floats, far: Floats, weight_buffer_fraction: NDArray[np.float32]
) -> list[Floats]:
    """Return the columns from ``held_near`` on.

    Args:
        c: Statistics by name, a value per kernel.
        near: Seconds with the boundary in the local buffers.
        far: Seconds with the boundary in DDR.
        weight_buffer_fraction: ``log2`` of the share of LB that weight tiles may have.
    """
    held = np.maximum(_held(c), _TINY)
    share = np.where(
        weight_buffer_fraction > 0,
        0,
        np.exp2(np.minimum(weight_buffer_fraction, 0).astype(np.float64)),
    )
    tiles = np.maximum(share * c["lb_bytes"] - c["weight_room_bytes"], 0)
    lb = np.maximum(c["lb_bytes"] * (1 - 1 / STAGING_SHARE) - tiles, 1)
    gb, whole = np.maximum(c["gb_room_bytes"], 1), c["whole_input_bytes"] + c["whole_output_bytes"]
    footprint = c["footprint_bytes"]
    return [
        _log(held, near), _log(far, held), _log(footprint, lb), _log(c["output_bytes"], lb),
        _log(c["whole_output_bytes"], lb), _log(c["whole_input_bytes"], lb),
        _log(c["whole_output_bytes"], gb), _log(whole, gb),
        _log(_seconds(footprint, c["ddr_bandwidth"]), near),
        _log(_seconds(footprint, c["gb_bandwidth"]), near),
    ]  # fmt: skip


def _near_ratios(c: dict[str, Floats], near: Floats) -> list[Floats]:
    """Return the columns from ``engines`` on: what a kernel takes where DDR is not waited for.

    Args:
        c: Statistics by name, a value per kernel.
        near: Seconds with the boundary in the local buffers.
    """
    engines = np.maximum.reduce([c["matrix_s"], c["vector_s"], c["transfer_s"]]) + c["overhead_s"]
    from_ddr = _seconds(c["near_ddr_bytes"], c["ddr_bandwidth"])
    seconds = (
        engines, c["matrix_s"], c["vector_s"], c["matrix_s"] + c["vector_s"], c["transfer_s"],
        _seconds(c["weight_bytes"], c["ddr_bandwidth"]), from_ddr,
        _seconds(c["late_bytes"], c["ddr_bandwidth"]),
        c["overhead_s"], c["layers_s"], c["chain_s"], c["copy_s"] + from_ddr,
        np.maximum(engines, near - from_ddr),
    )  # fmt: skip
    # Below that share logarithms would tell apart what is next to nothing.
    return [np.log(np.maximum(taken, 0) / near + _LITTLE) for taken in seconds]


def _log(value: Floats, unit: Floats) -> Floats:
    logarithm: Floats = np.log(np.maximum(value, 0) / unit + _TINY)
    return logarithm
