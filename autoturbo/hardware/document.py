"""Reading a YAML target file: plain values, and where in the text each of them stands.

The subset of YAML that is read is what a target needs: mappings with text keys, lists, text,
decimal numbers, booleans. Aliases, tags, several documents, deep nesting and large files are
refused, so that no file can run code or exhaust memory.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from autoturbo.errors import Location, TargetError

MAX_BYTES: Final = 128 * 1024
"""Largest file that is read; the presets, with all their comments, are under 8 KiB."""

_MAX_DEPTH: Final = 8  # a target nests 4 deep: file, engines, engine, rate
_MAX_NUMBER: Final = 32  # characters of the longest number that makes sense
_NUMBER: Final = re.compile(
    r"[-+]?(?:(?:0|[1-9](?:_?[0-9])*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
)
_INTEGER: Final = re.compile(r"[-+]?[0-9_]+")
_TAG: Final = "tag:yaml.org,2002:"
_PLAIN_TAGS: Final = {
    "mapping": frozenset({_TAG + "map"}),
    "sequence": frozenset({_TAG + "seq"}),
    "scalar": frozenset(
        _TAG + tag for tag in ("null", "bool", "int", "float", "str", "timestamp", "merge", "value")
    ),
}
_NON_FINITE: Final = {"inf": float("inf"), "nan": float("nan")}
_BOOLEANS: Final = {"true": True, "false": False}

Steps = tuple[str | int, ...]
"""Keys and indices from the top of a document to a value in it."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document and its positions.

    Attributes:
        value: Mappings, lists and scalars as Python has them.
        file: The file as the user named it; None for a document that came as values.
        keys: Line and column (from 1) of the key that leads to a path.
        values: Line and column of the value at a path.
        duplicates: Paths whose key was given before in the same mapping, with their positions.
    """

    value: Any
    file: str | None = None
    keys: dict[Steps, tuple[int, int]] = field(default_factory=dict)
    values: dict[Steps, tuple[int, int]] = field(default_factory=dict)
    duplicates: tuple[tuple[Steps, tuple[int, int]], ...] = ()


def read_document(path: Path, shown: str) -> Document:
    """Return the document in a file.

    Args:
        path: The file.
        shown: The file as the user named it, for errors.

    Raises:
        TargetError: The file cannot be read or is not the YAML that targets are written in.
    """
    return parse_document(_text(path, shown), shown)


def _text(path: Path, shown: str) -> str:
    content = _content(path, shown)
    if len(content) > MAX_BYTES:
        limit = f"target files end at {MAX_BYTES // 1024} KiB"
        raise TargetError("the file is too large to be a target", Location(shown), limit)
    try:
        # some editors put a byte order mark before the text
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TargetError(
            f"not a text file: byte {error.start} is not UTF-8",
            Location(shown),
            "a target is a YAML file",
        ) from None


def _content(path: Path, shown: str) -> bytes:
    place = Location(shown)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise TargetError("a directory, not a target file", place, "name a YAML file in it")
        # a pipe or a device might never begin, or never end
        if not stat.S_ISREG(mode):
            raise TargetError("not a regular file", place, "name a YAML file")
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        hint = "'autoturbo targets scaffold' prints a template"
        raise TargetError("no such file", place, hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TargetError(f"cannot be read: {reason}", place) from None


def parse_document(text: str, shown: str) -> Document:
    """Return the document in a text; see :func:`read_document`."""
    import yaml

    try:
        node = _compose(text, shown)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, shown) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"not YAML: character U+{ord(text[error.position]):04X} is not allowed"
        raise TargetError(message, Location(shown, line), "a target is a text file") from None
    if node is None:
        hint = "'autoturbo targets scaffold' prints a template"
        raise TargetError("the file is empty", Location(shown), hint)
    return _Reader(shown).document(node)


def _compose(text: str, shown: str) -> Any:
    """Return the node tree of a text; aliases and deep nesting raise before they cost anything."""
    import yaml

    class Loader(yaml.SafeLoader):
        depth = 0

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            place = Location(shown, mark.line + 1, mark.column + 1)
            if self.check_event(yaml.AliasEvent):
                message = "aliases are not allowed in a target"
                raise TargetError(message, place, "write the value out")
            if self.depth >= _MAX_DEPTH:
                raise TargetError(f"nested more than {_MAX_DEPTH} deep", place)
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    return yaml.compose(text, Loader)


def _syntax_error(error: Any, shown: str) -> TargetError:
    mark = error.problem_mark or error.context_mark
    message = error.problem or error.context
    hint = None
    if "document" in message:
        message, hint = "more than one document", "one file describes one target"
    elif "'\\t'" in message:
        hint = "indent with spaces"
    place = Location(shown, mark.line + 1, mark.column + 1) if mark else Location(shown)
    return TargetError(f"not YAML: {message}", place, hint)


class _Reader:
    """Turns a node tree into values and remembers where they stood."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.keys: dict[Steps, tuple[int, int]] = {}
        self.values: dict[Steps, tuple[int, int]] = {}
        self.duplicates: list[tuple[Steps, tuple[int, int]]] = []

    def document(self, node: Any) -> Document:
        value = self.value(node, ())
        return Document(value, self.shown, self.keys, self.values, tuple(self.duplicates))

    def value(self, node: Any, path: Steps) -> Any:
        self.values[path] = _position(node)
        if node.tag not in _PLAIN_TAGS[node.id]:
            tag = node.tag.replace(_TAG, "!!")
            raise self.refused(node, f"the tag {tag!r} is not allowed in a target")
        if node.id == "mapping":
            return {key: self.value(child, (*path, key)) for key, child in self.pairs(node, path)}
        if node.id == "sequence":
            return [self.value(child, (*path, i)) for i, child in enumerate(node.value)]
        return _scalar(node)

    def pairs(self, node: Any, path: Steps) -> Iterator[tuple[str, Any]]:
        """Yield keys with their nodes; record a repeated key and leave it out."""
        seen = set()
        for key_node, child in node.value:
            if key_node.id != "scalar":
                raise self.refused(key_node, "a field's name must be text")
            key = key_node.value
            if key in seen:
                self.duplicates.append(((*path, key), _position(key_node)))
                continue
            seen.add(key)
            self.keys[*path, key] = _position(key_node)
            yield key, child

    def refused(self, node: Any, message: str) -> TargetError:
        return TargetError(message, Location(self.shown, *_position(node)))


def _position(node: Any) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _scalar(node: Any) -> Any:
    """Return the value of a scalar: only decimal numbers, ``true`` and ``false`` are no text.

    YAML 1.1 also reads ``010`` as 8, ``1:30`` as 90 and ``on`` as true; here they stay text, which
    no field of a number or truth value accepts.
    """
    text: str = node.value
    if node.style is not None:
        return text
    if node.tag == _TAG + "null":
        return None
    if node.tag == _TAG + "bool":
        return _BOOLEANS.get(text.lower(), text)
    return _number(text)


def _number(text: str) -> Any:
    bare = text.lower().lstrip("+-")
    if bare.startswith(".") and bare[1:] in _NON_FINITE:
        return -_NON_FINITE[bare[1:]] if text[0] == "-" else _NON_FINITE[bare[1:]]
    if len(text) > _MAX_NUMBER or not _NUMBER.fullmatch(text):
        return text
    return int(text) if _INTEGER.fullmatch(text) else float(text)
