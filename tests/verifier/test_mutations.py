"""The region and the memory check find what is planted, by its name, where it is."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from autoturbo.schedule.codegen.instructions import Column
from autoturbo.schedule.codegen.tiling import Role
from autoturbo.verifier.findings import instance_name
from autoturbo.verifier.memory import check_memory
from autoturbo.verifier.races import check_races, clocks_of
from autoturbo.verifier.regions import check_regions
from autoturbo.verifier.replay import replay_of
from autoturbo.verifier.trace import Phase, Program, Trace, Wait
from tests.verifier.memory_mutants import (
    ALL,
    CLUSTER_MUTANTS,
    CLUSTERED,
    MEMORY_MUTANTS,
    REGION_MUTANTS,
    honest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autoturbo.schedule.schedule import Schedule
    from autoturbo.verifier.findings import Finding


def assert_named(found: Sequence[Finding], kind: str, words: Sequence[str]) -> None:
    """Some finding of a kind says all the words."""
    said = [finding.message for finding in found if finding.kind == kind]
    assert any(all(word in message for word in words) for message in said), (kind, words, found)


@pytest.mark.parametrize("name", ALL + CLUSTERED)
def test_honest_schedules_have_no_findings(name: str) -> None:
    assert check_regions(honest(name)) == ()
    assert check_memory(honest(name)) == ()


@pytest.mark.parametrize("mutant", REGION_MUTANTS)
@pytest.mark.parametrize("name", ALL)
def test_region_mutants_are_found(name: str, mutant: str) -> None:
    plant, kinds = REGION_MUTANTS[mutant]
    schedule, words = plant(honest(name))
    found = check_regions(schedule)
    for kind in kinds:
        assert_named(found, kind, words if kind == kinds[-1] else ())


@pytest.mark.parametrize("mutant", MEMORY_MUTANTS)
@pytest.mark.parametrize("name", ALL)
def test_memory_mutants_are_found(name: str, mutant: str) -> None:
    plant, kind = MEMORY_MUTANTS[mutant]
    schedule, words = plant(honest(name))
    assert_named(check_memory(schedule), kind, words)


@pytest.mark.parametrize("mutant", CLUSTER_MUTANTS)
@pytest.mark.parametrize("name", CLUSTERED)
def test_mutants_between_clusters_are_found(name: str, mutant: str) -> None:
    plant, kind = CLUSTER_MUTANTS[mutant]
    schedule, words = plant(honest(name))
    assert_named(check_memory(schedule), kind, words)


def test_the_memory_check_survives_what_the_region_check_finds() -> None:
    for plant, _ in REGION_MUTANTS.values():
        check_memory(plant(honest("block")).schedule)


def with_phase(trace: Trace, cluster: int, at: int, **changes: Any) -> Trace:
    clusters = [list(phases) for phases in trace.clusters]
    clusters[cluster][at] = dataclasses.replace(clusters[cluster][at], **changes)
    return dataclasses.replace(trace, clusters=tuple(map(tuple, clusters)))


def neighbours(schedule: Schedule, phases: Sequence[Phase]) -> tuple[int, Phase, Phase]:
    """A kernel and what follows it: what reads what the kernel made, where there is such."""
    producers = schedule.instances.producers
    pairs = [
        (at, one, two) for at, (one, two) in enumerate(itertools.pairwise(phases))
        if one.program and (two.program or one.instance in producers[two.instance])
    ]  # fmt: skip
    return max(pairs, key=lambda pair: pair[1].instance in producers[pair[2].instance])


@pytest.mark.parametrize("name", ALL + CLUSTERED)
def test_a_lost_barrier_between_kernels_is_found(name: str) -> None:
    schedule = honest(name)
    trace = replay_of(schedule).trace
    at, one, two = neighbours(schedule, trace.clusters[0])
    found = check_races(schedule, with_phase(trace, 0, at, barrier=False))
    words = [instance_name(schedule, phase.instance) for phase in (one, two)]
    assert_named(found, "race", words)
    assert check_races(schedule, trace) == ()


@pytest.mark.parametrize("name", ALL)
def test_a_lost_barrier_after_copies_is_found(name: str) -> None:
    schedule = honest(name)
    trace = replay_of(schedule).trace
    at = next(at for at, phase in enumerate(trace.clusters[0]) if phase.program is None)
    name = instance_name(schedule, trace.clusters[0][at].instance)
    found = check_races(schedule, with_phase(trace, 0, at, barrier=False))
    assert_named(found, "race", [name, "copies"])


@pytest.mark.parametrize("name", CLUSTERED)
def test_a_lost_wait_between_clusters_is_found(name: str) -> None:
    """The first kernel that reads from another cluster, without its wait for the last it needs."""
    schedule = honest(name)
    trace = replay_of(schedule).trace
    at = {index: place for place, index in enumerate(schedule.order)}

    def place(handed: tuple[Wait, int, int]) -> tuple[int, int]:
        need = handed[0]
        reader = int(schedule.timelines[need.cluster].order[need.kernel])
        return at[reader], -need.made

    need, _, maker = min(trace.handed, key=place)
    found = check_races(schedule, dataclasses.replace(trace, waits=trace.waits - {need}))
    reader = int(schedule.timelines[need.cluster].order[need.kernel])
    assert_named(found, "race", [instance_name(schedule, i) for i in (maker, reader)])


WAITS = [
    ("block", Role.PASS_WEIGHTS, Role.FETCH_WEIGHTS),
    ("block", Role.MULTIPLY, Role.PASS_WEIGHTS),
    ("block", Role.PASS_WEIGHTS, Role.MULTIPLY),
    ("block", Role.PASS_WEIGHTS, Role.APPLY),
    ("block", Role.FETCH_WEIGHTS, Role.PASS_WEIGHTS),
    ("block", Role.APPLY, Role.MULTIPLY),
    ("squeezenet1_1 pipeline", Role.MULTIPLY, Role.APPLY),
    ("block", Role.STORE, Role.APPLY),
    ("squeezenet1_1 pipeline", Role.MULTIPLY, Role.STORE),
    ("block", Role.MULTIPLY, Role.PASS_LATE),
    ("block", Role.SAVE, Role.STORE),
    ("block", Role.STORE, Role.SAVE),
    ("resnet18 spatial", Role.APPLY, Role.STORE),
    ("block", Role.PASS_INPUT, Role.FETCH_INPUT),
    ("squeezenet1_1 spatial", Role.PASS_INPUT, Role.APPLY),
    ("squeezenet1_1 spatial", Role.FETCH_INPUT, Role.PASS_INPUT),
    ("squeezenet1_1 spatial", Role.MULTIPLY, Role.PASS_INPUT),
    ("block", Role.APPLY, Role.PASS_LATE),
    ("resnet18 pipeline", Role.APPLY, Role.PASS_INPUT),
]
"""Who waits for whom."""

LARGE_WAITS = [
    ("resnet50", Role.PASS_WEIGHTS, Role.FETCH_WEIGHTS),
    ("resnet50", Role.MULTIPLY, Role.PASS_WEIGHTS),
    ("resnet50", Role.PASS_WEIGHTS, Role.MULTIPLY),
    ("resnet50", Role.PASS_WEIGHTS, Role.APPLY),
    ("resnet50", Role.FETCH_WEIGHTS, Role.PASS_WEIGHTS),
    ("resnet50", Role.APPLY, Role.MULTIPLY),
    ("resnet50", Role.MULTIPLY, Role.APPLY),
    ("resnet50", Role.STORE, Role.APPLY),
    ("resnet50", Role.MULTIPLY, Role.STORE),
    ("resnet50", Role.MULTIPLY, Role.PASS_LATE),
    ("resnet50 spatial", Role.SAVE, Role.STORE),
    ("resnet50 spatial", Role.STORE, Role.SAVE),
    ("resnet50 spatial", Role.APPLY, Role.STORE),
    ("resnet50 spatial", Role.PASS_INPUT, Role.FETCH_INPUT),
    ("resnet50 spatial", Role.PASS_INPUT, Role.APPLY),
    ("resnet50 spatial", Role.FETCH_INPUT, Role.PASS_INPUT),
    ("resnet50 spatial", Role.MULTIPLY, Role.PASS_INPUT),
    ("bert_base_s128", Role.APPLY, Role.PASS_LATE),
    ("bert_base_s128", Role.APPLY, Role.PASS_INPUT),
]
"""The same of large networks."""


def without_waits(program: Program, waiting: Role, awaited: Role) -> Iterator[Program]:
    """Programs each without one wait that nothing else makes up for."""
    where = program.where
    for index in np.flatnonzero(where[:, Column.ROLE] == waiting).tolist():
        for column in range(Column.AFTER, where.shape[1]):
            before = where[index, column]
            if before < 0 or where[before, Column.ROLE] != awaited:
                continue
            changed = where.copy()
            changed[index, column] = -1
            if clocks_of(changed)[index, where[before, Column.ENGINE]] < before:
                yield dataclasses.replace(program, where=changed)


@pytest.mark.parametrize(
    ("name", "waiting", "awaited"),
    [*WAITS, *(pytest.param(*wait, marks=pytest.mark.full) for wait in LARGE_WAITS)],
)
def test_a_lost_wait_of_an_instruction_is_found(name: str, waiting: Role, awaited: Role) -> None:
    """Some waits ask for more than slots need; one that does not is looked for."""
    schedule = honest(name)
    trace = replay_of(schedule).trace
    programs = {id(p.program): (c, p) for c, ps in enumerate(trace.clusters)
                for p in ps if p.program}  # fmt: skip
    names = [role.name.lower().replace("_", " ") for role in (waiting, awaited)]
    for cluster, phase in programs.values():
        assert phase.program
        for program in without_waits(phase.program, waiting, awaited):
            alone = dataclasses.replace(phase, program=program)
            phases = tuple((alone,) if c == cluster else () for c in range(len(trace.clusters)))
            found = check_races(schedule, Trace(phases, frozenset(), ()))
            if found:
                assert_named(found, "race", [instance_name(schedule, phase.instance), *names])
                return
    pytest.fail(f"no lost wait of {waiting.name} for {awaited.name} is found")
