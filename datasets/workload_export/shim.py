"""Make torchvision importable beside a torch for processors only.

Its wheels are built against another torch; without their compiled part the import fails on two
operators that Python code describes but nobody has declared. timm and transformers import
torchvision in turn.
"""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def declare_missing_operators() -> Any:
    """Declare ``torchvision::nms`` and ``::qnms``, once; the library must outlive the imports."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
