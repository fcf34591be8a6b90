"""Random small networks and machines, and these machines with more of one thing."""

from __future__ import annotations

import copy
import random
from typing import Any

from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from tests.schedule.schedule_samples import Net

WIDTHS = (64, 128, 256, 384, 512)
CHANNELS = (16, 32, 64)


def network(seed: int) -> Graph:
    """A chain with residuals and branches, an encoder layer, or an image network."""
    rng = random.Random(seed)  # noqa: S311
    return rng.choice((_rows, _rows, _encoder, _images, _images))(rng).graph()


def _rows(rng: random.Random) -> Net:
    net = Net(x=(rng.choice((1, 4, 16, 64, 128)), rng.choice(WIDTHS)))
    at = "x"
    for _ in range(rng.randint(2, 5)):
        width, wide = net.shapes[at][-1], rng.choice(WIDTHS)
        hidden = net.relu(net.linear(at, wide))
        match rng.choice(("chain", "residual", "branch")):
            case "chain":
                at = hidden
            case "residual":
                at = net.sum(at, net.linear(hidden, width))
            case _:
                at = net.sum(hidden, net.linear(at, wide), rng.choice(("Add", "Mul")))
    return net


def _encoder(rng: random.Random) -> Net:
    width = rng.choice((64, 128, 256))
    net = Net(x=(rng.choice((1, 2, 4)), rng.choice((16, 64, 128)), width))
    queries, keys, values = (net.linear("x", width) for _ in range(3))
    samples, length, _ = net.shapes["x"]
    turned = net.add("Transpose", [keys], (samples, width, length), perm=[0, 2, 1])
    scores = net.softmax(net.add("MatMul", [queries, turned], (samples, length, length)))
    attended = net.linear(net.add("MatMul", [scores, values], (samples, length, width)), width)
    at = net.sum("x", attended)
    net.sum(at, net.linear(net.relu(net.linear(at, 2 * width)), width))
    return net


def _images(rng: random.Random) -> Net:
    size = rng.choice((8, 14, 16, 28))
    net = Net(x=(rng.choice((1, 2, 4, 8)), rng.choice((3, *CHANNELS)), size, size))
    at = "x"
    for _ in range(rng.randint(2, 5)):
        channels = net.shapes[at][1]
        match rng.choice(("conv", "point", "residual", "depthwise", "pool")):
            case "conv":
                at = net.relu(net.conv(at, rng.choice(CHANNELS)))
            case "point":
                at = net.relu(net.conv(at, rng.choice(CHANNELS), kernel=1))
            case "residual":
                at = net.sum(at, net.conv(net.relu(net.conv(at, channels)), channels))
            case "depthwise":
                at = net.relu(net.conv(at, channels, group=channels))
            case _:
                at = net.pool(at) if net.shapes[at][2] > 4 else net.relu(at)
    return net


def machine(seed: int) -> dict[str, Any]:
    """The document of a machine, with a global buffer and without."""
    rng = random.Random(1000 + seed)  # noqa: S311
    pick, rows = rng.choice, rng.choice((16, 32, 64))
    document: dict[str, Any] = {
        "schema_version": 1, "name": "drawn", "description": "", "clusters": pick((1, 2, 4)),
        "cores_per_cluster": pick((1, 2, 4, 8)), "clock_mhz": pick((700.0, 1000.0, 1500.0)),
        "engines": [
            {
                "kind": "matrix", "rows": rows, "columns": pick((rows, 32)),
                "dataflow": pick(("output_stationary", "weight_stationary", "ideal")),
                "rate": {"float16": 1.0}, "startup_cycles": pick((0, 16, 64)),
            },
            {
                "kind": "vector", "lanes": {"float16": pick((32.0, 64.0))},
                "special_lanes": pick((8.0, 16.0)), "startup_cycles": pick((0, 16)),
            },
            {
                "kind": "transfer", "bandwidth_gb_s": pick((32.0, 64.0)), "latency_ns": 100.0,
                "broadcast": pick((True, False)),
            },
            {
                "kind": "dma", "channels": 2, "bandwidth_gb_s": pick((32.0, 300.0)),
                "latency_ns": 200.0,
            },
        ],
        "lb": {
            "capacity_kib": pick((128, 256, 512, 1024)), "weight_capacity_kib": pick((32, 64, 128)),
            "bandwidth_gb_s": pick((256.0, 1024.0)),
        },
        "ddr": {
            "capacity_gib": 4, "bandwidth_gb_s": pick((64.0, 200.0, 600.0)), "latency_ns": 200.0,
            "efficiency": 0.9,
        },
        "overheads": {"kernel_launch_us": pick((0.0, 1.0, 5.0)), "barrier_us": pick((0.0, 0.5))},
    }  # fmt: skip
    if rng.random() < 0.5:
        document["gb"] = {"capacity_kib": 4096, "bandwidth_gb_s": 256.0, "latency_ns": 100.0}
    return document


def with_more(document: dict[str, Any]) -> dict[str, Target]:
    """The machine with twice of one thing, or with a global buffer, by what it has more."""
    more = {"lb": document, "weight_lb": document, "cores": document, "gb": document}
    more = {name: copy.deepcopy(same) for name, same in more.items()}
    more["lb"]["lb"]["capacity_kib"] *= 2
    more["weight_lb"]["lb"]["weight_capacity_kib"] *= 2
    more["cores"]["cores_per_cluster"] *= 2
    buffer = {"capacity_kib": 4096, "bandwidth_gb_s": 256.0, "latency_ns": 100.0}
    more["gb"].setdefault("gb", buffer)["capacity_kib"] = 8192
    return {name: Target.from_dict(other) for name, other in more.items()}
