"""What a model stores of its constants: narrow, or converted and rearranged before it is read.

A file may hold one weight and read it through many nodes that depend on no input: conversions
(DequantizeLinear, Cast), other orders of its elements (Transpose, Reshape), parts of it (Slice).
The device holds what the file holds, so its bytes count once, however many of these views there
are; scales and zero points count once as well.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction

from onnx import helper

from autoturbo.graph.operators import Graph, Origin, Stored
from autoturbo.graph.source import kind_of
from autoturbo.graph.values import Step, View

BYTES = frozenset(("int8", "uint8"))

QUANTISE = frozenset(("QuantizeLinear", "com.microsoft.QuantizeLinear"))
DEQUANTISE = frozenset(("DequantizeLinear", "com.microsoft.DequantizeLinear"))
_BITS = re.compile("(?:u?int|float)([248])(?:_|$)")
"""Types of at most 8 bits, by their names."""

_REARRANGING = frozenset(("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"))
_CASTS = frozenset(("Cast", "CastLike"))
_CHOOSING = frozenset(("Slice", "Split", "Gather"))


def stored_as(step: Step) -> Stored | None:
    """Return how the file stores a dequantised constant; rearranging nodes pass it on."""
    first, *beside = step.inputs or [None]
    if first is None or step.node.op_type in _REARRANGING:
        return None if first is None else first.stored
    if first.stored and step.node.op_type == "Cast":
        return replace(first.stored, integer=False)
    bits = _BITS.match(first.dtype)
    if step.node.op_type not in DEQUANTISE or bits is None:
        return None
    counts = [math.prod(value.shape or ()) if value else 0 for value in (*beside, None, None)]
    return Stored(int(bits[1]), counts[0], counts[1], first.dtype in BYTES)


def view_of(step: Step, position: int) -> View | None:
    """Return a node's output as a view of a stored constant; None if it computes new elements.

    Args:
        step: A node that depends on no input of the model.
        position: Position of its output among the node's outputs.
    """
    first, *others = step.inputs or [None]
    kind = kind_of(step.node)
    if first is None:
        return None
    view = first.view or View(first)
    if kind in QUANTISE | DEQUANTISE:
        return replace(view, beside=tuple(value for value in others if value))
    if kind in _CHOOSING:
        return replace(view, part=(*view.part, _choice(step, position)))
    return view if kind in _REARRANGING | _CASTS else None


def _choice(step: Step, position: int) -> str:
    """Return which elements a node chooses: equal texts choose the same of one constant."""
    bounds = [
        value and (value.name if value.data is None else str(value.data.tolist()))
        for value in step.inputs[1:]
    ]
    given = sorted(helper.printable_attribute(one) for one in step.node.attribute)
    place = f"{position} of {len(step.node.output)}"
    return f"{kind_of(step.node)} {bounds} {given} {place}"


def stored_bytes(
    graph: Graph, sizes: Iterable[tuple[int, int]], rate: Callable[[int], Fraction]
) -> int:
    """Return the bytes of constants together; what several are views of counts once.

    Of views of all elements of a stored constant the largest counts, of views of parts their sum,
    but not more than the whole.

    Args:
        graph: The graph.
        sizes: Tensors and the bytes of each, scales and zero points included.
        rate: Returns a tensor's bytes per element, scales and zero points included.
    """
    parts: defaultdict[str, dict[tuple[str, ...], int]] = defaultdict(dict)
    most: dict[str, Fraction] = {}
    scales: dict[tuple[str, tuple[str, ...]], int] = {}
    for index, size in sizes:
        tensor = graph.tensors[index]
        origin, narrow = tensor.origin or Origin(tensor.name, tensor.elements), tensor.stored
        bare = min(Fraction(narrow.bits, 8), rate(index)) if narrow else rate(index)
        own = math.ceil(size * bare / rate(index)) if rate(index) else size
        found = parts[origin.stored]
        found[origin.part] = max(found.get(origin.part, 0), own)
        key = origin.stored, origin.beside
        scales[key] = max(scales.get(key, 0), size - own)
        most[origin.stored] = max(most.get(origin.stored, Fraction(0)), bare * origin.elements)
    whole = (
        max(of.pop((), 0), min(sum(of.values()), math.ceil(most[name])))
        for name, of in parts.items()
    )
    return sum(whole) + sum(scales.values())
