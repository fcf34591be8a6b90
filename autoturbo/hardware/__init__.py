"""Accelerators: targets, their files and presets. Knows nothing of graphs."""

from autoturbo.hardware.fields import DTYPES
from autoturbo.hardware.parts import (
    DramTiming,
    GlobalBuffer,
    MatrixEngine,
)
from autoturbo.hardware.presets import load_target, preset_names, validate_target_file, with_field
from autoturbo.hardware.target import Target, known_error, target_schema
from autoturbo.hardware.template import scaffold

__all__ = [
    "DTYPES",
    "DramTiming",
    "GlobalBuffer",
    "MatrixEngine",
    "Target",
    "known_error",
    "load_target",
    "preset_names",
    "scaffold",
    "target_schema",
    "validate_target_file",
    "with_field",
]
