"""Annotations of fields: what a field means, and the few rules that pydantic does not have.

Bounds and lengths are those of annotated-types, which pydantic reads: ``Ge(1)``, ``Len(2, 2)``. Its
own annotations cost its import, so :class:`Described` gives them when a type is first asked for.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, Final

from annotated_types import Ge, GroupedMetadata, Le

from autoturbo.schema.published import SCHEMA_URL

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema
    from pydantic_core.core_schema import ChainSchema

MOST: Final = 2**63 - 1
"""The greatest whole number of a record: SQLite's integers have 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Described(GroupedMetadata):
    """The meaning and the form of a field: pydantic's ``Field``.

    Attributes:
        about: What the field means; the description in the published schema.
        unit: What its figure counts ("s", "bytes"); empty where it has none.
        example: Example in the published schema; None where there is none.
        pattern: Regular expression that a whole text matches.
        extra: What the published schema says besides.
    """

    about: str = ""
    unit: str = ""
    example: Any = None
    pattern: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Any]:
        """Give what pydantic reads."""
        from pydantic import Field

        # the look-ahead keeps Python's "$" from accepting a newline at the end
        pattern = re.compile(f"^(?:{self.pattern})$(?!\\n)") if self.pattern else None
        yield Field(
            description=self.about or None,
            examples=None if self.example is None else [self.example],
            pattern=pattern,  # compiled, it is Python's and not Rust's
            json_schema_extra={**({"unit": self.unit} if self.unit else {}), **self.extra},
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some texts or numbers: a ``Literal`` of values that are computed."""

    of: tuple[str | int, ...]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the check of the type, then of the value: True is 1 to Python, and 1.0 too."""
        from pydantic_core import core_schema as cs

        return cs.chain_schema([handler(source), cs.literal_schema(list(self.of))])

    def __get_pydantic_json_schema__(
        self, core_schema: ChainSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON schema of the values."""
        return handler(core_schema["steps"][-1])


@dataclass(frozen=True, slots=True)
class ExactlyOne(GroupedMetadata):
    """An object that has exactly one of several fields."""

    of: tuple[str, ...]

    def __iter__(self) -> Iterator[Any]:
        """Give the check and what is published of it."""
        from pydantic import AfterValidator, Field

        yield AfterValidator(self._one)
        yield Field(json_schema_extra={"oneOf": [{"required": [name]} for name in self.of]})

    def _one(self, value: Any) -> Any:
        if sum(name in value for name in self.of) != 1:
            from pydantic_core import PydanticCustomError

            named = " and ".join(self.of)
            message = "exactly one of the fields {named} is needed"
            raise PydanticCustomError("exactly_one", message, {"named": named})
        return value


@dataclass(frozen=True, slots=True)
class DeferredType:
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


class _AnyCharacters:
    """Text in which half a character may stand, which pydantic's own check refuses."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the check of the type alone."""
        from pydantic_core import core_schema as cs

        del handler
        return cs.is_instance_schema(source)

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON schema of a text."""
        del core_schema, handler
        return {"type": "string"}


class WithoutFraction(GroupedMetadata):
    """A whole number, which may be written as 3.0: that is one in JSON schema."""

    def __iter__(self) -> Iterator[Any]:
        """Give what pydantic reads."""
        from pydantic import BeforeValidator

        yield BeforeValidator(
            lambda value: int(value) if type(value) is float and value.is_integer() else value
        )


Natural = Annotated[int, Ge(0), WithoutFraction()]
Index = Annotated[int, Ge(0), Le(MOST), WithoutFraction()]
"""A place in a list, from 0, or a count."""

Positive = Annotated[int, Ge(1), Le(MOST), WithoutFraction()]
Bytes = Annotated[Index, Described(unit="bytes")]
Seconds = Annotated[float, Described(unit="s")]
Duration = Annotated[Seconds, Ge(0.0)]
Name = Annotated[str, _AnyCharacters()]
"""A name for people: strange names of files have half a character."""

JsonSchema = Annotated[dict[str, Any], Described(extra={"$ref": SCHEMA_URL})]
