"""Assignment of layers to the processing units of a machine, and their partition into parts.

They stand in :class:`autoturbo.schedule.knobs.Knobs` as one field, ``units``; left out, a machine's
layers are assigned as PartitionTuner does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoturbo.errors import KnobsError, Location, did_you_mean

IN_TURN = "in_turn"
SIDE_BY_SIDE = "side_by_side"
BRANCHES = (SIDE_BY_SIDE, IN_TURN)


@dataclass(frozen=True, slots=True)
class UnitKnobs:
    """Assignment of layers to the units of a machine.

    Attributes:
        layers: Names of layers with the names of their units, in the order of the layers' names;
            all others run on the machine's first unit.
        cuts: Names of layers that open a part: they join nothing that they read from.
        branches: ``"side_by_side"`` where units have work at the same time, or ``"in_turn"``: one
            part or copy at a time, which holds less memory and is never faster.
    """

    layers: tuple[tuple[str, str], ...] = ()
    cuts: tuple[str, ...] = ()
    branches: str = SIDE_BY_SIDE

    def __post_init__(self) -> None:
        """Sort the fields, so that equal candidates compare equal."""
        object.__setattr__(self, "layers", tuple(sorted(dict(self.layers).items())))
        object.__setattr__(self, "cuts", tuple(sorted(set(self.cuts))))

    def as_dict(self) -> dict[str, Any]:
        """Return the plain values, without defaults."""
        values: dict[str, Any] = {"layers": dict(self.layers), "cuts": list(self.cuts)}
        if self.branches != SIDE_BY_SIDE:
            values["branches"] = self.branches
        return values

    @staticmethod
    def from_dict(values: Any, at: Location) -> UnitKnobs:
        """Return the checked decisions of plain values.

        Raises:
            KnobsError: An unknown field, or a value that it does not take.
        """
        at = dataclasses.replace(at, field="units")
        names = ("layers", "cuts", "branches")
        if not isinstance(values, Mapping):
            raise KnobsError("expected an object", at, '{"layers": {"conv1": "npu"}, "cuts": []}')
        for name in values:
            if name not in names:
                raise KnobsError(f"unknown field {name!r}", at, did_you_mean(str(name), names))
        layers, cuts = values.get("layers", {}), values.get("cuts", [])
        branches = values.get("branches", SIDE_BY_SIDE)
        if not isinstance(layers, Mapping) or not _are_texts([*layers, *layers.values()]):
            message = "layers: expected an object of layers and units"
            raise KnobsError(message, at, '{"conv1": "npu"}')
        if not isinstance(cuts, list) or not _are_texts(cuts):
            raise KnobsError("cuts: expected a list of layers", at, '["conv1"]')
        if branches not in BRANCHES:
            message = f"branches: {branches!r} is not a value of it"
            raise KnobsError(message, at, f"one of {', '.join(BRANCHES)}")
        return UnitKnobs(tuple(layers.items()), tuple(cuts), branches)


def _are_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)
