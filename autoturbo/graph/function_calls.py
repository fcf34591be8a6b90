"""What a model's functions come to once every call is replaced by a body, counted beforehand.

Functions that call each other double with every level: two kilobytes can stand for a million nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from onnx import FunctionProto, ModelProto, NodeProto

from autoturbo.files import MEMORY, NODES, is_bomb
from autoturbo.graph.source import Source, domain_of
from autoturbo.graph.structure import bodies

_HINT = "inline them as far as is needed (onnx.inliner) and give that file"

_Key = tuple[str, str, str]
"""Domain, name and overload of a function."""


class _Size(NamedTuple):
    """Nodes, and bytes of them."""

    nodes: int
    bytes: int


def check_calls(model: ModelProto, source: Source) -> None:
    """Refuse a model that is too large, once its functions are inlined if it has any.

    Raises:
        ModelError: more nodes or bytes than the limits; a function that calls itself.
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


def _nodes_in(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Return nodes and those in their bodies of control flow."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from _nodes_in(body.node)


def _size(nodes: Iterable[NodeProto], sizes: dict[_Key, _Size]) -> _Size:
    """Return what nodes come to, given what the functions that they call come to."""
    count = total = 0
    for node in _nodes_in(nodes):
        inner = sizes.get(_called(node), _Size(1, node.ByteSize()))
        count, total = count + inner.nodes, total + inner.bytes
    return _Size(count, total)


def _callees_first(functions: dict[_Key, FunctionProto], source: Source) -> list[_Key]:
    """Return the functions, each after those that it calls; refuse one that calls itself."""
    calls = {
        key: [name for node in _nodes_in(function.node) if (name := _called(node)) in functions]
        for key, function in functions.items()
    }
    order: list[_Key] = []
    waiting = {key: len(set(names)) for key, names in calls.items()}
    callers: dict[_Key, list[_Key]] = {key: [] for key in functions}
    for key, names in calls.items():
        for name in set(names):
            callers[name].append(key)
    ready = [key for key, count in waiting.items() if not count]
    while ready:
        order.append(ready.pop())
        for caller in callers[order[-1]]:
            waiting[caller] -= 1
            if not waiting[caller]:
                ready.append(caller)
    if len(order) < len(functions):
        endless = next(key[1] for key in functions if waiting[key])
        raise source.error("its functions call themselves, so that they never end", endless)
    return order
