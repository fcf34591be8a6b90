"""Batches run as plans say give what the model gives."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.errors import UnrunnableError, UsageError
from autoturbo.host.compare import Stopwatch
from autoturbo.host.divided import DividedModel
from autoturbo.host.runner import Runner, SessionCache, reference_outputs
from autoturbo.host.tuning import check_outputs, feeds_of
from autoturbo.schedule.host_plan import BREADTH_FIRST, DEPTH_FIRST, ORDERS, HostChoice, HostPlan
from tests.host.host_samples import divided, residual


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> DividedModel:
    return divided(residual(tmp_path_factory.mktemp("model")))


@settings(max_examples=25)
@given(data=st.data())
def test_every_plan_computes_the_model(model: DividedModel, data: st.DataObject) -> None:
    parts = model.parts
    samples = data.draw(st.tuples(*[st.sampled_from(model.sizes)] * len(parts)))
    joined = tuple(a == b and data.draw(st.booleans()) for a, b in itertools.pairwise(samples))
    choice = HostChoice(samples, joined, data.draw(st.sampled_from(ORDERS)))
    layout = data.draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (3, 2)]))
    plan = HostPlan.of(parts, choice, 8, *layout)
    assert not plan.fault(len(model.graph.operators), 8)
    feeds = feeds_of(model, data.draw(st.integers(0, 9)))
    wanted = reference_outputs(model, feeds)
    with Runner(model, plan, SessionCache(model)) as runner:
        found = runner.run(feeds)
        assert found.keys() == wanted.keys()
        np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-4, atol=1e-4)


def test_calls_of_a_pass_in_either_order() -> None:
    parts = [range(2), range(2, 6)]
    choice = HostChoice((1, 2), (False,), DEPTH_FIRST)
    plan = HostPlan.of(parts, choice, 8)
    assert plan.pass_samples == 2
    assert list(plan.calls()) == [(0, 0), (0, 1), (1, 0)]
    plan = HostPlan.of(parts, HostChoice((1, 2), (False,), BREADTH_FIRST), 8, workers=2)
    assert plan.pass_samples == 4  # a worker's share
    assert list(plan.calls()) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 2)]
    assert plan.sentence == "1-2 breadth-first, 2 x 1 threads"


def test_faults_of_plans() -> None:
    loop = HostPlan.of([range(3)], HostChoice.loop(2, 1), 8)
    assert loop.fault(3, 8) == ""
    assert "every operator" in loop.fault(4, 8)
    assert "divide the batch" in loop.fault(3, 7)


def test_inputs_are_checked(model: DividedModel) -> None:
    plan = HostPlan.of(model.parts, HostChoice.loop(8, len(model.parts)), 8)
    with Runner(model, plan, SessionCache(model)) as runner:
        with pytest.raises(UsageError, match="'z'"):
            runner.run({"z": np.zeros(1)})
        with pytest.raises(UsageError):
            runner.run({"x": np.zeros(1)})
        runner.inputs["x"][...] = 0  # written in place: nothing is handed over
        assert not runner.run()["y"].any()


def test_a_plan_that_computes_something_else_is_refused(
    model: DividedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autoturbo.errors import RefusedError

    stopwatch = Stopwatch(model, feeds_of(model))
    plan = HostPlan.of(model.parts, HostChoice.loop(1, len(model.parts)), 8)
    wanted = reference_outputs(model, stopwatch.feeds)
    check_outputs(stopwatch, plan, wanted)
    run = Runner.run

    def wrong(self: Runner, feeds: Any = None) -> Any:
        return {"y": run(self, feeds)["y"] + 0.1}

    monkeypatch.setattr(Runner, "run", wrong)
    with pytest.raises(RefusedError):
        check_outputs(stopwatch, plan, wanted)
    stopwatch.close()


def test_an_error_of_the_runtime_is_ours(model: DividedModel) -> None:
    plan = HostPlan.of(model.parts, HostChoice.loop(8, len(model.parts)), 8)
    cache = SessionCache(model)
    broken = DividedModel(model.path.with_name("none.onnx"), model.graph)
    broken.model_of = lambda *_: b"no model"  # type: ignore[method-assign]
    with pytest.raises(UnrunnableError):
        SessionCache(broken).session(plan.subgraphs[0], plan, 0)
    assert cache.session(plan.subgraphs[0], plan, 0) is cache.session(plan.subgraphs[0], plan, 1)
