"""Targets: the paths of the descriptions of cards in this package."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def a100() -> Path:
    """Return the path of the description of NVIDIA's A100 SXM4 with 40 GB."""
    return HERE / "a100.yaml"


def h100() -> Path:
    """Return the path of the description of NVIDIA's H100 SXM5 with 80 GB."""
    return HERE / "h100.yaml"


def h200() -> Path:
    """Return the path of the description of NVIDIA's H200 SXM with 141 GB."""
    return HERE / "h200.yaml"
