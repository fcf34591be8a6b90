"""Fourier transforms, and columns put together to images.

A transform of ``n`` points is counted as a fast one: ``5 n log2 n`` operations, half of that for
real numbers. Angles are tables, so nothing is transcendental.
"""

from __future__ import annotations

import math

from autoturbo.graph.domain import WHOLE_DIM, AccessMap, DimAccess, along, fixed, merged
from autoturbo.graph.operators import Work
from autoturbo.graph.table.build import ONNX, Domain, Rows, agree, chosen_axes, everything, whole_if
from autoturbo.graph.table.spec import NodeView, OperatorSpec

_AXIS_INPUT = 20
"""Opset since which DFT has its axis as an input."""

_SIGNAL = 3
"""Rank of a signal: batch, samples, and one number or two."""

_PAIR = 2
"""Numbers of a complex value."""


def _transform(count: int, *, real: bool) -> float:
    """Operations of a transform of so many points."""
    return 5.0 * count * math.log2(max(count, 2)) / (2 if real else 1)


def _dft(node: NodeView) -> OperatorSpec:
    """Each line along one dimension by itself."""
    source, target = node.shape_in(0), node.shape_out()
    rank = len(source)
    agree(rank == len(target) > 1, "input and output differ in rank")
    if node.opset >= _AXIS_INPUT:
        axis = (node.constant_integers(2) or (-2,))[0]
    else:
        axis = node.integer("axis", 1)
    (line,) = chosen_axes([axis], rank)
    agree(line < rank - 1, "the last dimension holds the parts of a number")
    domain = Domain()
    dims = domain.dims(target, whole_if([line, rank - 1]))
    lines = math.prod(e for k, e in enumerate(target) if k not in (line, rank - 1))
    count = max(source[line], target[line])
    work = lines * _transform(count, real=source[-1] < _PAIR) / max(math.prod(target), 1)
    read = AccessMap((*dims[:line], WHOLE_DIM, *dims[line + 1 : -1], WHOLE_DIM))
    return domain.answer(node, [read], [AccessMap(dims)], Work(vector=work))


def _stft(node: NodeView) -> OperatorSpec:
    """Frames cut from a signal in steps, weighted by a window and transformed."""
    source, target = node.shape_in(0), node.shape_out()
    step = (node.constant_integers(1) or (0,))[0]
    window = node.value_in(2)
    length = node.constant_integers(3) or (window.shape if window is not None else ())
    agree(len(target) == _SIGNAL + 1 and step > 0 and length, "frames of unknown step or length")
    domain = Domain()
    b, f = domain.axis("b", target[0]), domain.axis("f", target[1])
    bins, parts = domain.whole("k", target[2]), domain.whole("c", target[3])
    place = domain.reduction("w", length[0])
    samples = DimAccess(((f, step), (place, 1)))
    rest = (fixed(),) if len(source) == _SIGNAL and source[2] == 1 else (WHOLE_DIM,)
    read = AccessMap((along(b), samples, *rest[: len(source) - 2]))
    real = len(source) < _SIGNAL or source[2] < _PAIR
    work = (_transform(length[0], real=real) + length[0]) / max(target[2] * target[3], 1)
    made = AccessMap((along(b), along(f), along(bins), along(parts)))
    inputs = [read, None, everything(window)]
    return domain.answer(node, inputs, [made], Work(vector=work))


def _col2im(node: NodeView) -> OperatorSpec:
    """Columns are added up where they overlap: one addition per element read."""
    source, target = node.shape_in(0), node.shape_out()
    agree(len(source) == 3 and len(target) > 2, "columns of three dimensions")  # noqa: PLR2004
    block = source[1] // max(target[1], 1)
    agree(block * target[1] == source[1], "channels are not a multiple of the block")
    domain = Domain()
    n, c = along(domain.axis("n", target[0])), domain.axis("c", target[1])
    space = [along(domain.whole(f"d{k}", extent)) for k, extent in enumerate(target[2:], 2)]
    place = domain.reduction("k", block)
    read = AccessMap((n, merged((c, target[1]), (place, block)), WHOLE_DIM))
    work = Work(vector=block * source[2] / max(math.prod(target[2:]), 1))
    return domain.answer(node, [read], [AccessMap((n, along(c), *space))], work)


ROWS: Rows = {
    (ONNX, "Col2Im"): _col2im,
    (ONNX, "DFT"): _dft,
    (ONNX, "STFT"): _stft,
}
