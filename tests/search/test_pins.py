"""What people fix, allow, keep and cut: no candidate of a search breaks it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoturbo.errors import KnobsError
from autoturbo.graph.layers import layers_of
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.knobs.pins import Pins, checked, flat
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.search.pins import broken, pins_of
from autoturbo.search.space import Space
from tests.schedule.schedule_samples import workload

STCP920 = load_target("stcp920")
GRAPH = workload("resnet18", 4)
NAMES = [layer.name for layer in layers_of(GRAPH)]


READERS = {
    one.name for one in layers_of(GRAPH) if set(one.inputs) & set(layers_of(GRAPH)[9].outputs)
}
"""Of the layer that is cut."""


def scheduler() -> ModelScheduler:
    return ModelScheduler(GRAPH, STCP920, "float16")


def drawn(pins: Pins, *starts: Knobs) -> list[Knobs]:
    """Candidates of every kind that a search proposes."""
    space = Space.of(scheduler(), subgraphs=8, starts=starts, pins=pins)
    rng = np.random.default_rng(0)
    dense = space.random(rng, 60, dense=True)
    return space.settings(np.concatenate([dense, space.mutate(rng, dense, 0.3)]))


def test_a_fixed_knob_holds_in_every_candidate_and_every_sub_graph() -> None:
    start = Knobs(prefetch_depth=4, overrides=(SubGraphKnobs(NAMES[3], prefetch_depth=2),))
    for knobs in drawn(pins_of({"prefetch_depth": 3}, {}, graph=GRAPH), start):
        assert knobs.prefetch_depth == 3
        assert {own.prefetch_depth for own in knobs.overrides} <= {"auto"}


def test_a_fixed_knob_of_a_sub_graph_holds_there_and_is_free_elsewhere() -> None:
    name = NAMES[5]
    pins = pins_of({f"{name}.tile_subdivision": 2, f"{NAMES[9]}.boundary": "cut"}, {}, graph=GRAPH)
    found = drawn(pins)
    own = [{one.layer: one.tile_subdivision for one in knobs.overrides} for knobs in found]
    assert all(tiles[name] == 2 for tiles in own)
    assert {t for tiles in own for layer, t in tiles.items() if layer != name} > {"auto"}


def test_only_allowed_values_are_tried_of_the_model_and_of_sub_graphs() -> None:
    found = drawn(
        pins_of({}, {"output_scope": ["DDR"], "split_dims": ["auto", "batch"]}, graph=GRAPH)
    )
    assert {knobs.output_scope for knobs in found} == {"DDR"}
    assert {knobs.split_dims for knobs in found} == {"auto", "batch"}
    assert {own.scope for knobs in found for own in knobs.overrides} <= {"auto", "DDR"}


def test_what_is_kept_is_one_sub_graph_and_what_is_cut_ends_one() -> None:
    kept, cut = (NAMES[1], NAMES[4]), NAMES[9]
    pins = pins_of({}, {}, keep=[kept], cut=[cut], graph=GRAPH)
    seen = set()
    for knobs in drawn(pins)[::4]:
        try:
            schedule = build_schedule(scheduler(), knobs)
        except KnobsError:  # a split that other cuts make impossible
            continue
        layers = schedule.context.layers
        groups = [
            {layers[layer].name for layer in subgraph.layers}
            for subgraph in schedule.instances.subgraphs
        ]
        together = any({*kept} <= group for group in groups)
        (own,) = [group for group in groups if cut in group]
        assert not own & READERS or "is not cut" in broken(pins, schedule)
        assert together or "do not fit one sub-graph" in broken(pins, schedule)
        seen.add(together)
    assert seen == {True, False}  # a limit of layers keeps them apart: that is not handed out


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"fixed": {"prefech_depth": 3}}, "prefech_depth: unknown knob; did you mean 'prefetch_de"),
        ({"fixed": {"prefetch_depth": 99}}, "prefetch_depth: 99 is out of range"),
        ({"fixed": {"nothing.cores": 1}}, "nothing.cores: the model has no layer 'nothing'"),
        ({"fixed": {f"{NAMES[0]}.binding": "always"}}, f"{NAMES[0]}.binding: unknown knob"),
        ({"allowed": {"split_dims": []}}, "split_dims: no value is allowed"),
        ({"allowed": {f"{NAMES[0]}.cores": [1]}}, f"{NAMES[0]}.cores: no knob of the model to"),
        ({"keep": [["nothing", NAMES[0]]]}, "keep: the model has no layer 'nothing'"),
        ({"keep": [[NAMES[0]]]}, "keep: one layer is a sub-graph by itself"),
        ({"keep": [NAMES[:3]], "cut": [NAMES[1]]}, f"{NAMES[1]}.boundary: 'cut' and 'merge' are"),
    ],
)
def test_a_pin_that_makes_no_sense_is_named(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(KnobsError) as caught:
        pins_of(**{"fixed": {}, "allowed": {}, **asked}, graph=GRAPH)
    assert str(caught.value).startswith(message)


def test_a_pin_that_the_target_has_no_place_for_is_named() -> None:
    for pins in (Pins({"output_scope": "GB"}), Pins({}, {"output_scope": ("GB",)})):
        with pytest.raises(KnobsError) as caught:
            Space.of(ModelScheduler(GRAPH, load_target("ipu-mk2"), "float16"), pins=pins)
        assert caught.value.at.field == "output_scope"


def test_a_setting_can_be_pinned_as_it_is_shown() -> None:
    own = SubGraphKnobs("a.b/c", factor=4, scope="GB")
    knobs = Knobs(prefetch_depth=3, split_dims="batch", overrides=(own,))
    pins = checked(flat(knobs), {})
    assert pins.words() == [
        "split_dims=batch", "prefetch_depth=3", "a.b/c.factor=4", "a.b/c.scope=GB"
    ]  # fmt: skip
    assert pins.own == {"a.b/c": own}
    assert pins.digest() != checked({**flat(knobs), "prefetch_depth": 2}, {}).digest()
    assert not Pins().digest()


def test_the_order_of_a_file_counts_where_layers_go_as_in_it() -> None:
    places = tuple(reversed(range(3)))
    for pins in (Pins({"layer_order": "file"}), Pins({}, {"layer_order": ("path", "file")})):
        assert pins.digest(places) != pins.digest(range(3))
    other = Pins({"layer_order": "path"})
    assert other.digest(places) == other.digest(range(3))
