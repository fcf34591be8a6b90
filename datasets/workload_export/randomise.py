"""Break the false structure of freshly initialised networks.

Fresh vectors are all ones or all zeros; exporters then share one constant between layers and
optimisers remove multiplications. Every vector and every constant matrix gets values of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workload_export.compose import Net, Tensor

_SCALE_NAMES = ("weight", "gamma", "scale")


def randomise(net: Net, seed: int) -> None:
    """Give every one-dimensional or constant parameter, and running statistics, random values."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if parameter.ndim <= 1 or bool(parameter.min() == parameter.max()):
                _fill(name, parameter, generator)
        for name, buffer in net.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                _fill(name, buffer, generator)


def _fill(name: str, tensor: Tensor, generator: object) -> None:
    leaf = name.rpartition(".")[2]
    if leaf == "running_var":
        tensor.uniform_(0.5, 1.5, generator=generator)
    elif tensor.ndim == 1 and leaf in _SCALE_NAMES:
        tensor.normal_(1.0, 0.1, generator=generator)
    else:
        tensor.normal_(0.0, 0.02, generator=generator)
