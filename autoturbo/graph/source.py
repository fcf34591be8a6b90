"""Origin of a model: its errors, its versions and the assumptions of the import."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from autoturbo.errors import Location, ModelError

if TYPE_CHECKING:
    from onnx import NodeProto

_LIBRARY_PREFIX = re.compile(r"^(\[\w+\]\s*)*(\(op_type:[^)]*\):\s*)?(\[\w+\]\s*)*")


MOST_ELEMENTS: Final = 2**40
"""Elements that all tensors of a model may have together; as many are a mistake in a shape."""

_SHOWN: Final = 12
"""Extents of a shape that a message shows."""

_LONG_BITS: Final = 1 << 10
"""Bits of a number that is told by its size: Python refuses to write thousands of digits."""

SEED_KEY: Final = "autoturbo.weights_seed"
"""Metadata of a workload whose weights are made from a seed where they are wanted."""


class Typed(Protocol):
    """A node, or a view of one, as far as its operator type goes."""

    @property
    def domain(self) -> str:
        """Return its domain as the file spells it."""

    @property
    def op_type(self) -> str:
        """Return the name of its operator within the domain."""


@dataclass(slots=True)
class Source:
    """A model file while it is imported.

    Attributes:
        path: The file as the user named it.
        opsets: Version by domain; ONNX's own domain is ``""``.
        ir_version: Version of the file format.
        given: Elements that the user gave to inputs, by name.
        notes: Assumptions, one line each in order; grows while the import goes on.
    """

    path: Path
    opsets: dict[str, int] = field(default_factory=dict)
    ir_version: int = 0
    notes: dict[str, None] = field(default_factory=dict)
    given: list[tuple[str, tuple[float, ...]]] = field(default_factory=list)

    def error(self, message: str, at: str | None = None, hint: str | None = None) -> ModelError:
        """Return an error in this file; ``at`` names the node or tensor."""
        return ModelError(message, Location(self.path, field=at or None), hint)

    def too_large(self, shape: Sequence[int], at: str) -> ModelError:
        """Return an error about a tensor that no machine can hold."""
        extents = [*map(_spelt, shape)]
        more = [f"... {len(extents)} in all"] if len(extents) > _SHOWN else []
        text = ", ".join(extents[:_SHOWN] + more)
        return self.error(
            f"shape [{text}] makes {_spelt(math.prod(shape))} elements;"
            f" all tensors together must have fewer than 2^{MOST_ELEMENTS.bit_length() - 1}",
            at,
        )

    def note(self, line: str) -> None:
        """Tell the user of an assumption, once."""
        self.notes.setdefault(line)

    def take_back(self, kept: int) -> None:
        """Forget all notes but the first ones."""
        while len(self.notes) > kept:
            self.notes.popitem()


def _spelt(number: int) -> str:
    """Return a number as text, one of thousands of digits by its size."""
    return str(number) if number.bit_length() < _LONG_BITS else f"over 2^{number.bit_length() - 1}"


def domain_of(node: Typed) -> str:
    """Return the domain of a node; ONNX's is ``""`` in either of its spellings."""
    return "" if node.domain == "ai.onnx" else node.domain


def kind_of(node: Typed) -> str:
    """Return the operator type, with its domain before it if that is not ONNX's."""
    domain = domain_of(node)
    return f"{domain}.{node.op_type}" if domain else node.op_type


def integer_of(node: NodeProto, name: str, default: int = 0) -> int:
    """Return the value of an integer attribute."""
    return next((int(item.i) for item in node.attribute if item.name == name), default)


def label(node: NodeProto) -> str:
    """Return the name of a node for messages, or its type and first output if it has none."""
    output = next((name for name in node.output if name), "")
    return node.name or f"{node.op_type} of {output!r}"


def one_line(error: BaseException) -> str:
    """Return a library's error message on one line, without prefixes and context."""
    text = str(error).strip()
    first = text.splitlines()[0] if text else type(error).__name__
    return _LIBRARY_PREFIX.sub("", first).strip().rstrip(".")
