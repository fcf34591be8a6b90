"""Templates: the work of one core, layer by layer, and what comes from other cores."""

from __future__ import annotations

import numpy as np
import pytest

from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.context import make_context
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.partition.boxes import Cut, box_regions
from autoturbo.schedule.partition.split import split_axes
from autoturbo.schedule.pipeline import build_schedule
from autoturbo.schedule.place.bind import Binding
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.stitch.templates import Template, local_edges, stitch
from tests.schedule.schedule_samples import STCP920, Net, block, chain, scheduler_of, target
from tests.schedule.steps import instance_of, steps_of


def template(graph: Graph, binding: Binding, machine: Target | None = None) -> Template:
    """The whole graph as one unsplit kernel."""
    context = make_context(graph, machine or STCP920, "float16")
    layers = tuple(x.index for x in context.layers)
    return stitch(context, layers, box_regions(context, layers), binding)


def row(graph: Graph, binding: Binding, layer: int = 0) -> dict[str, float]:
    stages = template(graph, binding).stages
    return {column.name: float(stages[layer, column]) for column in Stage}


def test_a_product_on_one_core() -> None:
    net = Net(x=(16, 32))
    net.linear("x", 64)
    found = row(net.graph(), (1, 1))
    assert (found["COUNT"], found["ROWS"], found["COLUMNS"], found["DEPTH"]) == (1, 16, 64, 32)
    assert found["MACS"] == 16 * 64 * 32
    assert found["WEIGHTS"] == found["CORE_WEIGHTS"] == 32 * 64 * 2
    assert found["CORES"] == 1
    assert (found["READ"], found["WRITTEN"]) == (16 * 32 * 2, 16 * 64 * 2)
    assert found["EXCHANGED"] == found["VECTOR"] == found["SPECIAL"] == found["MOVED"] == 0


@pytest.mark.parametrize(
    ("binding", "rows", "columns", "weights", "read"),
    [((8, 1), 2, 64, 4096, 128), ((1, 8), 16, 8, 512, 1024), ((2, 4), 8, 16, 1024, 512)],
)
def test_a_product_spread_over_cores(
    binding: Binding, rows: int, columns: int, weights: int, read: int
) -> None:
    """Rows share the input and repeat the weights; columns the other way round."""
    net = Net(x=(16, 32))
    net.linear("x", 64)
    found = row(net.graph(), binding)
    assert (found["ROWS"], found["COLUMNS"], found["DEPTH"]) == (rows, columns, 32)
    assert (found["CORE_WEIGHTS"], found["READ"]) == (weights, read)
    assert found["WEIGHTS"] == 4096
    assert found["CORES"] == 8
    assert found["MACS"] * 8 == 16 * 64 * 32


@pytest.mark.full
@pytest.mark.parametrize(("rows", "cores"), [(9, 5), (7, 7)])
def test_cores_that_have_a_part(rows: int, cores: int) -> None:
    """Nine rows over eight cores are parts of two: five cores have one."""
    net = Net(x=(rows, 32))
    net.linear("x", 64)
    assert row(net.graph(), (8, 1))["CORES"] == cores


def test_columns_exchange_the_rows_of_other_cores() -> None:
    """Bound 1 x 8, the first operand is wanted whole by all; each holds what its binding says."""
    net = Net(x=(16, 32))
    net.linear(net.relu(net.linear("x", 32)), 64)
    context = make_context(net.graph(), STCP920, "float16")
    layers = (0, 1)
    made = stitch(context, layers, box_regions(context, layers), (1, 8))
    assert made.bindings[0] == (8, 1)
    assert made.stages[1, Stage.EXCHANGED] == 16 * 32 * 2 * 7 / 8


def test_a_convolution_with_its_activation() -> None:
    net = Net(x=(2, 4, 8, 8))
    net.relu(net.conv("x", 16, 3, bias=True))
    found = row(net.graph(), (1, 1, 1, 1))
    assert (found["ROWS"], found["COLUMNS"], found["DEPTH"]) == (128, 16, 36)
    assert found["VECTOR"] >= 2 * 16 * 64
    assert found["WEIGHTS"] == (16 * 36 + 16) * 2


def test_a_core_in_the_middle_exchanges_both_halos() -> None:
    """Eight rows over four cores: an inner core reads a row of each neighbour."""
    net = Net(x=(1, 1, 8, 8))
    net.conv(net.conv("x", 1), 1)
    context = make_context(net.graph(), STCP920, "float16")
    made = stitch(context, (0, 1), box_regions(context, (0, 1)), (1, 1, 4, 1))
    assert made.bindings[0] == (1, 1, 8, 1)
    assert made.stages[1, Stage.READ] == 4 * 8 * 2
    assert made.stages[1, Stage.WRITTEN] == 2 * 8 * 2


@pytest.mark.full
@pytest.mark.parametrize("extent", [9, 23])
def test_the_busiest_core_has_a_full_part(extent: int) -> None:
    """Nine rows over eight cores: five cores have two, so no core's work may be called less."""
    net = Net(x=(extent, 64))
    net.linear("x", 64)
    found = row(net.graph(), (8, 1))
    assert found["ROWS"] == -(-extent // 8)
    assert found["MACS"] * 8 >= extent * 64 * 64


@pytest.mark.full
def test_moved_bytes_of_a_transpose() -> None:
    net = Net(x=(8, 16))
    net.transpose("x", 1, 0)
    assert row(net.graph(), (8, 1))["MOVED"] == 8 * 16 * 2 / 8


def test_a_lookup_loads_what_it_picks() -> None:
    """Weights of a table are the rows that are read, not the table."""
    schedule = build_schedule(scheduler_of("dlrm"), Knobs())
    loaded = sum(
        float(s.template.stages[:, Stage.WEIGHTS].sum()) for s in steps_of(schedule.timeline)
    )
    tables = sum(
        t.elements * 2 for t in schedule.context.graph.tensors if t.constant and len(t.shape) > 1
    )
    assert loaded < tables


def test_depthwise_convolutions_go_to_the_vector_engine() -> None:
    net = Net(x=(2, 32, 14, 14))
    net.conv("x", 32, 3, group=32)
    found = row(net.graph(), (2, 1, 2, 1))
    assert found["MACS"] == 0
    assert found["VECTOR"] * 4 == 2 * 32 * 196 * 9


def test_edges_inside_a_kernel() -> None:
    context = make_context(block(), STCP920, "float16")
    layers = tuple(x.index for x in context.layers)
    edges = local_edges(context, layers)
    assert edges[0] == ()
    for position, before in enumerate(edges):
        assert all(p < position for p in before)
    adds = [
        i for i, x in enumerate(context.layers) if x.name.startswith("add") or len(edges[i]) > 1
    ]
    assert all(len(edges[i]) == 2 for i in adds)
    assert local_edges(context, layers) is edges


def test_parts_of_equal_extents_share_a_template() -> None:
    schedule = build_schedule(scheduler_of("resnet50"), Knobs())
    by_subgraph: dict[int, set[bytes]] = {}
    for step in steps_of(schedule.timeline):
        index = instance_of(schedule.instances, step.instance).subgraph
        by_subgraph.setdefault(index, set()).add(step.template.digest)
    assert {index: len(digests) for index, digests in by_subgraph.items()} == {
        0: 1,
        1: 1,
        2: 1,
        3: 1,
    }


@pytest.mark.full
def test_a_digest_tells_bindings_apart() -> None:
    net = Net(x=(16, 32))
    net.linear("x", 64)
    graph = net.graph()
    assert template(graph, (8, 1)).digest != template(graph, (1, 8)).digest
    assert template(graph, (8, 1)).digest == template(graph, (8, 1)).digest


@pytest.mark.full
def test_bytes_per_core_round_up() -> None:
    net = Net(x=(9, 4))
    net.linear("x", 4)
    made = template(net.graph(), (8, 1))
    ((tensor, cluster, core),) = made.writes[0]
    assert (cluster, core) == (9 * 4 * 2, 2 * 4 * 2)
    assert made.reads[0] == ((0, 72),)
    assert tensor in make_context(net.graph(), STCP920, "float16").graph.outputs


@pytest.mark.parametrize("parts", [2, 4])
def test_work_of_parts_adds_up(parts: int) -> None:
    """Along samples nothing is repeated, so the parts' work is the whole's."""
    context = make_context(chain("conv", "conv", shape=(8, 4, 8, 8)), target(cores=2), "float16")
    axis = split_axes(context, (0, 1))[0][1]
    size = 8 // parts
    shape = box_regions(context, (0, 1), Cut((axis,), ((0, size),)))
    part = stitch(context, (0, 1), shape, (min(2, size), 1, 2 // min(2, size), 1))
    whole = 2 * 8 * 64 * 4 * 36
    assert part.stages[:, Stage.MACS].sum() * parts * 2 == pytest.approx(whole)
    assert np.isfinite(part.stages).all()


def runs_of_half(depth: int) -> dict[str, float]:
    """Runs of the first half of a 3 x 3 convolution's output, cut along a loop."""
    net = Net(x=(2, 4, 8, 8))
    net.conv("x", 16, 3)
    context = make_context(net.graph(), STCP920, "float16")
    axis = dict(split_axes(context, (0,)))[depth]
    half = {0: 1, 1: 4, 2: 4, 3: 8}[depth]
    made = stitch(
        context, (0,), box_regions(context, (0,), Cut((axis,), ((0, half),))), (1, 1, 1, 1)
    )
    return {column.name: float(made.stages[0, column]) for column in Stage}


def test_a_part_of_the_samples_is_contiguous() -> None:
    found = runs_of_half(0)
    assert found["RUN_READ"] == 8 * 8 * 4 * 2  # rows, columns and channels of a sample
    assert found["RUN_WRITTEN"] == 8 * 8 * 16 * 2
    assert found["RUN_WEIGHTS"] == 16 * 4 * 9 * 2


@pytest.mark.full
def test_a_part_of_the_rows_is_a_run_for_each_sample() -> None:
    found = runs_of_half(1)
    assert found["RUN_READ"] == 5 * 8 * 4 * 2  # four rows and one of halo
    assert found["RUN_WRITTEN"] == 4 * 8 * 16 * 2


@pytest.mark.full
def test_a_part_of_the_columns_is_a_run_for_each_row() -> None:
    found = runs_of_half(2)
    assert found["RUN_READ"] == 5 * 4 * 2
    assert found["RUN_WRITTEN"] == 4 * 16 * 2


def test_a_part_of_the_channels_is_a_run_for_each_position() -> None:
    found = runs_of_half(3)
    assert found["RUN_READ"] == 2 * 8 * 8 * 4 * 2  # all of the input
    assert found["RUN_WRITTEN"] == 8 * 2
    assert found["RUN_WEIGHTS"] == 8 * 4 * 9 * 2  # output channels are outermost in the file


def test_runs_of_several_tensors_are_their_bytes_by_their_number() -> None:
    net = Net(x=(1, 4, 8, 8), y=(1, 4, 8, 8))
    net.sum("x", "y")
    found = row(net.graph(), (1, 1, 1, 1))
    assert found["RUN_READ"] == 8 * 8 * 4 * 2
    assert found["RUN_WEIGHTS"] == 0


@pytest.mark.full
def test_every_output_of_a_layer_is_shared_out_like_its_first() -> None:
    net = Net(x=(2, 6))
    net.add("Split", ["x", net.ints(3, 3)], (2, 3), axis=1)
    net.nodes[0].output.append("second")
    net.shapes["second"] = (2, 3)
    found = template(net.graph("split0", "second"), (2, 2), target(cores=4))
    ((first, second),) = found.writes
    assert first[1:] == second[1:] == (12, 4)
    assert template(net.graph("split0", "second"), (1, 2), target(cores=4)).writes[0][1][2] == 8


def test_parts_of_a_transposed_convolution_do_not_overlap() -> None:
    def choices(kernel: int) -> int:
        net = Net(x=(1, 2, 8, 8))
        extent = 14 + kernel
        net.add(
            "ConvTranspose", ["x", net.weight(2, 2, kernel, kernel)], (1, 2, extent, extent),
            strides=[2, 2],
        )  # fmt: skip
        context = make_context(net.graph(), STCP920, "float16")
        return len(split_axes(context, (0,)))

    assert choices(2) == choices(3) + 2
