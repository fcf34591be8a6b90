"""Knobs: values, identity, files, and what a wrong one is told."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from autoturbo.errors import KnobsError, Location
from autoturbo.schedule.chip_part import ChipPart
from autoturbo.schedule.knobs import (
    AUTO,
    Here,
    InSubGraph,
    Knobs,
    SubGraphKnobs,
    Words,
    fitting,
    load_knobs,
    model_knobs,
    refuse_misplaced,
    subgraph_knobs,
)
from autoturbo.schedule.knobs.kinds import Numbers
from tests.schedule.schedule_samples import settings_of, target

LAYERS = ("conv1", "fc")


def test_the_published_heuristic_is_the_empty_setting() -> None:
    assert Knobs().as_dict() == {}
    assert Knobs().canonical() == "{}"
    assert all(getattr(Knobs(), name) == AUTO for name in model_knobs())


def test_identities_are_stable() -> None:
    """Records of a database are found by these: they may never change."""
    assert Knobs().id == "44136fa355b3678a"
    assert Knobs(prefetch_depth=2).id == "b3daf8586aded674"


def test_canonical_text_is_sorted_and_short() -> None:
    knobs = Knobs(
        split_key="factor-operators-depth",
        lb_occupancy_limit=0.5,
        overrides=(SubGraphKnobs("a", factor=2),),
    )
    assert knobs.canonical() == (
        '{"lb_occupancy_limit":0.5,"overrides":[{"factor":2,"layer":"a"}],"split_key":"factor-operators-depth"}'
    )


def test_equal_settings_have_one_id() -> None:
    first, second = SubGraphKnobs("a", factor=2), SubGraphKnobs("b", boundary="cut")
    nothing = SubGraphKnobs("c", priority=5, inner_dim=1, inner_factor=1)
    spelled = Knobs(
        recompute_limit=1.0,
        merge_order="straight-diamond-branch",
        overrides=(second, nothing, first),
    )
    plain = Knobs(recompute_limit=1, overrides=(first, second))
    assert spelled == plain
    assert spelled.id == plain.id


def test_an_override_that_is_not_one_is_none() -> None:
    assert Knobs(overrides=(SubGraphKnobs("a"), SubGraphKnobs("b", priority=5))) == Knobs()


def test_two_overrides_of_a_layer_are_one_the_later_wins_field_by_field() -> None:
    first = SubGraphKnobs("a", dim=1, factor=2, scope="GB")
    second = SubGraphKnobs("a", factor=4, prefetch_depth=1)
    both = SubGraphKnobs("a", dim=1, factor=4, scope="GB", prefetch_depth=1)
    assert Knobs(overrides=(first, second)).overrides == (both,)


def test_splits_that_are_the_same_are_written_alike() -> None:
    same: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"dim": 2, "factor": 1}, {"factor": 1}),
        ({"inner_dim": 2}, {}),
        ({"inner_dim": 2, "inner_factor": 1}, {}),
        ({"dim": 1, "inner_dim": 1, "factor": 2, "inner_factor": 4}, {"dim": 1, "factor": 2}),
        ({"factor": 1, "inner_dim": 2, "inner_factor": 4}, {"dim": 2, "factor": 4}),
        ({"priority": 5}, {}),
    ]
    for spelled, plain in same:
        assert SubGraphKnobs("a", **spelled) == SubGraphKnobs("a", **plain)


def test_older_records_load() -> None:
    """Version 1 named every field of an override."""
    old = '{"overrides":[{"boundary":"auto","dim":1,"factor":2,"layer":"a","scope":"auto"}]}'
    assert Knobs.from_dict(json.loads(old)).overrides == (SubGraphKnobs("a", dim=1, factor=2),)


@settings(max_examples=25, deadline=None)
@given(knobs=settings_of(LAYERS, samples=8))
def test_round_trip(knobs: Knobs) -> None:
    again = Knobs.from_dict(json.loads(knobs.canonical()))
    assert again == knobs
    assert again.id == knobs.id
    assert len(knobs.id) == 16


@settings(max_examples=25, deadline=None)
@given(first=settings_of(LAYERS), second=settings_of(LAYERS))
def test_identity_tells_settings_apart(first: Knobs, second: Knobs) -> None:
    assert (first.id == second.id) == (first == second)


def test_from_dict_leaves_its_argument_alone() -> None:
    values: dict[str, Any] = {"overrides": [{"layer": "a"}], "lb_occupancy_limit": 0.5}
    Knobs.from_dict(values)
    assert values == {"overrides": [{"layer": "a"}], "lb_occupancy_limit": 0.5}


def test_every_knob_is_described() -> None:
    for spec in model_knobs().values():
        assert spec.help
        assert spec.published
        assert not spec.help.endswith(".")
        assert AUTO not in spec.choices
        assert all(isinstance(choice, str) == isinstance(spec, Words) for choice in spec.choices)
    for name, spec in subgraph_knobs().items():
        assert spec.help, name
        assert spec.published, name
        assert not spec.help.endswith(".")
        assert AUTO not in spec.choices
        assert all(isinstance(choice, str) == isinstance(spec, Words) for choice in spec.choices)


def test_names_and_order_of_the_fields_are_a_contract() -> None:
    fields = [f.name for f in dataclasses.fields(SubGraphKnobs)]
    assert fields == ["layer", *subgraph_knobs()]
    assert fields[:6] == ["layer", "boundary", "dim", "factor", "inner_dim", "inner_factor"]
    assert list(model_knobs())[-10:-8] == ["weight_buffer_fraction", "layer_order"]
    last = (*ChipPart._fields, "fetch_ahead", "tiling", "launches")
    assert tuple(model_knobs())[-len(last) :] == last


def test_every_choice_is_accepted() -> None:
    for name, spec in model_knobs().items():
        for value in (AUTO, *spec.choices):
            assert getattr(Knobs.from_dict({name: value}), name) == value


OWN = {
    **{name: spec.choices for name, spec in subgraph_knobs().items()},
    "dim": (0, 1, 7), "factor": (1, 2, 1000), "inner_dim": (0, 3), "inner_factor": (2, 64),
    "cores": (1, 4), "core_parallel_dim": (0, 2), "priority": (0, 4, 9),
}  # fmt: skip


def test_every_value_of_a_sub_graph_s_knob_is_accepted() -> None:
    for name, values in OWN.items():
        assert values
        partner = {"inner_dim": {"inner_factor": 2}}.get(name, {"inner_dim": 1})
        more = partner if name.startswith("inner") else {}
        for value in values:
            item = {"layer": "a", name: value, **more}
            knobs = Knobs.from_dict({"overrides": [item]})
            assert getattr(knobs.overrides[0], name) == value
            assert Knobs.from_dict(json.loads(knobs.canonical())) == knobs
        assert Knobs.from_dict({"overrides": [{"layer": "a", name: AUTO}]}) == Knobs()


def test_other_values_of_a_sub_graph_s_knob_are_refused() -> None:
    for name, spec in subgraph_knobs().items():
        wrong: list[Any] = ["nonsense", None, True, [1]]
        if isinstance(spec, Numbers):
            wrong += [spec.low - 1, float("nan"), float("inf")]
            wrong += [] if spec.high is None else [spec.high + 1]
        for value in wrong:
            with pytest.raises(KnobsError, match=f"^overrides: {name}: ") as caught:
                Knobs.from_dict({"overrides": [{"layer": "a", name: value}]})
            assert "\n" not in str(caught.value)


PUBLISHED = {
    "merge_order": "straight-diamond-branch", "split_key": "operators-factor-depth",
    "split_dims": "all", "factor_policy": "published",
    "binding": "printed", "output_scope": "LB", "spill_victim": "longest",
    "weight_residency": "stream", "instruction_scheduling": "on", "cluster_partitioning": "batch",
}  # fmt: skip


def test_earlier_spellings_are_read() -> None:
    own = {"layer": "a", "core_dim": 1, "tile_divisor": 2, "spill_victim": "size_x_life"}
    old = {"lb_fill": 0.5, "merge_order": "dbs", "split_key": "fod", "factor_scale": 2}
    assert Knobs.from_dict({**old, "overrides": [own]}) == Knobs(
        lb_occupancy_limit=0.5,
        merge_order="diamond-branch-straight",
        split_key="factor-operators-depth",
        instance_multiplier=2,
        overrides=(
            SubGraphKnobs(
                "a",
                core_parallel_dim=1,
                tile_subdivision=2,
                spill_victim="size_times_lifetime",
            ),
        ),
    )
    assert Knobs.from_dict({"merge_order": "sdb", "split_key": "ofd"}) == Knobs()
    for wrong in ({"merge_order": "sds"}, {"lb_fill": 7}, {"lb_fill": 1, "lb_occupancy_limit": 1}):
        with pytest.raises(KnobsError):
            Knobs.from_dict(wrong)


def test_the_published_behaviour_has_a_name() -> None:
    for name, word in PUBLISHED.items():
        assert Knobs.from_dict({name: word}) == Knobs()


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": (
        {"prefetch_dept": 2},
        "prefetch_dept: unknown knob; did you mean 'prefetch_depth'?",
    ),
    "word": (
        {"instance_order": "lifo"},
        "instance_order: 'lifo' is not a value of it; one of auto, bfs, dfs, footprint, priority",
    ),
    "list for a word": (
        {"binding": ["always"]},
        "binding: ['always'] is not a value of it; one of auto, always, printed",
    ),
    "fraction": ({"prefetch_depth": 1.5}, "prefetch_depth: 1.5 is not a whole number"),
    "boolean": ({"max_layers": True}, "max_layers: True is not a whole number"),
    "text": ({"lb_occupancy_limit": "half"}, "lb_occupancy_limit: 'half' is not a number"),
    "null": ({"lb_occupancy_limit": None}, "lb_occupancy_limit: None is not a number"),
    "low": ({"lb_occupancy_limit": 0.01},
    "lb_occupancy_limit: 0.01 is out of range; from 0.05 to 1"),
    "nan": ({"lb_occupancy_limit": float("nan")},
    "lb_occupancy_limit: nan is out of range; from 0.05 to 1"),
    "overrides": ({"overrides": {"layer": "a"}}, "overrides: expected a list"),
    "override without layer": (
        {"overrides": [{"dim": 1}]},
        'overrides: an override needs the name of a layer; {"layer": "conv1", ...}',
    ),
    "override field": (
        {"overrides": [{"layer": "a", "facter": 1}]},
        "overrides: unknown field 'facter'; did you mean 'factor'?",
    ),
    "override boundary": (
        {"overrides": [{"layer": "a", "boundary": "no"}]},
        "overrides: boundary: 'no' is not a value of it; one of auto, cut, merge",
    ),
    "override dimension twice": (
        {"overrides": [{"layer": "a", "dim": 1, "inner_dim": 1, "inner_factor": 2}]},
        "overrides: inner_dim: 1 is the dimension that dim splits already; take another one, or a larger factor",  # noqa: E501
    ),
}  # fmt: skip


LIKE_OTHERS = ("list for a word", "boolean", "null", "nan")
"""What is wrong in the same way as others."""


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in BAD if name not in LIKE_OTHERS),
        *(pytest.param(name, marks=pytest.mark.full) for name in LIKE_OTHERS),
    ],
)
def test_wrong_values_are_located_and_explained(name: str) -> None:
    values, message = BAD[name]
    with pytest.raises(KnobsError) as caught:
        Knobs.from_dict(values)
    assert str(caught.value) == message
    assert caught.value.exit_status == 2


def test_the_place_is_kept() -> None:
    with pytest.raises(KnobsError) as caught:
        Knobs.from_dict({"nonsense_xyz": 1}, Location("my.json"))
    assert str(caught.value).startswith("my.json: nonsense_xyz: unknown knob; one of batches_per")


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "knobs.json"
    knobs = Knobs(lb_occupancy_limit=0.5, overrides=(SubGraphKnobs("a", "cut"),))
    path.write_text(knobs.canonical())
    assert load_knobs(path) == knobs


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"{",
            ":1:2: not JSON; the parser says: Expecting property name enclosed in double quotes",
        ),
        (b"[]", ": expected an object of knobs; for example {}"),
        (
            b'{\n "lb_occupancy_limit": 7}',
            ": lb_occupancy_limit: 7 is out of range; from 0.05 to 1",
        ),
        (b"\xff", ": cannot read: not UTF-8 text"),
    ],
)
def test_wrong_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "knobs.json"
    path.write_bytes(content)
    with pytest.raises(KnobsError) as caught:
        load_knobs(path)
    assert str(caught.value) == f"{path}{message}"


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(KnobsError) as caught:
        load_knobs(tmp_path / "none.json")
    assert caught.value.at.file == tmp_path / "none.json"


def test_settings_are_values() -> None:
    assert hash(Knobs(lb_occupancy_limit=0.5)) == hash(Knobs(lb_occupancy_limit=0.5))
    with pytest.raises(dataclasses.FrozenInstanceError):
        Knobs().lb_occupancy_limit = 0.5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prefetch_depth", -2),
        ("prefetch_depth", 2.5),
        ("recompute_limit", float("nan")),
        ("binding", "nonsense"),
    ],
)
def test_a_candidate_refuses_what_a_file_may_not_say(field: str, value: Any) -> None:
    with pytest.raises(KnobsError) as caught:
        Knobs(**{field: value})
    assert caught.value.at.field == field
    with pytest.raises(KnobsError) as caught:
        Knobs.from_dict({field: value})
    assert caught.value.at.field == field


def test_an_override_refuses_what_a_file_may_not_say() -> None:
    with pytest.raises(KnobsError, match="scope"):
        SubGraphKnobs("a", scope="L2")
    with pytest.raises(KnobsError, match="factor"):
        SubGraphKnobs("a", factor=0)


SMALL = target(gb=0, clusters=1)
LARGE = target(gb=1 << 13, clusters=2)
MISPLACED = [
    (Knobs(output_scope="GB"), "output_scope", "gb.capacity_kib"),
    (Knobs(weight_residency="GB"), "weight_residency", "gb.capacity_kib"),
    (Knobs(cluster_partitioning="pipeline"), "cluster_partitioning", "clusters"),
    (Knobs(overrides=(SubGraphKnobs("a", scope="GB"),)), "overrides", "gb.capacity_kib"),
]


@pytest.mark.parametrize(("knobs", "knob", "field"), MISPLACED)
def test_what_a_target_has_no_place_for_is_refused_by_its_field(
    knobs: Knobs, knob: str, field: str
) -> None:
    refuse_misplaced(knobs, LARGE)
    assert fitting(knobs, LARGE) == knobs
    assert fitting(knobs, SMALL) == Knobs()
    with pytest.raises(KnobsError, match=rf"\({re.escape(field)}\)") as caught:
        refuse_misplaced(knobs, SMALL)
    assert caught.value.at.field == knob


def test_what_a_target_has_no_place_for_is_not_offered() -> None:
    for machine, offered in ((SMALL, False), (LARGE, True)):
        here = Here(8, 50, target=machine)
        assert ("GB" in model_knobs()["output_scope"].offered(here)) is offered
        assert bool(model_knobs()["cluster_partitioning"].offered(here)) is offered
        inside = InSubGraph(machine, {0: 8}, (), read=True, weights=True)
        assert ("GB" in subgraph_knobs()["scope"].offered_in(inside)) is offered


def test_a_knob_of_samples_or_layers_knows_the_model() -> None:
    here = Here(share=12, layers=5)
    samples, layers = model_knobs()["batches_per_cluster"], model_knobs()["max_layers"]
    assert samples.offered(here) == (6, 4, 3, 2, 1)
    assert samples.canonical(12, here) == AUTO
    assert samples.number(AUTO, here) == samples.number(12, here)
    assert layers.offered(here) == (1, 2, 4)
    assert layers.canonical(8, here) == AUTO
    assert layers.auto(here) == 5


def test_the_neighbours_of_a_number_of_parts_are_the_next_ones() -> None:
    factor = subgraph_knobs()["factor"]
    assert factor.neighbours(6, (1, 2, 3, 4, 8, 12, 16)) == (3, 4, 8, 12)
    assert model_knobs()["output_scope"].neighbours("GB", (AUTO, "GB", "DDR")) == (AUTO, "DDR")
