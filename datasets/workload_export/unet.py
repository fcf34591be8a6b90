"""The U-Net of Stable Diffusion 1 (Rombach et al., arXiv 2112.10752) at 128 base channels.

Four resolutions of 128, 256, 512 and 512 channels, two residual blocks on the way down and three
on the way up, a transformer after each of them except at the lowest resolution, 8 heads, text
context of width 768.
"""

from __future__ import annotations

import math

from workload_export.compose import (
    Net,
    Tensor,
    attend,
    compose,
    split_heads,
    stack,
)

LATENT = 4
BASE = 128
CHANNELS = (128, 256, 512, 512)
TIME = 512
CONTEXT = 768
HEADS = 8
_GROUPS = 32
_DOWN_BLOCKS = 2
_UP_BLOCKS = 3
_MAX_PERIOD = 10000.0


def unet() -> Net:
    """Build the network; forward takes latent, time step and context, and returns the noise."""
    from torch import nn

    wide = CHANNELS[-1]
    return compose(
        _forward,
        time=nn.Sequential(nn.Linear(BASE, TIME), nn.SiLU(), nn.Linear(TIME, TIME)),
        enter=nn.Conv2d(LATENT, BASE, 3, padding=1),
        down=stack(_down_steps()),
        middle=_step(wide, wide, attention=True),
        last=_residual(wide, wide),
        up=stack(_up_steps()),
        leave=nn.Sequential(_norm(BASE), nn.SiLU(), nn.Conv2d(BASE, LATENT, 3, padding=1)),
    )


def _forward(net: Net, latent: Tensor, timestep: Tensor, context: Tensor) -> Tensor:
    import torch

    time = net.time(_time_embedding(timestep))
    x = net.enter(latent)
    skips = [x]
    for step in net.down:
        x = step(x, time, context)
        skips.append(x)
    x = net.last(net.middle(x, time, context), time)
    for step in net.up:
        x = step(torch.cat([x, skips.pop()], dim=1), time, context)
    return net.leave(x)


def _time_embedding(timestep: Tensor) -> Tensor:
    """Embed the time step: cosines and sines at geometrically spaced frequencies, (batch, BASE)."""
    import torch

    half = BASE // 2
    frequencies = torch.exp(torch.arange(half) * (-math.log(_MAX_PERIOD) / half))
    angles = timestep[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def _down_steps() -> list[Net]:
    steps: list[Net] = []
    wide = BASE
    for level, channels in enumerate(CHANNELS):
        for _ in range(_DOWN_BLOCKS):
            steps.append(_step(wide, channels, attention=level < len(CHANNELS) - 1))
            wide = channels
        if level < len(CHANNELS) - 1:
            steps.append(_resample(channels, up=False))
    return steps


def _skip_channels() -> list[int]:
    """Return the channels of everything that the way down leaves behind, in order."""
    skips = [BASE]
    for level, channels in enumerate(CHANNELS):
        skips += [channels] * (_DOWN_BLOCKS + (level < len(CHANNELS) - 1))
    return skips


def _up_steps() -> list[Net]:
    steps: list[Net] = []
    skips = _skip_channels()
    wide = CHANNELS[-1]
    for level, channels in reversed(list(enumerate(CHANNELS))):
        for block in range(_UP_BLOCKS):
            grow = level > 0 and block == _UP_BLOCKS - 1
            attention = level < len(CHANNELS) - 1
            steps.append(_step(wide + skips.pop(), channels, attention=attention, grow=grow))
            wide = channels
    return steps


def _step(wide: int, channels: int, *, attention: bool, grow: bool = False) -> Net:
    """Build one residual block with what follows it: a transformer, and an enlargement."""
    return compose(
        _step_forward,
        residual=_residual(wide, channels),
        transformer=_transformer(channels) if attention else None,
        grow=_resample(channels, up=True) if grow else None,
    )


def _step_forward(step: Net, x: Tensor, time: Tensor, context: Tensor) -> Tensor:
    x = step.residual(x, time)
    if step.transformer is not None:
        x = step.transformer(x, context)
    return x if step.grow is None else step.grow(x, time, context)


def _norm(channels: int) -> Net:
    from torch import nn

    return nn.GroupNorm(_GROUPS, channels)


def _resample(channels: int, *, up: bool) -> Net:
    from torch import nn

    convolution = nn.Conv2d(channels, channels, 3, stride=1 if up else 2, padding=1)
    before = nn.Upsample(scale_factor=2.0, mode="nearest") if up else nn.Identity()
    return compose(
        lambda module, x, _time, _context: module.body(x), body=nn.Sequential(before, convolution)
    )


def _residual(wide: int, channels: int) -> Net:
    from torch import nn

    enter = nn.Sequential(_norm(wide), nn.SiLU(), nn.Conv2d(wide, channels, 3, padding=1))
    leave = nn.Sequential(_norm(channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1))
    return compose(
        _residual_forward,
        enter=enter,
        time=nn.Sequential(nn.SiLU(), nn.Linear(TIME, channels)),
        leave=leave,
        bypass=nn.Identity() if wide == channels else nn.Conv2d(wide, channels, 1),
    )


def _residual_forward(block: Net, x: Tensor, time: Tensor) -> Tensor:
    inner = block.enter(x) + block.time(time)[:, :, None, None]
    return block.bypass(x) + block.leave(inner)


def _transformer(channels: int) -> Net:
    from torch import nn

    return compose(
        _transformer_forward,
        norm=_norm(channels),
        enter=nn.Conv2d(channels, channels, 1),
        norms=stack([nn.LayerNorm(channels) for _ in range(3)]),
        own=_attention(channels, channels),
        cross=_attention(channels, CONTEXT),
        widen=nn.Linear(channels, 8 * channels),
        narrow=nn.Linear(4 * channels, channels),
        leave=nn.Conv2d(channels, channels, 1),
    )


def _transformer_forward(block: Net, x: Tensor, context: Tensor) -> Tensor:
    from torch.nn import functional

    tokens = block.enter(block.norm(x)).flatten(2).transpose(1, 2)
    normed = block.norms[0](tokens)
    tokens = tokens + block.own(normed, normed)
    tokens = tokens + block.cross(block.norms[1](tokens), context)
    value, gate = block.widen(block.norms[2](tokens)).chunk(2, dim=-1)
    tokens = tokens + block.narrow(value * functional.gelu(gate))
    return x + block.leave(tokens.transpose(1, 2).unflatten(2, x.shape[2:]))


def _attention(channels: int, context: int) -> Net:
    from torch import nn

    return compose(
        _attention_forward,
        query=nn.Linear(channels, channels, bias=False),
        key=nn.Linear(context, channels, bias=False),
        value=nn.Linear(context, channels, bias=False),
        out=nn.Linear(channels, channels),
    )


def _attention_forward(block: Net, x: Tensor, context: Tensor) -> Tensor:
    parts = (block.query(x), block.key(context), block.value(context))
    return block.out(attend(*(split_heads(part, HEADS) for part in parts)))
