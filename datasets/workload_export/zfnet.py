"""ZFNet as drawn by Zeiler and Fergus (ECCV 2014, Fig. 3), which torchvision does not have.

Feature maps of 110, 55, 26, 13 and 6 pixels follow from their strides with a padding of one where
the figure needs it. The contrast normalisation across feature maps is left out, as is dropout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workload_export.compose import Net

CLASSES = 1000


def zfnet() -> Net:
    """Build the network; forward takes (batch, 3, 224, 224)."""
    import torch
    from torch.nn import Conv2d, Flatten, Linear, MaxPool2d, ReLU

    return torch.nn.Sequential(
        Conv2d(3, 96, 7, stride=2, padding=1), ReLU(), MaxPool2d(3, stride=2, padding=1),
        Conv2d(96, 256, 5, stride=2), ReLU(), MaxPool2d(3, stride=2, padding=1),
        Conv2d(256, 384, 3, padding=1), ReLU(),
        Conv2d(384, 384, 3, padding=1), ReLU(),
        Conv2d(384, 256, 3, padding=1), ReLU(), MaxPool2d(3, stride=2),
        Flatten(), Linear(256 * 6 * 6, 4096), ReLU(), Linear(4096, 4096), ReLU(),
        Linear(4096, CLASSES),
    )  # fmt: skip
