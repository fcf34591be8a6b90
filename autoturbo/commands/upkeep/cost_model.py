"""Train cost models on data sets of measurements, and list them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from autoturbo.commands.console import Console
from autoturbo.commands.output_files import add_force_option, outputs_of
from autoturbo.commands.parser import Actions, takes
from autoturbo.schema import DeferredType, TypedDict

if TYPE_CHECKING:
    from autoturbo.cost_models.pretrained import Notes

USAGE = "train|list"
EXAMPLE = "autoturbo cost-model train measurements -o model"


_Card = Annotated[dict[str, Any], DeferredType(of="autoturbo.cost_models.pretrained:ModelCard")]


class TrainLine(TypedDict):
    """Where the model is, and what it was trained on."""

    folder: str
    card: _Card


class ListLine(TypedDict):
    """The cost models of the package."""

    models: dict[str, _Card]


_FOLDER = takes("folder", metavar="FOLDER", type=Path, help="folder of the data set")

_ACTION = Actions()
add_arguments, run, LINES = _ACTION.add_arguments, _ACTION.run, _ACTION.lines


@_ACTION(
    "autoturbo cost-model train measurements -o model",
    TrainLine,
    _FOLDER,
    takes(
        "-o", "--output", metavar="MODEL", type=Path, required=True,
        help="folder of the model, made where it is missing",
    ),
    add_force_option,
    takes(
        "--from", dest="start", metavar="MODEL",
        help="correct this model in place of beginning anew: a folder, or 'kernels' in the package",
    ),
    usage="FOLDER -o MODEL [--from MODEL]",
)  # fmt: skip
def _train(options: argparse.Namespace, console: Console) -> int:
    """Train a cost model on a data set of measurements."""
    from autoturbo.cost_models.pretrained import FILES, Pretrained, folder_of, train
    from autoturbo.cost_models.training import Table
    from autoturbo.datasets.measurements import load_measurements

    outputs = outputs_of(options)
    outputs.check_folder(options.output, FILES)
    data = load_measurements(options.folder)
    start: Pretrained | None = None
    if options.start is not None:
        start = Pretrained.load(folder_of(options.start))
    table = Table.of(data, None if start is None else start.factors)
    notes = _notes(data.collection, options)
    model = train(table, notes, start=start)
    model.save(options.output, outputs)
    console.emit(TrainLine(folder=str(options.output), card=model.card))
    text = f"{model.card['settings']} settings, {model.card['kernels']} kernels"
    console.answer(f"wrote {options.output}: cost model trained on {text}")
    return 0


def _notes(collection: Mapping[str, Any], options: argparse.Namespace) -> Notes:
    """Return where a model comes from."""
    more = f" --from {options.start}" if options.start else ""
    train = f"autoturbo cost-model train{more} measurements -o model"
    recipe = collection["recipe"]
    schema, seed, settings = (collection[name] for name in ("schema", "seed", "settings"))
    return {
        "versions": collection["versions"],
        "data": {"schema": schema, "seed": seed, "settings": settings},
        "reproduce": [f"{recipe['command']} -o measurements", train],
    }


@_ACTION("autoturbo cost-model list", ListLine)
def _list(_: argparse.Namespace, console: Console) -> int:
    """Show the cost models in the package."""
    from autoturbo.cost_models.pretrained import CARD, bundled, read_card

    cards = {name: read_card(folder / CARD) for name, folder in bundled().items()}
    console.emit(ListLine(models=cards))
    for name, card in cards.items():
        for line in _described(name, card):
            console.answer(line)
    if not cards:
        console.answer("no cost model is in the package")
    return 0


def _described(name: str, card: Mapping[str, Any]) -> list[str]:
    """Return what a model was trained on, and how well it ranks settings, as lines."""
    models, targets = len(card["models"]), len(card["targets"])
    learned = f"{card['settings']} settings of {models} models on {targets} targets"
    figures = (
        f"  ranks {100 * said['pairwise']:.1f} % of pairs of settings right on {kind}s held out"
        for kind, said in card.get("accuracy", {}).items()
    )
    return [f"{name}: trained on {learned}", *figures]
