"""From what a kernel takes alone to ratios, and to the seconds that a prediction starts from.

Physics first: a kernel's time on a target that no model has seen is mostly what the simulator says
of it alone; how far the rest of a schedule moves it follows from where its time goes, and that is
much the same everywhere. Sizes and rates of targets are left to statistics.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from autoturbo.schedule.work import Floats
from autoturbo.simulate.plan import COLUMNS

_AT: Final = {name: column for column, name in enumerate(COLUMNS)}

_ENGINES: Final = ("dma_in_s", "transfer_s", "matrix_s", "vector_s", "dma_out_s")

RATIOS: Final = (
    "far_near", "copy", "copy_gb", "results",
    *(name.removesuffix("_s") for name in _ENGINES),
    "layers", "serial", "chain", "late", "near_ddr", "weights", "exchanged", "core_weights",
    "weights_shared", "cores_used", "near",
)  # fmt: skip
"""Columns of :func:`ratios`: logarithms of far over near, of copies from DDR and from GB and of
results to DDR over near; busy engines over far; logarithms over far of layers one after another,
of all instructions one after another and of what has to follow each other; logarithms of bytes
spilled, moved with the boundary near, and of weights, over bytes of DDR, of exchanged ones over
those of GB, and of the footprint over a core's weights; whether parts share weights; logarithms of
cores at work and of
near in microseconds."""

_TINY: Final = 1e-12
_MICRO: Final = 1e-6


def is_planned(columns: int) -> bool:
    """Whether statistics with so many columns are :data:`autoturbo.simulate.plan.COLUMNS`."""
    return columns == len(COLUMNS)


def base_seconds(statistics: Floats) -> Floats:
    """What predictions are relative to: the geometric mean of near and far, ``(sub-graphs,)``.

    One second where the statistics are others than the evaluator's.
    """
    if not is_planned(statistics.shape[1]):
        return np.ones(len(statistics))
    near, far = statistics[:, _AT["near_s"]], statistics[:, _AT["far_s"]]
    found: Floats = np.sqrt(np.maximum(near, _TINY) * np.maximum(far, _TINY))
    return found


def ratios(statistics: Floats) -> NDArray[np.float32]:
    """Columns :data:`RATIOS`, one row per kernel of :data:`autoturbo.simulate.plan.COLUMNS`."""
    c = {name: statistics[:, column] for name, column in _AT.items()}
    near, far = np.maximum(c["near_s"], _TINY), np.maximum(c["far_s"], _TINY)
    moved = c["ddr_bytes"] + 1
    columns = [
        _log(far, near), _log(c["copy_s"], near), _log(c["copy_gb_s"], near),
        _log(far - near - c["copy_s"], near),
        *(c[name] / far for name in _ENGINES),
        *(_log(c[name], far) for name in ("layers_s", "serial_s", "chain_s")),
        _log(c["late_bytes"], moved), _log(c["near_ddr_bytes"], moved),
        _log(c["weight_bytes"], moved), _log(c["exchanged_bytes"], c["gb_bytes"] + 1),
        _log(c["core_weight_bytes"], c["footprint_bytes"] + 1), c["weights_shared"],
        np.log(np.maximum(c["cores_used"], 1)), np.log(near / _MICRO),
    ]  # fmt: skip
    return np.stack(columns, axis=1).astype(np.float32)


def _log(value: Floats, unit: Floats) -> Floats:
    found: Floats = np.log(np.maximum(value, 0) / unit + _TINY)
    return found
