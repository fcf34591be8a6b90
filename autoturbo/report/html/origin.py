"""Where a run comes from: settings, versions, and the commands that give the same again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from autoturbo.config import TuneConfig
from autoturbo.database import BORROWS
from autoturbo.report.html.facts import Facts
from autoturbo.report.html.markup import (
    Markup,
    definitions,
    element,
    folded,
    paragraph,
    table,
    text,
)
from autoturbo.version import __version__, interpreter


def origin_section(facts: Facts) -> list[Markup]:
    """Return the section of environment and commands."""
    info, settings = facts.info, facts.info.settings
    starts = len(settings.get("starts", ()))
    packages = [f"{n} {v}" for n, v in info.versions.items() if n not in interpreter()]
    rows = (
        ("run", info.id),
        ("state", facts.state),
        ("begun", info.created),
        ("model", f"{info.model} ({info.model_file})"),
        ("target", info.target),
        ("batch, type", f"{info.batch}, {info.key.dtype}"),
        ("sampler, seed", f"{settings.get('sampler')}, {settings.get('seed')}"),
        ("objective", settings.get("objective")),
        ("started from", f"the published heuristics and {starts} other settings"),
        ("hash of the model", info.key.graph_hash),
        ("hash of the target", info.key.target_hash),
        ("scheduler", info.key.scheduler_version),
        ("versions", ", ".join(packages)),
        ("tuned with", _python(info.versions)),
        ("report made by", f"autoturbo {__version__}, {_python(interpreter())}"),
    )
    note = (
        "tune gives the same run where the database has the same schedules of other models to start"
        " from; replay measures the fastest trial again, to the bit, simulate does so from the"
        " schedule file alone, and verify runs that schedule in ONNX Runtime beside the model."
    )
    return [
        paragraph(text("The commands that give the same:")),
        element("pre", element("code", text_lines(commands(facts))), tabindex="0"),
        paragraph(text(note), class_="soft"),
        definitions(rows),
        folded("What the fastest trial decides", _knobs(facts)),
    ]


def _python(versions: Mapping[str, str]) -> str:
    if "python" not in versions:
        return "not recorded"
    return f"Python {versions['python']} on {versions.get('platform', 'a platform not recorded')}"


def text_lines(lines: list[str]) -> Markup:
    """Return lines of text as markup."""
    return Markup("\n".join(text(line) for line in lines))


def commands(facts: Facts) -> list[str]:
    """Return command lines that repeat the run, its fastest trial, and verify its schedule.

    What a sweep measured of neighbours' settings no single command repeats.
    """
    info = facts.info
    tune = ["autoturbo", "tune", info.model_file, *_pair(facts),
            *TuneConfig.of_run(info).words(facts.best.schedule.problem.target)]  # fmt: skip
    replay = ["autoturbo", "replay", info.id, str(facts.number)]
    simulate = ["autoturbo", "simulate", info.model_file, *_pair(facts), "--schedule",
                "schedule.json"]  # fmt: skip
    verify = ["autoturbo", "verify", info.model_file, "--run", info.id]
    all_of_it = () if BORROWS in info.settings else (tune,)
    return [shlex.join(words) for words in (*all_of_it, replay, simulate, verify)]


def _pair(facts: Facts) -> list[str]:
    """Return the options that say what is scheduled, on what."""
    info, settings = facts.info, facts.info.settings
    kept = (settings.get(name) for name in ("model_batch", "shapes", "dims", "values"))
    return ["--target", info.target, "--dtype", info.key.dtype, *extent_flags(*kept)]


def extent_flags(
    batch: int | None,
    shapes: Mapping[str, Sequence[int]] | None,
    dims: Mapping[str, int] | None,
    values: Mapping[str, Sequence[float]] | None,
) -> list[str]:
    """Return the words of a command line that give a model its extents and known elements."""
    words = [] if batch is None else ["--batch", str(batch)]
    for name, extent in (dims or {}).items():
        words += ["--dim", f"{name}={extent}"]
    for flag, given in (("--shape", shapes), ("--value", values)):
        for name, numbers in (given or {}).items():
            words += [flag, f"{name}={','.join(map(str, numbers))}"]
    return words


def _knobs(facts: Facts) -> Markup:
    """Return a table of the knobs that the fastest trial changes from the published ones."""
    values = facts.best.schedule.knobs.as_dict()
    rows = [(name, "", str(v)) for name, v in values.items() if name != "overrides" and v != "auto"]
    for own in values.get("overrides", ()):
        rows += [(name, own["layer"], str(v)) for name, v in own.items()
                 if name != "layer" and v != "auto"]  # fmt: skip
    if not rows:
        return paragraph(text("Everything is as published."))
    return table(("knob", "of the layer", "value"), rows, words=3, label="decisions")
