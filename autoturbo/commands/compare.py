"""Show every scheduler and the best tuned schedule of a model side by side."""

from __future__ import annotations

import argparse

from autoturbo.commands.comparing import compare
from autoturbo.commands.config_flags import add_flags
from autoturbo.commands.console import Console
from autoturbo.commands.facts import assumed, notes_field, say_notes
from autoturbo.commands.loading import (
    MachinePair,
    add_model_options,
    add_target_options,
    load_any_pair,
)
from autoturbo.commands.parser import Parser
from autoturbo.commands.units import compare_units
from autoturbo.config import TuneConfig
from autoturbo.report.lines import mixed_sentence
from autoturbo.report.notebook import REFERENCE

USAGE = "MODEL [--target T] [options]"
EXAMPLE = "autoturbo compare examples/models/resnet50.onnx --target stcp920"


def add_arguments(parser: Parser) -> None:
    """The model and the target."""
    add_model_options(parser)
    add_target_options(parser)
    add_flags(parser, TuneConfig, "measurer")


def run(options: argparse.Namespace, console: Console) -> int:
    """Measure all, print one table: what does not fit first, then the slowest."""
    from autoturbo.report.tables import comparison

    pair = load_any_pair(options)
    say_notes(assumed(pair.model), console)
    if isinstance(pair, MachinePair):
        return compare_units(pair, console, options.db)
    found = compare(
        pair.model,
        pair.target,
        dtype=pair.dtype,
        database=options.db,
        measurer=pair.measurer,
    )
    console.emit({**found.as_json(), **notes_field(assumed(pair.model))})
    if not console.json:
        console.answer(f"{found.model} @ {found.target}, {found.dtype}")
        console.show(comparison(found.outcomes, REFERENCE))
        if found.mixed_samples:
            console.say(f"samples {mixed_sentence(found.mixed_samples)}")
    if "tuned" not in found.outcomes:
        console.say("not tuned yet: 'autoturbo tune' adds the best schedule that it finds")
    return 0
