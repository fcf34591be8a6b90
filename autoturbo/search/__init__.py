"""The search for better candidates: space, samplers, executors.

Optuna and Ray are loaded when they are used, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoturbo.search.samplers import CostModelSampler, make_sampler

_LAZY = ("CostModelSampler", "make_sampler")


def __getattr__(name: str) -> object:
    """Return a name of the samplers, loaded on first use."""
    if name in _LAZY:
        from autoturbo.search import samplers

        return getattr(samplers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["CostModelSampler", "make_sampler"]
