"""Models and targets as users have them: files, bytes, objects of other libraries, names."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from autoturbo.commands.loading import load_model
from autoturbo.errors import ModelError, UsageError
from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine_files import find_target

if TYPE_CHECKING:
    from typing import TypeAlias

    from onnx import ModelProto

    from autoturbo.hardware.tuning_target import TuningTarget

    class Module(Protocol):
        """A network of PyTorch, which is not imported unless one is given."""

        def state_dict(self) -> Mapping[str, Any]:
            """Return its parameters."""
            ...

    Model: TypeAlias = Graph | str | os.PathLike[str] | bytes | BinaryIO | ModelProto | Module


@cache
def _folder() -> Path:
    """Return a folder for models that are no files, which goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="autoturbo-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def as_model(model: Model, inputs: object = None, **extents: Any) -> Graph:
    """Return the graph of a model.

    Args:
        model: The model.
        inputs: Example inputs of a ``torch.nn.Module``, as ``torch.onnx.export`` takes them.
        extents: Arguments of :func:`autoturbo.load_model`: ``batch``, ``shapes`` and others.

    Raises:
        ModelError: It is not usable.
        UsageError: It is none of these, or has its extents already.
    """
    given = {name: value for name, value in extents.items() if value}
    if isinstance(model, Graph):
        if given:
            hint = "give them to load_model"
            raise UsageError(f"{min(given)}: the model has its extents already", hint=hint)
        return model
    if isinstance(model, str | os.PathLike):
        return load_model(os.fspath(model), **given)
    torch = sys.modules.get("torch")  # nobody has a module of it who has not imported it
    if torch is not None and isinstance(model, torch.nn.Module):
        return load_model(_exported(torch, model, inputs), **given)
    name, content = _content(model)
    # the same bytes are the same file, so that a model loaded twice is written once
    file = _folder() / hashlib.sha256(content).hexdigest()[:16] / f"{name}.onnx"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
    return load_model(file, **given)


def _content(model: Any) -> tuple[str, bytes]:
    """Return the name and the bytes of an ONNX model that is no file."""
    if isinstance(model, bytes):
        return "model", model
    if hasattr(model, "SerializeToString"):
        return _plain(model.graph.name) or "model", bytes(model.SerializeToString())
    if hasattr(model, "read"):
        content = model.read()
        if isinstance(content, bytes):
            return _plain(Path(str(getattr(model, "name", ""))).stem) or "model", content
        raise UsageError("the model's file is open as text", hint="open it with 'rb'")
    hint = "a path, a workload's name, an ONNX model, its bytes, a file, or a torch.nn.Module"
    raise UsageError(f"{type(model).__name__} objects are no models", hint=hint)


def _plain(name: str) -> str:
    """Return a name as a file may have it."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)[:64]


def _exported(torch: Any, module: Any, inputs: object) -> Path:
    """Return the ONNX file of a network of PyTorch, beside which its weights may lie."""
    if inputs is None:
        hint = "inputs=(torch.zeros(1, 3, 224, 224),)"
        raise UsageError("a torch.nn.Module needs example inputs", hint=hint)
    # a folder of its own: weights go to files beside it, whose names torch chooses
    file = Path(tempfile.mkdtemp(dir=_folder())) / f"{_plain(type(module).__name__).lower()}.onnx"
    try:
        torch.onnx.export(
            module.eval(), inputs if isinstance(inputs, tuple) else (inputs,), str(file)
        )
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        message = f"torch.onnx.export: {type(error).__name__}: {said}"
        raise ModelError(message, hint="export it yourself, and give the file") from error
    return file


def as_target(target: TuningTarget | str | os.PathLike[str]) -> TuningTarget:
    """Return a target by its name or file; one that is loaded as it is.

    Raises:
        TargetError: Nothing has that name, or it is not valid.
    """
    return find_target(target) if isinstance(target, str | os.PathLike) else target
