"""Networks as the paper's front-ends wrote them, where that changes what FuseOps makes of them.

Our workloads come from newer exporters. What matters to fusion, not sizes, is reproduced: layer
normalisations written out, products of stacked matrices with one stack dimension only (Relay's
``batch_matmul`` has rank 3, so both front-ends reshape before and after it), and a DenseNet that
appends to one growing tensor (as Keras' does; torchvision's lists all parts each time).
"""

from __future__ import annotations

from tests.schedule.schedule_samples import Net


def encoder(layers: int, rows: int = 8, width: int = 8, heads: int = 2, *, stacked: bool) -> Net:
    """A BERT encoder on embedded rows.

    Args:
        layers: transformer layers.
        rows: tokens.
        width: of the hidden state.
        heads: of attention.
        stacked: products of rank 4, as ONNX has them; else reshaped to rank 3, as Relay's are.
    """
    net = Net(x=(2, rows, width))
    at = _norm(net, net.relu("x"))
    for _ in range(layers):
        attended = _dense(net, _attention(net, at, heads, stacked=stacked), width)
        at = _norm(net, net.sum(attended, at))
        inner = net.add("Tanh", [_dense(net, at, 4 * width)], (2, rows, 4 * width))
        at = _norm(net, net.sum(_dense(net, inner, width), at))
    return net


def _dense(net: Net, x: str, columns: int) -> str:
    return net.sum(net.linear(x, columns), net.weight(columns))


def _norm(net: Net, x: str) -> str:
    last = net.shapes[x][-1]
    centred = net.sum(x, net.mean(x), "Sub")
    variance = net.mean(net.sum(centred, centred, "Mul"))
    root = net.add("Sqrt", [net.sum(variance, net.weight(1))], net.shapes[variance])
    scaled = net.sum(net.sum(centred, root, "Div"), net.weight(last), "Mul")
    return net.sum(scaled, net.weight(last))


def _attention(net: Net, x: str, heads: int, *, stacked: bool) -> str:
    """Without the last product; ``softmax(q k / c + mask) v``."""
    samples, rows, width = net.shapes[x]
    size = width // heads

    def split(*order: int) -> str:
        apart = net.reshape(_dense(net, x, width), samples, rows, heads, size)
        return net.transpose(apart, *order)

    query, key, value = split(0, 2, 1, 3), split(0, 2, 3, 1), split(0, 2, 1, 3)
    scores = _product(net, query, key, stacked=stacked)
    weighted = net.sum(net.sum(scores, net.weight(1), "Mul"), net.weight(rows))
    mixed = _product(net, net.softmax(weighted), value, stacked=stacked)
    return net.reshape(net.transpose(mixed, 0, 2, 1, 3), samples, rows, width)


def _product(net: Net, x: str, y: str, *, stacked: bool) -> str:
    if stacked:
        return net.matmul(x, y)
    samples, heads, rows, _ = net.shapes[x]
    flat = [net.reshape(t, samples * heads, *net.shapes[t][2:]) for t in (x, y)]
    return net.reshape(net.matmul(*flat), samples, heads, rows, net.shapes[y][-1])


BLOCKS = (6, 12, 24, 16)
"""Layers of the dense blocks of DenseNet-121."""


def densenet(growth: int = 2, samples: int = 1, size: int = 64, *, appended: bool) -> Net:
    """DenseNet-121; by default with few channels, on a small image.

    Args:
        growth: channels that a layer adds, 32 in the published network.
        samples: images.
        size: their rows and columns.
        appended: concatenate the result of a layer to what there is; else list all parts.
    """
    net = Net(x=(samples, 3, size, size))
    at = net.pool(net.relu(_scaled(net, net.conv("x", 2 * growth, 7, 2))))
    for number, layers in enumerate(BLOCKS):
        at = _dense_block(net, at, layers, growth, appended=appended)
        if number < len(BLOCKS) - 1:
            half = net.conv(net.relu(_scaled(net, at)), net.shapes[at][1] // 2, 1)
            at = net.pool(half, kind="AveragePool")
    at = net.relu(_scaled(net, at))
    pooled = net.add("GlobalAveragePool", [at], (*net.shapes[at][:2], 1, 1))
    _dense(net, net.reshape(pooled, samples, net.shapes[at][1]), 10)
    return net


def _dense_block(net: Net, at: str, layers: int, growth: int, *, appended: bool) -> str:
    parts = [at]
    for _ in range(layers):
        narrow = net.conv(net.relu(_scaled(net, at)), 4 * growth, 1)
        parts.append(net.conv(net.relu(_scaled(net, narrow)), growth))
        at = net.concat(1, at, parts[-1]) if appended else net.concat(1, *parts)
    return at


def _scaled(net: Net, x: str) -> str:
    """A batch normalisation with its statistics folded: a scale and a shift per channel."""
    channels = net.shapes[x][1]
    scaled = net.sum(x, net.weight(1, channels, 1, 1), "Mul")
    return net.sum(scaled, net.weight(1, channels, 1, 1))
