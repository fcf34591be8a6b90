"""Tables for people. Names come from files, so every cell is shown as the text that it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from autoturbo.graph.operators import Graph
from autoturbo.report.units import (
    change,
    clock,
    count,
    duration,
    many,
    percent,
    plain,
    ratio,
    size,
)
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.simulate.measurement import Measurement, Outcome
from autoturbo.verify.findings import Check, Finding, Numbers, Verification

if TYPE_CHECKING:
    from autoturbo.schedule.schedule import Schedule

_COMPARISON = ("scheduler", "latency", "samples/s", "speed-up", "DDR", "matrix", "of bound")
"""``matrix`` is the use of the matrix engines; the widest row has 80 columns."""

_TITLES = {
    "tvm": "tvm (TVM-like)",
    "graphturbo": "graphturbo (best)",
    "best": "tuned",
}


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    words: int = 1,
    whole: Sequence[str] = (),
    close: bool = False,
) -> Table:
    """Return a table whose first ``words`` columns are text and whose others are numbers.

    Args:
        headers: of the columns.
        rows: cells, as many as headers.
        words: columns at the left that are text.
        whole: of those, the headers of the ones that are never folded; numbers never are.
        close: columns stand two blanks apart, not three: for tables of many columns.
    """
    padding = (0, 1, 0, 0) if close else (0, 1)
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=padding)
    for index, header in enumerate(headers):
        is_number = index >= words
        made.add_column(
            Text(header),
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=is_number or header in whole,
        )
    for row in rows:
        made.add_row(*(Text(plain(cell)) for cell in row))
    return made


def definitions(rows: Iterable[tuple[str, str, str]]) -> Table:
    """Return names at the left; at the right what each means, and its details below.

    For what has more to say than fits side by side: all but names wrap between words.
    """
    made = Table.grid(padding=(0, 2))
    made.add_column(no_wrap=True)
    made.add_column()
    for name, text, details in rows:
        below = Padding(Text(plain(details)), (0, 0, 0, 2), expand=False)
        made.add_row(Text(plain(name)), Group(Text(plain(text)), below))
    return made


def comparison(
    outcomes: Mapping[str, Outcome], reference: str | None = None, published: str = "graphturbo"
) -> Table:
    """Return a table of schedulers side by side, in the order given.

    Args:
        outcomes: what each scheduler's schedule measured, by its name (``"default"`` is the
            published heuristic of a run, ``"best"`` the tuned schedule).
        reference: whose latency the speed-ups refer to; the first that has one by default.
        published: name of the heuristic that ``"default"`` is.
    """
    made = table(*comparison_rows(outcomes, reference, published))
    note = incomplete(outcomes)
    if note:
        made.caption, made.caption_justify = Text(plain(note)), "left"
    return made


def incomplete(outcomes: Mapping[str, Outcome]) -> str:
    """Return what the figures of measured schedules leave out; empty where they are complete."""
    bounds = (o.bound for o in outcomes.values() if isinstance(o, Measurement))
    return next((b.uncounted.sentence for b in bounds if b.uncounted is not None), "")


def comparison_rows(
    outcomes: Mapping[str, Outcome], reference: str | None = None, published: str = "graphturbo"
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return headers and cells of the comparison of schedulers."""
    measured = {n: o for n, o in outcomes.items() if isinstance(o, Measurement)}
    base = measured.get(reference or "") or next(iter(measured.values()), None)
    titles = {**_TITLES, "default": f"{published} (trial 0)"}
    rows = (_row(titles.get(name, name), outcome, base) for name, outcome in outcomes.items())
    return _COMPARISON, tuple(rows)


def front(points: Iterable[tuple[int, Outcome]]) -> Table:
    """Return a table of the trials of a Pareto front, the fastest first."""
    measured = [(number, m) for number, m in points if isinstance(m, Measurement)]
    rows = (
        (
            f"#{number}",
            duration(m.latency),
            count(m.throughput),
            size(m.ddr_bytes),
            "-" if m.energy is None else f"{m.energy:.3g} J",
        )
        for number, m in sorted(measured, key=lambda point: (point[1].latency, point[0]))
    )
    return table(("Pareto front", "latency", "samples/s", "DDR", "energy"), rows)


def _row(title: str, outcome: Outcome, base: Measurement | None) -> tuple[str, ...]:
    if not isinstance(outcome, Measurement):
        return (f"{title}: {outcome.message}", *["-"] * (len(_COMPARISON) - 1))
    return (
        title,
        duration(outcome.latency),
        count(outcome.throughput),
        "-" if base is None else ratio(base.latency / outcome.latency),
        size(outcome.ddr_bytes),
        percent(outcome.matrix_utilization),
        percent(outcome.bound_fraction),
    )


def checked_sizes(schedules: Sequence[Schedule]) -> dict[str, int]:
    """Return how many things the checks of schedules look at."""
    return {
        "subgraphs": sum(len(one.instances.subgraphs) for one in schedules),
        "instances": sum(one.instances.count for one in schedules),
        "kernels": sum(len(line.order) for one in schedules for line in one.timelines),
        "buffers": sum(len(line.kind) for one in schedules for line in one.timelines),
    }


def verdict_table(verification: Verification, counted: Mapping[str, int]) -> Table:
    """Return a table with one row a check: its verdict, and what it looked at."""
    counts = {name: _counted(number, name) for name, number in counted.items()}
    numbers = verification.numbers
    rows = (
        (Check.REGIONS, _verdict(verification.regions), _listed(counts, "instances", "subgraphs")),
        (Check.MEMORY, _verdict(verification.memory), _listed(counts, "buffers", "kernels")),
        (Check.NUMBERS, *_of_numbers(numbers)),
    )
    return table(("check", "verdict", "what was checked"), rows, words=3)


def output_table(numbers: Numbers) -> Table:
    """Return a table with one row an output: its largest difference and the tolerance there."""
    rows = ((name, f"{error:.3g}", f"{limit:.3g}") for name, error, limit in numbers.outputs)
    return table(("output", "difference", "tolerance"), rows)


def _counted(number: int, name: str) -> str:
    name = name.replace("subgraph", "sub-graph")
    return f"{many(number)} {name.removesuffix('s') if number == 1 else name}"


def _listed(counts: Mapping[str, str], *names: str) -> str:
    return ", ".join(counts[name] for name in names)


def _verdict(findings: tuple[Finding, ...]) -> str:
    return f"failed: {len(findings)}" if findings else "ok"


def _of_numbers(numbers: Numbers | None) -> tuple[str, str]:
    if numbers is None:
        return "not checked", "--no-numbers"
    if numbers.skipped is not None:
        return "not checked", numbers.skipped
    share = "the whole model" if numbers.whole else "one pass with the same decisions"
    error = "-" if numbers.max_abs_error is None else f"{numbers.max_abs_error:.3g}"
    what = f"batch {numbers.batch}, {share}, seed {numbers.seed}, max error {error}"
    return _verdict(numbers.findings), what


_WHAT = {
    "spatial": "rows or columns of every output",
    "channel": "channels of every output",
    "pipeline": "sub-graphs, in a pipeline",
}

_COPIES = "copies"
"""What a machine's measurement calls the time that copies take, beside its units'."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands.

    Attributes:
        model: its name.
        target: its name.
        done: trials measured or failed.
        total: trials to make, None where only time limits them.
        best: least latency in seconds, None where nothing fitted yet.
        best_trial: number of the trial that has it.
        default: latency of the published heuristic in seconds, None where it does not fit.
        bound_fraction: lower bound over ``best``.
        rate: trials measured per second.
        screened: candidates that the cost model looked at.
        infeasible: trials that did not fit, by the buffer that overflowed.
        elapsed: seconds since the start.
        expected: seconds of the whole run, None while unknown.
        phase: what comes before the first trial.
    """

    model: str
    target: str
    done: int
    total: int | None
    best: float | None = None
    best_trial: int | None = None
    default: float | None = None
    bound_fraction: float | None = None
    rate: float = 0.0
    screened: int = 0
    infeasible: Mapping[str, int] = field(default_factory=dict)
    elapsed: float = 0.0
    expected: float | None = None
    phase: str = ""


def live_line(standing: Standing) -> str:
    """Return the line that says how a run stands, without an end of line.

    ``resnet50 @ stcp920 | 412/1000 | best 7.41 ms (-31 % vs default, 88 % of bound) at #288 |
    840 measured/s, 18.4 k screened | infeasible 7 % (LB 24, GB 3) | 0:38 / ~1:31``
    """
    parts = (
        f"{plain(standing.model)} @ {plain(standing.target)}",
        _progress(standing),
        _best(standing),
        f"{count(standing.rate)} measured/s, {count(standing.screened)} screened",
        _infeasible(standing),
        _time(standing),
    )
    return " | ".join(parts)


def compiling_line(functions: int, total: int, left: float, *, kept: bool = True) -> str:
    """Return the line that says how far compiling is, without an end of line.

    ``compiling 12 of 55 functions, once per installation, about 20 s``

    Args:
        functions: compiled so far.
        total: those and the others.
        left: seconds that the others take; nobody knows them well, so they are told in fives.
        kept: whether they are kept for the next command.
    """
    seconds = max(5, 5 * round(left / 5))
    when = "once per installation" if kept else "every time anew"
    return f"compiling {functions} of {total} functions, {when}, about {seconds} s"


def _progress(standing: Standing) -> str:
    return str(standing.done) if standing.total is None else f"{standing.done}/{standing.total}"


def _best(standing: Standing) -> str:
    if standing.best is None:
        return "nothing fits yet" if standing.done else plain(standing.phase) or "starting"
    text = f"best {duration(standing.best)}"
    notes = []
    if standing.default is not None:
        notes.append(f"{change(standing.best, standing.default)} vs default")
    if standing.bound_fraction is not None:
        notes.append(f"{percent(standing.bound_fraction)} of bound")
    if notes:
        text += f" ({', '.join(notes)})"
    return text if standing.best_trial is None else f"{text} at #{standing.best_trial}"


def _infeasible(standing: Standing) -> str:
    failed = {reason: number for reason, number in standing.infeasible.items() if number}
    text = f"infeasible {percent(sum(failed.values()) / max(1, standing.done))}"
    if not failed:
        return text
    # the most frequent first; of equals by name, so that the line does not flicker
    ordered = sorted(failed.items(), key=lambda item: (-item[1], item[0]))
    return f"{text} ({', '.join(f'{reason} {number}' for reason, number in ordered)})"


def _time(standing: Standing) -> str:
    if standing.expected is None:
        return clock(standing.elapsed)
    return f"{clock(standing.elapsed)} / ~{clock(standing.expected)}"


def sharing(knobs: Knobs, best: Measurement, trials: Iterable[tuple[Knobs, Outcome]]) -> str:
    """Return how the best schedule of a run shares out the work; empty where clusters work alike.

    Args:
        knobs: of the best trial.
        best: what it measured.
        trials: all of the run, for the best one whose clusters share out samples: with one sample,
            one cluster has it all.
    """
    if _COPIES in best.busy:
        return _by_units(best)
    if knobs.cluster_split == AUTO:
        return ""
    apart = [
        outcome.latency
        for own, outcome in trials
        if own.cluster_split == AUTO and isinstance(outcome, Measurement)
    ]
    line = f"share out {_WHAT[str(knobs.cluster_split)]}: {duration(best.latency)}"
    if not apart:
        return line
    alone = "one cluster alone" if best.batch == 1 else "each with samples of its own"
    return f"{line}; {alone}: {duration(min(apart))} at best"


def mixed_samples(graph: Graph, clusters: Mapping[str, int]) -> dict[str, Any] | None:
    """Return why samples of a model cannot be told apart; None where they can.

    Args:
        graph: the model.
        clusters: of each target, by its name.
    """
    from autoturbo.graph.batch import trace_batch

    obstacle = trace_batch(graph).obstacle
    if obstacle is None:
        return None
    return {
        "node": obstacle.operator,
        "op_type": obstacle.kind,
        "reason": obstacle.reason,
        "change": obstacle.mend,
        "clusters": dict(clusters),
        "clusters_at_work": 1,
    }


def mixed_sentence(mixed: Mapping[str, Any] | None) -> str:
    """Return what :func:`mixed_samples` found on one line; empty where it found nothing."""
    if mixed is None:
        return ""
    idle: dict[int, list[str]] = {}
    for target, clusters in mixed["clusters"].items():
        if clusters > 1:
            idle.setdefault(clusters, []).append(target)
    costs = [f"1 of {clusters} clusters works on {', '.join(t)}" for clusters, t in idle.items()]
    costs = costs or ["the batch is processed whole"]
    return (
        f"cannot be told apart: {mixed['node']} ({mixed['op_type']}) {mixed['reason']}; "
        f"{', '.join(costs)}; {mixed['change']}"
        f"{', or let clusters share out other work (knob cluster_split)' if idle else ''}"
    )


def _by_units(best: Measurement) -> str:
    """Return the share of the time that each unit was busy, and what was copied."""
    busy = ", ".join(
        f"{name} {percent(seconds / best.latency)}"
        for name, seconds in best.busy.items()
        if name != _COPIES
    )
    if not best.busy[_COPIES]:
        return f"busy {busy}; nothing is copied"
    copied = f"{size(best.bytes['copied'])} copied in {duration(best.busy[_COPIES])}"
    return f"busy {busy}; {copied}"


def held(best: Measurement) -> str:
    """Return the most bytes of shared memory that each unit holds; empty on a target."""
    names = {n.removeprefix("held:"): b for n, b in best.bytes.items() if n.startswith("held:")}
    return ", ".join(f"{name} {size(number)}" for name, number in names.items())
