"""Sections of the page about the search."""

from __future__ import annotations

from autoturbo.report.page.facts import MOST_JUDGES, Facts
from autoturbo.report.page.figures import Figures
from autoturbo.report.page.markup import Markup, folded, paragraph, table, text
from autoturbo.report.page.predictions import MOST_ASKED
from autoturbo.report.page.search import UNITS, Front, convergence, front
from autoturbo.report.page.search_charts import (
    convergence_chart,
    front_chart,
    importance_chart,
    knob_title,
    prediction_chart,
    ranked,
)
from autoturbo.report.units import count, percent
from autoturbo.search.importance import KnobReport


def course_section(facts: Facts, figures: Figures) -> list[Markup]:
    """How the search went."""
    found = convergence(facts.trials, facts.objectives[0])
    failed = ", ".join(f"{reason} {number}" for reason, number in found.failures.most_common())
    times = "once" if found.improvements == 1 else f"{found.improvements} times"
    caption = (
        f"{found.total} trials; a better one was found {times}, trial 0 included. The line is the"
        f" best so far. Failed: {failed or 'none'}."
    )
    if found.beyond:
        worse = f"{found.beyond} trials that are more than half worse than the first"
        caption += f" {worse} are drawn at the edge."
    if len(facts.objectives) == 1 and facts.objectives[0].name in ("latency", "throughput"):
        caption += " Dashed: the lower bound, which no schedule can beat."
    return [figures.add("convergence", convergence_chart(facts, found), caption)]


def prediction_section(facts: Facts, figures: Figures) -> list[Markup]:
    """What the cost model said before."""
    found = facts.predictions
    if found is None:
        return [paragraph(text("The cost model cannot say anything of these trials."))]
    of = f"the first {MOST_ASKED} of " if len(facts.trials) > MOST_ASKED else ""
    trials = f"{found.count} measured trials ({of}{len(facts.trials)})"
    parts = [f"{trials}, each predicted before it was measured."]
    if found.spearman is None:
        parts.append("Too few for a rank correlation, or all alike.")
    else:
        parts.append(f"Rank correlation (Spearman) {found.spearman:.2f};")
        parts.append(f"{percent(found.pairwise or 0.0)} of pairs in their true order;")
        parts.append(f"mean error {percent(found.error or 0.0)} after the best common factor.")
    if facts.searched_by_model:
        parts.append("These are settings that the model itself chose, which lie close together;")
        parts.append("docs/cost-model.md has the figures of settings at random.")
    else:
        parts.append("The model did not guide this search: this is what it would have said.")
    return [figures.add("predicted", prediction_chart(found), " ".join(parts), square=True)]


def knob_section(facts: Facts, figures: Figures) -> list[Markup]:
    """Which knobs mattered, and how much of each was tried."""
    found = facts.importance
    knobs = ranked(found)
    own = [k for k in knobs if k.layers]
    model = [k for k in knobs if not k.layers]
    coverage = [
        f"values tried of {name}: {sum(k.tried for k in some)} of {sum(k.offered for k in some)}"
        for name, some in (("the model's knobs", model), ("sub-graphs' own knobs", own))
        if some
    ]
    said = [paragraph(text(f"Coverage: {'; '.join(coverage)}."))]
    if found.obstacle:
        said.insert(0, paragraph(text(f"Importance: {found.obstacle}.")))
    else:
        explained = percent(max(found.explained or 0.0, 0.0))
        caption = (
            "Importance: what each choice adds to what trees predict for trials that they have not"
            f" seen; together they predict {explained} of what differs."
        )
        if found.measured > MOST_JUDGES:
            caption += f" Judged by {MOST_JUDGES} of {found.measured} trials, an even share."
        said.insert(0, figures.add("knobs", importance_chart(found), caption))
    borders = [f"{knob_title(k)}: {k.best} is the {k.border} offered" for k in knobs if k.border]
    if borders:
        said.append(paragraph(text(f"At their border: {'; '.join(borders)}.")))
    head = ("knob", "best", "border", "share", "tried")
    rows = [_row(knob) for knob in knobs]
    return [*said, folded("All knobs", table(head, rows, words=3, label="all knobs"), long=True)]


def _row(knob: KnobReport) -> tuple[str, ...]:
    share = "-" if knob.share is None else percent(round(max(knob.share, 0.0), 3))
    best = "-" if knob.best is None else str(knob.best)
    return knob_title(knob), best, knob.border or "", share, f"{knob.tried} of {knob.offered}"


def front_section(facts: Facts, figures: Figures) -> list[Markup]:
    """Trials that nothing beats in two objectives."""
    found = front(facts.trials, facts.objectives)
    titles = [UNITS[objective.name][0] for objective in found.objectives]
    sought = "Both were sought." if found.sought else "Only the first was sought."
    members = len(found.members)
    caption = (
        f"{members} trial{'s' if members != 1 else ''} that none beats in both {titles[0]} and"
        f" {titles[1]}. {sought}"
    )
    return [
        figures.add("front", front_chart(found), caption, square=True),
        folded("The front as a table", _front_table(found, titles)),
    ]


def _front_table(found: Front, titles: list[str]) -> Markup:
    values = found.members.values
    rows = [
        (f"#{number}", _number(x), _number(y))
        for number, x, y in zip(values["trial"], values["x"], values["y"], strict=True)
    ]
    return table(("trial", *titles), rows, label="Pareto front")


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else count(value)  # noqa: PLR2004  of four digits
