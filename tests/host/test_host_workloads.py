"""Real models that are cut everywhere, with other samples on either side, give what they give."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoturbo.commands.loading import load_model
from autoturbo.host.compare import Stopwatch
from autoturbo.host.divided import DividedModel, with_weights_drawn
from autoturbo.host.runner import reference_outputs
from autoturbo.host.tuning import check_outputs, feeds_of
from autoturbo.schedule.host_plan import BREADTH_FIRST, DEPTH_FIRST, HostChoice, HostPlan

BATCH = 4


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        *("bert_base_s128", "conformer", "densenet121", "dlrm", "shufflenet_v2", "swin_t"),
        "yolov5s_like",
    ],
)
def test_plans_of_real_models_compute_them(name: str, tmp_path: Path) -> None:
    graph = load_model(name, batch=BATCH)
    model = DividedModel.of(with_weights_drawn(Path(graph.source), tmp_path), graph)
    assert not model.obstacle
    assert len(model.parts) > 2
    stopwatch = Stopwatch(model, feeds_of(model))
    wanted = reference_outputs(model, stopwatch.feeds)
    samples = tuple((1, 2, 4)[i % 3] for i in range(len(model.parts)))
    cut = (False,) * (len(samples) - 1)
    for order, workers in ((DEPTH_FIRST, 1), (BREADTH_FIRST, 2)):
        plan = HostPlan.of(model.parts, HostChoice(samples, cut, order), BATCH, workers)
        check_outputs(stopwatch, plan, wanted)
    stopwatch.close()
