"""Our presets and examples keep the contract that we ask of others' targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

import autoturbo
from autoturbo.hardware import Target, load_target, scaffold
from autoturbo.hardware.machine_files import load_machine
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.evaluator import Simulator
from autoturbo.simulator.measurement import Measurement, Outcome
from autoturbo.testing import ContractError, TargetCase, check_target
from autoturbo.testing import targets as checks
from tests.tiers import tiered

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "targets"


@pytest.mark.parametrize("name", tiered(["stcp920"], ["tpu-v4i", "kirin-970"]))
def test_presets_keep_the_contract(name: str) -> None:
    check_target(name)


@pytest.mark.parametrize("name", tiered(["edge"], ["wormhole-n150"]))
def test_files_keep_the_contract(name: str) -> None:
    check_target(EXAMPLES / f"{name}.yaml")


def test_targets_and_machines_themselves() -> None:
    for check in (checks.it_is_valid, checks.its_file_says_it_all):
        check(TargetCase(load_target("goya")))
        check(TargetCase(load_machine("kirin-970")))


def test_files_that_are_not_valid(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(scaffold().replace("bandwidth_gb_s", "bandwith_gb_s", 1))
    with pytest.raises(ContractError, match=r"bad.yaml:\d+:\d+: .*did you mean 'bandwidth_gb_s'"):
        checks.it_is_valid(TargetCase(bad))
    units = tmp_path / "units.yaml"
    units.write_text("schema_version: 1\nname: units\nunits: []\nddr: {}\nswitch_us: 1\n")
    with pytest.raises(ContractError, match=r"units.yaml:3:\d+: units: must have at least 1"):
        checks.it_is_valid(TargetCase(units))
    with pytest.raises(ContractError, match="unknown target 'stcp92'"):
        checks.it_is_valid(TargetCase("stcp92"))


def broken(**fields: object) -> TargetCase:
    """A preset with fields that no file can give."""
    return TargetCase(dataclasses.replace(load_target("stcp920"), **fields))  # type: ignore[arg-type]


def test_a_target_that_its_file_cannot_say() -> None:
    with pytest.raises(ContractError, match=r"not the same in its file: clock"):
        checks.its_file_says_it_all(broken(clock=1e9 / 3))
    with pytest.raises(ContractError, match=r"its file is not valid: .*clusters: must be"):
        checks.its_file_says_it_all(broken(clusters=0))


def test_a_target_that_computes_in_nothing() -> None:
    matrix = dataclasses.replace(load_target("stcp920").matrix, rate=())
    with pytest.raises(ContractError, match="stcp920"):
        checks.it_is_valid(broken(matrix=matrix))


def test_a_target_on_which_nothing_fits() -> None:
    lb = dataclasses.replace(load_target("stcp920").lb, capacity=16)
    with pytest.raises(ContractError, match=r"stcp920: residual in float16 does not run: .*LB"):
        checks.small_networks_can_be_simulated(broken(lb=lb))


class Spoilt:
    """The simulator, with what a target would get from a wrong model of it."""

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        return [self.spoilt(s, o) for s, o in zip(schedules, self.right(schedules), strict=True)]

    def right(self, schedules: Sequence[Schedule]) -> list[Measurement]:
        return [o for o in Simulator().measure(schedules) if isinstance(o, Measurement)]

    def spoilt(self, schedule: Schedule, measured: Measurement) -> Outcome:
        raise NotImplementedError


class BelowTheBound(Spoilt):
    def spoilt(self, schedule: Schedule, measured: Measurement) -> Outcome:
        del schedule
        return dataclasses.replace(measured, latency=0.9 * measured.bound.seconds)


class SlowedByBandwidth(Spoilt):
    """As if faster memory cost time."""

    def spoilt(self, schedule: Schedule, measured: Measurement) -> Outcome:
        slower = schedule.context.target.ddr.bandwidth / load_target("stcp920").ddr.bandwidth
        return dataclasses.replace(measured, latency=slower * measured.latency)


def test_latencies_below_the_bound() -> None:
    with pytest.raises(
        ContractError, match=r"residual in float16 does not run: .* s, below the lower"
    ):
        checks.small_networks_can_be_simulated(TargetCase("stcp920", BelowTheBound))


def test_bandwidth_that_makes_it_slower() -> None:
    with pytest.raises(ContractError, match=r"4 times ddr.bandwidth_gb_s makes residual \d+ % slo"):
        checks.faster_parts_never_make_it_slower(TargetCase("stcp920", SlowedByBandwidth))


def test_it_is_reached_from_the_package() -> None:
    assert autoturbo.testing.check_target is check_target


def test_faster_parts_are_faster() -> None:
    target = load_target("stcp920")
    for field in checks.FASTER:
        better = checks._faster(target, field)
        assert isinstance(better, Target)
        assert better.hash != target.hash
