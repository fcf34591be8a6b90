"""The first screen: how much faster, why, what bounds it now, and whether it can be trusted."""

from __future__ import annotations

from collections.abc import Iterator

from autoturbo.report.html.facts import TITLES, Facts, Measured
from autoturbo.report.html.markup import Markup, element, paragraph, prose, text
from autoturbo.report.html.time_use import ENGINE_TITLES, PART_COLOURS, PART_TITLES
from autoturbo.report.sharing import mixed_samples, mixed_sentence
from autoturbo.report.units import clock, count, duration, percent, ratio, size
from autoturbo.simulate.shares import schedule_shares

NOT_RUN = ": not run yet; the last command below does it"

_LEAST = 0.005
"""Share of the time below which a part is not worth a word."""

_NAMED = 3
"""Parts that a sentence names."""


def summary(facts: Facts) -> Markup:
    """Return the cards of the first screen."""
    cards = (
        ("How much faster", _faster(facts)),
        ("Why", _why(facts)),
        ("What bounds it now", _bound(facts)),
        ("Can I trust it", _trusted(facts)),
    )
    shown = [
        element("section", element("h2", text(title)), *inside, class_="card")
        for title, inside in cards
    ]
    return element("div", *shown, class_="cards")


def reference(facts: Facts) -> tuple[str, Measured] | None:
    """Return what the gain refers to: TVM's kernels, or the first other schedule that fits."""
    fits = {n: m for n, m in facts.others.items() if isinstance(m, Measured)}
    name = "tvm" if "tvm" in fits else next(iter(fits), None)
    if name is not None:
        return TITLES.get(name, name), fits[name]
    return None if facts.default is None else (TITLES["default"], facts.default)


def _faster(facts: Facts) -> Iterator[Markup]:
    best, base = facts.best.measurement, reference(facts)
    if base is not None:
        gain = ratio(base[1].measurement.latency / best.latency)
        yield paragraph(element("b", prose(gain)), prose(f" as fast as {base[0]}"), class_="big")
    lines = []
    if facts.default is not None and (base is None or facts.default is not base[1]):
        gain = ratio(facts.default.measurement.latency / best.latency)
        lines.append(f"{gain} as fast as the published heuristics (trial 0)")
    else:
        lines.append("the published heuristics (trial 0) do not fit")
    share, least = percent(best.bound_fraction), duration(best.bound.seconds)
    lines += [
        f"{duration(best.latency)} for a batch of {best.batch}: {count(best.throughput)} samples/s",
        f"{share} of the speed that the lower bound ({least}) allows",
        f"trial {facts.number} of {len(facts.trials)}; all of them took {clock(facts.seconds)}",
    ]
    if best.bound.uncounted is not None:
        lines.append(best.bound.uncounted.sentence)
    yield _list(lines)


def _why(facts: Facts) -> Iterator[Markup]:
    base = reference(facts)
    if base is None:
        yield paragraph(prose("No other schedule fits, so there is nothing to compare with."))
        return
    name, other = base
    yield paragraph(prose(f"{saved(name, other, facts.best)}:"))
    yield _list([*parts_saved(other, facts.best), _figures(other, facts.best)])
    default = facts.default
    if default is not None and default is not other:
        yield paragraph(prose(_of_trial_0(default, facts.best)), class_="soft")


def saved(name: str, other: Measured, best: Measured) -> str:
    """Return how much time is saved against another schedule, in words."""
    gone = other.measurement.latency - best.measurement.latency
    if gone <= 0:
        return f"{duration(-gone)} more than {name}"
    return f"Of {duration(other.measurement.latency)} ({name}), {duration(gone)} are saved"


def parts_saved(other: Measured, best: Measured, named: int = _NAMED) -> list[str]:
    """Return what time was saved and added, the largest first; parts add up to the difference."""
    gone = {
        part: other.use.exposed[part] * other.measurement.latency
        - best.use.exposed[part] * best.measurement.latency
        for part in PART_TITLES
    }
    ordered = sorted(gone, key=lambda part: -abs(gone[part]))
    least = _LEAST * other.measurement.latency
    return [
        f"{duration(abs(gone[part]))} {'less' if gone[part] > 0 else 'more'} in "
        f"{PART_TITLES[part]}{'' if part == best.use.order[0] else ' that nothing hid'}"
        if part in ENGINE_TITLES
        else f"{duration(abs(gone[part]))} {'less' if gone[part] > 0 else 'more'} in "
        f"{PART_TITLES[part]}"
        for part in ordered[:named]
        if abs(gone[part]) > least
    ]


def _figures(other: Measured, best: Measured) -> str:
    then, now = other.measurement, best.measurement
    return (
        f"DDR {size(then.ddr_bytes)} \N{RIGHTWARDS ARROW} {size(now.ddr_bytes)},"
        f" kernels {then.kernels} \N{RIGHTWARDS ARROW} {now.kernels}"
    )


def _of_trial_0(default: Measured, best: Measured) -> str:
    if default.measurement.latency <= best.measurement.latency:
        return "Nothing better than the published heuristics was found."
    parts = ", ".join(parts_saved(default, best, 2)) or "many small things"
    return f"{saved('trial 0', default, best)}: {parts}."


def _bound(facts: Facts) -> Iterator[Markup]:
    use = facts.best.use
    name = ENGINE_TITLES[use.busiest]
    works = percent(use.busy[use.busiest])
    yield paragraph(
        element("b", prose(name[0].upper() + name[1:])), prose(f" at work {works} of the time")
    )
    yield _strip(facts.best)
    lines = [*_beyond(facts.best), *_rest(facts.best), _critical(facts.best), _mixed(facts.best)]
    yield _list([line for line in lines if line])


def _mixed(best: Measured) -> str:
    """Return why samples cannot be told apart, and what that costs; empty where they can."""
    schedule = best.schedule
    target = schedule.problem.target
    sentence = mixed_sentence(mixed_samples(schedule.model, {target.name: target.clusters}))
    return sentence and f"samples {sentence}"


def _beyond(best: Measured) -> list[str]:
    """Return how much of the busiest engine's time the lower bound needs, and why it has more.

    The bound knows nothing of transfers on the chip.
    """
    use = best.use
    reasons = {
        "matrix": "filling the arrays, tiles smaller than an array, work done twice",
        "vector": "short operations, work done twice",
        "DDR": "traffic beyond what any schedule needs, short runs",
    }
    if use.busiest not in reasons:
        return []
    lines = [f"{percent(use.least)} is the least that any schedule needs"]
    more = use.exposed[use.busiest] - use.least
    return [*lines, f"{percent(more)} more: {reasons[use.busiest]}"] if more > _LEAST else lines


def _rest(best: Measured) -> list[str]:
    """Return what nothing hides, the largest first."""
    use = best.use
    parts = [p for p in use.exposed if p != use.busiest and use.exposed[p] > _LEAST]
    parts.sort(key=lambda part: -use.exposed[part])
    named = [f"{PART_TITLES[p]} {percent(use.exposed[p])}" for p in parts[:4]]
    return [f"not hidden: {', '.join(named)}"] if named else []


def _critical(best: Measured) -> str:
    """Return what the critical path is spent on, as ``explain`` answers it."""
    shares = schedule_shares(best.schedule).shares.as_dict()
    total = sum(shares.values())
    named = sorted((name for name in shares if shares[name] > 0), key=lambda name: -shares[name])
    parts = ", ".join(f"{name} {percent(shares[name] / total)}" for name in named[:_NAMED])
    return f"along the critical path: {parts} (autoturbo explain: what would help)"


def _strip(measured: Measured) -> Markup:
    """Return a bar of the time, in the colours of the chart below."""
    use = measured.use
    order = [*use.order, *(p for p in use.exposed if p not in use.order)]
    spans = [
        element(
            "span", title=f"{PART_TITLES[part]}: {percent(use.exposed[part])}",
            style=f"flex-grow:{use.exposed[part]:.4f};background:var(--{PART_COLOURS[part]})",
        )
        for part in order
        if use.exposed[part] > _LEAST / 5
    ]  # fmt: skip
    label = "; ".join(f"{PART_TITLES[p]} {percent(use.exposed[p])}" for p in order)
    return element("div", *spans, class_="strip", role="img", aria_label=label)


def _trusted(facts: Facts) -> Iterator[Markup]:
    trust = facts.trust
    words = {"ok": "\N{CHECK MARK}", "failed": "\N{BALLOT X}", "not run": "\N{EN DASH}"}
    meaning = {
        "regions": "regions: every part reads what it needs, every element is made once",
        "memory": "memory: no two tensors share a place while both are needed",
        "numbers": "numbers: run in ONNX Runtime, equal to the model",
    }
    rows = [
        (trust.checks[name], f"{text_}{NOT_RUN if trust.checks[name] == 'not run' else ''}")
        for name, text_ in meaning.items()
    ]
    again = "measured again for this report: " + (
        "the same, to the bit" if trust.same else "other numbers than the run recorded"
    )
    rows.append(("ok" if trust.same else "failed", again))
    yield element(
        "ul",
        *(
            element("li", element("span", text(words[s]), class_=s.replace(" ", "-")), prose(t))
            for s, t in rows
        ),
        class_="checks",
    )
    note = "Simulated, not silicon: docs/calibration.md says how far off that is."
    if trust.refused:
        note += f" {trust.refused} faster trial(s) failed a check and are left out."
    yield paragraph(prose(note), class_="soft")
    for line in trust.findings:
        yield paragraph(text(line), class_="failed")


def _list(lines: list[str]) -> Markup:
    return element("ul", *(element("li", prose(line)) for line in lines))
