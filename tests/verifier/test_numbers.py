"""The numbers: schedules that are right agree, what is planted is found and named."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from autoturbo.errors import KnobsError
from autoturbo.graph.onnx_import import import_model
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.verifier import verify_schedule
from autoturbo.verifier.execution import prepare_comparison
from autoturbo.verifier.findings import Numbers, Verification, instance_name
from autoturbo.verifier.numbers import check_numbers, compare_models, fits_whole
from autoturbo.verifier.onnx_writer.calls import FUNCTION_DOMAIN, passes_of
from autoturbo.verifier.onnx_writer.scheduled_model import scheduled_model
from tests.graph.onnx_import.import_models import model, value
from tests.schedule.schedule_samples import Net, nets, settings_of, target, targets
from tests.verifier.scheduled_samples import image_net, row_net, scheduled
from tests.verifier.verify_samples import saved

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnx import ModelProto, NodeProto

    from autoturbo.hardware import Target


@pytest.mark.parametrize(
    ("net", "split"),
    [
        pytest.param(image_net, "batch", id="images-batch"),
        pytest.param(image_net, "spatial", id="images-spatial"),
        pytest.param(row_net, "channel", id="rows-channel"),
        pytest.param(row_net, "pipeline", id="rows-pipeline"),
        pytest.param(row_net, "batch", id="rows-batch", marks=pytest.mark.full),
        pytest.param(row_net, "spatial", id="rows-spatial", marks=pytest.mark.full),
        pytest.param(image_net, "channel", id="images-channel", marks=pytest.mark.full),
        pytest.param(image_net, "pipeline", id="images-pipeline", marks=pytest.mark.full),
    ],
)
def test_every_way_of_sharing_out_the_work_gives_the_same_numbers(
    net: Callable[[], Net], split: str, tmp_path: Path
) -> None:
    schedule, path = scheduled(net(), tmp_path, Knobs(cluster_partitioning=split))
    found = check_numbers(schedule, path)
    assert found.findings == ()
    assert found.skipped is None
    assert (found.batch, found.whole) == (4, True)
    assert found.max_abs_error is not None
    assert found.max_abs_error < 1e-4


def test_attributes_that_no_operator_has_do_not_keep_a_model_from_running(tmp_path: Path) -> None:
    schedule, path = scheduled(image_net(), tmp_path)
    model = onnx.load(path)
    relu = next(node for node in model.graph.node if node.op_type == "Relu")
    relu.attribute.append(onnx.helper.make_attribute("slope", 1))
    onnx.save(model, path)
    found = check_numbers(schedule, path)
    assert (found.skipped, found.findings) == (None, ())


def test_a_batch_too_large_is_checked_in_one_pass_and_says_so(tmp_path: Path) -> None:
    schedule, path = scheduled(image_net(), tmp_path)
    assert fits_whole(schedule)
    assert not fits_whole(schedule, memory_bytes=1000)
    found = check_numbers(schedule, path, memory_bytes=1000)
    assert (found.batch, found.whole, found.findings) == (2, False, ())


def test_weights_and_inputs_follow_the_seed(tmp_path: Path) -> None:
    schedule, path = scheduled(row_net(), tmp_path)
    first, again, other = (
        prepare_comparison(schedule, path, _folder(tmp_path, n), passes_of(schedule), seed)
        for n, seed in enumerate((1, 1, 2))
    )
    assert first.original.read_bytes() == again.original.read_bytes()
    assert first.original.read_bytes() != other.original.read_bytes()
    np.testing.assert_array_equal(first.feeds["x"], again.feeds["x"])
    assert not np.array_equal(first.feeds["x"], other.feeds["x"])


def _folder(parent: Path, number: int) -> Path:
    folder = parent / str(number)
    folder.mkdir()
    return folder


def test_an_output_that_proves_nothing_is_remarked_upon(tmp_path: Path) -> None:
    net = Net(x=(4, 6))
    net.add("Sub", ["x", "x"], (4, 6))
    schedule, path = scheduled(net, tmp_path)
    found = check_numbers(schedule, path)
    assert found.findings == ()
    assert found.remarks == ("output sub0 is constant",)


def test_an_infinite_difference_is_null_in_json() -> None:
    found = Verification((), (), Numbers(4, True, 0, float("inf")))  # noqa: FBT003
    assert json.loads(json.dumps(found.as_json(), allow_nan=False))["max_abs_error"] is None


def test_operators_that_give_other_values_each_time_are_not_comparable(tmp_path: Path) -> None:
    net = Net(x=(4, 6))
    net.add("RandomNormalLike", ["x"], (4, 6))
    net.add("Add", ["x", "randomnormallike0"], (4, 6))
    schedule, path = scheduled(net, tmp_path)
    found = check_numbers(schedule, path)
    assert found.findings == ()
    assert found.skipped is not None
    assert found.skipped.startswith("not comparable: RandomNormalLike ")


def test_what_the_runtime_cannot_run_is_said_of_the_model_s_own_file(tmp_path: Path) -> None:
    own = helper.make_node("Frobnicate", ["x"], ["y"], domain="acme")
    made = model([own], [value("x", [2, 3])], [value("y", [2, 3])], domains=["acme"])
    path = saved(made, tmp_path / "own.onnx")
    scheduler = ModelScheduler(import_model(path), target(), "float16")
    found = check_numbers(build_schedule(scheduler, Knobs()), path)
    assert found.skipped is not None
    assert found.skipped.startswith(f"{path}: ONNX Runtime cannot run the model")
    assert "autoturbo-verify" not in found.skipped


# --------------------------------------------------------------------------------------- mutations


def _planted(
    schedule: Schedule, path: Path, folder: Path, plant: Callable[[ModelProto], None]
) -> Numbers:
    """What the check says of a scheduled model in which something is wrong."""
    passes = passes_of(schedule)
    setup = prepare_comparison(schedule, path, _folder(folder, 0), passes, 0)
    model = scheduled_model(schedule, setup.nodes, passes)
    assert compare_models(schedule, setup, model, 0).findings == ()
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    plant(proto)
    return compare_models(schedule, setup, dataclasses.replace(model, proto=proto), 0)


def _calls(model: ModelProto) -> list[NodeProto]:
    return [node for node in model.graph.node if node.domain == FUNCTION_DOMAIN]


def _fact(node: NodeProto, key: str) -> str:
    return str(next(p.value for p in node.metadata_props if p.key == f"autoturbo.{key}"))


def _maker(model: ModelProto, name: str) -> NodeProto:
    found: NodeProto = next(node for node in model.graph.node if name in node.output)
    return found


def _shifted(model: ModelProto, cut: NodeProto) -> None:
    """Move a slice by one position along the first dimension that it cuts."""
    for position in (1, 2):
        constant = _maker(model, cut.input[position])
        moved = numpy_helper.to_array(constant.attribute[0].t).copy()
        moved[-1] -= 1
        copy = onnx.helper.make_node(
            "Constant", [], [f"shifted{position}"], value=numpy_helper.from_array(moved)
        )
        model.graph.node.insert(0, copy)
        cut.input[position] = f"shifted{position}"


def test_a_halo_shifted_by_one_is_found_at_the_instance_that_reads_it(tmp_path: Path) -> None:
    rows = SubGraphKnobs("conv0", boundary="cut", dim=1, factor=3)
    later = SubGraphKnobs("conv1", boundary="cut", dim=1, factor=3)
    knobs = Knobs(overrides=(rows, later))
    schedule, path = scheduled(image_net(), tmp_path, knobs)
    hit: list[str] = []

    def plant(model: ModelProto) -> None:
        slices = {node.output[0]: node for node in model.graph.node if node.op_type == "Slice"}
        for call in _calls(model):
            name = call.input[0]
            sources = [name, *_maker(model, name).input] if "#" not in name else []
            cuts = [slices[s] for s in sources if s in slices and "#" in slices[s].input[0]]
            starts = [numpy_helper.to_array(_maker(model, c.input[1]).attribute[0].t) for c in cuts]
            if cuts and starts[0][-1] > 0:
                _shifted(model, cuts[0])
                hit.append(_fact(call, "instance"))
                return

    found = _planted(schedule, path, tmp_path, plant)
    assert [f.kind for f in found.findings] == ["difference", "wrong input"]
    assert found.findings[1].instance == hit[0]


def test_a_dropped_operand_of_a_concatenation_is_found(tmp_path: Path) -> None:
    schedule, path = scheduled(image_net(), tmp_path)

    def plant(model: ModelProto) -> None:
        joined = next(node for node in model.graph.node if node.op_type == "Concat")
        del joined.input[-1]

    found = _planted(schedule, path, tmp_path, plant)
    assert [f.kind for f in found.findings] == ["cannot run"]


def test_operands_in_the_wrong_order_are_found_at_the_instance_that_reads_them(
    tmp_path: Path,
) -> None:
    schedule, path = scheduled(image_net(), tmp_path)
    hit: list[str] = []

    def plant(model: ModelProto) -> None:
        for call in _calls(model):
            maker = _maker(model, call.input[0]) if call.input[0] != "x" else call
            if maker.op_type == "Concat":
                maker.input[:] = list(maker.input)[::-1]
                hit.append(_fact(call, "instance"))
                return

    found = _planted(schedule, path, tmp_path, plant)
    assert found.findings[-1].kind == "wrong input"
    assert found.findings[-1].instance == hit[0]


def test_two_instances_swapped_are_found_at_the_first_of_them(tmp_path: Path) -> None:
    schedule, path = scheduled(image_net(), tmp_path)
    hit: list[str] = []

    def plant(model: ModelProto) -> None:
        seen: dict[tuple[str, ...], NodeProto] = {}
        for call in _calls(model):
            other = seen.setdefault((call.op_type, *list(call.input)[1:]), call)
            if other is not call and other.input[0] != call.input[0]:
                first, second = list(other.output), list(call.output)
                other.output[:], call.output[:] = second, first
                hit.append(_fact(other, "instance"))
                return

    found = _planted(schedule, path, tmp_path, plant)
    assert hit
    assert found.findings[-1].instance == hit[0]


@pytest.mark.parametrize(
    "kind", ["conv1", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("add0", "relu3"))]
)
def test_a_wrong_layer_is_named(kind: str, tmp_path: Path) -> None:
    schedule, path = scheduled(image_net(), tmp_path)
    context = schedule.context
    operator = next(i for i, o in enumerate(context.graph.operators) if o.name == kind)
    layer = next(x.name for x in context.layers if operator in x.operators)

    def plant(model: ModelProto) -> None:
        for function in model.functions:
            for node in function.node:
                if f"/{kind}/" in f"/{node.name}/":
                    _damage(node)

    found = _planted(schedule, path, tmp_path, plant)
    assert found.findings[-1].layer == layer
    assert layer in found.findings[-1].message
    assert found.findings[-1].instance is not None


def _damage(node: NodeProto) -> None:
    """Let a node compute something else of the same extents."""
    if node.op_type == "Conv":
        pads = next(a for a in node.attribute if a.name == "pads").ints
        side = next(n for n, pad in enumerate(pads) if pad)
        pads[side], pads[(side + 2) % 4] = pads[side] - 1, pads[(side + 2) % 4] + 1
    else:
        node.op_type = {"Add": "Sub", "Relu": "Abs"}[node.op_type]


def test_an_instance_that_runs_too_early_cannot_be_written_and_is_named(tmp_path: Path) -> None:
    schedule, path = scheduled(image_net(), tmp_path)
    order = list(schedule.order)
    reader = next(i for i in order if schedule.instances.producers[i])
    maker = schedule.instances.producers[reader][0]
    at, before = order.index(reader), order.index(maker)
    order[at], order[before] = maker, reader
    swapped = dataclasses.replace(schedule, order=tuple(order))
    found = check_numbers(swapped, path)
    assert [f.kind for f in found.findings] == ["order"]
    assert found.findings[0].instance == instance_name(schedule, reader)


# ----------------------------------------------------------------------------------------- random

SPLITS = (None, "batch", "spatial", "channel", "pipeline", "either", "branches")


EXAMPLES = settings(
    max_examples=10, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
CASES = given(nets(6), targets(), st.sampled_from(SPLITS), st.data())


@EXAMPLES
@CASES
def test_random_networks_on_random_targets_in_random_settings_agree(
    tmp_path: Path, net: Net, on: Target, split: str | None, data: st.DataObject
) -> None:
    _agrees(tmp_path, net, on, split, data)


@pytest.mark.full
@settings(EXAMPLES, max_examples=60)
@CASES
def test_many_random_networks_on_random_targets_agree(
    tmp_path: Path, net: Net, on: Target, split: str | None, data: st.DataObject
) -> None:
    _agrees(tmp_path, net, on, split, data)


def _agrees(tmp_path: Path, net: Net, on: Target, split: str | None, data: st.DataObject) -> None:
    names = [node.name for node in net.nodes]
    knobs = data.draw(settings_of(names, 1, split, on))
    try:
        schedule, path = scheduled(net, tmp_path, knobs, on)
    except KnobsError:
        return
    found = verify_schedule(schedule, path=path)
    assert found.findings == ()
    assert found.numbers is not None
    assert found.numbers.skipped is None
