"""One decoder block of the Llama 3 family from transformers: prefill, and decode with a cache."""

from __future__ import annotations

from typing import Any

from workload_export.compose import Net, Tensor, compose

_BASE = 500000.0
"""Rotary base of Llama 3."""


def prefill_block() -> Net:
    """Build a Llama-3-8B block; it takes hidden states and positions, and masks the future."""
    return _block(4096, 14336, _prefill)


def decode_block() -> Net:
    """Build a Llama-3.2-1B block; it takes a token, its position and the cache of earlier ones."""
    return _block(2048, 8192, _decode)


def _block(width: int, inner: int, forward: Any) -> Net:
    import torch
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    config = LlamaConfig(
        hidden_size=width, intermediate_size=inner, num_attention_heads=32, num_key_value_heads=8
    )
    config._attn_implementation = "eager"  # noqa: SLF001  # the only door that transformers has
    net = compose(forward, layer=LlamaDecoderLayer(config, layer_idx=0))
    head = width // config.num_attention_heads
    frequencies = _BASE ** (-torch.arange(0, head, 2, dtype=torch.float32) / head)
    net.register_buffer("frequencies", frequencies, persistent=False)
    return net


def _rotations(net: Net, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine per position and channel, (batch, length, head width)."""
    import torch

    angles = positions[:, :, None].float() * net.frequencies
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def _first(result: Any) -> Tensor:
    """Return the hidden states of a decoder layer: some releases return a tuple."""
    return result[0] if isinstance(result, tuple) else result


def _prefill(net: Net, hidden: Tensor, positions: Tensor) -> Tensor:
    import torch

    future = positions[:, None, None, :] > positions[:, None, :, None]
    mask = torch.where(future, torch.finfo(torch.float32).min, 0.0)
    rotations = _rotations(net, positions)
    return _first(net.layer(hidden, attention_mask=mask, position_embeddings=rotations))


class _JoinedCache:
    """What the attention layer asks of a cache: append, and hand back the whole."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys = keys
        self.values = values

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        import torch

        self.keys = torch.cat([self.keys, keys], dim=2)
        self.values = torch.cat([self.values, values], dim=2)
        return self.keys, self.values


def _decode(
    net: Net, hidden: Tensor, positions: Tensor, keys: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    cache = _JoinedCache(keys, values)
    rotations = _rotations(net, positions)
    result = net.layer(hidden, past_key_values=cache, position_embeddings=rotations)
    return _first(result), cache.keys, cache.values
