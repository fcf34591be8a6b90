"""A module from a function and its children, so that networks need no class of their own.

torch is not a dependency: a class statement over ``torch.nn.Module`` would need it at import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Net = Any
"""A ``torch.nn.Module``."""

Tensor = Any
"""A ``torch.Tensor``."""


def compose(forward: Callable[..., Any], **children: Any) -> Net:
    """Return a module with `children` as attributes whose forward is ``forward(module, ...)``."""
    import torch

    def run(module: Net, *inputs: Any) -> Any:
        return forward(module, *inputs)

    module: Net = type("Composite", (torch.nn.Module,), {"forward": run})()
    for name, child in children.items():
        setattr(module, name, child)
    return module


def stack(children: list[Net]) -> Net:
    """Return the children as one module list."""
    import torch

    return torch.nn.ModuleList(children)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Split heads: (batch, length, heads * width) -> (batch, heads, length, width)."""
    return x.unflatten(-1, (heads, x.shape[-1] // heads)).transpose(1, 2)


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend by scaled dot products over (batch, heads, length, width); merge the heads again."""
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    return (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
