"""A target: the path of a file in this package."""

from __future__ import annotations

from pathlib import Path


def example_npu() -> Path:
    """Where the description of the example's chip is."""
    return Path(__file__).with_name("example-npu.yaml")
