"""Whether this computer can run what the package makes."""

from __future__ import annotations


def obstacle(*, interpreted: bool = False) -> str:
    """Return why nothing can run here; empty where it can.

    Args:
        interpreted: Whether Triton's interpreter is enough.
    """
    try:
        import torch
        import triton  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not installed: pip install 'autoturbo-gpu[gpu]'"
    return "" if interpreted or torch.cuda.is_available() else "PyTorch finds no GPU"
