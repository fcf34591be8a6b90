"""What networks run on: targets, their files and presets. Knows nothing of graphs."""

from autoturbo.hardware.fields import DTYPES
from autoturbo.hardware.loader import load_target, validate_target_file, with_field
from autoturbo.hardware.presets import preset_names
from autoturbo.hardware.scaffold import scaffold
from autoturbo.hardware.target import (
    DATAFLOWS,
    DmaEngine,
    DramTiming,
    Energy,
    GlobalBuffer,
    LocalBuffer,
    MatrixEngine,
    OffChip,
    Overheads,
    Target,
    TransferEngine,
    VectorEngine,
)
from autoturbo.hardware.target_file import target_schema

__all__ = [
    "DATAFLOWS",
    "DTYPES",
    "DmaEngine",
    "DramTiming",
    "Energy",
    "GlobalBuffer",
    "LocalBuffer",
    "MatrixEngine",
    "OffChip",
    "Overheads",
    "Target",
    "TransferEngine",
    "VectorEngine",
    "load_target",
    "preset_names",
    "scaffold",
    "target_schema",
    "validate_target_file",
    "with_field",
]
