"""Triton kernels: convolutions, products, chains of them, attention.

All compute in FP16 with FP32 sums. A feature map lies in memory with its channels innermost; a
product of a weight is a convolution of 1 x 1 whose positions are rows. Each kernel makes a region
of its output, so that an instance of a sub-graph is a call.
"""

from __future__ import annotations

import triton
import triton.language as tl

from autoturbo_gpu import plan

RELU, GELU = tl.constexpr(plan.RELU), tl.constexpr(plan.GELU)


@triton.jit
def activated(sums, ACTIVATION: tl.constexpr):
    """Return sums behind their activation."""
    if ACTIVATION == RELU:
        sums = tl.maximum(sums, 0.0)
    elif ACTIVATION == GELU:
        sums = 0.5 * sums * (1.0 + tl.erf(sums * 0.7071067811865476))
    return sums


@triton.jit
def finished(
    sums, bias, residual, place, inside, channels, channels_inside,
    HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Return sums with bias and residual added, behind the activation, in FP16."""
    if HAS_BIAS:
        sums += tl.load(bias + channels, mask=channels_inside, other=0.0)[None, :]
    if HAS_RESIDUAL:
        known = inside[:, None] & channels_inside[None, :]
        sums += tl.load(residual + place, mask=known, other=0.0).to(tl.float32)
    return activated(sums, ACTIVATION).to(tl.float16)


@triton.jit
def implicit_product(
    x, weight, sample, row, column, inside, channel, channel_inside,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, IN_CHANNELS: tl.constexpr,
    OUT_CHANNELS: tl.constexpr, KERNEL_HEIGHT: tl.constexpr, KERNEL_WIDTH: tl.constexpr,
    STRIDE: tl.constexpr, PAD_TOP: tl.constexpr, PAD_LEFT: tl.constexpr,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Return a block of sums of a convolution whose input is in memory.

    The weight lies as kernel position, input channel, output channel. The sums run over kernel
    positions and blocks of input channels, in one loop, so that loads run ahead over all of it.
    """
    sums = tl.zeros((POSITIONS, CHANNELS), dtype=tl.float32)
    BLOCKS: tl.constexpr = (IN_CHANNELS + DEPTH - 1) // DEPTH
    for step in range(KERNEL_HEIGHT * KERNEL_WIDTH * BLOCKS):
        tap = step // BLOCKS
        depth = step % BLOCKS * DEPTH + tl.arange(0, DEPTH)
        source_row = row * STRIDE - PAD_TOP + tap // KERNEL_WIDTH
        source_column = column * STRIDE - PAD_LEFT + tap % KERNEL_WIDTH
        there = inside & (source_row >= 0) & (source_row < HEIGHT)
        there = there & (source_column >= 0) & (source_column < WIDTH)
        source = ((sample * HEIGHT + source_row) * WIDTH + source_column) * IN_CHANNELS
        read = x + source[:, None] + depth[None, :]
        values = tl.load(read, mask=there[:, None] & (depth < IN_CHANNELS)[None, :], other=0.0)
        factors = tl.load(
            weight + (tap * IN_CHANNELS + depth)[:, None] * OUT_CHANNELS + channel[None, :],
            mask=(depth < IN_CHANNELS)[:, None] & channel_inside[None, :], other=0.0,
        )  # fmt: skip
        sums = tl.dot(values, factors, sums)
    return sums


@triton.jit
def convolution(
    x, weight, bias, residual, y,
    IN_HEIGHT: tl.constexpr, IN_WIDTH: tl.constexpr, IN_CHANNELS: tl.constexpr,
    OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr, OUT_CHANNELS: tl.constexpr,
    KERNEL_HEIGHT: tl.constexpr, KERNEL_WIDTH: tl.constexpr, STRIDE: tl.constexpr,
    PAD_TOP: tl.constexpr, PAD_LEFT: tl.constexpr,
    first_sample, first_row, first_column, first_channel,
    samples, rows, columns, channels,
    HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Make a region of a convolution: a program has a block of positions and of channels."""
    at = tl.program_id(0) * POSITIONS + tl.arange(0, POSITIONS)
    inside = at < samples * rows * columns
    sample = first_sample + at // (rows * columns)
    row = first_row + at // columns % rows
    column = first_column + at % columns
    channel = first_channel + tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    channel_inside = channel < first_channel + channels
    sums = implicit_product(
        x, weight, sample, row, column, inside, channel, channel_inside, IN_HEIGHT, IN_WIDTH,
        IN_CHANNELS, OUT_CHANNELS, KERNEL_HEIGHT, KERNEL_WIDTH, STRIDE, PAD_TOP, PAD_LEFT,
        POSITIONS, CHANNELS, DEPTH,
    )  # fmt: skip
    position = (sample * OUT_HEIGHT + row) * OUT_WIDTH + column
    place = position[:, None] * OUT_CHANNELS + channel[None, :]
    made = finished(
        sums, bias, residual, place, inside, channel, channel_inside,
        HAS_BIAS, HAS_RESIDUAL, ACTIVATION,
    )  # fmt: skip
    tl.store(y + place, made, mask=inside[:, None] & channel_inside[None, :])


@triton.jit
def first_of_chain(
    x, weight, sample, first,
    IN_HEIGHT: tl.constexpr, IN_WIDTH: tl.constexpr, IN_CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr, OUT_CHANNELS: tl.constexpr, SIDE: tl.constexpr, STRIDE: tl.constexpr,
    PAD: tl.constexpr, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, DEPTH: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Return the first layer's sums for a block of rows."""
    at, channel = tl.arange(0, POSITIONS), tl.arange(0, CHANNELS)
    return implicit_product(
        x, weight, sample, first + at // WIDTH, at % WIDTH, at < ROWS * WIDTH, channel,
        channel < OUT_CHANNELS, IN_HEIGHT, IN_WIDTH, IN_CHANNELS, OUT_CHANNELS, SIDE, SIDE, STRIDE,
        PAD, PAD, POSITIONS, CHANNELS, DEPTH,
    )  # fmt: skip


@triton.jit
def within_chain(
    before, weight, first_before, channel,
    BEFORE_HEIGHT: tl.constexpr, BEFORE_WIDTH: tl.constexpr, BEFORE_CHANNELS: tl.constexpr,
    BEFORE_BLOCK: tl.constexpr, WIDTH: tl.constexpr, OUT_CHANNELS: tl.constexpr,
    SIDE: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr, POSITIONS: tl.constexpr,
    CHANNELS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Return the sums of a layer whose input is on the SM: rows of it are gathered per position.

    Rows of the input that lie outside the feature map are zero, as a layer by itself pads.
    """
    at = tl.arange(0, POSITIONS)
    depth = tl.arange(0, BEFORE_BLOCK)
    sums = tl.zeros((POSITIONS, CHANNELS), dtype=tl.float32)
    for tap in range(SIDE * SIDE):
        source_row = at // WIDTH * STRIDE + tap // SIDE
        source_column = at % WIDTH * STRIDE - PAD + tap % SIDE
        there = (at < ROWS * WIDTH) & (source_column >= 0) & (source_column < BEFORE_WIDTH)
        there = there & (first_before + source_row >= 0)
        there = there & (first_before + source_row < BEFORE_HEIGHT)
        source = tl.where(there, source_row * BEFORE_WIDTH + source_column, 0)
        wanted = tl.broadcast_to(source[:, None], (POSITIONS, BEFORE_BLOCK))
        values = tl.where(there[:, None], tl.gather(before, wanted, 0), 0.0)
        factors = tl.load(
            weight + (tap * BEFORE_CHANNELS + depth)[:, None] * OUT_CHANNELS + channel[None, :],
            mask=(depth < BEFORE_CHANNELS)[:, None] & (channel < OUT_CHANNELS)[None, :], other=0.0,
        )  # fmt: skip
        sums = tl.dot(values, factors, sums)
    return sums


@triton.jit
def staying(
    sums, bias, OUT_CHANNELS: tl.constexpr, CHANNELS: tl.constexpr, HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Return the output of a layer before a chain's last, which stays on the SM."""
    channel = tl.arange(0, CHANNELS)
    inside = channel < OUT_CHANNELS
    return finished(
        sums, bias, bias, 0, inside, channel, inside, HAS_BIAS, HAS_RESIDUAL=False,
        ACTIVATION=ACTIVATION,
    )  # fmt: skip


@triton.jit
def chain(
    x, weights, biases, residual, y,
    first_sample, first_row, first_column, first_channel, rows, columns, channels,
    LAYERS: tl.constexpr, DEPTH: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
    LAST_CHANNELS: tl.constexpr,
):  # fmt: skip
    """Make a region of the last of several convolutions; what lies between stays on the SM.

    A program has some rows of one sample. Rows that neighbours need as well are computed again.

    ``LAYERS`` has for each layer: input height, width and channels, output height, width and
    channels, side, stride and padding of the kernel, rows of a program, the blocks of positions
    and of channels, whether there is a bias, and the activation.
    """
    sample = first_sample + tl.program_id(1)
    LAST: tl.constexpr = len(LAYERS) - 1
    top = first_row + tl.program_id(0) * LAYERS[LAST][9]
    first = top
    for back in tl.static_range(LAST):
        first = first * LAYERS[LAST - back][7] - LAYERS[LAST - back][8]
    # no name is given to sums here: those of each layer have another shape
    kept = staying(
        first_of_chain(
            x, weights[0], sample, first, LAYERS[0][0], LAYERS[0][1], LAYERS[0][2], LAYERS[0][4],
            LAYERS[0][5], LAYERS[0][6], LAYERS[0][7], LAYERS[0][8], LAYERS[0][10], LAYERS[0][11],
            DEPTH, LAYERS[0][9],
        ),
        biases[0], LAYERS[0][5], LAYERS[0][11], LAYERS[0][12], LAYERS[0][13],
    )  # fmt: skip
    for layer in tl.static_range(1, LAST):
        first = top
        for back in tl.static_range(LAST - layer + 1):
            first = first * LAYERS[LAST - back][7] - LAYERS[LAST - back][8]
        kept = staying(
            within_chain(
                kept, weights[layer], first, tl.arange(0, LAYERS[layer][11]),
                LAYERS[layer][0], LAYERS[layer][1], LAYERS[layer][2], LAYERS[layer - 1][11],
                LAYERS[layer][4], LAYERS[layer][5], LAYERS[layer][6], LAYERS[layer][7],
                LAYERS[layer][8], LAYERS[layer][10], LAYERS[layer][11], LAYERS[layer][9],
            ),
            biases[layer], LAYERS[layer][5], LAYERS[layer][11], LAYERS[layer][12],
            LAYERS[layer][13],
        )  # fmt: skip
    before = top * LAYERS[LAST][7] - LAYERS[LAST][8]
    at = tl.arange(0, LAYERS[LAST][10])
    row, column = top + at // LAYERS[LAST][4], at % LAYERS[LAST][4]
    inside = (at < LAYERS[LAST][9] * LAYERS[LAST][4]) & (row < first_row + rows)
    inside = inside & (column >= first_column) & (column < first_column + columns)
    position = (sample * LAYERS[LAST][3] + row) * LAYERS[LAST][4] + column
    for block in range(0, channels, LAST_CHANNELS):
        channel = first_channel + block + tl.arange(0, LAST_CHANNELS)
        sums = within_chain(
            kept, weights[LAST], before, channel,
            LAYERS[LAST][0], LAYERS[LAST][1], LAYERS[LAST][2], LAYERS[LAST - 1][11],
            LAYERS[LAST][4], LAYERS[LAST][5], LAYERS[LAST][6], LAYERS[LAST][7],
            LAYERS[LAST][8], LAYERS[LAST][10], LAST_CHANNELS, LAYERS[LAST][9],
        )  # fmt: skip
        channel_inside = channel < first_channel + channels
        place = position[:, None] * LAYERS[LAST][5] + channel[None, :]
        made = finished(
            sums, biases[LAST], residual, place, inside, channel, channel_inside,
            LAYERS[LAST][12], HAS_RESIDUAL, LAYERS[LAST][13],
        )  # fmt: skip
        tl.store(y + place, made, mask=inside[:, None] & channel_inside[None, :])


@triton.jit
def product(
    a, b, y, a_group, a_batch, a_row, a_depth, b_group, b_batch, b_depth, b_column,
    y_group, y_batch, y_row, y_column, batches, rows, columns, depth_end,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Make products of matrices that are both computed; strides are in elements."""
    group, batch = tl.program_id(2) // batches, tl.program_id(2) % batches
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    a += group * a_group + batch * a_batch
    b += group * b_group + batch * b_batch
    sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for begin in range(0, depth_end, DEPTH):
        depth = begin + tl.arange(0, DEPTH)
        values = tl.load(
            a + row[:, None] * a_row + depth[None, :] * a_depth,
            mask=(row < rows)[:, None] & (depth < depth_end)[None, :], other=0.0,
        )  # fmt: skip
        factors = tl.load(
            b + depth[:, None] * b_depth + column[None, :] * b_column,
            mask=(depth < depth_end)[:, None] & (column < columns)[None, :], other=0.0,
        )  # fmt: skip
        sums = tl.dot(values, factors, sums)
    place = row[:, None] * y_row + column[None, :] * y_column
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    tl.store(y + group * y_group + batch * y_batch + place, sums.to(tl.float16), mask=inside)


@triton.jit
def attention(
    q, k, v, mask, y, scale,
    q_group, q_batch, q_row, q_depth, k_group, k_batch, k_depth, k_column,
    v_group, v_batch, v_row, v_column, m_group, m_batch, m_row, m_column,
    y_group, y_batch, y_row, y_column, batches, rows, keys,
    HAS_MASK: tl.constexpr, SIZE: tl.constexpr, OUT_SIZE: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, BLOCK: tl.constexpr, OUT_BLOCK: tl.constexpr,
):  # fmt: skip
    """Make softmax(scale q k + mask) v by blocks of keys: the scores stay on the SM.

    The softmax is kept up with as blocks come (Milakov and Gimelshein, "Online normalizer
    calculation for softmax", 2018; Dao et al., "FlashAttention", NeurIPS '22).
    """
    group, batch = tl.program_id(1) // batches, tl.program_id(1) % batches
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    depth, column = tl.arange(0, BLOCK), tl.arange(0, OUT_BLOCK)
    queries = tl.load(
        q + group * q_group + batch * q_batch + row[:, None] * q_row + depth[None, :] * q_depth,
        mask=(row < rows)[:, None] & (depth < SIZE)[None, :], other=0.0,
    )  # fmt: skip
    k += group * k_group + batch * k_batch
    v += group * v_group + batch * v_batch
    highest = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    sums = tl.zeros((ROWS, OUT_BLOCK), dtype=tl.float32)
    for begin in range(0, keys, KEYS):
        key = begin + tl.arange(0, KEYS)
        factors = tl.load(
            k + depth[:, None] * k_depth + key[None, :] * k_column,
            mask=(depth < SIZE)[:, None] & (key < keys)[None, :], other=0.0,
        )  # fmt: skip
        scores = tl.dot(queries, factors) * scale
        if HAS_MASK:
            place = row[:, None] * m_row + key[None, :] * m_column
            known = (row < rows)[:, None] & (key < keys)[None, :]
            added = tl.load(mask + group * m_group + batch * m_batch + place, mask=known, other=0.0)
            scores += added.to(tl.float32)
        scores = tl.where((key < keys)[None, :], scores, float("-inf"))
        now = tl.maximum(highest, tl.max(scores, 1))
        shares = tl.exp(scores - now[:, None])
        before = tl.exp(highest - now)
        values = tl.load(
            v + key[:, None] * v_row + column[None, :] * v_column,
            mask=(key < keys)[:, None] & (column < OUT_SIZE)[None, :], other=0.0,
        )  # fmt: skip
        sums = tl.dot(shares.to(tl.float16), values, sums * before[:, None])
        total = total * before + tl.sum(shares, 1)
        highest = now
    made = (sums / total[:, None]).to(tl.float16)
    y += group * y_group + batch * y_batch
    inside = (row < rows)[:, None] & (column < OUT_SIZE)[None, :]
    tl.store(y + row[:, None] * y_row + column[None, :] * y_column, made, mask=inside)


@triton.jit
def feed_forward(
    x, weight, bias, next_weight, next_bias, residual, y, first, rows,
    WIDTH: tl.constexpr, INNER: tl.constexpr, OUT: tl.constexpr,
    HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr, NEXT_HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr, NEXT_ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr, INNERS: tl.constexpr, DEPTH: tl.constexpr, OUT_BLOCK: tl.constexpr,
):  # fmt: skip
    """Make rows of two products with an activation between, by blocks of what lies between.

    What lies between is too wide to be kept: a block of it is used as soon as it is made.
    """
    row = first + tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row_inside = row < first + rows
    column = tl.arange(0, OUT_BLOCK)
    sums = tl.zeros((ROWS, OUT_BLOCK), dtype=tl.float32)
    for block in range(0, INNER, INNERS):
        inner = block + tl.arange(0, INNERS)
        between = tl.zeros((ROWS, INNERS), dtype=tl.float32)
        for begin in range(0, WIDTH, DEPTH):
            depth = begin + tl.arange(0, DEPTH)
            values = tl.load(
                x + row[:, None] * WIDTH + depth[None, :],
                mask=row_inside[:, None] & (depth < WIDTH)[None, :], other=0.0,
            )  # fmt: skip
            factors = tl.load(
                weight + depth[:, None] * INNER + inner[None, :],
                mask=(depth < WIDTH)[:, None] & (inner < INNER)[None, :], other=0.0,
            )  # fmt: skip
            between = tl.dot(values, factors, between)
        if HAS_BIAS:
            between += tl.load(bias + inner, mask=inner < INNER, other=0.0)[None, :]
        factors = tl.load(
            next_weight + inner[:, None] * OUT + column[None, :],
            mask=(inner < INNER)[:, None] & (column < OUT)[None, :], other=0.0,
        )  # fmt: skip
        sums = tl.dot(activated(between, ACTIVATION).to(tl.float16), factors, sums)
    place = row[:, None] * OUT + column[None, :]
    made = finished(
        sums, next_bias, residual, place, row_inside, column, column < OUT,
        NEXT_HAS_BIAS, HAS_RESIDUAL, NEXT_ACTIVATION,
    )  # fmt: skip
    tl.store(y + place, made, mask=row_inside[:, None] & (column < OUT)[None, :])
