"""Checks of target files: all that is wrong with a document, each with its place in the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autoturbo.errors import Location, TargetError, did_you_mean
from autoturbo.hardware.document import Document
from autoturbo.hardware.fields import Figure
from autoturbo.hardware.target import ENGINES, TIMED, Target, build_target, fields_type, target_type
from autoturbo.schema import InvalidError, Steps, ValidationIssue, checked, dotted


def target_of(document: Document) -> Target:
    """Return the target that a document describes.

    Raises:
        TargetError: It is not a valid target.
    """
    require_valid(document)
    return build_target(document.value)


def from_document(document: Mapping[str, Any]) -> Target:
    """Return the target that a document in the layout of a target file describes.

    Raises:
        TargetError: The document is not a valid target.
    """
    return target_of(Document(dict(document)))


def check(document: Document) -> list[TargetError]:
    """Return all errors of a document, in the order of the file."""
    issues = check_part(target_type(), document.value)
    if issues:
        # missing engines are told beside wrong fields; contradictions only of fields that are right
        wrong = {issue.path for issue in issues}
        issues += tuple(i for i in _engine_counts(document.value) if i.path not in wrong)
    return located(document, issues or target_issues(document.value))


def require_valid(document: Document) -> None:
    """Raise the first error of a document, if it has any.

    Raises:
        TargetError: The document is not a target; it says how many more things are wrong.
    """
    raise_first(check(document))


def raise_first(errors: list[TargetError]) -> None:
    """Raise the first of several errors, with the number of the others; return if there is none."""
    if not errors:
        return
    first, more = errors[0], len(errors) - 1
    if not more:
        raise first
    if first.hint is None:
        raise TargetError(f"{first.message} (and {more} more)", first.at)
    raise TargetError(first.message, first.at, f"{first.hint} (and {more} more)")


def target_issues(value: Mapping[str, Any]) -> Iterator[ValidationIssue]:
    """Yield the issues of a target whose fields are all valid by their types."""
    counts = list(_engine_counts(value))
    yield from counts or _contradictions(value)


def check_part(kind: Any, value: Any) -> tuple[ValidationIssue, ...]:
    """Return the issues of a value; it is empty if its type allows the value."""
    try:
        checked(kind, value)
    except InvalidError as error:
        return tuple(_explained(issue, value) for issue in error.issues)
    return ()


def located(document: Document, issues: Iterable[ValidationIssue]) -> list[TargetError]:
    """Return the errors of issues and of repeated fields, in the order of the file."""
    twice = [_duplicate(document, path, place) for path, place in document.duplicates]
    pairs = [(_position(document, issue), issue) for issue in (*twice, *issues)]
    # what stands nowhere in the file comes first
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
    place = Location(document.file, line, column, dotted(issue.path) or None)
    return TargetError(issue.message, place, issue.hint)


def _explained(issue: ValidationIssue, value: Any) -> ValidationIssue:
    """Return an issue, with a hint if it is about a chip without a global buffer."""
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
    """Yield the engine kinds that are missing or repeated; nothing if an engine has no kind."""
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
    """Yield parts that are valid alone and contradict each other."""
    index = {engine["kind"]: i for i, engine in enumerate(value["engines"])}
    dtypes = value["engines"][index["matrix"]]["rate"]
    lanes = value["engines"][index["vector"]]["lanes"]
    yield from _uncovered(dtypes, lanes, ("engines", index["vector"], "lanes"))
    if "energy" in value:
        yield from _uncovered(dtypes, value["energy"]["mac_pj"], ("energy", "mac_pj"))
    for path, ends in value.get("ranges", {}).items():
        yield from _range_issues(value, path, ends)


def _range_issues(
    value: Mapping[str, Any], path: str, ends: list[Any]
) -> Iterator[ValidationIssue]:
    """Yield what is wrong with the range of a field."""
    place = ("ranges", path)
    if path not in TIMED:
        hint = did_you_mean(path, TIMED, kind="such fields")
        yield ValidationIssue(place, "no field that only times depend on", hint, at="key")
        return
    section, f = TIMED[path]
    kept: Any = next((e for e in value["engines"] if e["kind"] == section), value.get(section))
    if section and kept is None:
        yield ValidationIssue(place, f"the target has no {section}", at="key")
        return
    kind = fields_type(path, [f])
    for end in ends:
        for issue in check_part(kind, {f.name: end}):
            yield ValidationIssue(place, issue.message, issue.hint)
            return
    if isinstance(f.rule, Figure) and not ends[0] < ends[1]:
        yield ValidationIssue(place, f"{ends[0]} is not below {ends[1]}", "write [LOW, HIGH]")


def _uncovered(
    dtypes: dict[str, Any], given: dict[str, Any], path: Steps
) -> Iterator[ValidationIssue]:
    for dtype in dtypes:
        if dtype not in given:
            hint = "the matrix engine's rate lists it; add it here or remove it there"
            yield ValidationIssue(path, f"no figure for {dtype}", hint, at="key")
