"""Types of objects that are made of tables and of dataclasses."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, NotRequired, Union, get_args, get_origin, get_type_hints

from autoturbo.schema.rules import Index, Name


def mapping_type(name: str, fields: Mapping[str, Any], optional: Iterable[str] = ()) -> Any:
    """Return the type of a mapping with these fields and no others."""
    from typing_extensions import TypedDict

    left_out = set(optional)
    return TypedDict(  # type: ignore[operator]  # made of a table
        name, {key: NotRequired[kind] if key in left_out else kind for key, kind in fields.items()}
    )


def list_type(kind: Any) -> Any:
    """Return the type of a list."""
    return GenericAlias(list, (kind,))


def map_type(kind: Any) -> Any:
    """Return the type of a mapping whose names are free."""
    return GenericAlias(dict, (str, kind))


def document_type(
    kind: type, /, without: Iterable[str] = (), required: Iterable[str] = (), **more: Any
) -> Any:
    """Return the type of a dataclass's JSON form: lists for tuples, objects for mappings.

    Args:
        kind: The dataclass; fields with a default may be missing, so that what was written before
            they were added stays readable.
        without: Fields that the form lacks.
        required: Fields with a default that may not be missing.
        more: Types of fields that it has besides, or that are of another type in it.
    """
    hints = get_type_hints(kind, localns={"Mapping": Mapping}, include_extras=True)
    known = {f.name: f for f in dataclasses.fields(kind) if f.name not in set(without)}
    types = {name: more.get(name) or _json_type(hints[name]) for name in known}
    defaults = {
        name
        for name, f in known.items()
        if f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
    }
    return mapping_type(kind.__name__, {**types, **more}, defaults - set(required))


@functools.cache
def form_of(kind: type) -> Any:
    """Return the type of a dataclass's JSON form, the same wherever it stands."""
    return document_type(kind)


def _json_type(hint: Any) -> Any:
    """Return the type of an attribute's JSON form; whole numbers count, so none is negative."""
    simple = {str: Name, int: Index, float: float, bool: bool, Any: Any}
    if hint in simple or get_origin(hint) is Annotated:
        return simple.get(hint, hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return form_of(hint)
    arguments = get_args(hint)
    if get_origin(hint) in (UnionType, Union) and arguments[1:] == (NoneType,):
        return _json_type(arguments[0]) | None
    if get_origin(hint) is tuple and arguments[1:] == (...,):
        return list_type(_json_type(arguments[0]))
    if get_origin(hint) is Mapping and arguments[0] is str:
        return map_type(_json_type(arguments[1]))
    raise TypeError(f"no JSON form of {hint}")


def fields_of(kind: type) -> Iterator[tuple[str, Any, Any]]:
    """Give name, type and annotation of each field of a dataclass that has an annotation."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if annotations := getattr(hint, "__metadata__", ()):
            yield name, hint.__origin__, annotations[0]
