"""Opens a model file: is it ONNX, is it whole, can the installed library read its version."""

from __future__ import annotations

import string
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, inliner

from autoturbo.files import MEMORY, NODES, is_bomb
from autoturbo.graph.importer.external_data import TruncatedError, WireError, read_without_weights
from autoturbo.graph.importer.shapes import drop_unknown_attributes
from autoturbo.graph.source import Source, domain_of, kind_of, label, one_line
from autoturbo.graph.structure import (
    bodies,
    initializer_names,
    nodes_in,
    shared_names,
)

_TOLD = 8
"""Attributes of a node, of those that its operator does not have, that notes name."""

_SNIFF_BYTES = 64
_ONNX_START = 0x08
"""First byte of nearly every ONNX file: the tag of ``ir_version``."""

_OTHER_FORMATS = {
    b"PK\x03\x04": ("a zip archive", "export the network with torch.onnx.export"),
    b"\x1f\x8b": ("a gzip archive", "unpack it first"),
    b"GGUF": ("a GGUF file", "export the network to ONNX"),
    b"\x89HDF": ("an HDF5 file", "convert it with tf2onnx"),
    b"version https://git-lfs": ("a Git LFS pointer", "run 'git lfs pull'"),
}


def open_model(source: Source, *, weights: bool = False) -> ModelProto:
    """Return the model of a file and fill in the versions of ``source``.

    Model-local functions are inlined; attributes that an operator does not have are left out.

    Args:
        source: Names the file.
        weights: Read the large values that the file itself holds, too.

    Raises:
        ModelError: No file, not ONNX, truncated, empty graph, a version not supported.
    """
    model = _read(source, weights=weights)
    if not model.HasField("graph"):
        raise source.error("no graph in the file", hint="is it an ONNX model?")
    _check_text(model.graph, source)
    _check_versions(model, source)
    if not model.graph.node:
        raise source.error("the graph has no nodes")
    _note_shared_names(model.graph, source)
    model = _without_functions(model, source)
    _drop_unknown(model.graph, source)
    return model


def _note_shared_names(graph: GraphProto, source: Source) -> None:
    """Tell of nodes that share a name, which the format forbids."""
    names = shared_names(graph)
    if names:
        more = f" (nor are {len(names) - 1} other names)" if len(names) > 1 else ""
        source.note(
            f"the node name {names[0]!r} is not unique{more}: ONNX Runtime refuses the file"
        )


def _drop_unknown(graph: GraphProto, source: Source) -> None:
    """Drop attributes that an operator does not have; a note names them."""
    for node in nodes_in(graph.node):
        version = source.opsets.get(domain_of(node), 1)
        unknown = drop_unknown_attributes(node, source)
        for name in unknown[:_TOLD]:
            source.note(f"{kind_of(node)} of opset {version} has no attribute {name!r}: left out")
        if more := len(unknown[_TOLD:]):
            source.note(f"{label(node)} has {more} more attributes of no meaning: left out")


def _read(source: Source, *, weights: bool) -> ModelProto:
    path = source.path
    try:
        if path.is_dir():
            raise source.error("is a directory", hint="name the .onnx file in it")
        if not path.is_file() and path.exists():
            raise source.error("not a regular file", hint="save the model as one first")
        if path.stat().st_size == 0:
            raise source.error("the file is empty")
        with path.open("rb") as file:
            head = file.read(_SNIFF_BYTES)
        _refuse_other_formats(head, source)
        model = read_without_weights(path)
        return onnx.load(path, load_external_data=False) if weights else model
    except FileNotFoundError:
        raise source.error("no such file") from None
    except OSError as error:
        raise source.error(f"cannot be read: {error.strerror or error}") from None
    except TruncatedError as error:
        if head[0] != _ONNX_START:
            raise source.error("not an ONNX file") from None
        raise source.error(f"truncated: {error}", hint="copy or download the file again") from None
    except RecursionError:
        raise source.error("its messages are nested too deeply") from None
    except WireError:
        raise source.error("not an ONNX file, or a damaged one") from None


def _refuse_other_formats(head: bytes, source: Source) -> None:
    for magic, (what, mend) in _OTHER_FORMATS.items():
        if head.startswith(magic):
            raise source.error(f"not an ONNX file but {what}", hint=mend)
    if all(chr(byte) in string.printable for byte in head):
        raise source.error("not an ONNX file but text")


def _check_text(graph: GraphProto, source: Source) -> None:
    """Refuse names that are not UTF-8: protobuf returns them as bytes."""
    texts: list[str | bytes] = [*initializer_names(graph), *(v.name for v in graph.input)]
    texts += [value.name for value in (*graph.output, *graph.value_info)]
    for node in graph.node:
        texts += [node.op_type, node.domain, node.name, *node.input, *node.output]
        texts += [attribute.name for attribute in node.attribute]
        for body in bodies(node):
            _check_text(body, source)
    if any(isinstance(text, bytes) for text in texts):
        raise source.error("not an ONNX file, or a damaged one: a name is not text")


def _check_versions(model: ModelProto, source: Source) -> None:
    source.ir_version = model.ir_version
    for opset in model.opset_import:
        source.opsets["" if opset.domain == "ai.onnx" else opset.domain] = opset.version
    if model.ir_version < 3 and not source.opsets:  # noqa: PLR2004 - opsets came with IR 3
        source.opsets[""] = 1
    if model.ir_version < 1:
        raise source.error("no IR version in the file", hint="is it an ONNX model?")
    if model.ir_version > onnx.IR_VERSION:
        raise source.error(
            f"IR version {model.ir_version} is newer than {onnx.IR_VERSION}, the newest that"
            f" onnx {onnx.__version__} reads",
            hint="upgrade onnx, or export for an older version",
        )
    _check_opset(source)


def _check_opset(source: Source) -> None:
    newest = onnx.defs.onnx_opset_version()
    if not source.opsets:
        raise source.error("no opset is imported", hint="the file may be truncated")
    version = source.opsets.setdefault("", newest)
    if version > newest:
        raise source.error(
            f"opset {version} is newer than {newest}, the newest that onnx {onnx.__version__}"
            " knows",
            hint="upgrade onnx, or export for an older opset",
        )
    if version < 1:
        raise source.error(f"opset {version} does not exist")


def _without_functions(model: ModelProto, source: Source) -> ModelProto:
    """Return the model with its local functions inlined, nested calls included."""
    check_calls(model, source)
    if not model.functions:
        return model
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # noqa: BLE001 - the library raises RuntimeError and its own classes
        raise source.error(f"its functions cannot be inlined: {one_line(error)}") from None


_HINT = "inline them as far as is needed (onnx.inliner) and give that file"

_Key = tuple[str, str, str]
"""Domain, name and overload of a function."""


class _Size(NamedTuple):
    """Nodes, and bytes of them."""

    nodes: int
    bytes: int


def check_calls(model: ModelProto, source: Source) -> None:
    """Refuse a model that is too large once its functions are inlined.

    Raises:
        ModelError: More nodes or bytes than the limits; a function that calls itself.
    """
    functions = {_key_of(f.domain, f.name, f.overload): f for f in model.functions}
    sizes: dict[_Key, _Size] = {}
    for key in _callees_first(functions, source):
        sizes[key] = _size(functions[key].node, sizes)
    nodes, size = _size(model.graph.node, sizes)
    if nodes > NODES.most and functions:
        message = f"its functions come to {nodes} nodes once they are inlined"
        raise source.error(message, hint=f"{NODES.hint}; or {_HINT}")
    if nodes > NODES.most:
        raise source.error(f"it has {nodes} nodes", hint=NODES.hint)
    if is_bomb(size, source.path.stat().st_size):
        message = f"its functions come to {size} bytes once they are inlined"
        raise source.error(message, hint=f"{MEMORY.hint}; or {_HINT}")


def _key_of(domain: str, name: str, overload: str) -> _Key:
    return "" if domain == "ai.onnx" else domain, name, overload


def _called(node: NodeProto) -> _Key:
    return _key_of(domain_of(node), node.op_type, node.overload)


def _size(nodes: Iterable[NodeProto], sizes: dict[_Key, _Size]) -> _Size:
    """Return the size of nodes, from the sizes of the functions that they call."""
    count = total = 0
    for node in nodes_in(nodes):
        inner = sizes.get(_called(node), _Size(1, node.ByteSize()))
        count, total = count + inner.nodes, total + inner.bytes
    return _Size(count, total)


def _callees_first(functions: dict[_Key, FunctionProto], source: Source) -> list[_Key]:
    """Return the functions, callees first; refuse one that calls itself."""
    calls = {
        key: [name for node in nodes_in(function.node) if (name := _called(node)) in functions]
        for key, function in functions.items()
    }
    try:
        return list(TopologicalSorter(calls).static_order())
    except CycleError as error:
        endless = next(key[1] for key in functions if key in error.args[1])
        message = "its functions call themselves, so that they never end"
        raise source.error(message, endless) from None
