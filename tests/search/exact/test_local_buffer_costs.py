"""Costs with outputs in the local buffers: bounds, what does not fit, every part, real models."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target
from autoturbo.schedule.knobs import SubGraphKnobs
from autoturbo.schedule.partition.split import SplitRules
from autoturbo.search.warm_starts.best_sets import Grid, variants_of
from autoturbo.search.warm_starts.costs import ROOM, Costs, LocalBufferCosts, Variant
from autoturbo.search.warm_starts.dp_partition import FREE, PartitionProgram
from autoturbo.search.warm_starts.groups import GroupLimits, groups_of
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, Measurement
from autoturbo.simulator.plan import CAPACITIES, capacities
from tests.schedule.schedule_samples import chain, networks, workload
from tests.search.exact.exact_samples import machine, machines

SLOW = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SHARES = Grid((1, 2, 3), own=(SubGraphKnobs(""), SubGraphKnobs("", weight_buffer_fraction=0.3)))


def both(graph: Graph, target: Target) -> tuple[Costs, LocalBufferCosts, list[Variant]]:
    """Costs of both kinds, and every way of a grid to compute every set of a model's layers."""
    model_scheduler = Evaluator(graph, target, "float16").model_scheduler
    far, near = Costs(model_scheduler, FREE), LocalBufferCosts(model_scheduler, FREE)
    sets, _ = groups_of(far.context, GroupLimits(4, 16), SplitRules.of(FREE))
    every = [v for row in sets for s in row for v in variants_of(far.context, s, SHARES)]
    return far, near, every


@pytest.mark.full
@SLOW
@given(st.data())
def test_they_are_above_their_bound_and_far_ones_where_nothing_fits(data: st.DataObject) -> None:
    graph, target = data.draw(networks(6)), data.draw(machines())
    assume(not isinstance(Evaluator(graph, target, "float16").evaluate(FREE), Failure))
    far, near, every = both(graph, target)
    seconds, exact = near.seconds(every), far.seconds(every)
    rows = np.asarray([capacities(near.context, v.layers) for v in every])
    whole = rows[:, [CAPACITIES.index("whole_input_bytes"), CAPACITIES.index("whole_output_bytes")]]
    fits = whole.sum(axis=1) <= ROOM * rows[:, CAPACITIES.index("lb_bytes")]
    assert (seconds[~fits] == exact[~fits]).all()
    assert (seconds >= [near.least(v) for v in every]).all()
    assert np.isfinite(seconds).all()


def test_what_stays_in_the_buffers_waits_for_no_ddr() -> None:
    graph, fast = chain("conv", "conv", "conv", shape=(2, 16, 32, 32)), machine(lb=1 << 18)
    bandwidth = fast.ddr.bandwidth / 8
    slow = dataclasses.replace(fast, ddr=dataclasses.replace(fast.ddr, bandwidth=bandwidth))
    (far, near, every), (far_slow, near_slow, _) = both(graph, fast), both(graph, slow)
    later = [v for v in every if 0 not in v.layers]
    assert len(later) > 4
    lost_far = far_slow.seconds(later) - far.seconds(later)
    lost_near = near_slow.seconds(later) - near.seconds(later)
    assert (lost_near < 0.25 * lost_far).all()  # weights come from DDR all the same


def test_parts_of_every_extent_are_counted() -> None:
    graph, target = chain("conv", shape=(1, 4, 9, 8)), machine(lb=1 << 16)
    _, near, every = both(graph, target)
    (one,) = [v for v in every if v.parts == 1 and v.own == SubGraphKnobs("")]
    uneven = dataclasses.replace(one, depth=2, axis=2, parts=2)
    laid = near.laid([uneven])
    assert laid.times[laid.first :].tolist() == [1.0, 1.0]
    assert len(set(laid.outputs[laid.first :].tolist())) == 2


@pytest.mark.full
@pytest.mark.parametrize("name", ["squeezenet1_1"])
def test_a_cover_takes_about_what_it_is_said_to_where_everything_stays(name: str) -> None:
    evaluator = Evaluator(workload(name), load_target("ipu-mk2"), "float16")
    grid = Grid((1, 2, 4), None, (SubGraphKnobs(""),), GroupLimits(8, 32), SplitRules.of(FREE))
    cover = PartitionProgram.over(evaluator, grid, costs=LocalBufferCosts).cover()
    free = dataclasses.replace(
        cover.knobs, output_scope="auto",
        overrides=tuple(dataclasses.replace(o, scope="auto", cores="auto")
                        for o in cover.knobs.overrides),
    )  # fmt: skip
    outcome = evaluator.evaluate(free)
    assert isinstance(outcome, Measurement)
    assert outcome.latency == pytest.approx(cover.seconds, rel=0.15)
