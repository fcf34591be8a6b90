"""Where a model comes from: its errors, its versions and what the import assumed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoturbo.errors import Location, ModelError

if TYPE_CHECKING:
    from onnx import NodeProto

    from autoturbo.graph.table.build import NodeView

_LIBRARY_PREFIX = re.compile(r"^(\[\w+\]\s*)*(\(op_type:[^)]*\):\s*)?(\[\w+\]\s*)*")


SEED_KEY: Final = "autoturbo.weights_seed"
"""Metadata of a workload whose weights are made from a seed where they are wanted."""


@dataclass(slots=True)
class Source:
    """A model file while it is imported.

    Attributes:
        path: the file as the user named it.
        opsets: version by domain; ONNX's own domain is ``""``.
        ir_version: version of the file format.
        given: elements that the user gave to inputs, by name.
        notes: what was assumed, one line each; grows while the import goes on.
    """

    path: Path
    opsets: dict[str, int] = field(default_factory=dict)
    ir_version: int = 0
    notes: list[str] = field(default_factory=list)
    given: list[tuple[str, tuple[float, ...]]] = field(default_factory=list)

    def error(self, message: str, at: str | None = None, hint: str | None = None) -> ModelError:
        """An error in this file; ``at`` names the node or tensor."""
        return ModelError(message, Location(self.path, field=at or None), hint)

    def note(self, line: str) -> None:
        """Tell the user of an assumption, once."""
        if line not in self.notes:
            self.notes.append(line)


def domain_of(node: NodeProto | NodeView) -> str:
    """The domain of a node; ONNX's own is ``""`` in either of its spellings."""
    return "" if node.domain == "ai.onnx" else node.domain


def kind_of(node: NodeProto | NodeView) -> str:
    """Operator type with its domain in front if it is not ONNX's own."""
    domain = domain_of(node)
    return f"{domain}.{node.op_type}" if domain else node.op_type


def integer_of(node: NodeProto, name: str, default: int = 0) -> int:
    """A whole number that is an attribute of a node."""
    return next((int(item.i) for item in node.attribute if item.name == name), default)


def label(node: NodeProto) -> str:
    """How a node is called in messages: its name, else its type and first output."""
    made = next((name for name in node.output if name), "")
    return node.name or f"{node.op_type} of {made!r}"


def one_line(error: BaseException) -> str:
    """What a library complains about, without its prefixes and context."""
    text = str(error).strip()
    first = text.splitlines()[0] if text else type(error).__name__
    return _LIBRARY_PREFIX.sub("", first).strip().rstrip(".")
