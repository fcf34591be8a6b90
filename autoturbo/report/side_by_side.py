"""Schedulers side by side: what the tuned schedule saves, in figures and words."""

from __future__ import annotations

from autoturbo.database import RunInfo
from autoturbo.registry import HEURISTIC, SIMULATOR
from autoturbo.report.explanation import GAP_TITLES
from autoturbo.report.facts import LEAST, LIMIT_TITLES, TITLES, Facts, Measured
from autoturbo.report.gains import unsure
from autoturbo.report.graph_view import scope_counts
from autoturbo.report.units import duration, origin_of, range_sentence, traffic
from autoturbo.simulator.unpublished import simulated_range


def side_by_side(facts: Facts) -> dict[str, Measured]:
    """Return every schedule that fits by the title that readers see, the tuned one last."""
    rows = {TITLES.get(n, n): m for n, m in facts.others.items() if isinstance(m, Measured)}
    if facts.default is not None:
        rows[TITLES["default"]] = facts.default
    return {**rows, TITLES["tuned"]: facts.best}


def how_known(info: RunInfo) -> str:
    """Return how the figures of a run are known: simulated, or measured by what."""
    return origin_of(measurer_name(info))


def measurer_name(info: RunInfo) -> str:
    """Return the name of what measured a run."""
    return str(info.settings.get("measurer", SIMULATOR))


def latency_range(facts: Facts) -> str:
    """Return the best schedule's range over what is not published of the target, in words."""
    latency = facts.best.measurement.latency
    found = simulated_range(facts.best.schedule, measurer_name(facts.info), latency)
    return range_sentence(latency, found)


def reference(facts: Facts) -> tuple[str, Measured] | None:
    """Return what the best is compared with: the heuristic, or else the first other that fits."""
    if facts.default is not None:
        return TITLES["default"], facts.default
    others = [item for item in side_by_side(facts).items() if item[0] != TITLES["tuned"]]
    return others[0] if others else None


def gains_over(facts: Facts) -> dict[str, float | None]:
    """Return how many times as fast as each schedule the best one is; None where not known."""
    best, doubted = facts.best.measurement.latency, unsure(facts.info)
    ratios: dict[str, float | None] = {
        name: None if doubted else row.measurement.latency / best
        for name, row in side_by_side(facts).items()
    }
    return {**ratios, TITLES["default"]: facts.info.gain(), TITLES["tuned"]: 1.0}


def saved(name: str, other: Measured, best: Measured) -> str:
    """Return how much time is saved against another schedule, in words."""
    base = f"the {name}" if name == HEURISTIC else name
    saved_s = other.measurement.latency - best.measurement.latency
    if not saved_s:
        return f"As long as {base}"
    if saved_s < 0:
        return f"{duration(-saved_s)} more than {base}"
    return f"{duration(saved_s)} less than {base}'s {duration(other.measurement.latency)}"


def parts_saved(other: Measured, best: Measured, named: int = 3) -> list[str]:
    """Return the time saved or added per limit, the largest first; all add up to the difference."""
    saved_s = {limit: other.seconds(limit) - best.seconds(limit) for limit in LIMIT_TITLES}
    least = LEAST * other.measurement.latency
    return [
        f"bound by {LIMIT_TITLES[limit]}: {duration(abs(saved_s[limit]))}"
        f" {'less' if saved_s[limit] > 0 else 'more'}"
        for limit in sorted(saved_s, key=lambda limit: -abs(saved_s[limit]))[:named]
        if abs(saved_s[limit]) > least
    ]


def changed(other: Measured, best: Measured) -> list[str]:
    """Return the figures of a schedule that differ from another's, in words."""
    then, now = other.measurement, best.measurement
    kept = [scope_counts(one.schedule) for one in (other, best)]
    pairs = {
        "DDR traffic": (traffic(then), traffic(now)),
        "sub-graphs": (len(other.schedule.instances.subgraphs),
                       len(best.schedule.instances.subgraphs)),
        "kernels of a cluster": (then.kernels, now.kernels),
        "layers' outputs kept on the chip": tuple(one["LB"] + one["GB"] for one in kept),
    }  # fmt: skip
    return [f"{what}: {a} to {b}" for what, (a, b) in pairs.items() if a != b]


def gap_rows(facts: Facts) -> list[tuple[str, float, float]]:
    """Return what lies between the bound and the latency: cause, seconds, share; largest first."""
    causes = sorted(facts.gap.items(), key=lambda item: -item[1])
    latency = facts.best.found.latency
    return [(GAP_TITLES[name], share * latency, share) for name, share in causes if share > LEAST]
