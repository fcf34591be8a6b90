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
    """Targets near one, all different, named ``NAME-vSEED.NUMBER``.

    Raises:
        TargetError: none that is possible is found, which is no ordinary target's fault.
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
    """Possible ones.

    Raises:
        TargetError: after a while.
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
    """Whether no level of the memory is slower than what it feeds or is fed by."""
    buffers = target.lb.bandwidth >= target.transfer.bandwidth
    shared = not target.gb.capacity or target.gb.bandwidth >= target.ddr_bandwidth_per_cluster
    return buffers and shared


def _varied(document: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    document.pop("energy", None)
    engines = {engine["kind"]: engine for engine in document["engines"]}
    _whole(document, "clusters", rng)
    _whole(document, "cores_per_cluster", rng)
    _scaled(document, ("clock_mhz",), _between(rng, CLOCKS))
    _whole(engines["matrix"], "rows", rng)
    _whole(engines["matrix"], "columns", rng)
    lanes = float(rng.choice(HALVES))
    _scaled(engines["vector"]["lanes"], tuple(engines["vector"]["lanes"]), lanes)
    _scaled(engines["vector"], ("special_lanes",), lanes)
    for kind in ("transfer", "dma"):
        _scaled(engines[kind], ("bandwidth_gb_s",), _between(rng, RATES))
        _scaled(engines[kind], ("latency_ns",), _between(rng, RATES))
    for memory in ("lb", "gb", "ddr"):
        if memory in document:
            _scaled(document[memory], ("bandwidth_gb_s",), _between(rng, RATES))
    for memory, name in (("lb", "capacity_kib"), ("lb", "weight_capacity_kib"),
                         ("gb", "capacity_kib")):  # fmt: skip
        if memory in document:
            _capacity(document[memory], name, rng)
    for name in document.get("overheads", {}):
        _scaled(document["overheads"], (name,), _between(rng, RATES))
    return document


def _between(rng: np.random.Generator, bounds: tuple[float, float]) -> float:
    low, high = np.log(bounds)
    return float(np.exp(rng.uniform(low, high)))


def _scaled(values: dict[str, Any], names: tuple[str, ...], factor: float) -> None:
    """Figures times a factor, to four digits."""
    for name in names:
        values[name] = float(f"{values[name] * factor:.4g}")


def _whole(values: dict[str, Any], name: str, rng: np.random.Generator) -> None:
    values[name] = max(int(values[name] * float(rng.choice(HALVES))), 1)


def _capacity(values: dict[str, Any], name: str, rng: np.random.Generator) -> None:
    steps = values[name] * float(rng.choice(SIZES)) / _STEP_KIB
    if values[name]:
        values[name] = max(round(steps), 1) * _STEP_KIB
