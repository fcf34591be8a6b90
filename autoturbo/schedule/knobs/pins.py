"""What people know: knobs that are fixed, and values that are allowed.

A pin is a knob of the model by its name, or a knob of the sub-graph that holds a layer, as
``LAYER.KNOB``. The search starts from candidates that have the pinned values, and has no dimension
for them, so nothing that it proposes breaks a pin.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from autoturbo.errors import KnobsError, Location, did_you_mean
from autoturbo.graph.ordering import AS_IN_FILE
from autoturbo.schedule.knobs.candidate import Knobs, SubGraphKnobs, model_knobs, subgraph_knobs
from autoturbo.schedule.knobs.kinds import AUTO, NOWHERE, Here, Value
from autoturbo.schedule.knobs.places import refuse_misplaced

if TYPE_CHECKING:
    from autoturbo.hardware.target import Target

CUT: Final = "boundary", "cut"
MERGE: Final = "boundary", "merge"


@dataclass(frozen=True)
class Pins:
    """The constraints of a search.

    Attributes:
        fixed: Values by the name of a knob of the model, or by ``LAYER.KNOB``.
        allowed: The only values that may be tried, by the name of a knob of the model.
    """

    fixed: Mapping[str, Value] = field(default_factory=dict)
    allowed: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether anything is pinned."""
        return bool(self.fixed or self.allowed)

    def digest(self, file_places: Sequence[int] = ()) -> str:
        """Return a hash of what is pinned; empty where nothing is.

        Args:
            file_places: Places of the model's operators; they count where layers go as in the file.
        """
        if not self:
            return ""
        orders = (self.fixed.get("layer_order"), *self.allowed.get("layer_order", ()))
        pinned: list[object] = [dict(self.fixed), dict(self.allowed)]
        pinned += [list(file_places)] if file_places and AS_IN_FILE in orders else []
        return hashlib.sha256(json.dumps(pinned, sort_keys=True).encode()).hexdigest()[:8]

    @property
    def model(self) -> dict[str, Value]:
        """Return the fixed knobs of the model."""
        return {name: value for name, value in self.fixed.items() if name in model_knobs()}

    @property
    def own(self) -> dict[str, SubGraphKnobs]:
        """Return the fixed knobs of sub-graphs, by the layer that they name."""
        chosen: dict[str, dict[str, Any]] = {}
        for name, value in self.fixed.items():
            if name not in model_knobs():
                layer, knob = parts_of_name(name)
                chosen.setdefault(layer, {})[knob] = value
        return {layer: SubGraphKnobs(layer, **values) for layer, values in chosen.items()}

    def names(self, layer: str) -> tuple[str, ...]:
        """Return the knobs that are fixed for the sub-graph of a layer."""
        return tuple(k for at, k in map(parts_of_name, self.fixed) if at == layer and at)

    def over(self, knobs: Knobs, here: Here) -> Knobs:
        """Return a candidate with what is pinned; an allowed value where its own is none.

        Args:
            knobs: The candidate.
            here: The model and the target.
        """
        chosen: dict[str, Any] = {
            name: model_knobs()[name].canonical(value, here) for name, value in self.model.items()
        }
        for name, values in self.allowed.items():
            decision = model_knobs()[name]
            kept = {decision.canonical(value, here) for value in values}
            if name not in chosen and decision.canonical(getattr(knobs, name), here) not in kept:
                chosen[name] = decision.canonical(values[0], here)
        known = {own.layer: self._following(own) for own in knobs.overrides}
        # What is fixed for one layer holds over what is fixed for all.
        known |= {
            layer: _fixed_over(own, self.names(layer), known.get(layer))
            for layer, own in self.own.items()
        }
        return dataclasses.replace(knobs, **chosen, overrides=tuple(known.values()))

    def _following(self, own: SubGraphKnobs) -> SubGraphKnobs:
        """Return knobs of a sub-graph that leave to the model's what that has fixed for all."""
        gone: dict[str, Any] = {
            name: AUTO
            for name, value in own.as_dict().items()
            if name != "layer" and not self.offered_in(name, (value,))
        }
        return dataclasses.replace(own, **gone) if gone else own

    def offered_in(self, name: str, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """Return which values of a knob of a sub-graph are left: what holds for all, holds there.

        Args:
            name: The sub-graph's knob.
            values: Values that make sense there.
        """
        decision = subgraph_knobs()[name]
        model = decision.over or (name if name in model_knobs() else "")
        if model in self.fixed:
            return ()
        kept = self.allowed.get(model)
        if kept is None:
            return values
        meant = {model_knobs()[model].auto(NOWHERE) if value == AUTO else value for value in kept}
        return tuple(value for value in values if value in meant)

    def offered(self, name: str, values: tuple[Value, ...], here: Here) -> tuple[Value, ...]:
        """Return which values of a knob of the model are left to try."""
        if name in self.fixed:
            return ()
        if name not in self.allowed:
            return values
        decision = model_knobs()[name]
        kept = dict.fromkeys(decision.canonical(value, here) for value in self.allowed[name])
        return tuple(value for value in kept if value != AUTO)

    def words(self) -> list[str]:
        """Return the pinned values in the spelling of the command line."""
        fixed = [f"{name}={value}" for name, value in self.fixed.items()]
        allowed = [f"{n}={','.join(map(str, values))}" for n, values in self.allowed.items()]
        return [*fixed, *(f"{text} allowed" for text in allowed)]


NO_PINS: Final = Pins()


def _fixed_over(
    own: SubGraphKnobs, names: Iterable[str], below: SubGraphKnobs | None
) -> SubGraphKnobs:
    """Return knobs of a sub-graph over others, ``"auto"`` too where that is what is fixed."""
    if below is None:
        return own
    return dataclasses.replace(below, **{name: getattr(own, name) for name in names})


def parts_of_name(name: str) -> tuple[str, str]:
    """Return the layer and the knob of ``LAYER.KNOB``; no layer for a knob of the model."""
    # Names of layers may have dots in them, those of knobs have none.
    layer, _, knob = name.rpartition(".")
    return ("", name) if name in model_knobs() else (layer, knob)


def checked(
    fixed: Mapping[str, Any], allowed: Mapping[str, Sequence[Any]], layers: Sequence[str] = ()
) -> Pins:
    """Return checked pins.

    Args:
        fixed: Values by knob, or by ``LAYER.KNOB``.
        allowed: Values by knob.
        layers: Names of the model's layers; any are taken if there are none.

    Raises:
        KnobsError: A knob or a layer that there is not, or a value that a knob does not take.
    """
    for name, value in fixed.items():
        _check(name, value, layers)
    for name, values in allowed.items():
        if name not in model_knobs():
            hint = did_you_mean(name, model_knobs())
            raise KnobsError("no knob of the model to allow values of", Location(field=name), hint)
        if not values or isinstance(values, str):
            raise KnobsError("no value is allowed", Location(field=name), "name at least one")
        for value in values:
            _check(name, value, layers)
    return Pins(dict(fixed), {name: tuple(values) for name, values in allowed.items()})


def with_value(fixed: dict[str, Any], name: str, value: Value) -> None:
    """Fix a value that is not fixed to another one.

    Raises:
        KnobsError: It is.
    """
    if fixed.setdefault(name, value) != value:
        message = f"{value!r} and {fixed[name]!r} are both asked for"
        raise KnobsError(message, Location(field=name), "take one")


def _check(name: str, value: object, layers: Sequence[str]) -> None:
    layer, knob = parts_of_name(name)
    decisions = subgraph_knobs() if layer else model_knobs()
    place = Location(field=name)
    if knob not in decisions:
        every = (*model_knobs(), *subgraph_knobs())
        hint = did_you_mean(knob, every) if layer else did_you_mean(name, every)
        raise KnobsError("unknown knob", place, f"{hint}; of a sub-graph: LAYER.KNOB")
    if value != AUTO:
        decisions[knob].check(value, place)
    if layer and layers and layer not in layers:
        hint = did_you_mean(layer, layers)
        raise KnobsError(f"the model has no layer {layer!r}", place, hint)


def flat(knobs: Knobs) -> dict[str, Value]:
    """Return a candidate as pins: knobs of the model, then those of layers."""
    values = knobs.as_dict()
    own = values.pop("overrides", ())
    values |= {
        f"{one['layer']}.{name}": value
        for one in own
        for name, value in one.items()
        if name != "layer"
    }
    return values


def refuse_impossible(pins: Pins, base: Knobs, target: Target) -> None:
    """Refuse pins that a target has no place for.

    Raises:
        KnobsError: A value that is fixed, or the only ones that are allowed, have no place.
    """
    refuse_misplaced(base, target)
    for name, values in pins.allowed.items():
        for value in values:
            only: dict[str, Any] = {name: value}
            refuse_misplaced(Knobs(**only), target)
