"""Conformer encoder (Gulati et al., arXiv 2005.08100), where the paper is silent.

12 blocks, width 512, feed-forward 2048, 8 heads, depthwise kernel 31, over 1000 frames of 80 mel
features that two strided convolutions shorten to 249. Attention is absolute (no relative
position), with one projection for query, key and value.
"""

from __future__ import annotations

from workload_export.compose import (
    Net,
    Tensor,
    attend,
    compose,
    split_heads,
    stack,
)

BLOCKS = 12
WIDTH = 512
INNER = 2048
HEADS = 8
KERNEL = 31
MELS = 80


def conformer() -> Net:
    """Build the encoder; forward takes (batch, frames, mel) features."""
    from torch import nn

    narrow = ((MELS - 1) // 2 - 1) // 2
    subsample = nn.Sequential(
        nn.Conv2d(1, WIDTH, 3, stride=2), nn.ReLU(), nn.Conv2d(WIDTH, WIDTH, 3, stride=2), nn.ReLU()
    )
    return compose(
        _encode,
        subsample=subsample,
        project=nn.Linear(WIDTH * narrow, WIDTH),
        blocks=stack([_block() for _ in range(BLOCKS)]),
    )


def _encode(net: Net, features: Tensor) -> Tensor:
    x = net.subsample(features.unsqueeze(1))
    x = net.project(x.transpose(1, 2).flatten(2))
    for block in net.blocks:
        x = block(x)
    return x


def _block() -> Net:
    from torch import nn

    return compose(
        _block_forward,
        before=_feed_forward(),
        attention=_attention(),
        convolution=_convolution(),
        after=_feed_forward(),
        norm=nn.LayerNorm(WIDTH),
    )


def _block_forward(block: Net, x: Tensor) -> Tensor:
    x = x + 0.5 * block.before(x)
    x = x + block.attention(x)
    x = x + block.convolution(x)
    return block.norm(x + 0.5 * block.after(x))


def _feed_forward() -> Net:
    from torch import nn

    return nn.Sequential(
        nn.LayerNorm(WIDTH), nn.Linear(WIDTH, INNER), nn.SiLU(), nn.Linear(INNER, WIDTH)
    )


def _attention() -> Net:
    from torch import nn

    return compose(
        _attention_forward,
        norm=nn.LayerNorm(WIDTH),
        joined=nn.Linear(WIDTH, 3 * WIDTH),
        out=nn.Linear(WIDTH, WIDTH),
    )


def _attention_forward(attention: Net, x: Tensor) -> Tensor:
    joined = attention.joined(attention.norm(x)).chunk(3, dim=-1)
    query, key, value = (split_heads(part, HEADS) for part in joined)
    return attention.out(attend(query, key, value))


def _convolution() -> Net:
    from torch import nn

    depthwise = nn.Conv1d(WIDTH, WIDTH, KERNEL, padding=KERNEL // 2, groups=WIDTH)
    channels_first = nn.Sequential(
        nn.Conv1d(WIDTH, 2 * WIDTH, 1),
        nn.GLU(dim=1),
        depthwise,
        nn.BatchNorm1d(WIDTH),
        nn.SiLU(),
        nn.Conv1d(WIDTH, WIDTH, 1),
    )
    return compose(_convolution_forward, norm=nn.LayerNorm(WIDTH), body=channels_first)


def _convolution_forward(convolution: Net, x: Tensor) -> Tensor:
    return convolution.body(convolution.norm(x).transpose(1, 2)).transpose(1, 2)
