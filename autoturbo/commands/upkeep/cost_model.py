"""Train cost models on data sets of measurements, evaluate and list them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from autoturbo.commands.console import Console
from autoturbo.commands.flag_values import OneOf
from autoturbo.commands.output_files import add_force_option, outputs_of
from autoturbo.commands.parser import Actions, takes
from autoturbo.schema import DeferredType, TypedDict

if TYPE_CHECKING:
    from autoturbo.cost_models.judging import NearScores, ResultJson, Scores
    from autoturbo.cost_models.pretrained import Notes
    from autoturbo.cost_models.training import Table
else:
    ResultJson = Annotated[Any, DeferredType(of="autoturbo.cost_models.judging:ResultJson")]

USAGE = "train|evaluate|list"
EXAMPLE = "autoturbo cost-model evaluate measurements"


_Card = Annotated[dict[str, Any], DeferredType(of="autoturbo.cost_models.pretrained:ModelCard")]


class TrainLine(TypedDict):
    """Where the model is, and what it was trained on."""

    folder: str
    card: _Card


class EvaluateLine(TypedDict):
    """How good each method is on what was held out."""

    results: list[ResultJson]


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
        "--judge", action="store_true",
        help="evaluate it on models and targets held out as well; the card has the scores",
    ),
    takes(
        "--from", dest="start", metavar="MODEL",
        help="correct this model in place of beginning anew: a folder, or 'kernels' in the package",
    ),
    usage="FOLDER -o MODEL [--from MODEL] [--judge]",
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
    notes = _notes(data.collection, table, options)
    model = train(table, notes, start=start)
    model.save(options.output, outputs)
    console.emit(TrainLine(folder=str(options.output), card=model.card))
    text = f"{model.card['settings']} settings, {model.card['kernels']} kernels"
    console.answer(f"wrote {options.output}: cost model trained on {text}")
    return 0


def _notes(collection: Mapping[str, Any], table: Table, options: argparse.Namespace) -> Notes:
    """Return where a model comes from, and its accuracy on what is held out of training."""
    from autoturbo.cost_models.judging import accuracy

    more = f"{f' --from {options.start}' if options.start else ''}{' --judge' * options.judge}"
    train = f"autoturbo cost-model train{more} measurements -o model"
    recipe = collection["recipe"]
    schema, seed, settings = (collection[name] for name in ("schema", "seed", "settings"))
    notes: Notes = {
        "versions": collection["versions"],
        "data": {"schema": schema, "seed": seed, "settings": settings},
        "reproduce": [f"{recipe['command']} -o measurements", train],
    }
    if options.judge:
        notes["accuracy"] = accuracy(table, "squared")
    return notes


@_ACTION(
    "autoturbo cost-model evaluate measurements --method squared",
    EvaluateLine,
    _FOLDER,
    takes(
        "--held-out", dest="kinds", metavar="KIND", action="append", default=[],
        type=OneOf("--held-out", "autoturbo.cost_models.judging:KINDS"),
        help="model or target: what is held out whole (default: each); may be repeated",
    ),
    takes(
        "--method", dest="methods", metavar="NAME", action="append", default=[],
        type=OneOf("--method", "autoturbo.cost_models.judging:METHODS"),
        help="training objective or baseline (default: all); may be repeated",
    ),
    takes(
        "--model", metavar="MODEL",
        help="a trained model, judged as it is (default method: it alone): a folder, or 'kernels'",
    ),
    usage="FOLDER [--held-out KIND...] [--method NAME...] [--model MODEL]",
)  # fmt: skip
def _evaluate(options: argparse.Namespace, console: Console) -> int:
    """Judge cost models on models and targets that are held out whole."""
    from autoturbo.cost_models.judging import GIVEN, KINDS, METHODS, evaluate
    from autoturbo.cost_models.pretrained import Pretrained, folder_of
    from autoturbo.cost_models.training import Table
    from autoturbo.datasets.measurements import load_measurements

    table = Table.of(load_measurements(options.folder, partial=True))
    given = None if options.model is None else Pretrained.load(folder_of(options.model)).factors
    methods = options.methods or ([] if given else list(METHODS))
    methods, kinds = [*methods, *([GIVEN] if given else [])], options.kinds or list(KINDS)
    found = []
    for result in evaluate(table, methods, kinds, given):
        found.append(result)
        console.say(f"evaluated {result.method} on {result.kind}s held out")
    console.emit(EvaluateLine(results=[result.as_json() for result in found]))
    if not console.json:
        for kind in kinds:
            own = [r for r in found if r.kind == kind]
            cells = (
                (r.method, *_cells(r.mean, r.near), f"{r.guesses.better}/{r.guesses.pools}")
                for r in own
            )
            console.titled(f"{kind}s held out", ("method", *_TITLES, "faster"), cells)
            near = own[0].near_groups
            groups = ((name, *_cells(s, near[name])) for name, s in own[0].groups.items())
            console.titled(f"{own[0].method} by {kind} held out", (kind, *_TITLES), groups)
        console.say()
        for line in _LEGEND:
            console.say(line)
    return 0


_TITLES = ("in order", "tau", "top-1", "top-5", "top-10", "error", "near: rank", "recall")

_LEGEND = (
    "in order: share of pairs of settings ranked as measured; tau: Kendall's tau-b",
    "top-n: least latency of all over the least among the n that are ranked first",
    "error: mean error of the predicted time, up to one common factor",
    "near: of the neighbours of starts and of the best: Spearman's correlation, and the share",
    "      of the five ranked first that are among the five fastest",
    "faster: groups whose setting ranked first beats the heuristic",
)


def _cells(scores: Scores, near: NearScores) -> list[str]:
    figures = (scores.pairwise, scores.tau, scores.top1, scores.top5, scores.top10)
    error = "-" if scores.error != scores.error else f"{100 * scores.error:.1f} %"
    return [*(f"{x:.3f}" for x in figures), error, f"{near.rank:.2f}", f"{near.recall:.2f}"]


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
