"""What holds for any network, target and setting: all checks of ``schedule_checks``."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoturbo.errors import KnobsError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target, load_target
from autoturbo.registry import SCHEDULERS
from autoturbo.schedule.by_name import candidates
from autoturbo.schedule.knobs import Knobs, model_knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.sequence import simulate
from tests.schedule.schedule_checks import check_schedule
from tests.schedule.schedule_samples import (
    STCP920,
    block,
    chain,
    networks,
    scheduler_of,
    settings_of,
    target,
    targets,
)
from tests.schedule.steps import program_of, signature_of, steps_of

EXAMPLES = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FEW = settings(EXAMPLES, max_examples=10)


def drawn(
    data: st.DataObject,
    graph: Graph,
    machine: Target,
    dtype: str = "float16",
    split: str | None = None,
) -> Schedule:
    """A schedule for random knobs; without overrides where those do not fit the model."""
    model_scheduler = ModelScheduler(graph, machine, dtype)
    share = model_scheduler.share()
    names = [layer.name for layer in model_scheduler.context(share.batches).layers]
    samples = model_scheduler.share(split=split).samples if split else share.samples
    knobs = data.draw(settings_of(names, samples, split, machine))
    try:
        return build_schedule(model_scheduler, knobs)
    except KnobsError as error:
        if error.at.field != "overrides":
            raise
        return build_schedule(model_scheduler, dataclasses.replace(knobs, overrides=()))


@settings(EXAMPLES, max_examples=20)
@given(graph=networks(6), machine=targets(), data=st.data())
def test_any_setting_gives_a_valid_schedule(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    check_schedule(drawn(data, graph, machine))


@pytest.mark.full
@EXAMPLES
@given(graph=networks(most=14), machine=targets(), data=st.data())
def test_any_setting_gives_a_valid_schedule_for_larger_networks(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    check_schedule(drawn(data, graph, machine))


@pytest.mark.parametrize("name", SCHEDULERS.names())
@settings(EXAMPLES, max_examples=3)
@given(graph=networks(most=6), machine=targets())
def test_baselines_give_valid_schedules(name: str, graph: Graph, machine: Target) -> None:
    for schedule in candidates(name, ModelScheduler(graph, machine, "float16")):
        check_schedule(schedule)


@pytest.mark.full
@settings(EXAMPLES, max_examples=80)
@given(graph=networks(most=10), machine=targets(), name=st.sampled_from(SCHEDULERS.names()))
def test_baselines_give_valid_schedules_for_larger_networks(
    graph: Graph, machine: Target, name: str
) -> None:
    for schedule in candidates(name, ModelScheduler(graph, machine, "float16")):
        check_schedule(schedule)


@FEW
@given(graph=networks(), machine=targets(), data=st.data())
def test_a_schedule_depends_on_nothing_but_its_arguments(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    """A workbench that has built other settings first gives the same text as a fresh one."""
    shared = ModelScheduler(graph, machine, "float16")
    names = [layer.name for layer in shared.context(shared.share().batches).layers]
    several = data.draw(
        st.lists(settings_of(names, shared.share().samples, None, machine), max_size=3)
    )
    built = []
    for knobs in several:
        try:
            built.append((knobs, build_schedule(shared, knobs).text))
        except KnobsError:
            continue
    for knobs, text in reversed(built):
        fresh = ModelScheduler(graph, machine, "float16")
        assert build_schedule(fresh, knobs).text == text
        assert build_schedule(shared, knobs).text == text


@FEW
@given(graph=networks(), machine=targets())
def test_kernels_of_one_signature_are_one_program(graph: Graph, machine: Target) -> None:
    """Kernels are simulated once per signature, so equal signatures must mean equal programs."""
    schedule = build_schedule(
        ModelScheduler(graph, machine, "float16"), Knobs(instance_multiplier=2)
    )
    programs: dict[str, bytes] = {}
    for step in steps_of(schedule.timeline):
        program = program_of(schedule, step)
        text = program.where.tobytes() + program.amounts.tobytes()
        assert programs.setdefault(signature_of(schedule, step), text) == text


MORE = [
    pytest.param(name, marks=pytest.mark.full)
    for name in ("resnet50", "bert_base_s128", "unet", "conformer", "swin_t", "llama_decode")
]


@pytest.mark.parametrize("name", ["squeezenet1_1", "dlrm", *MORE])
def test_real_networks(name: str) -> None:
    check_schedule(build_schedule(scheduler_of(name), Knobs()))


def check_choices(model_scheduler: ModelScheduler, name: str) -> None:
    """A schedule for each of the values of one knob."""
    for value in model_knobs()[name].choices:
        check_schedule(build_schedule(model_scheduler, Knobs.from_dict({name: value})))


CHOOSABLE = [name for name, spec in model_knobs().items() if spec.choices]


def test_every_choice_of_every_knob() -> None:
    for name in CHOOSABLE:
        check_choices(
            ModelScheduler(chain("conv", "softmax", "conv"), target(clusters=2), "float16"), name
        )


@pytest.mark.full
@pytest.mark.parametrize("name", CHOOSABLE)
def test_every_choice_of_every_knob_on_resnet(name: str) -> None:
    check_choices(scheduler_of("resnet18"), name)


@pytest.mark.parametrize(
    "preset",
    ["ascend-910", *(pytest.param(p, marks=pytest.mark.full) for p in ("goya", "ipu-mk2"))],
)
def test_presets(preset: str) -> None:
    machine = load_target(preset)
    model_scheduler = ModelScheduler(
        scheduler_of("squeezenet1_1").model, machine, machine.default_dtype
    )
    check_schedule(build_schedule(model_scheduler, Knobs()))


@pytest.mark.parametrize(("gb", "dtype"), [(0, "float16"), (4096, "int8"), (1 << 20, "float16")])
def test_with_and_without_a_global_buffer(gb: int, dtype: str) -> None:
    schedule = build_schedule(ModelScheduler(block(), target(gb=gb), dtype), Knobs())
    check_schedule(schedule)
    assert (simulate(schedule).gb_bytes > 0) == (gb > 0)


def test_more_memory_never_means_more_traffic() -> None:
    traffic = []
    for size in (1 << 11, 1 << 13, 1 << 16, 1 << 20):
        schedule = build_schedule(ModelScheduler(block(), target(lb=size), "float16"), Knobs())
        traffic.append(simulate(schedule).ddr_bytes)
    assert traffic == sorted(traffic, reverse=True)


@pytest.mark.full
def test_the_ladder_and_the_paper_in_order() -> None:
    """On ResNet-50 every rung is faster than the one before, and splitting is faster than all."""
    model_scheduler = ModelScheduler(scheduler_of("resnet50").model, STCP920, "float16")
    best = [
        min(simulate(s).latency for s in candidates(name, model_scheduler))
        for name in ("O0", "O1", "O2", "graphturbo")
    ]
    assert best == sorted(best, reverse=True)
    assert best[0] / best[-1] > 4
