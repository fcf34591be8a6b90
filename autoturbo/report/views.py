"""Views: how values show themselves, as HTML in a notebook, as text at a prompt.

The HTML is a fragment without scripts, styles of its own or anything from elsewhere. It takes its
colours from the page, so that it reads in dark themes; names from files are text, whatever they
hold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoturbo.registry import Printer
from autoturbo.report.gains import REFERENCE
from autoturbo.report.units import (
    capacity,
    count,
    duration,
    known_size,
    macs,
    percent,
    plain,
    size,
    speed,
    traffic,
    vector_sentence,
)
from autoturbo.simulator.measurement import Measurement, Outcome

if TYPE_CHECKING:
    from autoturbo.hardware.target import Target
    from autoturbo.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True)
class View:
    """The parts of a value that are shown.

    Attributes:
        title: Title of one line.
        facts: Names with what they are.
        headers: Headers of a table; empty for none.
        rows: Rows of the table, each a name and figures.
    """

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    headers: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()

    def html(self, picture: str = "") -> str:
        """Return the view as a fragment of HTML, above a picture of our own if there is one."""
        from markupsafe import Markup

        from autoturbo.report.filling import rendered

        return rendered("view.html", view=self, picture=Markup(picture))  # noqa: S704  our own SVG

    def text(self) -> str:
        """Return the view as lines for a terminal."""
        lines = [plain(self.title)]
        width = max((len(plain(name)) for name, _ in self.facts), default=0)
        lines += [f"  {plain(name):<{width}}  {plain(text)}" for name, text in self.facts]
        return "\n".join([*lines, *_columns(self.headers, self.rows)])


class Viewed:
    """A value that shows its :meth:`view`: as HTML in a notebook, as lines at a prompt."""

    __slots__ = ()

    def view(self) -> View:
        """Return the parts that are shown."""
        raise NotImplementedError

    def picture(self) -> str:
        """Return the picture beside the view in a notebook, as SVG; empty for none."""
        return ""

    def _repr_html_(self) -> str:
        return self.view().html(self.picture())

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:
        del cycle
        printer.text(self.view().text())


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


def tight_share(measured: Measurement) -> str:
    """Return how near a latency is to the tight bound; empty where it is as near to the other."""
    share, tight = percent(measured.bound_fraction), measured.tight_fraction
    told = share if tight is None else percent(tight)
    return "" if told == share else f"{told} of the tight bound"


def bound_shares(measured: Measurement) -> str:
    """Return how near a latency is: ``57 % of the bound, 71 % of the tight bound``."""
    share = f"{percent(measured.bound_fraction)} of the bound"
    return ", ".join(filter(None, (share, tight_share(measured))))


def measurement_view(measured: Measurement) -> View:
    """Return a view of a measurement's figures."""
    moved = measured.moved
    facts = [
        ("latency", f"{duration(measured.latency)}, {bound_shares(measured)}"),
        ("throughput", speed(measured.throughput)),
        ("DDR", traffic(measured)),
        ("matrix engines", f"{percent(measured.matrix_utilization)} in use"),
        (
            "most in LB, GB",
            f"{known_size(moved['peak_lb_bytes'])}, {known_size(moved['peak_gb_bytes'])}",
        ),
        ("kernels", f"{measured.kernels} of a cluster"),
    ]
    if elsewhere := vector_sentence(measured.bound.vector_macs):
        facts.append(("vector engines", elsewhere))
    if measured.energy is not None:
        facts.append(("energy", f"{measured.energy:.3g} J"))
    return View("measurement", tuple(facts))


def schedule_view(schedule: Schedule) -> View:
    """Return a view of a schedule's decisions."""
    target, share = schedule.context.chip, schedule.share
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
    return View(f"schedule of {of}, {schedule.context.dtype}", tuple(facts))


def comparison_view(
    title: str, outcomes: Mapping[str, Outcome], unsure: Collection[str] = ()
) -> View:
    """Return a view of schedulers side by side; of those that are unsure no gain is stated."""
    from autoturbo.report.tables import comparison_notes, comparison_rows

    headers, rows = comparison_rows(outcomes, REFERENCE, unsure)
    notes = tuple(("note", note) for note in comparison_notes(outcomes))
    return View(title, notes, headers, rows)


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
