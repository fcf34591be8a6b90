"""Matrix products: one multiply-accumulate per point of (batch, m, n, k)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autoturbo.graph.domain import WHOLE_DIM, AccessMap, DimAccess, along, fixed, merged
from autoturbo.graph.operator_table.build import (
    MICROSOFT,
    ONNX,
    Domain,
    NodeView,
    NoRowError,
    OperatorSpec,
    Rows,
    ValueView,
    agree,
    broadcast,
    everything,
    per_channel,
)
from autoturbo.graph.operators import Engine, Pattern, Work


@dataclass(frozen=True, slots=True)
class _Product:
    """The domain of a matrix product, and how its operands and its result are addressed."""

    domain: Domain
    left: AccessMap
    right: AccessMap
    output: AccessMap
    rows: DimAccess
    columns: DimAccess


def _product(
    left: tuple[int, ...],
    right: tuple[int, ...],
    *,
    flip_left: bool = False,
    flip_right: bool = False,
) -> _Product:
    """Return the product of two shapes by ``numpy.matmul``, each optionally transposed.

    An operand of one dimension is a row (left) or a column (right) that the result lacks.
    """
    agree(left and right, "an operand is a scalar")
    batch = _broadcast_shape(left[:-2], right[:-2])
    domain = Domain()
    dims = domain.dims(batch)
    output = list(dims)
    k = along(domain.reduction("k", left[-2] if flip_left and len(left) > 1 else left[-1]))
    rows, columns = fixed(), fixed()
    if len(left) > 1:
        rows = along(domain.axis("m", left[-1] if flip_left else left[-2]))
        output.append(rows)
    if len(right) > 1:
        columns = along(domain.axis("n", right[-2] if flip_right else right[-1]))
        output.append(columns)
    inner = right[-1] if flip_right or len(right) == 1 else right[-2]
    agree(domain.axes[k.terms[0][0]].extent == inner, f"{left} and {right} do not multiply")
    return _Product(
        domain,
        _operand(left, batch, dims, (k, rows) if flip_left else (rows, k)),
        _operand(right, batch, dims, (columns, k) if flip_right else (k, columns)),
        AccessMap(tuple(output)),
        rows,
        columns,
    )


def _operand(
    shape: tuple[int, ...],
    batch: tuple[int, ...],
    dims: Sequence[DimAccess],
    matrix: tuple[DimAccess, DimAccess],
) -> AccessMap:
    if len(shape) == 1:
        summed = next(dim for dim in matrix if dim.terms)
        return AccessMap((summed,))
    return AccessMap((*broadcast(shape[:-2], batch, dims).dims, *matrix))


def _broadcast_shape(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(left), len(right))
    left, right = (1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right
    pairs = list(zip(left, right, strict=True))
    agree(all(a == b or 1 in (a, b) for a, b in pairs), f"{left} and {right} do not broadcast")
    return tuple(b if a == 1 else a for a, b in pairs)


def _finish(
    node: NodeView,
    product: _Product,
    inputs: Sequence[AccessMap | None],
    weights: tuple[int, ...],
    *,
    vector: float = 0.0,
    macs: int = 1,
) -> OperatorSpec:
    """Return the description that all matrix products share."""
    return product.domain.answer(
        node,
        inputs,
        [product.output],
        Work(macs=macs, vector=vector),
        engine=Engine.MATRIX,
        pattern=Pattern.OUT_ELEMENTWISE_FUSABLE,
        parameterised=node.is_weight(*weights),
    )


def _product_of(node: NodeView, right: int = 1) -> _Product:
    """Return the product of the first input and another one, transposed by their attributes."""
    flips = [bool(node.integer(f"trans{side}", 0)) for side in "AB"]
    shapes = node.shape_in(0), node.shape_in(right)
    return _product(*shapes, flip_left=flips[0], flip_right=flips[1])


def _matmul(node: NodeView) -> OperatorSpec:
    product = _product_of(node)
    return _finish(node, product, [product.left, product.right], (0, 1))


def _fused_matmul(node: NodeView) -> OperatorSpec:
    """Describe com.microsoft.FusedMatMul: operands transposed, the product scaled by ``alpha``."""
    batched = node.integer("transBatchA", 0) or node.integer("transBatchB", 0)
    agree(not batched, "transposed batch dimensions")
    product = _product_of(node)
    return _finish(node, product, [product.left, product.right], (0, 1), vector=1.0)


def _gemm(node: NodeView) -> OperatorSpec:
    """Describe Gemm, ``alpha A B + beta C``: the third operand costs one addition per output.

    Returns:
        The product; com.microsoft.FusedGemm has an activation after it, one operation more.
    """
    left, right, target = node.shape_in(0), node.shape_in(1), node.shape_out()
    agree(len(left) == len(right) == len(target) == 2, "operands are not matrices")  # noqa: PLR2004
    product = _product_of(node)
    addend = node.value_in(2)
    third = None if addend is None else broadcast(addend.shape, target, product.output.dims)
    inputs = [product.left, product.right, third]
    vector = float(third is not None) + float("activation" in node.attributes)
    return _finish(node, product, inputs, (0, 1), vector=vector)


def _matmul_integer(node: NodeView) -> OperatorSpec:
    """Describe MatMulInteger: zero points cost one subtraction per output, sums precomputed."""
    product = _product_of(node)
    points = [*_scales(node, product, product.rows, 2), *_scales(node, product, product.columns, 3)]
    vector = float(sum(point is not None for point in points))
    return _finish(node, product, [product.left, product.right, *points], (0, 1), vector=vector)


def _qlinear_matmul(node: NodeView) -> OperatorSpec:
    """Describe QLinearMatMul: 5 operations per output to requantise.

    Returns:
        The product; requantising subtracts, scales, rounds, adds the zero point and saturates.
    """
    product = _product_of(node, 3)
    left = [product.left, *_scales(node, product, product.rows, 1, 2)]
    right = [product.right, *_scales(node, product, product.columns, 4, 5)]
    result = [everything(node.value_in(6)), everything(node.value_in(7))]
    return _finish(node, product, [*left, *right, *result], (0, 3), vector=5.0)


def _scales(
    node: NodeView, product: _Product, dim: DimAccess, *positions: int
) -> Iterator[AccessMap | None]:
    """Return the accesses of scales and zero points: one for all, per row or column, or other."""
    for value in map(node.value_in, positions):
        if value is None or len(value.shape) > 1 or not dim.terms:
            yield everything(value)
        else:
            yield per_channel(value, dim, product.domain.axes[dim.terms[0][0]].extent)


def _matmul_nbits(node: NodeView) -> OperatorSpec:
    """Describe com.microsoft.MatMulNBits: a K x N weight in packed blocks, unpacked when read.

    Returns:
        The product with its unpacking (subtract the zero point, scale), which is counted once per
        weight element as vector work, since the packed weight is what is stored.
    """
    left, packed = node.shape_in(0), node.value_in(1)
    inner, outer = node.integer("K", -1), node.integer("N", -1)
    agree(packed is not None and packed.shape[0] == outer, "the packed weight is not N x ...")
    product = _product(left, (inner, outer))
    parameter_maps = [_blocks(node.value_in(i), outer, product.columns) for i in range(1, 4)]
    rest = [everything(value) for value in node.inputs[4:]]
    # Unpacking counts once per weight, not per point: it does not grow with the rows.
    spec = _finish(node, product, [product.left, *parameter_maps, *rest], (1,))
    return replace(spec, unpacking=2.0 * inner * outer)


def _blocks(value: ValueView | None, columns: int, dim: DimAccess) -> AccessMap | None:
    """Return the access of quantised blocks, columns of the weight outermost, maybe flattened."""
    whole = everything(value)
    if value is None or whole is None or not value.shape or value.shape[0] != columns:
        return whole
    return AccessMap((dim, *whole.dims[1:]))


_GATE = (4.0, 2.0)
"""Vector and special operations of an activation between the products of an expert (SiLU)."""


def _experts(node: NodeView) -> OperatorSpec:
    """Describe com.microsoft.MoE: each token goes through the ``k`` experts that its router picks.

    Returns:
        One product that stands for the two or three of each expert, counted for the experts of a
        token. All experts are read: the router's choice is not known.

    Raises:
        NoRowError: The weights of the first or the second product are missing.
    """
    source, router = node.shape_in(0), node.shape_in(1)
    first, second, third = node.value_in(2), node.value_in(4), node.value_in(6)
    if first is None or second is None:
        raise NoRowError("weights are missing")
    inner = first.shape[1] + second.shape[2] + (third.shape[1] if third is not None else 0)
    met, domain = node.integer("k", 1), Domain()
    tokens = [domain.axis(f"t{index}", extent) for index, extent in enumerate(source[:-1])]
    # Every expert makes all channels of a token, so they cannot be split.
    output_map = AccessMap((*map(along, tokens), along(domain.whole("h", source[-1]))))
    domain.reduction("i", met * inner)
    read = AccessMap((*map(along, tokens), WHOLE_DIM))
    row = merged(*((axis, source[axis]) for axis in tokens))
    # The router's scores have all tokens in one dimension.
    inputs = [read, AccessMap((row, WHOLE_DIM)), *(everything(v) for v in node.inputs[2:])]
    rate = met * second.shape[2] / max(source[-1], 1)
    chosen = router[-1] / max(source[-1], 1)
    work = Work(macs=1, vector=_GATE[0] * rate + 3.0 * chosen, special=_GATE[1] * rate + chosen)
    return domain.answer(
        node, inputs, [output_map], work,
        engine=Engine.MATRIX, pattern=Pattern.OPAQUE, parameterised=node.is_weight(2, 4),
    )  # fmt: skip


def _einsum(node: NodeView) -> OperatorSpec:
    """Describe Einsum: one axis per letter, summed over if the result lacks it.

    Returns:
        ``f - 1`` multiply-accumulates per point of the whole domain for ``f`` operands, a plain sum
        for one. An imported node has two at most: :func:`autoturbo.graph.expand.fused.einsum`
        contracts more by pairs.
    """
    terms, result = _equation(node)
    domain, letters = Domain(), dict[str, DimAccess]()
    extents = _letter_extents(node, terms)
    for letter in dict.fromkeys("".join([result, *terms])):
        add = domain.axis if letter in result else domain.reduction
        agree(letter in extents, f"{letter} is in no operand")
        letters[letter] = along(add(letter, extents[letter]))
    inputs = [AccessMap(tuple(letters[letter] for letter in term)) for term in terms]
    output = AccessMap(tuple(letters[letter] for letter in result))
    positions = tuple(range(len(terms)))
    product = _Product(domain, inputs[0], inputs[-1], output, fixed(), fixed())
    if len(terms) == 1:  # a transposition, or a sum over some dimensions
        work = Work(vector_per_point=1.0)
        return domain.answer(node, inputs, [output], work, pattern=Pattern.REDUCE)
    return _finish(node, product, inputs, positions, macs=len(terms) - 1)


def _equation(node: NodeView) -> tuple[list[str], str]:
    """Return the operand terms and the result of an equation.

    Without an arrow the result is the letters used once, sorted.
    """
    equation = node.text("equation", "").replace(" ", "")
    agree("." not in equation, "an ellipsis")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if not arrow:
        result = "".join(sorted(letter for letter in set(left) - {","} if left.count(letter) == 1))
    repeated = any(len(set(term)) < len(term) for term in [*terms, result])
    agree(not repeated, "a diagonal (a repeated letter)")
    return terms, result


def _letter_extents(node: NodeView, terms: list[str]) -> dict[str, int]:
    extents: dict[str, int] = {}
    agree(len(terms) == len(node.inputs), "as many operands as terms are needed")
    for position, term in enumerate(terms):
        shape = node.shape_in(position)
        agree(len(shape) == len(term), f"operand {position} has {len(shape)} dimensions")
        for letter, extent in zip(term, shape, strict=True):
            if extents.setdefault(letter, extent) != extent:
                raise NoRowError(f"extents of {letter} differ (broadcast)")
    return extents


ROWS: Rows = {
    (ONNX, "MatMul"): _matmul,
    (ONNX, "Gemm"): _gemm,
    (ONNX, "Einsum"): _einsum,
    (ONNX, "MatMulInteger"): _matmul_integer,
    (ONNX, "QLinearMatMul"): _qlinear_matmul,
    (MICROSOFT, "FusedGemm"): _gemm,
    (MICROSOFT, "FusedMatMul"): _fused_matmul,
    (MICROSOFT, "MatMulNBits"): _matmul_nbits,
    (MICROSOFT, "MoE"): _experts,
}
