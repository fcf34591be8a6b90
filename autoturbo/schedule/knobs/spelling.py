"""Names and values of knobs in earlier states of version 0.1, which are read until version 0.2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OLD_NAMES = {
    "cluster_split": "cluster_partitioning",
    "core_dim": "core_parallel_dim",
    "factor_scale": "instance_multiplier",
    "lb_fill": "lb_occupancy_limit",
    "tile_divisor": "tile_subdivision",
    "weight_share": "weight_buffer_fraction",
}
_OLD_VALUES = {
    "merge_order": {"s": "straight", "d": "diamond", "b": "branch"},
    "split_key": {"o": "operators", "f": "factor", "d": "depth"},
}


def current_name(name: str) -> str:
    """Return today's name of a knob; a name that is not an earlier one stays as it is."""
    return _OLD_NAMES.get(name, name)


def respelled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return knobs with earlier names and values in today's spelling."""
    spelled = {}
    for old, value in values.items():
        # With both names given, the earlier one stays, and is refused as unknown.
        name = old if current_name(old) in values else current_name(old)
        letters = _OLD_VALUES.get(name, {})
        if isinstance(value, str) and len(value) == len(letters) and set(value) == set(letters):
            value = "-".join(letters[letter] for letter in value)  # noqa: PLW2901
        spelled[name] = "size_times_lifetime" if value == "size_x_life" else value
    return spelled
