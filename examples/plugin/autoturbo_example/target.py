"""A target: the path of a file in this package."""

from __future__ import annotations

from pathlib import Path


def example_npu() -> Path:
    """Return the path of the description of the example's chip."""
    return Path(__file__).with_name("example-npu.yaml")
