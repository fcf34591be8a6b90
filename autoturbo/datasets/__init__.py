"""Data that ships with the package: the workloads, and data sets measured on them."""

from __future__ import annotations

from pathlib import Path


def data_folder(room: str) -> Path:
    """Return where the files of ``datasets`` or ``cost_models`` at the repository's root lie.

    A wheel has them in the package. A checkout, also one that is installed as editable, has them
    beside it.
    """
    package = Path(__file__).parents[1]
    packed = package / "data" / room
    return packed if packed.is_dir() else package.parent / room
