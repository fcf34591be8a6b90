"""Show one run: settings, the heuristic's and the best schedule, what failed."""

from __future__ import annotations

import argparse
import json
import shlex
from collections import Counter
from collections.abc import Mapping
from typing import Any

from autoturbo.commands.console import Console
from autoturbo.commands.parser import Parser
from autoturbo.commands.scheduling import VerifiedJson, verified_json
from autoturbo.commands.stored_runs import StoredRun, add_run_argument, stored_run
from autoturbo.commands.tuning import host_runs
from autoturbo.commands.tuning.host_runs import ShownHost
from autoturbo.commands.tuning.runs import RunJson, as_json, budget
from autoturbo.commands.tuning.tuned_pairs import ConfidenceJson, confidence_json
from autoturbo.report.gains import (
    compared,
    failed_sentence,
    gain_sentence,
    pinned_by_you,
    refuted_sentence,
    unsure,
)
from autoturbo.report.sharing import held, sharing
from autoturbo.report.units import figures_of
from autoturbo.schedule.knobs import Knobs, KnobsJson
from autoturbo.schedule.knobs.pins import Pins, flat
from autoturbo.schema import Natural
from autoturbo.simulator.measurement import Failure, Measurement, MeasurementJson, Outcome

USAGE = "RUN [options]"
EXAMPLE = "autoturbo show 4f1c"


class ShownRun(RunJson):
    """One run: what it was asked for, what it found, what failed."""

    settings: dict[str, Any]
    versions: dict[str, str]
    failures: dict[str, Natural]
    default: MeasurementJson | None
    best: MeasurementJson | None
    knobs: KnobsJson | None
    verified: VerifiedJson | None
    baselines: dict[str, MeasurementJson]
    confidence: ConfidenceJson | None
    lacking: dict[str, str]


ShowLine = ShownRun | ShownHost
LINES = {"": ShowLine}


_LONG = ("starts", "target_description")
"""Settings that take more than a line."""


def add_arguments(parser: Parser) -> None:
    """Add the run."""
    add_run_argument(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print what the database knows of it."""
    run = stored_run(options.run, options.db, host=True)
    if run.info.on_host:
        return host_runs.show(run, console)
    info = run.info
    handed, best = run.handed_out, run.trial(info.best_trial)
    outcomes = compared(info, handed)
    measured = {n: o.as_json() for n, o in outcomes.items() if isinstance(o, Measurement)}
    line: ShownRun = {
        **as_json(info, run.state), "settings": dict(info.settings),
        "versions": dict(info.versions), "failures": dict(_failures(run)),
        "default": measured.get("default"), "best": measured.get("best"),
        "knobs": None if best is None else best.knobs.as_dict(),
        "verified": verified_json(run.verified),
        "baselines": {n: m.as_json() for n, m in (handed.baselines if handed else {}).items()},
        "confidence": confidence_json(info), "lacking": dict(info.lacking),
    }  # fmt: skip
    console.emit(line)
    if not console.json:
        _print(run, outcomes, console)
    return 0


def fixing(knobs: Knobs) -> str:
    """Return the flags by which another search has the same setting; empty for the heuristic's."""
    if knobs.units is not None or knobs.host is not None:
        return ""
    return " ".join(f"--fix {shlex.quote(word)}" for word in Pins(flat(knobs)).words())


def knob_lines(knobs: Knobs) -> list[str]:
    """Return the knobs of a candidate as lines: the model's, then each kind of sub-graph's."""
    values = {**knobs.as_dict()}
    kinds: dict[str, list[str]] = {}
    for override in values.pop("overrides", ()):
        text = " ".join(f"{name}={value}" for name, value in override.items() if name != "layer")
        kinds.setdefault(text, []).append(override["layer"])
    model = " ".join(f"{name}={json.dumps(value)}" for name, value in values.items())
    lines = [model.replace('"', "") or "as the heuristic"]
    for text, layers in kinds.items():
        more = f" and {len(layers) - 1} more" if layers[1:] else ""
        lines.append(f"{layers[0]}{more}: {text}")
    return lines


def _failures(run: StoredRun) -> Counter[str]:
    return Counter(t.outcome.reason for t in run.trials if isinstance(t.outcome, Failure))


def _print(run: StoredRun, outcomes: Mapping[str, Outcome], console: Console) -> None:
    from autoturbo.tuning.keys import measurer_of, recorded_error

    info = run.info
    name = f"run {info.id}: {info.model} @ {info.target}, batch {info.batch}, {info.key.dtype}"
    console.answer(name)
    failures = _failures(run)
    reasons = ", ".join(f"{reason} {number}" for reason, number in failures.most_common())
    failed = f"{failures.total()} failed ({reasons})" if failures else "none failed"
    origin = figures_of(measurer_of(info), recorded_error(info), info.gain())
    console.answer(f"{run.state}, {budget(info)} trials ({origin}), {failed}")
    console.compare(outcomes, "default", unsure(info))
    for refused in info.refused:
        why = "; ".join(refused.failures)
        console.answer(f"trial {refused.trial} is not handed out, it fails a check: {why}")
    lines = {**_handed_out(run), **_held(run)}
    for what, line in lines.items():
        if line:
            console.answer(f"{what}: {line}")
    if (best := run.trial(info.best_trial)) is not None:
        console.answer(f"knobs of trial {best.number}:")
        for text in knob_lines(best.knobs):
            console.answer(f"  {text}")
        if flags := fixing(best.knobs):
            console.answer(f"to fix it: {flags}")
    for key, values in {"settings": info.settings, "versions": info.versions}.items():
        console.detail(f"{key}:")
        for line in _detailed(values):
            console.detail(f"  {line}")


def _held(run: StoredRun) -> dict[str, str]:
    """Return what was checked of the best schedule, and what it holds where, by name."""
    info, best, handed = run.info, run.trial(run.info.best_trial), run.handed_out
    lines = {"verified": "" if run.verified is None else ", ".join(run.verified.checks)}
    if best is not None and handed is not None:
        shared = sharing(best.knobs, handed.measurement, ((t.knobs, t.outcome) for t in run.trials))
        units = "units" in (info.settings.get("target_description") or {})
        lines |= {
            "units" if units else "clusters": shared, "memory held": held(handed.measurement)
        }  # fmt: skip
    return lines


def _handed_out(run: StoredRun) -> dict[str, str]:
    """Return what is said of what a run handed out, by name."""
    if (handed := run.info.handed_out) is None:
        return {}
    since = run.info.trials - handed.covers
    return {
        "handed out": f"trial {handed.trial}"
        + (f", before the last {since} trials" if since else ""),
        "pinned": pinned_by_you(run.info.settings),
        "gain": gain_sentence(run.info),
        "not confirmed": handed.doubt,
        "looked better once, and not when measured again": refuted_sentence(handed.race),
        "failed": failed_sentence(trial.outcome for trial in run.trials),
    }


def _detailed(values: Mapping[str, Any]) -> list[str]:
    """Return settings as lines, without those that only ``--json`` and the manifest show."""
    known = {name: value for name, value in values.items() if name not in _LONG}
    texts = {
        n: value if isinstance(value, str) else json.dumps(value) for n, value in known.items()
    }
    return [f"{name}: {text}" for name, text in texts.items()]
