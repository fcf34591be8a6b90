"""Train cost models on data sets of measurements, judge them, and show which there are."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.commands.console import Console, titled_table
from autoturbo.commands.loading import add_force_option, outputs_of
from autoturbo.commands.parser import OneOf, Parser, Subcommand, add_subcommands

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from autoturbo.cost_models.training import Table
    from autoturbo.report.judging import Result, Scores

USAGE = "train|evaluate|list"
EXAMPLE = "autoturbo cost-model evaluate measurements"


def add_arguments(parser: Parser) -> None:
    """The actions."""
    add_subcommands(parser, _ACTIONS)


def run(options: argparse.Namespace, console: Console) -> int:
    """Do one of them."""
    return _ACTIONS[options.action].run(options, console)


def _train(options: argparse.Namespace, console: Console) -> int:
    from autoturbo.cost_models.pretrained import FILES, train
    from autoturbo.cost_models.training import Table
    from autoturbo.datasets.measurements import load_measurements

    outputs = outputs_of(options)
    outputs.check_folder(options.output, FILES)
    data = load_measurements(options.folder)
    table = Table.of(data)
    model = train(table, _notes(data.collection, table, judge=options.judge))
    model.save(options.output, outputs)
    console.emit({"folder": str(options.output), "card": model.card})
    text = f"{model.card['settings']} settings, {model.card['kernels']} kernels"
    console.answer(f"trained on {text}: {options.output}")
    return 0


def _notes(collection: Mapping[str, Any], table: Table, *, judge: bool) -> dict[str, Any]:
    """Where a model comes from, and how good what is trained like it is on what was held out."""
    from autoturbo.report.judging import accuracy

    train = f"autoturbo cost-model train{' --judge' if judge else ''} measurements -o model"
    recipe = collection["recipe"]
    notes = {
        "versions": collection["versions"],
        "data": {k: collection[k] for k in ("schema", "seed", "settings")},
        "reproduce": [f"{recipe['command']} -o measurements", train],
    }
    return {**notes, "accuracy": accuracy(table, "squared")} if judge else notes


def _evaluate(options: argparse.Namespace, console: Console) -> int:
    from autoturbo.cost_models.training import Table
    from autoturbo.datasets.measurements import load_measurements
    from autoturbo.report.judging import KINDS, METHODS, evaluate

    table = Table.of(load_measurements(options.folder, partial=True))
    methods, kinds = options.methods or list(METHODS), options.kinds or list(KINDS)
    found = []
    for result in evaluate(table, methods, kinds):
        found.append(result)
        console.say(f"{result.method} on {result.kind}s held out: done")
    console.emit({"results": [r.as_dict() for r in found]})
    if not console.json:
        for kind in kinds:
            own = [r for r in found if r.kind == kind]
            console.show(_comparison(kind, own))
            console.show(_groups(own[0]))
    return 0


def _comparison(kind: str, results: Iterable[Result]) -> RichTable:
    cells = ((r.method, *_cells(r.mean), f"{r.guesses.better}/{r.guesses.pools}") for r in results)
    return titled_table(f"{kind}s held out", ("method", *_TITLES, "faster"), cells)


def _groups(result: Result) -> RichTable:
    title = f"{result.method} by {result.kind} held out"
    cells = ((name, *_cells(scores)) for name, scores in result.groups.items())
    return titled_table(title, (result.kind, *_TITLES), cells)


_TITLES = ("pairwise", "tau", "top-1", "top-5", "top-10", "error")


def _cells(scores: Scores) -> list[str]:
    figures = (scores.pairwise, scores.tau, scores.top1, scores.top5, scores.top10)
    error = "-" if scores.error != scores.error else f"{100 * scores.error:.1f} %"
    return [*(f"{x:.3f}" for x in figures), error]


def _list(_: argparse.Namespace, console: Console) -> int:
    from autoturbo.cost_models.pretrained import CARD, bundled, read_card

    cards = {name: read_card(folder / CARD) for name, folder in bundled().items()}
    console.emit({"models": cards})
    for name, card in cards.items():
        console.answer(f"{name}: {_described(card)}")
    if not cards:
        console.answer("no cost model is in the package")
    return 0


def _described(card: Mapping[str, Any]) -> str:
    learned = (
        f"{card['settings']} settings of {len(card['models'])} models on"
        f" {len(card['targets'])} targets"
    )
    figures = (
        f"{kind}s held out: {100 * said['pairwise']:.1f} % of pairs in order"
        for kind, said in card.get("accuracy", {}).items()
    )
    return "; ".join((learned, *figures))


def _method_names() -> tuple[str, ...]:
    from autoturbo.report.judging import METHODS

    return tuple(METHODS)


def _kind_names() -> tuple[str, ...]:
    from autoturbo.report.judging import KINDS

    return KINDS


def _folder_argument(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder of the data set")


def _train_arguments(parser: Parser) -> None:
    _folder_argument(parser)
    text = "folder of the model, made where it is missing"
    parser.add_argument("-o", "--output", metavar="MODEL", type=Path, required=True, help=text)
    add_force_option(parser)
    text = "judge it on models and targets held out as well; the card says how it did"
    parser.add_argument("--judge", action="store_true", help=text)


def _evaluate_arguments(parser: Parser) -> None:
    _folder_argument(parser)
    add = parser.add_argument
    text = "model or target: what is held out whole (default: each); may be repeated"
    add("--held-out", dest="kinds", metavar="KIND", type=OneOf("--held-out", _kind_names),
        action="append", default=[], help=text)  # fmt: skip
    text = "objective or baseline (default: all); may be repeated"
    add("--method", dest="methods", metavar="NAME", type=OneOf("--method", _method_names),
        action="append", default=[], help=text)  # fmt: skip


_ACTIONS = {
    "train": Subcommand(
        "Train a cost model on a data set of measurements.",
        "autoturbo cost-model train measurements -o model",
        _train,
        _train_arguments,
        "FOLDER -o MODEL [--judge]",
    ),
    "evaluate": Subcommand(
        "Judge cost models on models and targets that are held out whole.",
        "autoturbo cost-model evaluate measurements --method squared",
        _evaluate,
        _evaluate_arguments,
        "FOLDER [--held-out KIND...] [--method NAME...]",
    ),
    "list": Subcommand(
        "Show the cost models in the package.",
        "autoturbo cost-model list",
        _list,
    ),
}
