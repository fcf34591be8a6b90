"""Targets near a given one, so that what learns from a data set meets more than a few chips.

Figures are multiplied by factors, uniform on a logarithmic scale or from a short list, and stay
what hardware is like: whole cores, capacities in steps of 16 KiB, arrays that double or halve, no
memory slower than what it feeds. Energy is left out, since nothing is known of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from autoturbo.errors import TargetError
from autoturbo.hardware.target import Target

HALVES: Final = (0.5, 1.0, 2.0)
"""Factors of what comes in powers of two."""

SIZES: Final = (0.5, 0.75, 1.0, 1.5, 2.0)
"""Factors of capacities."""

RATES: Final = (0.5, 2.0)
"""Range of the factor of a bandwidth; overheads and latencies have it too."""

CLOCKS: Final = (0.6, 1.6)
"""Range of the factor of the clock."""

_STEP_KIB = 16
_TRIES = 100


def varied_targets(target: Target, count: int, seed: int) -> list[Target]:
    """Return targets near one, all different, named ``NAME-vSEED.NUMBER``.

    Raises:
        TargetError: None that is possible is found, which is no ordinary target's fault.
    """
    found = {target.hash: target}
    for number in range(1, count + 1):
        rng = np.random.default_rng([seed, number])
        made = next(t for t in _candidates(target, rng) if t.hash not in found)
        text = f"{target.name} with other figures, seed {seed}, number {number}"
        named = dataclasses.replace(made, name=f"{target.name}-v{seed}.{number}", description=text)
        found[named.hash] = named
    return list(found.values())[1:]


def _candidates(target: Target, rng: np.random.Generator) -> Iterator[Target]:
    """Yield targets with other figures that make sense.

    Raises:
        TargetError: None was found in many tries.
    """
    for _ in range(_TRIES):
        document = _varied(target.as_dict(), rng)
        try:
            made = Target.from_dict(document)
        except TargetError:
            continue
        if is_physical(made):
            yield made
    raise TargetError(f"no other figures of {target.name} make sense")


def is_physical(target: Target) -> bool:
    """Return whether no level of the memory is slower than the level below it."""
    buffers = target.lb.bandwidth >= target.transfer.bandwidth
    shared = not target.gb.capacity or target.gb.bandwidth >= target.ddr_bandwidth_per_cluster
    return buffers and shared


def _varied(document: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    document.pop("energy", None)
    engines = {engine["kind"]: engine for engine in document["engines"]}
    matrix, vector = engines["matrix"], engines["vector"]

    def whole(values: dict[str, Any], *names: str) -> None:
        for name in names:
            values[name] = max(int(values[name] * float(rng.choice(HALVES))), 1)

    def scaled(values: dict[str, Any], *names: str, bounds: tuple[float, float] = RATES) -> None:
        for name in names:
            factor = float(np.exp(rng.uniform(*np.log(bounds))))
            values[name] = _short(values[name] * factor)

    whole(document, "clusters", "cores_per_cluster")
    scaled(document, "clock_mhz", bounds=CLOCKS)
    whole(matrix, "rows", "columns")
    lanes = float(rng.choice(HALVES))
    vector["lanes"] = {dtype: _short(n * lanes) for dtype, n in vector["lanes"].items()}
    vector["special_lanes"] = _short(vector["special_lanes"] * lanes)
    for kind in ("transfer", "dma"):
        scaled(engines[kind], "bandwidth_gb_s", "latency_ns")
    memories = {name: document[name] for name in ("lb", "gb", "ddr") if name in document}
    for memory in memories.values():
        scaled(memory, "bandwidth_gb_s")
    for memory, name in (("lb", "capacity_kib"), ("lb", "weight_capacity_kib"),
                         ("gb", "capacity_kib")):  # fmt: skip
        if memory in memories:
            steps = memories[memory][name] * float(rng.choice(SIZES)) / _STEP_KIB
            if steps:
                memories[memory][name] = max(round(steps), 1) * _STEP_KIB
    overheads = document.get("overheads", {})
    # no ramp, no draw: variants of a target from before the field are the same
    scaled(overheads, *(n for n in overheads if overheads[n] or n != "kernel_ramp_us"))
    return document


def _short(value: float) -> float:
    """Return a figure to four digits."""
    return float(f"{value:.4g}")
