"""The vendor's ladder O0 to O2, and the registry of schedulers."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator

import pytest

from autoturbo.errors import UsageError
from autoturbo.registry import SCHEDULERS
from autoturbo.schedule.by_name import candidates
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.sequence import simulate
from tests.schedule.schedule_checks import check_schedule
from tests.schedule.schedule_samples import block, chain, scheduler_of, target


@pytest.mark.parametrize(("name", "scope"), [("O0", "DDR"), ("O1", "GB"), ("O2", "LB")])
def test_one_unsplit_kernel_per_layer(name: str, scope: str) -> None:
    model_scheduler = ModelScheduler(block(), target(lb=1 << 16, gb=1 << 20), "float16")
    schedule = next(candidates(name, model_scheduler))
    check_schedule(schedule)
    assert (schedule.scheduler, schedule.share.batches) == (name, 4)
    assert schedule.order == tuple(range(len(schedule.context.layers)))
    assert all(s.split.instances == 1 for s in schedule.instances.subgraphs)
    assert min(schedule.placement.scopes) is Scope[scope]


def test_levels_fall_back_to_what_holds_them() -> None:
    model_scheduler = ModelScheduler(block(), target(lb=1 << 8, gb=0), "float16")
    for name in ("O0", "O1", "O2"):
        counts = simulate(next(candidates(name, model_scheduler))).tensors
        assert counts["GB"] == 0
        assert counts["DDR"] >= 1


def test_traffic_falls_from_rung_to_rung() -> None:
    model_scheduler = ModelScheduler(block(), target(lb=1 << 16, gb=1 << 20), "float16")
    traffic = [simulate(next(candidates(n, model_scheduler))).ddr_bytes for n in ("O0", "O1", "O2")]
    assert traffic[0] > traffic[1] >= traffic[2]


def test_nothing_overlaps_in_the_ladder() -> None:
    for name in ("O0", "O1", "O2", "tvm", "gb_outputs", "lb_outputs", "instance_order"):
        schedule = next(candidates(name, scheduler_of("resnet50")))
        assert schedule.knobs.instruction_scheduling == "off"
        assert schedule.rules.serial
        assert max(simulate(schedule).overlap.values()) == 0


@pytest.mark.full
def test_every_batch_that_divides_is_a_candidate() -> None:
    model_scheduler = ModelScheduler(
        chain("conv", shape=(12, 2, 4, 4)), target(clusters=2), "float16"
    )
    for name in ("O1", "lb_outputs", "instance_order", "graphturbo", "astitch"):
        assert [s.share.batches for s in candidates(name, model_scheduler)] == [6, 3, 2, 1]


@pytest.mark.full
def test_names_of_other_systems_and_of_the_ladders_upwards() -> None:
    assert SCHEDULERS.names()[:9] == (
        "tvm", "astitch", "O0", "O1", "O2", "gb_outputs", "lb_outputs", "instance_order",
        "graphturbo",
    )  # fmt: skip


@pytest.mark.full
def test_the_highest_level_is_graphturbo() -> None:
    model_scheduler = ModelScheduler(block(), target(), "float16")
    (first, *_), (second, *_) = (list(candidates(n, model_scheduler)) for n in ("O3", "graphturbo"))
    assert first.text == second.text
    assert "O3" not in SCHEDULERS.names()


def test_instance_order_is_graphturbo_but_for_the_instructions() -> None:
    for with_it, without in zip(
        candidates("graphturbo", scheduler_of("resnet50")),
        candidates("instance_order", scheduler_of("resnet50")),
        strict=True,
    ):
        assert without.scheduler == "instance_order"
        assert without.order == with_it.order
        assert without.placement == with_it.placement
        assert simulate(without).ddr_bytes == simulate(with_it).ddr_bytes
        assert simulate(without).latency > simulate(with_it).latency


@pytest.mark.full
@pytest.mark.parametrize("name", ["resnet50", "bert_base_s128"])
def test_every_rung_of_the_ablation_is_faster(name: str) -> None:
    rungs = ("tvm", "gb_outputs", "lb_outputs", "instance_order", "graphturbo")
    best = [min(simulate(s).latency for s in candidates(n, scheduler_of(name))) for n in rungs]
    assert best == sorted(best, reverse=True)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("graphturb", "did you mean 'graphturbo'?"), ("zzz", "one of tvm, astitch, O0,")],
)
def test_unknown_names(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        candidates(name, ModelScheduler(chain("conv"), target(), "float16"))
    assert str(caught.value).startswith(f"no scheduler is called {name!r}; {hint}")


def test_a_plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed after the built-in ones, and not instead of one."""

    def ours(model_scheduler: ModelScheduler) -> Iterator[Schedule]:
        return candidates("O2", model_scheduler)

    class Entry:
        def __init__(self, name: str) -> None:
            self.name = name

        def load(self) -> object:
            return ours

    def entry_points(*, group: str = "", name: str | None = None) -> list[Entry]:
        """Without a group: of the compiler, which looks for its own when it first compiles."""
        assert group in ("", "autoturbo.schedulers")
        return [Entry(n) for n in ("tvm", "vendor") if group and name in (None, n)]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert SCHEDULERS.names()[-1] == "vendor"
    assert SCHEDULERS.names().count("tvm") == 1
    model_scheduler = ModelScheduler(chain("conv"), target(), "float16")
    assert next(candidates("vendor", model_scheduler)).scheduler == "O2"
    assert next(candidates("tvm", model_scheduler)).scheduler == "tvm"
