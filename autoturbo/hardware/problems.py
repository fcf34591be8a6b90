"""What is wrong with a target document, in the words of a person.

The JSON schema finds most of it; what it reports is rephrased here, one sentence for each place,
with a hint. What a schema cannot say (one engine's data types against another's) is checked last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from autoturbo.errors import Location, TargetError
from autoturbo.hardware.schema import target_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

    from autoturbo.hardware.document import Document, Steps

_LONGEST_SHOWN: Final = 40  # characters of an offending value in a message
_LONGEST_LIST: Final = 16  # names in a hint


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a document.

    Attributes:
        path: what it is about.
        message: what is wrong.
        hint: how to mend it.
        at: whose position counts: the "value" at the path, the "key" that leads there, or the
            "parent" mapping where the path itself does not exist.
        position: line and column where ``at`` cannot say.
        suggests: the path that was probably meant.
    """

    path: Steps
    message: str
    hint: str | None = None
    at: str = "value"
    position: tuple[int, int] | None = None
    suggests: Steps | None = None


def check(document: Document) -> list[TargetError]:
    """Everything that is wrong with a document, in the order of the file; empty if nothing is."""
    located = [(_position(document, p), p) for p in _distinct(_problems(document))]
    located.sort(key=lambda pair: pair[0] or (0, 0))
    return [_error(document, problem, position) for position, problem in located]


def require_valid(document: Document) -> None:
    """Raise the first thing that is wrong with a document, if anything is.

    Raises:
        TargetError: the document is not a target; it says how many more things are wrong.
    """
    errors = check(document)
    if len(errors) > 1:
        raise _with_count(errors[0], len(errors) - 1)
    if errors:
        raise errors[0]


def _with_count(error: TargetError, more: int) -> TargetError:
    if error.hint is None:
        return TargetError(f"{error.message} (and {more} more)", error.at)
    return TargetError(error.message, error.at, f"{error.hint} (and {more} more)")


def _problems(document: Document) -> list[Problem]:
    found = [_duplicate(document, path, at) for path, at in document.duplicates]
    unreal = list(_not_finite(document.value, ()))
    known = {problem.path for problem in unreal}
    found += unreal + [p for p in _violations(document.value) if p.path not in known]
    return found or list(_contradictions(document.value))


def _distinct(problems: list[Problem]) -> list[Problem]:
    """Without repetitions, and without a missing field that is there under a misspelt name."""
    suggested = {problem.suggests for problem in problems}
    kept = {
        (problem.path, problem.message): problem
        for problem in problems
        if problem.at != "parent" or problem.path not in suggested
    }
    return list(kept.values())


def _duplicate(document: Document, path: Steps, position: tuple[int, int]) -> Problem:
    first = document.keys[path][0]
    return Problem(path, "given twice", f"it was first given in line {first}", position=position)


def _position(document: Document, problem: Problem) -> tuple[int, int] | None:
    if problem.position:
        return problem.position
    path = problem.path[:-1] if problem.at == "parent" else problem.path
    value = document.values.get(path)
    return value if problem.at == "value" else document.keys.get(path, value)


def _error(document: Document, problem: Problem, position: tuple[int, int] | None) -> TargetError:
    line, column = position or (None, None)
    at = Location(document.file, line, column, dotted(problem.path) or None)
    return TargetError(problem.message, at, problem.hint)


def dotted(path: Steps) -> str:
    """A path as messages show it: ``("engines", 0, "rows")`` is ``engines[0].rows``."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{_key(part)}" for part in path]
    return "".join(parts).removeprefix(".")


def _key(name: str) -> str:
    """A field's name from a file, fit for a terminal."""
    return _short(name if name.isprintable() else ascii(name))


def suggestion(name: str, known: list[str], *, kind: str = "fields") -> tuple[str, str | None]:
    """A hint for an unknown name, and the known name that was probably meant."""
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), known, n=1)
    if close:
        return f"did you mean {close[0]!r}?", close[0]
    listed = ", ".join(known[:_LONGEST_LIST]) + (", ..." if len(known) > _LONGEST_LIST else "")
    return f"known {kind}: {listed}", None


# What the schema finds


@lru_cache(maxsize=1)
def _validator() -> Validator:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(target_schema())


@dataclass(frozen=True, slots=True)
class _Violation:
    """One error of the JSON schema library, in our types.

    Attributes:
        rule: the schema's keyword that is not kept ("minimum").
        allowed: what the keyword allows.
        value: the offending value.
        schema: the schema that holds the keyword.
        path: where the value is.
    """

    rule: str
    allowed: Any
    value: Any
    schema: dict[str, Any]
    path: Steps


def _violations(document: Any) -> Iterator[Problem]:
    found = [_violation(error) for error in _validator().iter_errors(document)]
    kinds_known = not any(_hides_kind(violation) for violation in found)
    for violation in found:
        if violation.rule != "contains" or kinds_known:
            yield from _EXPLAINED.get(violation.rule, _unexplained)(violation)


def _violation(error: ValidationError) -> _Violation:
    path = tuple(error.absolute_path)
    schema: Any = error.schema
    return _Violation(str(error.validator), error.validator_value, error.instance, schema, path)


def _hides_kind(wrong: _Violation) -> bool:
    """Whether an engine has no kind or an unknown one: then none is known to be missing."""
    if wrong.path[:1] != ("engines",):
        return False
    lacks = wrong.rule == "required" and "kind" in wrong.allowed and "kind" not in wrong.value
    return lacks or wrong.path[2:] == ("kind",) or (wrong.rule == "type" and not wrong.path[2:])


def _missing(wrong: _Violation) -> Iterator[Problem]:
    for name in wrong.allowed:
        if name not in wrong.value:
            doc = wrong.schema["properties"][name]["description"]
            yield Problem((*wrong.path, name), "missing field", f"add it ({doc})", at="parent")


def _unknown(wrong: _Violation) -> Iterator[Problem]:
    known = list(wrong.schema["properties"])
    per_dtype = "minProperties" in wrong.schema
    for name in wrong.value:
        if name not in known:
            hint, meant = suggestion(str(name), known, kind="data types" if per_dtype else "fields")
            message = "unknown data type" if per_dtype else "unknown field"
            suggests = (*wrong.path, meant) if meant else None
            yield Problem((*wrong.path, str(name)), message, hint, at="key", suggests=suggests)


def _wrong_type(wrong: _Violation) -> Iterator[Problem]:
    expected = _TYPES[wrong.allowed]
    if "minProperties" in wrong.schema:
        expected = "a mapping of data types to numbers"
    yield Problem(wrong.path, f"must be {expected}, not {_shown(wrong.value)}")


def _wrong_choice(wrong: _Violation) -> Iterator[Problem]:
    choices = wrong.allowed
    noun = str(wrong.path[-1])
    hint, _ = suggestion(str(wrong.value), choices, kind=f"{noun}s")
    yield Problem(wrong.path, f"unknown {noun} {_shown(wrong.value)}", hint)


def _too_small(wrong: _Violation) -> Iterator[Problem]:
    bound = f"{wrong.allowed:g}"
    hint = "leave 'gb' out for a chip without a global buffer" if _no_gb(wrong) else None
    yield Problem(wrong.path, f"must be at least {bound}, not {_shown(wrong.value)}", hint)


def _no_gb(wrong: _Violation) -> bool:
    return wrong.path == ("gb", "capacity_kib") and wrong.value == 0


def _too_large(wrong: _Violation) -> Iterator[Problem]:
    bound = f"{wrong.allowed:g}"
    yield Problem(wrong.path, f"must be at most {bound}, not {_shown(wrong.value)}")


def _wrong_version(wrong: _Violation) -> Iterator[Problem]:
    message = f"unsupported version {_shown(wrong.value)}"
    yield Problem(wrong.path, message, f"this release reads version {wrong.allowed}")


def _wrong_name(wrong: _Violation) -> Iterator[Problem]:
    message = f"not usable as a name: {_shown(wrong.value)}"
    hint = "use small letters, digits, '.', '_' and '-', a letter or digit first"
    yield Problem(wrong.path, message, hint)


def _too_long(wrong: _Violation) -> Iterator[Problem]:
    count = len(wrong.value)
    yield Problem(wrong.path, f"must be at most {wrong.allowed} characters, not {count}")


def _empty(wrong: _Violation) -> Iterator[Problem]:
    yield Problem(wrong.path, "names no data type", "add at least one, such as 'float16: 1.0'")


def _no_engine(wrong: _Violation) -> Iterator[Problem]:
    kind = wrong.allowed["properties"]["kind"]["const"]
    yield Problem(
        wrong.path, f"no engine of kind {kind!r}", f"add an entry '- kind: {kind}'", at="key"
    )


def _two_engines(wrong: _Violation) -> Iterator[Problem]:
    kind = wrong.schema["contains"]["properties"]["kind"]["const"]
    alike = [i for i, engine in enumerate(wrong.value) if _kind(engine) == kind]
    for index in alike[1:]:
        message = f"a second engine of kind {kind!r}"
        yield Problem((*wrong.path, index), message, f"engines[{alike[0]}] is the first; keep one")


def _kind(engine: Any) -> Any:
    return engine.get("kind") if isinstance(engine, dict) else None


def _unexplained(wrong: _Violation) -> Iterator[Problem]:
    yield Problem(wrong.path, f"breaks the rule {wrong.rule!r} of the schema")


_EXPLAINED: Final[dict[str, Callable[[_Violation], Iterator[Problem]]]] = {
    "additionalProperties": _unknown,
    "const": _wrong_version,
    "contains": _no_engine,
    "enum": _wrong_choice,
    "maxContains": _two_engines,
    "maxLength": _too_long,
    "maximum": _too_large,
    "minProperties": _empty,
    "minimum": _too_small,
    "pattern": _wrong_name,
    "required": _missing,
    "type": _wrong_type,
}

_TYPES: Final = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "object": "a mapping of fields",
    "string": "text",
}


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    return str(value).lower() if isinstance(value, bool) else _short(repr(value))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


# What it cannot find


def _not_finite(value: Any, path: Steps) -> Iterator[Problem]:
    """Infinities and NaNs, which compare their way past bounds."""
    if isinstance(value, float) and not math.isfinite(value):
        yield Problem(path, f"must be a finite number, not {value}")
    for key, child in _children(value):
        yield from _not_finite(child, (*path, key))


def _children(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []


def _contradictions(value: dict[str, Any]) -> Iterator[Problem]:
    """Parts that are valid each for itself and do not fit together."""
    index = {engine["kind"]: i for i, engine in enumerate(value["engines"])}
    dtypes = value["engines"][index["matrix"]]["rate"]
    lanes = value["engines"][index["vector"]]["lanes"]
    yield from _uncovered(dtypes, lanes, ("engines", index["vector"], "lanes"))
    if "energy" in value:
        yield from _uncovered(dtypes, value["energy"]["mac_pj"], ("energy", "mac_pj"))


def _uncovered(dtypes: dict[str, Any], given: dict[str, Any], path: Steps) -> Iterator[Problem]:
    for dtype in dtypes:
        if dtype not in given:
            hint = "the matrix engine's rate lists it; add it here or remove it there"
            yield Problem(path, f"no figure for {dtype}", hint, at="key")
