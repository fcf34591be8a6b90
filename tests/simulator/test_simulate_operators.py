"""The simulator and the lower bound count the work of every operator alike."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from autoturbo.errors import MeasurerError, ModelError
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.hardware.machine_files import load_machine
from autoturbo.heterogeneous.evaluator import MachineEvaluator
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import LowerBound, Measurement
from tests.graph.operator_table.operator_cases import CASES
from tests.graph.operator_table.operator_harness import Case, real
from tests.simulator.simulate_samples import target_of

MACHINES = ("kirin-970", "zcu102-vta")
FAST = 1e15
"""Bytes per second that take no time beside any work."""


def bare() -> Target:
    """One core that does one operation a cycle; nothing else takes time or is padded."""
    t, change = target_of(), dataclasses.replace
    return change(
        t, clusters=1, cores=1, dram=None,
        matrix=change(t.matrix, rows=1, columns=1, depth=1, dataflow="ideal", startup_cycles=0),
        vector=change(t.vector, lanes=(("float16", 1.0),), special_lanes=1.0, startup_cycles=0),
        transfer=change(t.transfer, bandwidth=FAST, latency=0.0),
        dma=change(t.dma, bandwidth=FAST, latency=0.0),
        lb=change(t.lb, bandwidth=FAST), gb=change(t.gb, bandwidth=FAST, latency=0.0),
        ddr=change(t.ddr, bandwidth=FAST, latency=0.0, efficiency=1.0),
        overheads=change(t.overheads, kernel_launch=0.0, barrier=0.0),
    )  # fmt: skip


@functools.cache
def graphs() -> tuple[tuple[str, Graph], ...]:
    """Every case of the operator table that a model can consist of."""
    with TemporaryDirectory() as folder:
        return tuple(imported(Path(folder) / "one.onnx", CASES))


def imported(file: Path, cases: Iterable[Case]) -> Iterator[tuple[str, Graph]]:
    for case in cases:
        file.write_bytes(case.stated().SerializeToString())
        with suppress(ModelError):  # nothing but constants, or a version that ONNX has withdrawn
            yield case.label, import_model(file)


@pytest.mark.full
def test_nearly_all_operators_can_be_simulated() -> None:
    assert len(graphs()) > len(CASES) - 12


@pytest.mark.full
def test_each_engine_is_busy_for_at_least_its_share_of_the_bound() -> None:
    short = []
    for label, graph in graphs():
        found = Evaluator(graph, bare(), "float16").evaluate(Knobs())
        assert isinstance(found, Measurement), label
        bound = found.bound
        pairs = ((found.busy["matrix"], bound.matrix_s), (found.busy["vector"], bound.vector_s))
        if any(busy < least * (1 - 1e-9) for busy, least in pairs):
            short.append((label, pairs))
    assert short == []


@pytest.mark.parametrize("more", [{"strides": (4, 2)}, {"output_padding": (1, 0)}, {}])
def test_gaps_of_a_transposed_convolution_take_no_time(
    more: dict[str, object], tmp_path: Path
) -> None:
    case = Case("ConvTranspose", (real(2, 8, 5, 6), real(8, 4, 2, 2)), {"strides": (2, 2), **more})
    (graph,) = (found for _, found in imported(tmp_path / "one.onnx", [case]))
    found = Evaluator(graph, bare(), "float16").evaluate(Knobs())
    assert isinstance(found, Measurement)
    macs = 2 * 8 * 5 * 6 * 2 * 2 * 4
    assert graph.macs == macs
    assert found.bound.matrix_s == pytest.approx(macs / bare().matrix_macs_per_second("float16"))
    assert found.busy["matrix"] == pytest.approx(found.bound.matrix_s)


@pytest.mark.full
@pytest.mark.parametrize("preset", ["stcp920", "goya", "ipu-mk2"])
def test_no_operator_beats_its_bound_on_a_target(preset: str) -> None:
    target = target_of(preset)
    found = [Evaluator(g, target, target.default_dtype).evaluate(Knobs()) for _, g in graphs()]
    assert below(found) == []


@pytest.mark.full
@pytest.mark.parametrize("name", MACHINES[:1])
def test_no_operator_beats_its_bound_on_a_machine(name: str) -> None:
    machine = load_machine(name)
    assert below(
        MachineEvaluator(graph, machine, machine.dtypes[0]).evaluate(Knobs())
        for _, graph in graphs()
    ) == []  # fmt: skip


def below(found: Iterable[object]) -> list[object]:
    """What was not measured, or faster than can be."""
    return [one for one in found if not isinstance(one, Measurement)
            or one.latency < one.bound.seconds * (1 - 1e-9)]  # fmt: skip


def test_a_latency_below_its_bound_is_refused() -> None:
    bound = LowerBound(matrix_s=2.0, vector_s=1.0, ddr_s=0.5)
    assert bound.checked(2.0, "net on chip") == 2.0
    with pytest.raises(MeasurerError):
        bound.checked(1.5, "net on chip")
