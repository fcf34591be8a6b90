"""torch's two exporters, static shapes at the workload's batch.

Both kinds of file reach users: ``dynamo=True`` (opset 20, captures the program) and
``dynamo=False`` (opset 17, traces a run).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import onnx

from workload_export.randomise import randomise
from workload_export.shim import declare_missing_operators

if TYPE_CHECKING:
    from pathlib import Path

    from workload_export.compose import Net, Tensor
    from workload_export.recipes import Input, Recipe

_DYNAMO_OPSET = 20
_LEGACY_OPSET = 17


def export(recipe: Recipe, batch: int, seed: int, folder: Path) -> onnx.ModelProto:
    """Build the network and export it; large tensors stay as files in `folder`."""
    import torch

    declare_missing_operators()
    torch.manual_seed(seed)
    net = recipe.build().eval()
    randomise(net, seed)
    inputs = tuple(_example(value, batch) for value in recipe.inputs.values())
    path = folder / "exported.onnx"
    names = {"input_names": list(recipe.inputs), "output_names": list(recipe.outputs)}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (_legacy if recipe.legacy else _dynamo)(net, inputs, path, names)
    return onnx.load(path, load_external_data=False)


def _example(value: Input, batch: int) -> Tensor:
    import torch

    shape = (batch, *value.shape)
    return torch.randn(shape) if value.limits is None else torch.randint(*value.limits, shape)


def _dynamo(net: Net, inputs: tuple[Any, ...], path: Path, names: dict[str, list[str]]) -> None:
    import torch

    program = torch.onnx.export(
        net, inputs, dynamo=True, opset_version=_DYNAMO_OPSET, verbose=False, **names
    )
    program.save(path, external_data=True)


def _legacy(net: Net, inputs: tuple[Any, ...], path: Path, names: dict[str, list[str]]) -> None:
    import torch

    torch.onnx.export(net, inputs, path, dynamo=False, opset_version=_LEGACY_OPSET, **names)
