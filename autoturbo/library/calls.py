"""Calls of the library: options as one says them, and what several functions take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import wraps
from inspect import signature
from numbers import Integral
from typing import Any, ParamSpec, TypeVar

from autoturbo.commands.flag_values import duration, percentage
from autoturbo.config import (
    ExecutionOptions,
    ResumeConfig,
    argument,
    called_with,
    option_of,
    options_of,
)
from autoturbo.errors import UsageError, did_you_mean

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

RENAMED = {"timeout_s": "timeout", "graph": "model"}
"""Arguments by the names that they had before."""


def _read(call: type, function: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments under their names, with texts of durations and shares read.

    Raises:
        UsageError: No argument has a name, or a text or a number is not what it takes.
    """
    options, read = options_of(call), dict[str, Any]()
    for said, told in given.items():
        name, value = said if said in options else RENAMED.get(said, said), told
        if name not in options:
            hint = did_you_mean(said, options)
            raise UsageError(f"{function} has no argument {said!r}", hint=hint)
        kind = option_of(options[name]).kind
        # numpy's whole numbers are as good as Python's
        if kind == "count" and value is not None and not isinstance(value, Integral):
            raise UsageError(f"{name}: {value!r} is not a whole number")
        if isinstance(told, str) and kind in ("seconds", "share"):
            value = duration(name)(told) if kind == "seconds" else percentage(name)(told)
        read[name] = value
    return read


def as_declared(config: type, name: str) -> Any:
    """Return a field with the default and the option of one that a class declares."""
    declared = {one.name: one for one in fields(config)}[name]
    return field(default=declared.default, metadata=declared.metadata)


def called(call: Callable[P, C]) -> Callable[[Callable[[C], R]], Callable[P, R]]:
    """Return a decorator that makes a function of the library of one of a call's fields."""

    def decorate(function: Callable[[C], R]) -> Callable[P, R]:
        inner = called_with(call)(function)
        options: Any = call

        @wraps(inner)
        def public(*args: P.args, **kwargs: P.kwargs) -> R:
            read: Any = _read(options, function.__name__, kwargs)
            return inner(*args, **read)

        public.__signature__ = signature(inner)  # type: ignore[attr-defined]
        return public

    return decorate


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Options that may be texts, as on the command line."""

    time_budget: float | str | None = as_declared(ResumeConfig, "time_budget")
    bound_gap: float | str | None = as_declared(ResumeConfig, "bound_gap")
    timeout: float | str | None = as_declared(ExecutionOptions, "timeout")


@dataclass(frozen=True, kw_only=True)
class Extents:
    """The extents of a model that is not loaded yet."""

    batch: int | None = field(
        default=None,
        metadata=argument("samples processed at once, of a model that is not loaded yet"),
    )
    shapes: Mapping[str, Sequence[int]] | None = field(
        default=None, metadata=argument("extents by input name, of such a model")
    )
    dims: Mapping[str, int] | None = field(
        default=None, metadata=argument("extents of named dimensions, of such a model")
    )
    inputs: object = field(
        default=None, metadata=argument("example inputs, of a ``torch.nn.Module``")
    )


def extents_of(call: Extents) -> dict[str, Any]:
    """Return the extents of a call as arguments of :func:`autoturbo.load_model`."""
    return {"batch": call.batch, "shapes": call.shapes, "dims": call.dims}
