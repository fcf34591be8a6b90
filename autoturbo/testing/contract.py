"""The parts of a contract test: its case, its time limit, its error."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache, partial, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, TypeVar

from onnx import NodeProto

from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph


class Case(Protocol):
    """The subject of a check, with its deadline."""

    @property
    def deadline_s(self) -> float:
        """Return the seconds after which a check counts as endless."""


_Case = TypeVar("_Case", bound=Case)


class ContractError(AssertionError):
    """A breach of a contract by its implementation."""


def check_all(checks: Iterable[Callable[[_Case], None]], case: _Case) -> None:
    """Run every check of a case.

    Raises:
        ContractError: Of the first check that fails.
    """
    for check in checks:
        check(case)


def within(seconds: float, what: str, work: Callable[[], None]) -> None:
    """Run a check with a time limit; one that exceeds it is left running.

    Raises:
        ContractError: It takes longer, breaks the contract, or raises anything at all.
    """
    raised: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  told to whoever waits
            raised.append(error)

    thread = threading.Thread(target=guarded, name=what, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise ContractError(f"{what}: no end after {seconds:g} s")
    for error in raised:
        if isinstance(error, ContractError):
            raise ContractError(f"{what}: {error}") from error
        raise ContractError(f"{what}: raised {type(error).__name__}: {error}") from error


def bounded(what: str) -> Callable[[Callable[[_Case], None]], Callable[[_Case], None]]:
    """Return a decorator that names a check, and ends it within its case's deadline."""

    def make(check: Callable[[_Case], None]) -> Callable[[_Case], None]:
        @wraps(check)
        def guarded(case: _Case) -> None:
            within(case.deadline_s, what, partial(check, case))

        return guarded

    return make


_OPSET, _IR = 17, 8
# Small networks that plug-ins are tried on: milliseconds to schedule and to simulate.

BATCH = 4


@lru_cache(maxsize=1)
def small_networks() -> tuple[Graph, ...]:
    """Return convolutions with a residual edge, attention, a product: batch :data:`BATCH`."""
    return (_residual(), _attention(), _product())


def _residual() -> Graph:
    from onnx import helper

    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "w2"], ["c"], name="second", pads=[1] * 4),
        helper.make_node("Add", ["c", "b"], ["y"], name="add"),
    ]
    weights = {"w1": [16, 8, 3, 3], "w2": [16, 16, 3, 3]}
    return _imported("residual", nodes, [BATCH, 8, 14, 14], weights)


def _attention() -> Graph:
    from onnx import helper

    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], name="turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "t"], ["s"], name="scores"),
        helper.make_node("Softmax", ["s"], ["p"], name="softmax", axis=-1),
        helper.make_node("MatMul", ["p", "x"], ["y"], name="mix"),
    ]
    return _imported("attention", nodes, [BATCH, 32, 16], {})


def _product() -> Graph:
    from onnx import helper

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Relu", ["a"], ["y"], name="relu"),
    ]
    return _imported("product", nodes, [BATCH, 64], {"w": [64, 32]})


def _imported(
    name: str, nodes: list[NodeProto], shape: list[int], weights: dict[str, list[int]]
) -> Graph:
    """Return the graph of a network on an input ``x``; its weights are zeros."""
    import onnx
    from onnx import TensorProto, helper

    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    held = [
        helper.make_tensor(w, TensorProto.FLOAT, extents, bytes(4 * math.prod(extents)), raw=True)
        for w, extents in weights.items()
    ]
    graph = helper.make_graph(nodes, name, ends[:1], ends[1:], held)
    opsets = [helper.make_opsetid("", _OPSET)]
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=_IR), str(file))
        return import_model(file)
