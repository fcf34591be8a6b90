"""Target files: their layout, what is wrong with one, and from it to a target and back.

The layout follows from the annotations of :class:`~autoturbo.hardware.target.Target`: its fields,
then a list with one engine of each kind, then a mapping for each other section.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, reduce
from operator import or_
from typing import Annotated, Any, Final, Literal

from autoturbo.errors import Location, TargetError
from autoturbo.hardware.document import Document
from autoturbo.hardware.fields import (
    Field,
    built,
    file_fields,
    sections_of,
    values_of,
    written,
)
from autoturbo.hardware.target import Target
from autoturbo.schema import (
    InvalidError,
    Rule,
    Steps,
    ValidationIssue,
    Version,
    checked,
    dotted,
    json_schema,
    list_type,
    mapping_type,
)

SCHEMA_VERSION: Final = 1
"""Version of the file layout; a file of another version is refused."""

VERSION: Final = Annotated[int, Version(is_=SCHEMA_VERSION, about="version of this layout: 1")]

ENGINES: Final = sections_of(Target, engines=True)
"""Engines: exactly one entry of each kind in the list ``engines``, in any order."""

PARTS: Final = sections_of(Target, engines=False)
"""Mappings at the top level."""


class _OneOfEach(Rule):
    """The list of engines."""

    __slots__ = ()

    def published(self) -> dict[str, Any]:
        """Return that there is one engine of each kind."""
        return {
            "allOf": [
                {
                    "contains": {
                        "type": "object",
                        "properties": {"kind": {"const": kind}},
                        "required": ["kind"],
                    },
                    "minContains": 1,
                    "maxContains": 1,
                }
                for kind in ENGINES
            ]
        }


def fields_type(name: str, fields: Iterable[Field], **more: Any) -> Any:
    """Return the type of the mapping that holds fields of a file."""
    known = {f.name: Annotated[f.type, f.rule] for f in fields}
    optional = [f.name for f in fields if f.rule.default is not None]
    return mapping_type(name, {**more, **known}, optional)


@lru_cache(maxsize=1)
def layout() -> dict[str, Any]:
    """Return the types of the values at the top of a target's file, by key."""
    from pydantic import Field as Tag

    engines = [
        fields_type(kind, file_fields(section), kind=Literal[kind])
        for kind, (section, _) in ENGINES.items()
    ]
    engine: Any = Annotated[reduce(or_, engines), Tag(discriminator="kind")]
    return {
        "schema_version": VERSION,
        **{f.name: Annotated[f.type, f.rule] for f in file_fields(Target)},
        "engines": Annotated[list_type(engine), _OneOfEach(about="one engine of each kind")],
        **{
            key: Annotated[fields_type(key, file_fields(section)), rule]
            for key, (section, rule) in PARTS.items()
        },
    }


OPTIONAL: Final = (
    *(f.name for f in file_fields(Target) if f.rule.default is not None),
    *(key for key, (_, rule) in PARTS.items() if rule.optional),
)
"""Keys at the top of a target's file that may be left out."""


@lru_cache(maxsize=1)
def target_type() -> Any:
    """Return the type of a target's file."""
    return mapping_type("Target", layout(), OPTIONAL)


def target_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of target files, as a value of the caller's own."""
    about = "An accelerator that networks are scheduled on"
    return json_schema(target_type(), "AutoTurbo target", about)


def build_target(document: Mapping[str, Any]) -> Target:
    """Return the target of a document that has been checked."""
    engines = {engine["kind"]: engine for engine in document["engines"]}
    values = values_of(Target, document)
    values |= {key: built(section, engines[key]) for key, (section, _) in ENGINES.items()}
    values |= {k: built(kind, document[k]) for k, (kind, _) in PARTS.items() if k in document}
    return Target(**values)


def to_document(target: Target) -> dict[str, Any]:
    """Return the target in the layout of a target file: the inverse of :func:`build_target`."""
    engines = [
        {"kind": key, **written(section, getattr(target, key))}
        for key, (section, _) in ENGINES.items()
    ]
    held = {key: getattr(target, key) for key in PARTS}
    parts = {
        key: written(PARTS[key][0], value)
        for key, value in held.items()
        if value is not None and not (key == "gb" and value.capacity == 0)
    }
    return {
        "schema_version": SCHEMA_VERSION,
        **written(Target, target),
        "engines": engines,
        **parts,
    }


# What is wrong with a document


def check(document: Document) -> list[TargetError]:
    """Return everything that is wrong with a document, in the order of the file."""
    issues = check_part(target_type(), document.value)
    if issues:
        wrong = {issue.path for issue in issues}
        issues += tuple(i for i in _engine_counts(document.value) if i.path not in wrong)
    return located(document, issues or target_issues(document.value))


def require_valid(document: Document) -> None:
    """Raise the first thing that is wrong with a document, if anything is.

    Raises:
        TargetError: the document is not a target; it says how many more things are wrong.
    """
    raise_first(check(document))


def raise_first(errors: list[TargetError]) -> None:
    """Raise the first of several errors, which says how many more there are, if there is one."""
    if not errors:
        return
    first, more = errors[0], len(errors) - 1
    if not more:
        raise first
    if first.hint is None:
        raise TargetError(f"{first.message} (and {more} more)", first.at)
    raise TargetError(first.message, first.at, f"{first.hint} (and {more} more)")


def target_issues(value: Mapping[str, Any]) -> Iterator[ValidationIssue]:
    """Give what is wrong with a target all of whose fields are what their types allow."""
    counts = list(_engine_counts(value))
    yield from counts or _contradictions(value)


def check_part(kind: Any, value: Any) -> tuple[ValidationIssue, ...]:
    """Return what is wrong with a value; nothing is where its type allows it."""
    try:
        checked(kind, value)
    except InvalidError as error:
        return tuple(_explained(issue, value) for issue in error.issues)
    return ()


def located(document: Document, issues: Iterable[ValidationIssue]) -> list[TargetError]:
    """Return the errors of issues, and of fields given twice, in the order of the file."""
    twice = [_duplicate(document, path, at) for path, at in document.duplicates]
    pairs = [(_position(document, issue), issue) for issue in (*twice, *issues)]
    pairs.sort(key=lambda pair: pair[0] or (0, 0))
    return [_error(document, issue, position) for position, issue in pairs]


def _duplicate(document: Document, path: Steps, position: tuple[int, int]) -> ValidationIssue:
    first = document.keys[path][0]
    hint = f"it was first given in line {first}"
    return ValidationIssue(path, "given twice", hint, position=position)


def _position(document: Document, issue: ValidationIssue) -> tuple[int, int] | None:
    if issue.position:
        return issue.position
    path = issue.path[:-1] if issue.at == "parent" else issue.path
    value = document.values.get(path)
    return value if issue.at == "value" else document.keys.get(path, value)


def _error(
    document: Document, issue: ValidationIssue, position: tuple[int, int] | None
) -> TargetError:
    line, column = position or (None, None)
    at = Location(document.file, line, column, dotted(issue.path) or None)
    return TargetError(issue.message, at, issue.hint)


def _explained(issue: ValidationIssue, value: Any) -> ValidationIssue:
    """Return an issue with a hint for what people write where a chip has no global buffer."""
    is_capacity = issue.path[-2:] == ("gb", "capacity_kib") and issue.at == "value"
    if is_capacity and _at(value, issue.path) == 0:
        hint = "leave 'gb' out for a chip without a global buffer"
        return ValidationIssue(issue.path, issue.message, hint)
    return issue


def _at(value: Any, path: Steps) -> Any:
    for step in path:
        value = value[step]
    return value


def _engine_counts(value: Any) -> Iterator[ValidationIssue]:
    """Give kinds of which there is no engine, or a second one; nothing where one has no kind."""
    engines = value.get("engines") if isinstance(value, dict) else None
    if not isinstance(engines, list):
        return
    kinds = [engine.get("kind") if isinstance(engine, dict) else None for engine in engines]
    all_known = all(isinstance(kind, str) and kind in ENGINES for kind in kinds)
    for kind in ENGINES:
        places = [index for index, one in enumerate(kinds) if one == kind]
        if not places and all_known:
            hint = f"add an entry '- kind: {kind}'"
            yield ValidationIssue(("engines",), f"no engine of kind {kind!r}", hint, at="key")
        for index in places[1:]:
            hint = f"engines[{places[0]}] is the first; keep one"
            yield ValidationIssue(("engines", index), f"a second engine of kind {kind!r}", hint)


def _contradictions(value: Mapping[str, Any]) -> Iterator[ValidationIssue]:
    """Give parts that are valid each for itself and do not fit together."""
    index = {engine["kind"]: i for i, engine in enumerate(value["engines"])}
    dtypes = value["engines"][index["matrix"]]["rate"]
    lanes = value["engines"][index["vector"]]["lanes"]
    yield from _uncovered(dtypes, lanes, ("engines", index["vector"], "lanes"))
    if "energy" in value:
        yield from _uncovered(dtypes, value["energy"]["mac_pj"], ("energy", "mac_pj"))


def _uncovered(
    dtypes: dict[str, Any], given: dict[str, Any], path: Steps
) -> Iterator[ValidationIssue]:
    for dtype in dtypes:
        if dtype not in given:
            hint = "the matrix engine's rate lists it; add it here or remove it there"
            yield ValidationIssue(path, f"no figure for {dtype}", hint, at="key")
