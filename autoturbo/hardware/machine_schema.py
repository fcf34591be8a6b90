"""The JSON schema of machine files: targets without off-chip memory around one that they share."""

from __future__ import annotations

from typing import Any, Final

from autoturbo.hardware.fields import SCHEMA_VERSION
from autoturbo.hardware.schema import SCHEMA_URL, target_schema

SHARED: Final = ("ddr", "dram")
"""Sections of a target's file that stand once beside a machine's units."""

MOST_UNITS: Final = 64


def machine_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of machine files, as a value of the caller's own.

    What it cannot say is checked by the reader: the first unit takes everything, names of units
    differ, and links name units that there are.
    """
    target = target_schema()
    shared = {name: target["properties"][name] for name in SHARED}
    return {
        "$schema": SCHEMA_URL,
        "title": "AutoTurbo machine",
        "description": "Processing units of several kinds around one memory",
        "type": "object",
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION, "description": "version of this layout: 1"},
            "name": target["properties"]["name"],
            "description": target["properties"]["description"],
            "units": {
                "description": "kinds of units; the first takes every layer",
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_UNITS,
                "items": _unit(target),
            },
            **shared,
            "switch_us": _number("handing over from one unit to another", 0.0, 1e9, 2000),
            "links": {"description": "what joins units", "type": "array", "items": _link()},
        },
        "required": ["schema_version", "name", "units", "ddr", "switch_us"],
        "additionalProperties": False,
    }


def _unit(target: dict[str, Any]) -> dict[str, Any]:
    """A unit: a target's own sections, how many there are of it, and what it may do."""
    left_out = {"schema_version", *SHARED}
    own = {name: field for name, field in target["properties"].items() if name not in left_out}
    return {
        "type": "object",
        "properties": {
            **own,
            "count": {
                "description": "how many there are, called npu0, npu1, ...",
                "type": "integer", "minimum": 1, "maximum": MOST_UNITS, "examples": [4],
            },
            "memory_mib": _number("of the shared memory that it may take", 1e-3, 1e9, 512),
            "takes": {
                "description": "layers that it can run; leave it out where it runs all",
                "type": "array", "items": _rule(),
            },
        },
        "required": [name for name in target["required"] if name not in left_out],
        "additionalProperties": False,
    }  # fmt: skip


def _rule() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "kinds": _names("operators that a layer may be built around", ["Conv"]),
            "channels_multiple": {
                "description": "input and output channels are multiples of it",
                "type": "integer", "minimum": 1, "maximum": 65536, "examples": [16],
            },
            "grouped": _flag("convolutions in groups too", default=True),
            "fused": _names("operators that may stand in the same layer", ["Relu"]),
        },
        "required": ["kinds"],
        "additionalProperties": False,
    }  # fmt: skip


def _link() -> dict[str, Any]:
    ends = _names("two units or kinds of units", ["cpu", "npu"])
    return {
        "type": "object",
        "properties": {
            "between": {**ends, "minItems": 2, "maxItems": 2},
            "bandwidth_gb_s": _number("of a copy", 1e-3, 1e6, 1.5),
            "latency_us": _number("to the first byte", 0.0, 1e6, 5),
            "through_ddr": _flag("copies read and write the shared memory", default=True),
        },
        "required": ["between", "bandwidth_gb_s"],
        "additionalProperties": False,
    }


def _number(text: str, low: float, high: float, example: float) -> dict[str, Any]:
    bounds = {"type": "number", "minimum": low, "maximum": high}
    return {"description": text, **bounds, "examples": [example]}


def _flag(text: str, *, default: bool) -> dict[str, Any]:
    return {"description": text, "type": "boolean", "default": default}


def _names(text: str, example: list[str]) -> dict[str, Any]:
    return {
        "description": text, "type": "array", "items": {"type": "string"}, "examples": [example],
    }  # fmt: skip
