from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.cost_models.features import (
    KNOB_NAMES,
    OVERRIDE_NAMES,
    PORTABLE,
    alone,
    kernel_rows,
    knob_vector,
    override_rows,
    portable_rows,
    setting_row,
    squash,
    target_vector,
)
from autoturbo.hardware import load_target, preset_names
from autoturbo.schedule.chip_part import ChipPart
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs, model_knobs, subgraph_knobs
from autoturbo.schedule.knobs.kinds import UNLIMITED
from autoturbo.simulator.plan import COLUMNS

FLOATS = st.floats(-1e15, 1e15)


def value(knobs: Knobs, name: str, share: int = 16) -> float:
    return float(knob_vector(knobs, share)[KNOB_NAMES.index(name)])


@given(FLOATS, FLOATS)
def test_squashing_keeps_order_and_sign(a: float, b: float) -> None:
    x, y = squash(np.asarray([a, b]))
    assert np.isfinite([x, y]).all()
    assert np.sign(x) == np.sign(np.float32(np.sign(a) * np.log1p(abs(a))))
    assert x <= y if a <= b else x >= y


def test_every_knob_has_a_column() -> None:
    # a search stays on one part of the chip
    assert [name for name in model_knobs() if name not in ChipPart._fields] == [*KNOB_NAMES]
    assert knob_vector(Knobs(), 16).shape == (len(KNOB_NAMES),)


def test_auto_is_the_number_it_stands_for() -> None:
    assert value(Knobs(), "batches_per_cluster") == 4.0  # log2 of 16
    assert value(Knobs(batches_per_cluster=16), "batches_per_cluster") == 4.0
    assert value(Knobs(), "recompute_limit") == pytest.approx(np.log2(1.25))
    assert value(Knobs(), "max_layers") == UNLIMITED
    assert value(Knobs(max_layers=8), "max_layers") == 3.0


def test_words_are_positions_and_a_published_word_is_auto() -> None:
    assert value(Knobs(), "output_scope") == 0.0
    assert value(Knobs(output_scope="LB"), "output_scope") == 0.0
    assert value(Knobs(output_scope="GB"), "output_scope") == 1.0
    assert value(Knobs(output_scope="DDR"), "output_scope") == 2.0


@pytest.mark.full
def test_a_ratio_of_zero_has_a_number() -> None:
    assert value(Knobs(producer_factor_ratio=0), "producer_factor_ratio") == -10.0


def test_every_preset_has_finite_features() -> None:
    for name in preset_names():
        target = load_target(name)
        vector = target_vector(target, target.default_dtype)
        assert np.isfinite(vector).all()


@pytest.mark.full
def test_presets_look_different() -> None:
    vectors = {tuple(target_vector(load_target(n), "float16").tolist()) for n in preset_names()}
    assert len(vectors) == len(preset_names())


def test_rows_are_columns_side_by_side() -> None:
    knobs, target = knob_vector(Knobs(), 4), target_vector(load_target("stcp920"), "float16")
    own = override_rows(Knobs(), {1: SubGraphKnobs("a", factor=4)}, 3)
    rows = kernel_rows(np.ones((3, 2)), own, knobs, target)
    figures = np.tile(knobs, (3, 1)), np.tile(target, (3, 1))
    each = [own, squash(np.ones((3, 2))), *figures]
    assert rows.tolist() == np.concatenate(each, axis=1).tolist()
    assert rows.dtype == np.float32


def test_rows_of_the_evaluators_statistics_begin_with_the_portable_columns() -> None:
    knobs, target = knob_vector(Knobs(), 4), target_vector(load_target("stcp920"), "float16")
    own = override_rows(Knobs(), {1: SubGraphKnobs("a", factor=4)}, 3)
    statistics = np.full((3, len(COLUMNS)), 2.0)
    rows = kernel_rows(statistics, own, knobs, target)
    assert len(set(PORTABLE)) == len(PORTABLE)
    assert rows.shape == (3, len(PORTABLE) + len(COLUMNS) + len(knobs) + len(target))
    assert (rows[:, : len(PORTABLE)] == portable_rows(statistics, own)).all()
    knobs_of_sub_graphs = rows[:, len(PORTABLE) - len(OVERRIDE_NAMES) : len(PORTABLE)]
    assert (knobs_of_sub_graphs == own).all()  # all of them, also those that neighbours decide on


def test_rows_say_what_kernels_take_alone() -> None:
    knobs, target = knob_vector(Knobs(), 4), target_vector(load_target("stcp920"), "float16")
    own = override_rows(Knobs(), {}, 3)
    statistics = np.full((3, len(COLUMNS)), 2.0)
    near, far = np.asarray([1e-7, 2e-5, 3e-2]), np.asarray([1e-7, 9e-5, 4e-2])
    for name, seconds in (("near_s", near), ("far_s", far)):
        statistics[:, COLUMNS.index(name)] = seconds
    found = np.exp(alone(kernel_rows(statistics, own, knobs, target)))
    np.testing.assert_allclose(found, [near, far], rtol=1e-5)
    # an evaluator of one's own need not say it
    assert alone(kernel_rows(np.ones((3, 2)), own, knobs, target)).shape == (0, 3)


def test_a_setting_is_its_totals_and_its_largest() -> None:
    knobs, own = np.zeros(0, np.float32), np.asarray([[1.0], [2.0]], np.float32)
    row = setting_row(np.asarray([[1.0], [3.0]]), np.asarray([10, 1]), own, knobs, knobs)
    assert row.tolist() == pytest.approx([np.log1p(13.0), np.log1p(3.0), 1.5])


@pytest.mark.full
def test_a_plan_without_kernels_is_zeros() -> None:
    knobs = np.zeros(0, np.float32)
    own = override_rows(Knobs(), {}, 0)
    row = setting_row(np.zeros((0, 2)), np.zeros(0, np.int64), own, knobs, knobs)
    assert row.tolist() == [0.0] * (4 + len(OVERRIDE_NAMES))


def own(knobs: Knobs, override: SubGraphKnobs | None, name: str) -> float:
    """A column of the second of three sub-graphs."""
    rows = override_rows(knobs, {} if override is None else {1: override}, 3)
    assert rows.shape == (3, len(OVERRIDE_NAMES))
    assert rows[0].tolist() == rows[2].tolist() == override_rows(knobs, {}, 1)[0].tolist()
    return float(rows[1, OVERRIDE_NAMES.index(name)])


def test_every_knob_of_a_sub_graph_has_a_column_and_shows_in_it() -> None:
    assert {*OVERRIDE_NAMES, "boundary"} == set(subgraph_knobs())
    for name in OVERRIDE_NAMES:
        choices = subgraph_knobs()[name].choices or (2, 4)
        knobs = Knobs()
        seen = set()
        for value in choices:
            values: dict[str, Any] = {"inner_factor": 2, "inner_dim": 1, name: value}
            seen.add(own(knobs, SubGraphKnobs("a", **values), name))
        assert len(seen) == len(choices), name


def test_a_sub_graph_s_number_is_the_model_s_unless_it_has_its_own() -> None:
    assert own(Knobs(prefetch_depth=4), None, "prefetch_depth") == 2.0
    assert own(Knobs(prefetch_depth=4), SubGraphKnobs("a", prefetch_depth=1), "prefetch_depth") == 0
    one, other = Knobs(weight_residency="GB"), SubGraphKnobs("a", weight_residency="GB")
    assert own(one, None, "weight_residency") == own(Knobs(), other, "weight_residency")
    stream = SubGraphKnobs("a", weight_residency="stream")
    assert own(Knobs(), None, "weight_residency") == own(one, stream, "weight_residency")
    assert own(Knobs(output_scope="DDR"), None, "scope") == 3.0
    assert own(Knobs(), None, "scope") == 0.0
    assert own(Knobs(), None, "priority") == pytest.approx(np.log2(5))


@pytest.mark.full
def test_dimensions_are_counted_and_auto_is_none_of_them() -> None:
    assert own(Knobs(), None, "dim") == 0.0
    assert own(Knobs(), SubGraphKnobs("a", dim=0, factor=2), "dim") == 1.0
    assert own(Knobs(), SubGraphKnobs("a", factor=1), "factor") == 0.0
    assert own(Knobs(), None, "factor") == -1.0
