"""Tables for people. Names come from files, so every cell is escaped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from autoturbo.registry import HEURISTIC, HEURISTICS
from autoturbo.report.units import (
    count,
    duration,
    many,
    percent,
    plain,
    ratio,
    traffic,
    vector_sentence,
    versus,
)
from autoturbo.simulator.measurement import Measurement, Outcome
from autoturbo.verifier.findings import Check, Finding, Numbers, Verification

if TYPE_CHECKING:
    from autoturbo.schedule.schedule import Schedule

_COMPARISON = ("scheduler", "latency", "samples/s", "", "DDR traffic", "matrix use", "% of bound")
"""The empty heading names the scheduler whose latency is divided by that of each."""

_TITLES = {
    "tvm": "tvm (TVM-like)",
    "default": HEURISTIC,
    **dict.fromkeys(HEURISTICS, HEURISTIC),
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
        headers: Headers of the columns.
        rows: Cells, as many as headers.
        words: Number of columns at the left that are text.
        whole: Headers of the text columns that are never folded; numbers never are.
        close: Columns stand two blanks apart, not three: for tables of many columns.
    """
    padding = (0, 1, 0, 0) if close else (0, 1)
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=padding)
    for index, header in enumerate(headers):
        is_number = index >= words
        grid.add_column(
            Text(header),
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=is_number or header in whole,
        )
    for row in rows:
        grid.add_row(*(Text(plain(cell)) for cell in row))
    return grid


def definitions(rows: Iterable[tuple[str, str, str]]) -> Table:
    """Return names at the left; at the right what each means, and its details below.

    For what has more to say than fits side by side: all but names wrap between words.
    """
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for name, text, details in rows:
        below = Padding(Text(plain(details)), (0, 0, 0, 2), expand=False)
        grid.add_row(Text(plain(name)), Group(Text(plain(text)), below))
    return grid


def comparison(
    outcomes: Mapping[str, Outcome], reference: str | None = None, unsure: Collection[str] = ()
) -> Table:
    """Return a table of schedulers side by side, in the order given.

    Args:
        outcomes: What each scheduler's schedule measured, by its name (``"default"`` is the
            published heuristic of a run, ``"best"`` the tuned schedule).
        reference: The scheduler that speed-ups refer to; the first that has a latency by default.
        unsure: Names of the schedulers of which no gain is stated.
    """
    compared = table(*comparison_rows(outcomes, reference, unsure), close=True)
    if notes := comparison_notes(outcomes):
        compared.caption, compared.caption_justify = Text(plain("\n".join(notes))), "left"
    return compared


def comparison_notes(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return what the figures of measured schedules leave out, a line each."""
    bounds = [o.bound for o in outcomes.values() if isinstance(o, Measurement)]
    missing = next((b.uncounted.sentence for b in bounds if b.uncounted is not None), "")
    elsewhere = vector_sentence(max((bound.vector_macs for bound in bounds), default=0))
    return [note for note in (missing, elsewhere) if note]


def comparison_rows(
    outcomes: Mapping[str, Outcome], reference: str | None = None, unsure: Collection[str] = ()
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return headers and cells of the comparison of schedulers."""
    measured = {n: o for n, o in outcomes.items() if isinstance(o, Measurement)}
    name = reference if reference in measured else next(iter(measured), None)
    base = None if name is None else measured[name]
    rows = [
        _row(_TITLES.get(name, name), outcome, None if name in unsure else base)
        for name, outcome in outcomes.items()
    ]
    headers = tuple(text or versus(name) for text in _COMPARISON)
    if len(rows) == 1:  # it is compared with nothing
        apart = _COMPARISON.index("")
        headers, *rows = (row[:apart] + row[apart + 1 :] for row in (headers, *rows))
    return headers, tuple(rows)


def front(points: Iterable[tuple[int, Outcome]]) -> Table:
    """Return a table of the trials of a Pareto front, the fastest first."""
    measured = [(number, m) for number, m in points if isinstance(m, Measurement)]
    rows = (
        (
            f"#{number}",
            duration(m.latency),
            count(m.throughput),
            traffic(m),
            "-" if m.energy is None else f"{m.energy:.3g} J",
        )
        for number, m in sorted(measured, key=lambda point: (point[1].latency, point[0]))
    )
    return table(
        ("Pareto front", "latency", "samples/s", "DDR traffic", "energy"), rows, close=True
    )


def _row(title: str, outcome: Outcome, base: Measurement | None) -> tuple[str, ...]:
    if not isinstance(outcome, Measurement):
        return (f"{title}: {outcome.message}", *["-"] * (len(_COMPARISON) - 1))
    return (
        title,
        duration(outcome.latency),
        count(outcome.throughput),
        "-" if base is None else ratio(base.latency / outcome.latency),
        traffic(outcome),
        percent(outcome.matrix_utilization),
        percent(outcome.bound_fraction),
    )


def checked_sizes(schedules: Sequence[Schedule]) -> dict[str, int]:
    """Return how many things the checks of schedules look at."""
    return {
        "subgraphs": sum(len(schedule.instances.subgraphs) for schedule in schedules),
        "instances": sum(schedule.instances.count for schedule in schedules),
        "kernels": sum(len(line.order) for schedule in schedules for line in schedule.timelines),
        "buffers": sum(len(line.kind) for schedule in schedules for line in schedule.timelines),
    }


def verdict_table(verification: Verification, counted: Mapping[str, int]) -> Table:
    """Return a table with one row a check: its verdict, and its subject."""
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
