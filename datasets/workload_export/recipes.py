"""What each workload is exported from: the network, its inputs and the exporter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workload_export import conformer, dlrm, llama, unet, yolo, zfnet
from workload_export.compose import Net, Tensor, compose

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Input:
    """An input of the network.

    Attributes:
        shape: Without the batch, which is the first dimension of every input.
        limits: Half-open range of integers, or None for floating-point values.
    """

    shape: tuple[int, ...]
    limits: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make one workload.

    Attributes:
        build: Makes the network; imports its library.
        library: Distribution that the network comes from, for the file's metadata.
        inputs: By the name they get in the file, in the order of the forward function.
        outputs: Names of the outputs.
        legacy: Use torch's older, tracing exporter.
    """

    build: Callable[[], Net]
    library: str
    inputs: Mapping[str, Input]
    outputs: tuple[str, ...] = ("output",)
    legacy: bool = field(default=False, kw_only=True)


_IMAGE = {"input": Input((3, 224, 224))}


def _torchvision(name: str, *, legacy: bool = False, **options: Any) -> Recipe:
    def build() -> Net:
        import torchvision

        return getattr(torchvision.models, name)(weights=None, **options)

    return Recipe(build, "torchvision", _IMAGE, legacy=legacy)


def _timm(name: str, **options: Any) -> Recipe:
    def build() -> Net:
        import timm

        return timm.create_model(name, pretrained=False, **options)

    return Recipe(build, "timm", _IMAGE)


def _bert(length: int, **sizes: int) -> Recipe:
    def build() -> Net:
        from transformers import BertConfig, BertModel

        bert = BertModel(BertConfig(attn_implementation="eager", **sizes))
        return compose(_bert_forward, bert=bert)

    inputs = {
        "input_ids": Input((length,), (0, 30522)),
        "attention_mask": Input((length,), (0, 2)),
        "token_type_ids": Input((length,), (0, 2)),
    }
    return Recipe(build, "transformers", inputs, ("last_hidden_state", "pooler_output"))


def _bert_forward(net: Net, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
    result = net.bert(input_ids=ids, attention_mask=mask, token_type_ids=types)
    return result.last_hidden_state, result.pooler_output


def _whisper() -> Recipe:
    def build() -> Net:
        from transformers import WhisperConfig
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        config = WhisperConfig(
            d_model=512, encoder_layers=6, encoder_attention_heads=8, encoder_ffn_dim=2048
        )
        config._attn_implementation = "eager"  # noqa: SLF001  # the only door there is
        return compose(
            lambda m, mel: m.encoder(mel).last_hidden_state, encoder=WhisperEncoder(config)
        )

    inputs = {"mel": Input((80, 3000))}
    return Recipe(build, "transformers", inputs, ("encoded",), legacy=True)


def _dlrm() -> Recipe:
    inputs = {
        "dense": Input((dlrm.DENSE,)),
        "sparse": Input((dlrm.TABLES,), (0, dlrm.ROWS)),
    }
    return Recipe(dlrm.dlrm, "torch", inputs, ("probability",))


def _unet() -> Recipe:
    inputs = {
        "latent": Input((unet.LATENT, 64, 64)),
        "timestep": Input(()),
        "context": Input((77, unet.CONTEXT)),
    }
    return Recipe(unet.unet, "torch", inputs, ("noise",))


def _llama_prefill() -> Recipe:
    inputs = {"hidden": Input((512, 4096)), "positions": Input((512,), (0, 512))}
    return Recipe(llama.prefill_block, "transformers", inputs, ("hidden_out",))


def _llama_decode() -> Recipe:
    cache = Input((8, 511, 64))
    inputs = {
        "hidden": Input((1, 2048)),
        "positions": Input((1,), (511, 512)),
        "past_keys": cache,
        "past_values": cache,
    }
    outputs = ("hidden_out", "keys", "values")
    return Recipe(llama.decode_block, "transformers", inputs, outputs)


_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}

RECIPES: Mapping[str, Recipe] = {
    "resnet50": _torchvision("resnet50"),
    "bert_base_s128": _bert(128),
    "bert_base_s256": _bert(256),
    "bert_large_s384": _bert(384, **_LARGE),
    "bert_base_s512": _bert(512),
    "dlrm": _dlrm(),
    "mobilenet_v2": _torchvision("mobilenet_v2", legacy=True),
    "vit_b16": _timm("vit_base_patch16_224"),
    "densenet121": _torchvision("densenet121"),
    "conformer": Recipe(
        conformer.conformer, "torch", {"features": Input((1000, conformer.MELS))}, ("encoded",)
    ),
    "resnet18": _torchvision("resnet18"),
    "vgg19": _torchvision("vgg19"),
    "alexnet": _torchvision("alexnet"),
    "googlenet": _torchvision("googlenet", legacy=True, aux_logits=False, init_weights=False),
    "squeezenet1_1": _torchvision("squeezenet1_1"),
    "zfnet": Recipe(zfnet.zfnet, "torch", _IMAGE),
    "resnext50": _torchvision("resnext50_32x4d"),
    "shufflenet_v2": _torchvision("shufflenet_v2_x1_0", legacy=True),
    "convnext_tiny": _timm("convnext_tiny"),
    "swin_t": _timm("swin_tiny_patch4_window7_224"),
    "efficientnet_b0": _timm("efficientnet_b0"),
    "llama_prefill": _llama_prefill(),
    "llama_decode": _llama_decode(),
    "unet": _unet(),
    "whisper_base_enc": _whisper(),
    "yolov5s_like": Recipe(
        yolo.yolov5s, "torch", {"images": Input((3, 640, 640))}, ("predictions",)
    ),
}
"""A recipe for each workload of the registry."""
