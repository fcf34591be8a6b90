"""Kernels run in Triton's interpreter, on the CPU, where there is no GPU."""

from __future__ import annotations

import os

try:
    import torch

    HAS_GPU = torch.cuda.is_available()
except ImportError:
    HAS_GPU = False

if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is loaded
