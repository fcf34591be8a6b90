"""Annotations of fields: how a value is checked, its unit and its meaning."""

from __future__ import annotations

import math
import numbers
import pkgutil
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, Final

from autoturbo.errors import did_you_mean
from autoturbo.schema.issues import Steps, fault, shown
from autoturbo.schema.published import SCHEMA_URL

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

MOST: Final = 2**63 - 1
"""The greatest whole number of a record: SQLite's integers have 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An annotation of a field.

    Attributes:
        about: What the field means; the description in the published schema.
        unit: What its figure counts ("s", "bytes"); empty where it has none.
        example: Example in the published schema; None where there is none.
    """

    about: str = ""
    unit: str = ""
    example: Any = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return how pydantic checks a value of the field."""
        return handler(source)

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the field's JSON schema."""
        return {**self._described(), **handler(core_schema), **self.published()}

    def _described(self) -> dict[str, Any]:
        described = {"description": self.about, "unit": self.unit}
        example = {} if self.example is None else {"examples": [self.example]}
        return {**{name: text for name, text in described.items() if text}, **example}

    def published(self) -> dict[str, Any]:
        """Return what pydantic's schema of the type does not say."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole(Rule):
    """A whole number; 3.0 is as good as 3, as in JSON schema, unless it must be exact."""

    least: int = 0
    most: int | None = MOST
    exact: bool = False

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the check of a whole number within bounds."""
        from pydantic_core import core_schema as cs

        del source, handler
        inner = cs.int_schema(strict=True, ge=self.least, le=self.most)
        return inner if self.exact else cs.no_info_before_validator_function(_whole, inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Rule):
    """A finite number; ``above`` bounds it from below, itself excluded."""

    least: float | None = None
    most: float | None = None
    above: float | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the check of a finite number within bounds."""
        from pydantic_core import core_schema as cs

        del source, handler
        inner = cs.float_schema(
            strict=True, allow_inf_nan=False, ge=self.least, le=self.most, gt=self.above
        )
        return cs.no_info_before_validator_function(_real, inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Rule):
    """A string, all of whose characters may be bound by a regular expression.

    Attributes:
        pattern: Regular expression of the whole text.
        longest: Most characters that the text may have.
        form: Name of its format in JSON schema.
        wrong: The message for a text of another form.
        hint: How to mend it.
    """

    pattern: str | None = None
    longest: int | None = None
    form: str | None = None
    wrong: str = "not of the right form"
    hint: str | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the check of a text."""
        from pydantic_core import core_schema as cs

        del source, handler
        return cs.no_info_before_validator_function(self._formed, cs.any_schema())

    def _formed(self, value: Any) -> str:
        """Return a text; half a character is one, as strange names of files have them."""
        if not isinstance(value, str):
            raise fault(f"must be text, not {shown(value)}")
        if self.longest is not None and len(value) > self.longest:
            raise fault(f"must be at most {self.longest} characters, not {len(value)}")
        if self.pattern and not re.fullmatch(self.pattern, value):
            raise fault(f"{self.wrong}: {shown(value)}", self.hint)
        return value

    def published(self) -> dict[str, Any]:
        """Return the pattern."""
        # the look-ahead keeps Python's "$" from accepting a newline at the end
        pattern = {"pattern": f"^(?:{self.pattern})$(?!\\n)"} if self.pattern else {}
        length = {} if self.longest is None else {"maxLength": self.longest}
        form = {"format": self.form} if self.form else {}
        return {"type": "string", **pattern, **length, **form}


@dataclass(frozen=True, slots=True)
class Flag(Rule):
    """A truth value."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the check of a truth value."""
        from pydantic_core import core_schema as cs

        del source, handler
        return cs.bool_schema(strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names(Rule):
    """A list of texts, with so many entries."""

    least: int = 0
    most: int | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the check of a list of texts."""
        from pydantic_core import core_schema as cs

        del source, handler
        text = cs.str_schema(strict=True)
        return cs.list_schema(text, strict=True, min_length=self.least, max_length=self.most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries(Rule):
    """A list with so many entries."""

    least: int = 0
    most: int | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the check of the list's type and of how many entries it has."""
        inner: Any = {**handler(source), "min_length": self.least, "max_length": self.most}
        return inner  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Rule):
    """One of several texts or numbers, of one kind that messages name."""

    of: tuple[str | int, ...]
    kind: str = "value"

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the check of a choice."""
        from pydantic_core import core_schema as cs

        del source, handler
        return cs.no_info_before_validator_function(self._known, cs.any_schema())

    def _known(self, value: Any) -> Any:
        # True is 1 to Python, and 1.0 too
        if any(value == one and type(value) is type(one) for one in self.of):
            return value
        names = [str(one) for one in self.of]
        hint = did_you_mean(str(value), names, kind=f"{self.kind}s")
        raise fault(f"unknown {self.kind} {shown(value)}", hint, key=f"unknown {self.kind}")

    def published(self) -> dict[str, Any]:
        """Return the choices."""
        return {"enum": list(self.of)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Version(Rule):
    """The version of a layout: one number, or one text that says which layout it is."""

    is_: int | str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the check of a version."""
        from pydantic_core import core_schema as cs

        del source, handler
        return cs.no_info_before_validator_function(self._same, cs.any_schema())

    def _same(self, value: Any) -> Any:
        if value == self.is_ and not isinstance(value, bool):
            return value
        raise fault(f"unsupported version {shown(value)}", f"this release reads version {self.is_}")

    def published(self) -> dict[str, Any]:
        """Return the version."""
        return {"const": self.is_}


@dataclass(frozen=True, slots=True)
class Json(Rule):
    """Any JSON value; numbers of other libraries become Python's."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the check of any JSON value."""
        from pydantic_core import core_schema as cs

        del source, handler
        return cs.no_info_before_validator_function(_json, cs.any_schema())


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOne(Rule):
    """An object that has exactly one of several fields."""

    of: tuple[str, ...]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the object's check, and that of how many of the fields there are."""
        from pydantic_core import core_schema as cs

        return cs.no_info_after_validator_function(self._one, handler(source))

    def _one(self, value: Any) -> Any:
        if sum(name in value for name in self.of) != 1:
            raise fault(f"exactly one of the fields {' and '.join(self.of)} is needed")
        return value

    def published(self) -> dict[str, Any]:
        """Return the alternatives."""
        return {"oneOf": [{"required": [name]} for name in self.of]}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredType(Rule):
    """A value of a type that stands in a module which is loaded when its schema is asked for.

    Attributes:
        of: The type, or a function that gives it: ``"module:name"``.
    """

    of: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the type's own check."""
        del source
        return handler.generate_schema(self.type())

    def type(self) -> Any:
        """Return the type."""
        found = pkgutil.resolve_name(self.of)
        return found() if isinstance(found, FunctionType) else found


@dataclass(frozen=True, slots=True)
class JsonSchema(Rule):
    """Any JSON schema."""

    def published(self) -> dict[str, Any]:
        """Return the schema of schemas."""
        return {"$ref": SCHEMA_URL}


Index = Annotated[int, Whole(exact=True)]
"""A place in a list, from 0, or a count of such places."""

Count = Annotated[int, Whole()]
Natural = Annotated[int, Whole(most=None)]
Bytes = Annotated[int, Whole(unit="bytes")]
Real = Annotated[float, Number()]
Seconds = Annotated[float, Number(unit="s")]
Duration = Annotated[float, Number(least=0.0, unit="s")]
Bool = Annotated[bool, Flag()]


def _whole(value: Any) -> Any:
    """Return numbers of other libraries, and floats without a fraction, as Python's integers."""
    if type(value) is int or isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    real = float(value)
    return int(real) if math.isfinite(real) and real.is_integer() else value


def _real(value: Any) -> Any:
    """Return numbers of other libraries as Python's; those beyond floats as infinite."""
    if type(value) is float or isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    given: Any = value
    try:
        real = float(value)
    except OverflowError:
        return math.inf
    return given if type(given) is int else real


def _json(value: Any, path: Steps = ()) -> Any:
    """Return a JSON value in plain form; faults say where in it they are."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise fault(f"the name {shown(name)} is not text", path=path)
        return {name: _json(inner, (*path, name)) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json(inner, (*path, index)) for index, inner in enumerate(value)]
    if isinstance(value, numbers.Integral):
        return int(value)
    if not isinstance(value, numbers.Real):
        raise fault(f"must be a number, not {shown(value)}", path=path)
    if not math.isfinite(_real(value)):
        raise fault(f"must be a finite number, not {shown(value)}", path=path)
    return float(value)
