"""Static shapes of all inputs, from the file, ``--batch``, ``--dim`` and ``--shape``."""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import TypeGuard

from onnx import TypeProto, ValueInfoProto

from autoturbo.errors import did_you_mean
from autoturbo.graph.importer.inputs import NO_SAMPLES
from autoturbo.graph.importer.samples import like_a_batch
from autoturbo.graph.source import MOST_ELEMENTS, Source
from autoturbo.graph.values import dims_of

Dim = int | str | None
"""A declared extent: static, named, or neither."""

Declared = Mapping[str, list[Dim] | None]
"""Declared extents by input name; None for an unknown rank."""

Wanted = Mapping[str, list[int | None]]
"""Extents by input name as far as they are known."""

Guess = Callable[[Mapping[str, int], Mapping[str, int]], Mapping[str, int]]
"""Returns extents that go together, from known ones and from those that others might have."""

ASSUMED_BATCH = "batch 1 assumed: the file leaves it open; --batch N for another"
"""The note of a model whose batch nobody gives."""

_EXAMPLE = 128
"""The extent that messages give where the user has to choose one."""

_LONGEST_NAME = 200
"""Characters of a dimension's name up to which it may be a sum or a product of others."""

_NO_NAME = re.compile(r"\s*|\?+|-\d+|unk__\d+")
"""What exporters write for a dimension that has no name: each such has an extent of its own."""

_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True, slots=True)
class Extents:
    """Extents that are asked for.

    Attributes:
        batch: Extent of the dimensions of samples; None for the file's own.
        shapes: All extents of an input, by its name; they win over the others.
        dims: By the name that the file gives a dimension, in all inputs, or of one dimension, by
            ``INPUT:AXIS``; they win over ``batch``.
        batch_dim: Dimensions that count samples: their names, or ``INPUT:AXIS``.
        samples: The dimension that counts samples in every input, where it is known already.
    """

    batch: int | None = None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    batch_dim: Sequence[str] = ()
    samples: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Frozen:
    """Static shapes of the real inputs.

    Attributes:
        shapes: Static shapes by input name.
        bindings: Extents that were given to named dimensions.
        baked: The shapes with the batch that the file was made for, where it has been changed; else
            None.
        batch: The batch that the file was made for, where it has been changed.
        ratio: New batch over the file's, 1 unless ``baked``.
        known: Extents of the symbols of inputs: by name, or by place where there is no name.
        as_declared: No static extent but a leading batch was changed, so that the shapes the file
            states for other values hold.
    """

    shapes: dict[str, tuple[int, ...]]
    bindings: dict[str, int]
    baked: dict[str, tuple[int, ...]] | None
    batch: int
    ratio: Fraction
    known: dict[str, int]
    as_declared: bool


def freeze(
    inputs: Sequence[ValueInfoProto],
    asked: Extents,
    source: Source,
    samples: Mapping[str, int] = MappingProxyType({}),
    guess: Guess = lambda known, free: {**free, **known},
) -> Frozen:
    """Return static shapes for the real inputs of a model.

    A batch that the file leaves open and nobody gives is 1, with a note.

    Args:
        inputs: The real inputs, in file order.
        asked: Extents that the user wants.
        source: The file that the model comes from.
        samples: The dimension that counts samples, of inputs of which it is known. Where it is of
            some, others have it first if they leave it open; where it is of none, all have.
        guess: Chooses the extents that a message proposes.

    Raises:
        ModelError: A dimension without a value, an unknown name, a wrong rank, an extent below 0.
    """
    declared = declared_dims(inputs)
    _check_request(declared, asked, source)
    placed = _placed(declared, asked.dims)
    bindings = _bindings(declared, asked, placed, source)
    places = {name: samples.get(name, 0) for name in declared}
    batches_by_input = {
        name: dim
        for name, dim in _own(declared, asked, places).items()
        if (name, places[name]) not in placed
    }
    leading = _leading(batches_by_input, asked, bindings, samples, source)
    wanted = {
        name: _wanted(dims, asked.shapes.get(name), bindings) for name, dims in declared.items()
    }
    for name, batch in leading.items():
        wanted[name][places[name]] = batch
    for (name, axis), extent in placed.items():
        wanted[name][axis] = extent
    known = _known(declared, wanted, bindings)
    _check_complete(declared, wanted, known, source, guess)
    if asked.batch is None and 1 in leading.values():
        source.note(ASSUMED_BATCH)
    final = {name: tuple(int(extent or 0) for extent in dims) for name, dims in wanted.items()}
    return _frozen(declared, final, bindings, places, known)


def declared_dims(inputs: Sequence[ValueInfoProto]) -> dict[str, list[Dim] | None]:
    """Return the extents that a file declares, by input name."""
    return {value.name: _declared(value) for value in inputs}


def in_doubt(declared: Declared, asked: Extents, samples: Mapping[str, int]) -> bool:
    """Return whether a batch is requested but inputs do not yet agree on which it is."""
    places = {name: samples.get(name, 0) for name in declared}
    batches = _own(declared, Extents(), places).values()
    unlike = len(set(batches)) > 1 or (asked.batch_dim and samples.keys() < declared.keys())
    unknown = asked.batch is not None and asked.samples is None
    return bool(unknown and unlike and all(map(_static, batches)))


def _own(declared: Declared, asked: Extents, places: Mapping[str, int]) -> dict[str, Dim]:
    """Return the batch that inputs have in the file, where their shapes are not given."""
    return {
        name: dims[places[name]]
        for name, dims in declared.items()
        if dims and name not in asked.shapes and NO_SAMPLES < places[name] < len(dims)
    }


def _declared(value: ValueInfoProto) -> list[Dim] | None:
    if not value.type.tensor_type.HasField("shape"):
        return None
    return [
        dim.dim_value if dim.HasField("dim_value") else _named(dim.dim_param)
        for dim in value.type.tensor_type.shape.dim
    ]


def _named(text: str) -> str | None:
    return None if _NO_NAME.fullmatch(text) else text


def _static(dim: Dim) -> TypeGuard[int]:
    """Return whether a declared extent is usable; some exporters write -1 for "any"."""
    return isinstance(dim, int) and dim >= 0


# ---------------------------------------------------------------------------- what the user asks


def _check_request(declared: Declared, asked: Extents, source: Source) -> None:
    if asked.batch is not None:
        if asked.batch < 1:
            raise source.error(f"--batch {asked.batch} is not a positive number")
        if not any(dims is None or dims for dims in declared.values()):
            raise source.error("--batch was given, but the model has no input with a batch")
    _check_dims(declared, asked.dims, source)
    for name, extents in asked.shapes.items():
        if name not in declared:
            raise source.error("--shape names no input of the model", name, _close(name, declared))
        if any(extent < 0 for extent in extents):
            raise source.error(f"--shape {_spelt(name, extents)} has an extent below 0", name)
        dims = declared[name]
        if dims is not None and len(dims) != len(extents):
            raise source.error(
                f"--shape {_spelt(name, extents)} has {len(extents)} dimensions,"
                f" the input has {len(dims)}",
                name,
            )


def _check_dims(declared: Declared, asked: Mapping[str, int], source: Source) -> None:
    names, placed = _all_names(declared), _placed(declared, asked)
    for name, extent in asked.items():
        if name not in names and _place(declared, name) not in placed:
            raise source.error(
                "--dim names no dimension of the inputs", name, _other(name, extent, declared)
            )
        if extent < 0:
            raise source.error(f"--dim {name}={extent} is below 0", name)


def _all_names(declared: Declared) -> dict[str, None]:
    """Return the names that inputs give their dimensions, in the order of the file."""
    return dict.fromkeys(
        name for dims in declared.values() for dim in dims or () for name in _names(dim)
    )


def _place(declared: Declared, key: str) -> tuple[str, int] | None:
    """Return the input and dimension that ``INPUT:AXIS`` stands for; None if it is no such key."""
    name, _, axis = key.rpartition(":")
    dims = declared.get(name)
    if dims is None or not axis.isdecimal() or int(axis) >= len(dims):
        return None
    return name, int(axis)


def _placed(declared: Declared, dims: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """Return the extents that are given to single dimensions of inputs."""
    names = _all_names(declared)
    places = ((_place(declared, key), extent) for key, extent in dims.items() if key not in names)
    return {place: extent for place, extent in places if place is not None}


def _other(name: str, extent: int, declared: Declared) -> str:
    """Return a hint on the flags to give in place of a name that no dimension has."""
    open_ones = [
        f"--dim {shlex.quote(f'{value}:{axis}={extent}')}"
        for value, dims in declared.items()
        for axis, dim in enumerate(dims or ())
        if dim is None
    ]
    if open_ones and _NO_NAME.fullmatch(name):
        return f"it is no name, but stands for any extent: give {' '.join(open_ones)}"
    names = _all_names(declared)
    return _close(name, names, "dimensions") if names else "they have no names: use --shape"


def _close(name: str, names: Mapping[str, object], called: str = "inputs") -> str:
    listed = f"{called} are {', '.join(map(repr, names))}" if names else "it has no input"
    return did_you_mean(name, names, listed)


def _spelt(name: str, dims: Sequence[object]) -> str:
    return f"{name}=" + ",".join(str(dim) for dim in dims)


def _bindings(
    declared: Declared, asked: Extents, placed: Mapping[tuple[str, int], int], source: Source
) -> dict[str, int]:
    """Return the extents of named dimensions, given by name, by place or by an input's shape."""
    bindings = dict(asked.dims)
    given = [
        (name, (declared[name] or [])[axis], extent) for (name, axis), extent in placed.items()
    ]
    for name, extents in asked.shapes.items():
        given += [(name, *pair) for pair in zip(declared[name] or [], extents, strict=False)]
    for name, dim, extent in given:
        if isinstance(dim, str) and bindings.setdefault(dim, extent) != extent:
            raise source.error(
                f"dimension {dim!r} would be {bindings[dim]} and {extent}", name,
                "give every dimension of one name the same extent",
            )  # fmt: skip
    return bindings


def _leading(
    own: Mapping[str, Dim],
    asked: Extents,
    bindings: dict[str, int],
    samples: Mapping[str, int],
    source: Source,
) -> dict[str, int]:
    """Return the batch of the inputs that have one, and bind its dimension names.

    If any of these extents is open, the open ones are the batch: those known to be, and others that
    are not named otherwise; if a batch is requested and none is known, all of them. It is 1 unless
    it is requested. If none is open, the batch is fixed in the file: inputs that have another one
    (a table) keep theirs. Where some are given, the open ones are as many. An extent of zero is one
    that the file gives, but where a batch is requested and no input has samples.
    """
    known = {name for name in own if samples.get(name, NO_SAMPLES) > NO_SAMPLES}
    if asked.batch_dim:
        own = {name: own[name] for name in own if name in known}
    some = {name: dim for name, dim in own.items() if dim != 0}
    empty, own = bool(own) and not some, some or (own if asked.batch is not None else {})
    open_ones = {name: dim for name, dim in own.items() if _value(dim, bindings) is None}
    if asked.batch is None or known:
        said = known if asked.batch is not None or asked.batch_dim else set()
        open_ones = {n: dim for n, dim in open_ones.items() if n in said or like_a_batch(dim)}
    if asked.batch is not None and empty:
        open_ones = dict(own)
    elif asked.batch is not None and own and all(map(_static, own.values())):
        # The extent that most inputs begin with: a table among them keeps its own.
        baked = Counter(own[name] for name in own if name in known or not known)
        open_ones = {name: dim for name, dim in own.items() if dim == baked.most_common(1)[0][0]}
    elif asked.batch is not None and not open_ones and asked.dims and (own or not asked.shapes):
        raise source.error(
            "--batch was given, but --dim gives every leading dimension its extent",
            hint="leave one of them out",
        )
    # samples of one input are those of all
    given = {extent for name in known & own.keys() if (extent := _value(own[name], bindings))}
    batch = asked.batch or (given.pop() if len(given) == 1 else 1)
    for dim in open_ones.values():
        if isinstance(dim, str):
            # What the user gave the name stays.
            bindings.setdefault(dim, batch)
    return dict.fromkeys(open_ones, batch)


def _wanted(
    dims: list[Dim] | None, given: Sequence[int] | None, bindings: Mapping[str, int]
) -> list[int | None]:
    if given is not None:
        return list(given)
    return [None] if dims is None else [_value(dim, bindings) for dim in dims]


def _value(dim: Dim, bindings: Mapping[str, int]) -> int | None:
    """Return the extent of a dimension: as the file has it, or as bound to its name or names."""
    if not isinstance(dim, str):
        return dim if _static(dim) else None
    if dim in bindings:
        return bindings[dim]
    expression = _expression(dim)
    extent = None if expression is None else _computed(expression, bindings)
    return extent if extent is not None and extent >= 0 else None


def _expression(name: str) -> ast.expr | None:
    """Return a dimension's name parsed as an expression (``past + 1``), None if it is not one."""
    if len(name) > _LONGEST_NAME:
        return None
    try:
        return ast.parse(name.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _computed(expression: ast.expr, bindings: Mapping[str, int]) -> int | None:
    match expression:
        # A dimension's name is any text: only numbers and a few operations count.
        case ast.Constant(value=int(number)) if number < MOST_ELEMENTS:
            return number
        case ast.Name(id=name):
            return bindings.get(name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            sides = _computed(left, bindings), _computed(right, bindings)
            if None in sides or (isinstance(op, ast.FloorDiv) and not sides[1]):
                return None
            found = int(_ARITHMETIC[type(op)](*sides))
            return found if abs(found) < MOST_ELEMENTS else None  # products may have any length
    return None


def _names(dim: Dim) -> list[str]:
    """Return the names that determine an extent: a dimension's, or those in its expression."""
    if not isinstance(dim, str):
        return []
    expression = _expression(dim)
    inner = [] if expression is None else list(ast.walk(expression))
    return list(dict.fromkeys((dim, *(node.id for node in inner if isinstance(node, ast.Name)))))


# --------------------------------------------------------------------------------- what is missing


def symbols_of(inputs: Sequence[ValueInfoProto]) -> dict[str, list[str]]:
    """Return the symbols of each input's open extents: names, or places where there is no name."""
    declared = {value.name: _declared(value) for value in inputs}
    return {name: list(_symbols(name, dims or [])) for name, dims in declared.items()}


def _symbols(name: str, dims: Sequence[Dim]) -> dict[str, None]:
    found = (
        _names(dim)[1:] or _names(dim) or [f"{name}:{axis}"]
        for axis, dim in enumerate(dims)
        if not _static(dim)
    )
    return dict.fromkeys(symbol for several in found for symbol in several)


def _known(declared: Declared, wanted: Wanted, bindings: Mapping[str, int]) -> dict[str, int]:
    """Return the extents of symbols that are known."""
    places = {
        f"{name}:{axis}": extent
        for name, extents in wanted.items()
        for axis, extent in enumerate(extents)
        if extent is not None
    }
    symbols = [s for name, dims in declared.items() for s in _symbols(name, dims or [])]
    extents = places | dict(bindings)
    return {symbol: extents[symbol] for symbol in symbols if symbol in extents}


def _check_complete(
    declared: Declared, wanted: Wanted, known: Mapping[str, int], source: Source, guess: Guess
) -> None:
    """Refuse inputs with open dimensions; name the first, with the flags that close all."""
    open_inputs = [name for name, dims in wanted.items() if None in dims]
    if not open_inputs:
        return
    name = open_inputs[0]
    more = f" (nor have {len(open_inputs) - 1} more inputs)" if len(open_inputs) > 1 else ""
    symbols = [s for one in declared for s in _symbols(one, declared[one] or [])]
    # A leading dimension is likely the batch, of which 1 fits any model.
    free = {s: 1 if s.endswith(":0") else _EXAMPLE for s in symbols if s not in known}
    extents = guess(known, free)
    flags = dict.fromkeys(
        flag for one in open_inputs for flag in _flags(one, declared, wanted, known, extents)
    )
    hint = f"give the extents, for example {' '.join(flags)}"
    dims = declared[name]
    if dims is None:
        raise source.error(f"input has no shape{more}", name, hint)
    missing = [index for index, extent in enumerate(wanted[name]) if extent is None]
    which = " and ".join(f"{index}{_called(dims[index])}" for index in missing)
    several = "dimensions" if len(missing) > 1 else "dimension"
    verb = "have" if len(missing) > 1 else "has"
    raise source.error(f"{several} {which} {verb} no value{more}", name, hint)


def _flags(
    name: str,
    declared: Declared,
    wanted: Wanted,
    known: Mapping[str, int],
    extents: Mapping[str, int],
) -> list[str]:
    """Return the flags that give an input its missing extents."""
    dims = declared[name]
    if dims is None:
        return [f"--shape {shlex.quote(_spelt(name, (1, 3, 224, 224)))}"]
    missing = {
        axis: dim
        for axis, (dim, extent) in enumerate(zip(dims, wanted[name], strict=True))
        if extent is None
    }
    if all(isinstance(dim, str) for dim in missing.values()):
        inner = [one for dim in missing.values() for one in (_names(dim)[1:] or _names(dim))]
        asked = [one for one in inner if one not in known] or inner
        return [f"--dim {shlex.quote(f'{one}={extents.get(one, _EXAMPLE)}')}" for one in asked]
    shape = [
        _extent_of(f"{name}:{axis}", dims[axis], extents) if extent is None else extent
        for axis, extent in enumerate(wanted[name])
    ]
    return [f"--shape {shlex.quote(_spelt(name, shape))}"]


def _extent_of(place: str, dim: Dim, extents: Mapping[str, int]) -> int:
    """Return the extent that is proposed for a dimension."""
    named = _value(dim, extents) if isinstance(dim, str) else None
    return extents.get(place, _EXAMPLE) if named is None else named


def flags_for(
    symbol: str, extent: int, asked: Extents, inputs: Sequence[ValueInfoProto]
) -> list[str]:
    """Return the flags that give a symbol another extent, wherever it has been given one."""
    declared = {value.name: _declared(value) for value in inputs}
    flags = [f"--dim {shlex.quote(f'{symbol}={extent}')}"]
    if symbol not in asked.dims and any(
        symbol in _symbols(n, declared[n] or []) for n in asked.shapes
    ):
        flags = []
    for name, shape in asked.shapes.items():
        changed = [
            extent if symbol in (dim, f"{name}:{axis}") else old
            for axis, (dim, old) in enumerate(zip(declared[name] or [], shape, strict=False))
        ]
        if declared[name] is not None and changed != list(shape):
            flags.append(f"--shape {shlex.quote(_spelt(name, changed))}")
    return flags


def _called(dim: Dim) -> str:
    return "" if dim is None else f" ({dim!r})"


def _frozen(
    declared: Declared,
    final: dict[str, tuple[int, ...]],
    bindings: dict[str, int],
    places: Mapping[str, int],
    known: dict[str, int],
) -> Frozen:
    """Return the final shapes, with their changes against the file's own."""
    stated = {name: _made_for(declared[name], shape) for name, shape in final.items()}
    made_for = {
        name: tuple(
            stated[name][dim] if dim == places[name] else extent for dim, extent in enumerate(shape)
        )
        for name, shape in final.items()
    }
    changed = Counter(
        (made_for[name][places[name]], shape[places[name]])
        for name, shape in final.items()
        if shape != made_for[name]
    )
    # Inputs without samples may have changed too; most changes are the batch.
    old, new = changed.most_common(1)[0][0] if changed else (1, 1)
    return Frozen(
        shapes=final,
        bindings=bindings,
        baked=made_for if changed else None,
        batch=old,
        ratio=Fraction(new, old),
        known=known,
        as_declared=all(
            shape == stated[name] or (places[name] == 0 and shape[1:] == stated[name][1:])
            for name, shape in final.items()
        ),
    )


def _made_for(dims: list[Dim] | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    if dims is None:
        return shape
    return tuple(
        dim if _static(dim) and dim else extent for dim, extent in zip(dims, shape, strict=True)
    )


def resolve(kind: TypeProto, bindings: Mapping[str, int]) -> TypeProto:
    """Return a declared type with its named dimensions replaced by the given extents."""
    if not kind.tensor_type.HasField("shape") or dims_of(kind) is None:
        return kind
    resolved = type(kind)()
    resolved.CopyFrom(kind)
    for dim in resolved.tensor_type.shape.dim:
        if dim.dim_param in bindings:
            dim.dim_value = bindings[dim.dim_param]
        elif dim.HasField("dim_value") and dim.dim_value < 0:
            dim.Clear()
    return resolved
