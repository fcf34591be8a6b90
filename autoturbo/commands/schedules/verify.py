"""Check that a schedule computes its model: regions, memory, and numbers in ONNX Runtime.

Of a schedule file, of a run's best trial, of a knobs file, or of a scheduler by name.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from autoturbo.commands.console import Console, warn
from autoturbo.commands.flag_values import whole_number
from autoturbo.commands.loading import (
    DEFAULT_TARGET,
    AnyPair,
    ModelNotes,
    add_model_options,
    add_target_options,
    load_any_pair,
    model_file,
    pair_of_run,
    tell_notes,
)
from autoturbo.commands.parser import Parser
from autoturbo.commands.scheduling import (
    ChosenSchedule,
    add_schedule_options,
    chosen_schedule,
    require_runtime,
    schedule_of_run,
)
from autoturbo.commands.stored_runs import stored_run
from autoturbo.errors import DatabaseError
from autoturbo.schema import DeferredType

if TYPE_CHECKING:
    from autoturbo.schedule.schedule import AnySchedule
    from autoturbo.verifier.findings import OutputJson, RanJson, Verification, VerifyLine
else:
    VerifyLine = Annotated[Any, DeferredType(of="autoturbo.verifier.findings:VerifyLine")]

USAGE = "MODEL [--schedule FILE | --run RUN | --scheduler NAME | --knobs FILE] [options]"
EXAMPLE = "autoturbo verify resnet50 --batch 1 --run 4f1c"
LINES = {"": VerifyLine}


def add_arguments(parser: Parser) -> None:
    """Add the model, the target, what gives the schedule, and whether to run it."""
    add_model_options(parser)
    add_target_options(parser)
    what = add_schedule_options(parser)
    text = "best schedule of a run; its batch, shapes, target and data type are the defaults"
    what.add_argument("--run", metavar="RUN", help=text)
    parser.set_defaults(target=None)
    seed = "seed of the random inputs and weights (default: 0)"
    parser.add_argument("--seed", metavar="N", type=whole_number("--seed", 0), default=0, help=seed)
    numbers = parser.add_mutually_exclusive_group()
    add = numbers.add_argument
    text = "run the schedule beside its model (the default); status 1 where that cannot be done"
    add("--numbers", dest="numbers", action="store_true", default=None, help=text)
    text = "check regions and memory only"
    add("--no-numbers", dest="numbers", action="store_false", default=None, help=text)


def run(options: argparse.Namespace, console: Console) -> int:
    """Check all, print one table and what was found; status 1 where anything is not proved."""
    if options.numbers:
        require_runtime("--numbers")
    pair, chosen = _chosen(options)
    notes = tell_notes(pair.model, console)
    verification = _verify(options, pair, chosen, console)
    console.emit(_line(pair, chosen, verification, notes))
    if not console.json:
        _print(pair, chosen, verification, console)
    _record(options.db, pair, chosen.schedule, verification, console)
    skipped = verification.numbers.skipped if verification.numbers else None
    if skipped:
        hint = "--no-numbers asks for regions and memory only"
        warn(f"error: the numbers were not checked: {skipped}; {hint}")
    return 1 if skipped or not verification.ok else 0


def _chosen(options: argparse.Namespace) -> tuple[AnyPair, ChosenSchedule]:
    if options.run is None:
        options.target = options.target or DEFAULT_TARGET
        pair = load_any_pair(options)
        return pair, chosen_schedule(options, pair)
    run = stored_run(options.run, options.db)
    pair = pair_of_run(options, run.info)
    return pair, schedule_of_run(run, pair)


def _verify(
    options: argparse.Namespace, pair: AnyPair, chosen: ChosenSchedule, console: Console
) -> Verification:
    """Run all checks; before each that may take long, print a line on standard error."""
    import dataclasses

    from autoturbo.verifier import verify_schedule
    from autoturbo.verifier.apart import check_numbers_apart

    _tell(console, f"{pair}: checking regions and memory")
    found = verify_schedule(chosen.schedule, numbers=False)
    if options.numbers is False:
        return found
    _tell(console, "running the model and its schedule in ONNX Runtime")
    path = model_file(options.model)
    numbers = check_numbers_apart(chosen.schedule, path, seed=options.seed)
    return dataclasses.replace(found, numbers=numbers)


def _tell(console: Console, line: str) -> None:
    if console.progress and console.verbosity >= 0:
        warn(line)


def _line(
    pair: AnyPair, chosen: ChosenSchedule, verification: Verification, notes: ModelNotes
) -> VerifyLine:
    from autoturbo.report.tables import checked_sizes

    numbers = verification.numbers
    ran: RanJson = {"skipped": "not asked for"}
    if numbers is not None:
        outputs: list[OutputJson] = [
            {"output": output, "difference": difference, "tolerance": tolerance}
            for output, difference, tolerance in numbers.outputs
        ]
        ran = {
            "skipped": numbers.skipped, "batch": numbers.batch, "whole": numbers.whole,
            "seed": numbers.seed, "remarks": list(numbers.remarks), "outputs": outputs,
        }  # fmt: skip
    return {
        "model": pair.model.name, "target": pair.target.name, "scheduler": chosen.name,
        **verification.as_json(), "checked": checked_sizes(chosen.schedule.schedules), "ran": ran,
        **notes,
    }  # fmt: skip


def _print(
    pair: AnyPair, chosen: ChosenSchedule, verification: Verification, console: Console
) -> None:
    from autoturbo.report.tables import checked_sizes, output_table, verdict_table
    from autoturbo.search.selection.verified_selection import summary

    console.answer(f"{pair}, {pair.dtype}: {chosen.name}")
    console.show(verdict_table(verification, checked_sizes(chosen.schedule.schedules)))
    if verification.numbers and verification.numbers.outputs:
        console.say()
        console.show(output_table(verification.numbers))
        for remark in verification.numbers.remarks:
            console.answer(f"{remark}: comparing it proves little")
    for line in summary(verification.findings):
        console.answer(line)


def _record(
    path: str,
    pair: AnyPair,
    schedule: AnySchedule,
    verification: Verification,
    console: Console,
) -> None:
    """Record the verification in the database, where this very schedule is its best one."""
    from autoturbo.database import Database, Verified
    from autoturbo.search.journal import now
    from autoturbo.search.selection.verified_selection import passed
    from autoturbo.tuning.keys import pair_key
    from autoturbo.verifier import VERIFIER_VERSION

    if not verification.ok or not Path(path).is_file():
        return
    verified = Verified(passed(verification), VERIFIER_VERSION, now())
    try:
        with Database.open(path, create=False) as database:
            if database.set_verified(pair_key(*pair), schedule.text, verified):
                console.say(f"the best schedule in {path} is recorded as verified")
    except DatabaseError as error:
        _tell(console, f"the verification is not recorded: {error}")
