"""Gives every input a static shape: what the file says, ``--batch`` and ``--shape``."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from autoturbo.graph.values import dims_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import TypeProto, ValueInfoProto

    from autoturbo.graph.source import Source

Dim = int | str | None
"""A declared extent: static, named, or neither."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """Static shapes of the real inputs.

    Attributes:
        shapes: by input name.
        bindings: extents that were given to named dimensions.
        baked: the shapes with the leading extents that the file was made for, where they have been
            changed; else None.
        batch: the leading extent that the file was made for, where it has been changed.
        ratio: new leading extent over the file's, 1 unless ``baked``.
        as_declared: no static extent but the leading one was changed, so that the shapes the file
            states for other values hold.
    """

    shapes: dict[str, tuple[int, ...]]
    bindings: dict[str, int]
    baked: dict[str, tuple[int, ...]] | None
    batch: int
    ratio: Fraction
    as_declared: bool


def freeze(
    inputs: Sequence[ValueInfoProto],
    batch: int | None,
    shapes: Mapping[str, Sequence[int]],
    source: Source,
) -> Frozen:
    """Static shapes for the real inputs of a model.

    Args:
        inputs: the real inputs, in file order.
        batch: the leading extent wanted, or None for the file's own.
        shapes: extents wanted by input name; they win over ``batch``.
        source: where the model is from.

    Raises:
        ModelError: a dimension without a value, an unknown name, a wrong rank, an extent below 1.
    """
    declared = {value.name: _declared(value) for value in inputs}
    _check_request(declared, batch, shapes, source)
    bindings = _bindings(declared, batch, shapes, source)
    wanted = {
        name: _wanted(dims, shapes.get(name), bindings)
        for name, dims in _with_batch(declared, shapes, batch).items()
    }
    _check_complete(declared, wanted, source)
    final = {name: tuple(int(extent or 0) for extent in dims) for name, dims in wanted.items()}
    return _frozen(declared, final, bindings)


def _declared(value: ValueInfoProto) -> list[Dim] | None:
    if not value.type.tensor_type.HasField("shape"):
        return None
    return [
        dim.dim_value if dim.HasField("dim_value") else (dim.dim_param or None)
        for dim in value.type.tensor_type.shape.dim
    ]


def _static(dim: Dim) -> bool:
    """Whether a declared extent is a usable number; some exporters write -1 or 0 for 'any'."""
    return isinstance(dim, int) and dim > 0


# ---------------------------------------------------------------------------- what the user asks


def _check_request(
    declared: Mapping[str, list[Dim] | None],
    batch: int | None,
    shapes: Mapping[str, Sequence[int]],
    source: Source,
) -> None:
    if batch is not None:
        if batch < 1:
            raise source.error(f"--batch {batch} is not a positive number")
        if not any(dims is None or dims for dims in declared.values()):
            raise source.error("--batch was given, but the model has no input with a batch")
    for name, extents in shapes.items():
        if name not in declared:
            raise source.error("--shape names no input of the model", name, _close(name, declared))
        if any(extent < 1 for extent in extents):
            raise source.error(f"--shape {_spelt(name, extents)} has an extent below 1", name)
        dims = declared[name]
        if dims is not None and len(dims) != len(extents):
            raise source.error(
                f"--shape {_spelt(name, extents)} has {len(extents)} dimensions,"
                f" the input has {len(dims)}",
                name,
            )


def _close(name: str, names: Mapping[str, object]) -> str:
    folded = {known.casefold(): known for known in names}
    near = difflib.get_close_matches(name.casefold(), folded, n=1)
    if near:
        return f"did you mean {folded[near[0]]!r}?"
    return "inputs are " + ", ".join(repr(known) for known in names) if names else "it has no input"


def _spelt(name: str, dims: Sequence[object]) -> str:
    return f"{name}=" + ",".join(str(dim) for dim in dims)


def _bindings(
    declared: Mapping[str, list[Dim] | None],
    batch: int | None,
    shapes: Mapping[str, Sequence[int]],
    source: Source,
) -> dict[str, int]:
    """Extents of named dimensions, from the shapes given and then from the batch."""
    bindings: dict[str, int] = {}
    for name, extents in shapes.items():
        for dim, extent in zip(declared[name] or [], extents, strict=False):
            if isinstance(dim, str) and bindings.setdefault(dim, extent) != extent:
                raise source.error(
                    f"dimension {dim!r} would be {bindings[dim]} and {extent}", name,
                    "give every dimension of one name the same extent",
                )  # fmt: skip
    for name, dims in declared.items():
        if batch is not None and name not in shapes and dims and isinstance(dims[0], str):
            bindings.setdefault(dims[0], batch)
    return bindings


def _with_batch(
    declared: Mapping[str, list[Dim] | None],
    shapes: Mapping[str, Sequence[int]],
    batch: int | None,
) -> dict[str, list[Dim] | None]:
    """The declared extents with the batch put in front of the inputs that have one.

    Where any leading extent is open, those are the batch. Otherwise the batch is baked in: it is
    the most common leading extent, and inputs that begin with another one (a table) keep theirs.
    """
    leading = [dims[0] for name, dims in declared.items() if dims and name not in shapes]
    if batch is None or not leading:
        return dict(declared)
    open_ones = [dim for dim in leading if not _static(dim)]
    baked = Counter(leading).most_common(1)[0][0]
    return {
        name: [batch, *dims[1:]]
        if dims and (not _static(dims[0]) if open_ones else dims[0] == baked)
        else dims
        for name, dims in declared.items()
    }


def _wanted(
    dims: list[Dim] | None,
    given: Sequence[int] | None,
    bindings: Mapping[str, int],
) -> list[int | None]:
    if given is not None:
        return list(given)
    if dims is None:
        return [None]
    bound = [bindings.get(dim) if isinstance(dim, str) else dim for dim in dims]
    return [dim if _static(dim) else None for dim in bound]


# --------------------------------------------------------------------------------- what is missing


def _check_complete(
    declared: Mapping[str, list[Dim] | None],
    wanted: Mapping[str, list[int | None]],
    source: Source,
) -> None:
    """Refuse inputs with open dimensions; the first is named, with the flag that closes it."""
    open_inputs = [name for name, dims in wanted.items() if None in dims]
    if not open_inputs:
        return
    name = open_inputs[0]
    more = f" (nor have {len(open_inputs) - 1} more inputs)" if len(open_inputs) > 1 else ""
    dims = declared[name]
    if dims is None:
        raise source.error(f"input has no shape{more}", name, f"give --shape {name}=N,...")
    missing = [index for index, extent in enumerate(wanted[name]) if extent is None]
    which = " and ".join(f"{index}{_called(dims[index])}" for index in missing)
    several = "dimensions" if len(missing) > 1 else "dimension"
    verb = "have" if len(missing) > 1 else "has"
    template = _spelt(name, [_placeholder(d) if i in missing else d for i, d in enumerate(dims)])
    flag = f"--batch N or --shape {template}" if missing == [0] else f"--shape {template}"
    raise source.error(f"{several} {which} {verb} no value{more}", name, f"give {flag}")


def _called(dim: Dim) -> str:
    return "" if dim is None else f" ({dim!r})"


def _placeholder(dim: Dim) -> str:
    return dim.upper() if isinstance(dim, str) and dim.isidentifier() else "N"


def _frozen(
    declared: Mapping[str, list[Dim] | None],
    final: dict[str, tuple[int, ...]],
    bindings: dict[str, int],
) -> Frozen:
    """Compare what the file was made for with what it has become."""
    stated = {name: _made_for(declared[name], shape) for name, shape in final.items()}
    made_for = {name: (*stated[name][:1], *shape[1:]) for name, shape in final.items()}
    changed = Counter(
        (made_for[name][0], shape[0])
        for name, shape in final.items()
        if shape and shape[0] != made_for[name][0]
    )
    old, new = changed.most_common(1)[0][0] if changed else (1, 1)
    return Frozen(
        shapes=final,
        bindings=bindings,
        baked=made_for if changed else None,
        batch=old,
        ratio=Fraction(new, old),
        as_declared=all(shape[1:] == stated[name][1:] for name, shape in final.items()),
    )


def _made_for(dims: list[Dim] | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    if dims is None:
        return shape
    return tuple(
        dim if isinstance(dim, int) and dim > 0 else extent
        for dim, extent in zip(dims, shape, strict=True)
    )


def resolve(kind: TypeProto, bindings: Mapping[str, int]) -> TypeProto:
    """A declared type with its named dimensions replaced by the extents given to them."""
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
