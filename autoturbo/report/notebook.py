"""How values show themselves: as HTML in a notebook, as text at a prompt.

The HTML is a fragment without scripts, styles of its own or anything from elsewhere. It takes its
colours from the page, so that it reads in dark themes; names from files are text, whatever they
hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoturbo.report.units import capacity, count, duration, macs, percent, plain, size

if TYPE_CHECKING:
    from autoturbo.hardware.target import Target
    from autoturbo.schedule.schedule import Schedule
    from autoturbo.simulate.measurement import Measurement, Outcome

REFERENCE = "tvm"
"""The scheduler that speed-ups refer to."""


@dataclass(frozen=True, slots=True)
class View:
    """What there is to see of a value.

    Attributes:
        title: one line.
        facts: names with what they are.
        headers: of a table; empty for none.
        rows: its cells, the first of each being a name, the others figures.
    """

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    headers: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()

    def html(self) -> str:
        """Return the view as a fragment of HTML."""
        from autoturbo.report.filling import rendered

        return rendered("view.html", view=self)

    def text(self) -> str:
        """Return the view as lines for a terminal."""
        lines = [plain(self.title)]
        width = max((len(plain(name)) for name, _ in self.facts), default=0)
        lines += [f"  {plain(name):<{width}}  {plain(text)}" for name, text in self.facts]
        return "\n".join([*lines, *_columns(self.headers, self.rows)])


def target_view(target: Target) -> View:
    """Return a view of a target's figures."""
    rates = (f"{macs(target.matrix_macs_per_second(d))}/s in {d}" for d in target.dtypes)
    facts = (
        ("description", target.description),
        ("cores", f"{target.clusters} x {target.cores} at {count(target.clock)}Hz"),
        ("matrix", ", ".join(rates)),
        ("LB", f"{capacity(target.lb.capacity)} a core, {size(target.lb.bandwidth)}/s"),
        ("GB", f"{capacity(target.gb.capacity)} a cluster" if target.gb.capacity else "none"),
        ("DDR", f"{size(target.ddr.bandwidth)}/s"),
    )
    return View(f"target {target.name}", facts)


def measurement_view(measured: Measurement) -> View:
    """Return a view of a measurement's figures."""
    facts = [
        (
            "latency",
            f"{duration(measured.latency)}, {percent(measured.bound_fraction)} of the bound",
        ),
        ("throughput", f"{count(measured.throughput)} samples/s"),
        ("DDR", size(measured.ddr_bytes)),
        ("matrix engines", f"{percent(measured.matrix_utilization)} in use"),
        ("most in LB, GB", f"{size(measured.peak_lb_bytes)}, {size(measured.peak_gb_bytes)}"),
        ("kernels", str(measured.kernels)),
    ]
    if measured.energy is not None:
        facts.append(("energy", f"{measured.energy:.3g} J"))
    return View("measurement", tuple(facts))


def schedule_view(schedule: Schedule) -> View:
    """Return a view of what a schedule decides."""
    target, share = schedule.problem.target, schedule.share
    scopes = [scope.name for scope in schedule.placement.scopes]
    kept = (f"{scopes.count(name)} in {name}" for name in ("LB", "GB", "DDR") if name in scopes)
    facts = [
        ("scheduler", schedule.scheduler),
        ("knobs", schedule.knobs.canonical()),
        ("sub-graphs", str(len(schedule.instances.subgraphs))),
        ("instances", f"{len(schedule.order)}, outputs {', '.join(kept)}"),
        ("clusters", f"{share.clusters} share {share.split}, {share.loops} passes"),
    ]
    if schedule.expected is not None:
        facts.append(("expected", duration(schedule.expected["latency_s"])))
    of = f"{schedule.model.name} @ {target.name}"
    return View(f"schedule of {of}, {schedule.problem.dtype}", tuple(facts))


def comparison_view(title: str, outcomes: Mapping[str, Outcome]) -> View:
    """Return a view of schedulers side by side."""
    from autoturbo.report.tables import comparison_rows, incomplete

    headers, rows = comparison_rows(outcomes, REFERENCE)
    note = incomplete(outcomes)
    return View(title, (("note", note),) if note else (), headers, rows)


def _columns(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table of text: names at the left, figures at the right of their columns."""
    cells = [[plain(cell) for cell in row] for row in (headers, *rows)] if rows else []
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
