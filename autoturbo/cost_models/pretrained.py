"""Models trained beforehand: made from a data set, read from a folder or from the package.

They see columns :data:`autoturbo.cost_models.features.PORTABLE` alone, so that what they say of a
kernel depends on the kernel and not on the schedule around it, and is asked for once.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NotRequired

import numpy as np

from autoturbo.cost_models.booster import Booster
from autoturbo.cost_models.contract import plugged
from autoturbo.cost_models.features import FEATURES_SCHEMA, PORTABLE
from autoturbo.cost_models.training import GROWN, TREES, Table
from autoturbo.datasets import data_folder
from autoturbo.datasets.measurements.shards import VERSIONS
from autoturbo.errors import InputError, Location, UsageError
from autoturbo.files import NO_OTHERS, Kind, Outputs, read_json
from autoturbo.registry import COST_MODELS
from autoturbo.schedule.knobs import current_name
from autoturbo.schedule.work import Flags
from autoturbo.schema import Natural, TypedDict

CORRECTIONS: Final = 40
"""Trees that are added to those of another model. They are small and regularised: a first network
of a machine says much of its rates and little of other layers."""

_CAREFUL: Final[dict[str, Any]] = {"eta": 0.1, "lambda": 10.0, "max_depth": 4}

CARD: Final = "card.json"
STANDARD: Final = "kernels"
"""The model in the package that is used unless another one is named."""

_FACTORS: Final = "factors.ubj"
FILES: Final = {CARD: Kind.COST_MODEL_CARD, _FACTORS: Kind.TREES}
"""What a model's folder holds."""

_CHECKSUM: Final = "factors_sha256"


ScoresJson = TypedDict("ScoresJson", {
    "pairwise": float, "tau": float, "top1": float, "top5": float, "top10": float,
    "error": float | None, "bias": float | None,
})  # fmt: skip
"""How good a ranking is, in six digits."""

NearJson = TypedDict("NearJson", {"rank": float, "recall": float, "regret": float})
"""How good a ranking near the best is, in six digits."""

GuessesJson = TypedDict("GuessesJson", {
    "pools": Natural, "better": Natural, "as_good": Natural, "speedup": float,
})  # fmt: skip
"""How the best predicted candidates did, in six digits."""


class Judged(ScoresJson):
    """How good a model is on what was held out."""

    near: NotRequired[NearJson]
    first_guess: GuessesJson


DataJson = TypedDict("DataJson", {"schema": Natural, "seed": Natural, "settings": Natural})
"""The data set that a model learned from."""

Notes = TypedDict("Notes", {
    "versions": dict[str, str], "data": DataJson, "reproduce": list[str],
    "accuracy": NotRequired[dict[str, Judged]],
})  # fmt: skip
"""Where a model comes from, and how good it is."""

Made = TypedDict("Made", {
    "features_schema": Natural, "names": list[str], "settings": Natural, "kernels": Natural,
    "trees": Natural, "models": list[str], "targets": list[str],
})  # fmt: skip
"""What a model learned from."""


class ModelCard(Notes, Made):
    """The description of a model, with a checksum of its trees."""

    factors_sha256: NotRequired[str]


@dataclass(frozen=True, eq=False)
class Pretrained:
    """Factors of kernels over what they take alone.

    Attributes:
        factors: Logarithms, from columns :data:`autoturbo.cost_models.features.PORTABLE`.
        card: Data, versions, accuracy.
    """

    factors: Booster
    card: dict[str, Any]

    def save(self, folder: Path, outputs: Outputs = NO_OTHERS) -> None:
        """Write the trees in XGBoost's own format, and the card.

        Raises:
            UsageError: What is there may not be replaced.
        """
        outputs.check_folder(folder, FILES)
        folder.mkdir(parents=True, exist_ok=True)
        card = {**self.card, _CHECKSUM: self.factors.save(folder / _FACTORS)}
        text = json.dumps(card, indent=2, sort_keys=True)
        outputs.write(folder / CARD, Kind.COST_MODEL_CARD, text + "\n")

    @staticmethod
    def load(folder: Path) -> Pretrained:
        """Return a model that :meth:`save` wrote.

        Raises:
            InputError: A file is missing or damaged, its features are of another version, or it
                learned from what another scheduler or simulator measured.
        """
        card = read_card(folder / CARD)
        return Pretrained(Booster.load(folder / _FACTORS, card.get(_CHECKSUM)), card)


def read_card(path: Path) -> dict[str, Any]:
    """Return the card of a model that this release can use; the trees are not read.

    Raises:
        InputError: See :meth:`Pretrained.load`.
    """
    try:
        card = read_json(path)
    except (OSError, ValueError):
        hint = None if path.parent.exists() else "a plug-in of that name is not installed either"
        raise InputError("no card of a cost model that can be read", Location(path), hint) from None
    if not isinstance(card, dict) or "features_schema" not in card:
        raise InputError("not the card of a pretrained cost model", Location(path))
    if card["features_schema"] != FEATURES_SCHEMA or _names(card) != list(PORTABLE):
        schema = card["features_schema"]
        message = f"features of version {schema}, this release reads {FEATURES_SCHEMA}"
        raise InputError(message, Location(path), "train it again")
    if stale := _stale(card.get("versions", VERSIONS)):
        message = f"it learned from {stale}"
        raise InputError(message, Location(path), "collect the measurements again and train it")
    return card


def _names(card: Mapping[str, Any]) -> list[str]:
    """Return the features of a card, in today's names of the knobs."""
    parts = (str(name).rpartition(".") for name in card.get("names") or ())
    return [f"{scope}{dot}{current_name(name)}" for scope, dot, name in parts]


_ALIKE: Final = {"scheduler": ("5",), "knobs": ("2",)}
"""Earlier versions by which a kernel has the same features and takes as long as by this one: what
has changed since is which sub-graphs there are."""


def _stale(versions: object) -> str:
    """Return how the measurements' versions differ from this release's; empty if they do not."""
    if not isinstance(versions, Mapping):
        return "measurements of unknown versions"
    return ", ".join(
        f"{name} {versions.get(name)} (this release has {ours})"
        for name, ours in VERSIONS.items()
        if versions.get(name) not in (ours, *_ALIKE.get(name, ()))
    )


def train(
    table: Table,
    notes: Mapping[str, Any],
    learn: Flags | None = None,
    start: Pretrained | None = None,
) -> Pretrained:
    """Return a model trained on measured candidates of a data set; good ones weigh more.

    Args:
        table: The data set.
        notes: More for the card: where the data is from, accuracy.
        learn: Mask of the candidates to learn from, ``(settings,)``; all if None.
        start: A model that is corrected by what the data set says; a new one if None.

    Raises:
        UsageError: None of them was measured.
    """
    chosen = table.measured if learn is None else table.measured & learn
    known = np.flatnonzero(table.known & chosen[table.owner])
    if not len(known):
        raise UsageError("the data set has no measured setting")
    weights = table.weights[known]
    labels = np.log(table.times[known] / table.base[known])
    # In the mean 1: the regularisation counts weights.
    rows, weights = table.rows[known], weights / weights.mean()
    if start is None:
        booster, trees = Booster.of(rows, labels, weights, trees=TREES, **GROWN), TREES
    else:
        trees = int(start.card["trees"]) + CORRECTIONS
        before = start.factors
        booster = Booster.of(rows, labels, weights, trees=CORRECTIONS, start=before, **_CAREFUL)
    entries: Made = {
        "features_schema": FEATURES_SCHEMA, "names": list(PORTABLE),
        "settings": int(chosen.sum()), "kernels": len(known), "trees": trees,
        "models": sorted(set(table.groups["model"][chosen].tolist())),
        "targets": sorted(set(table.groups["target"][chosen].tolist())),
    }  # fmt: skip
    return Pretrained(booster, {**notes, **entries})


def bundled() -> dict[str, Path]:
    """Return the folders of the models in the package, by name."""
    cards = sorted(data_folder("cost_models").glob(f"*/{CARD}"))
    return {card.parent.name: card.parent for card in cards}


def folder_of(name: str) -> Path:
    """Return the folder of a model: one in the package by its name, or the folder so called."""
    return bundled().get(name, Path(name))


def content_of(name: str) -> str:
    """Return a hash of a model's trees, which names it wherever its folder is.

    A plug-in's is told by its name and version.

    Raises:
        InputError: See :meth:`Pretrained.load`.
        PluginError: It cannot be imported.
    """
    if plugged(name) is not None:
        return f"{name}@{COST_MODELS.version(name)}"
    card = read_card(folder_of(name) / CARD)
    return str(card.get(_CHECKSUM, name))


@functools.cache
def standard() -> Pretrained:
    """Return the model in the package, read on first use.

    Raises:
        InputError: It is of other versions than this release, or damaged.
        UsageError: This copy of the package has none.
    """
    folders = bundled()
    if STANDARD not in folders:
        raise UsageError(f"no cost model {STANDARD!r} is in the package", hint="install it again")
    return Pretrained.load(folders[STANDARD])
