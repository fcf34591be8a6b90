"""From measured settings to the columns of the two tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from autoturbo.datasets.measurements.columns import KERNELS, MEASURED, MEASURES, SETTINGS
from autoturbo.datasets.measurements.reading import Reading
from autoturbo.datasets.measurements.sampling import Drawn
from autoturbo.schedule.knobs import SubGraphKnobs
from autoturbo.simulate.contract import PlanStatistics
from autoturbo.simulate.measurement import Failure, Measurement
from autoturbo.simulate.plan import COLUMNS as PLAN_COLUMNS

Columns = dict[str, list[Any]]
"""Values by the column's name."""


def setting_columns(sample: Sequence[Drawn], same: dict[str, Any]) -> Columns:
    """The table of settings.

    Args:
        sample: settings in their order.
        same: columns that are the same in all rows.
    """
    columns: Columns = {name: [] for name in SETTINGS}
    for drawn in sample:
        row = {**same, **_setting(drawn)}
        for name, values in columns.items():
            values.append(row[name])
    return columns


def _setting(drawn: Drawn) -> dict[str, Any]:
    reading, share = drawn.reading, drawn.reading.share
    return {
        "number": drawn.number,
        "origin": drawn.origin.value,
        "parent": drawn.parent,
        "knobs": reading.knobs.canonical(),
        **_outcome(reading),
        "loops": share.loops if share else None,
        "clusters": share.clusters if share else None,
        "alike": reading.alike if share else None,
    }


def _outcome(reading: Reading) -> dict[str, Any]:
    outcome = reading.outcome
    if isinstance(outcome, Failure):
        failed = {"outcome": outcome.reason, "message": outcome.message}
        sizes = {"demand_bytes": outcome.demand, "capacity_bytes": outcome.capacity}
        return {**failed, **sizes, **dict.fromkeys(MEASURES)}
    measures = outcome.as_json()
    nothing = dict.fromkeys(("message", "demand_bytes", "capacity_bytes"))
    return {"outcome": MEASURED, **nothing, **{name: measures[name] for name in MEASURES}}


def kernel_columns(sample: Sequence[Drawn]) -> Columns:
    """The table of kernels."""
    columns: Columns = {name: [] for name in KERNELS}
    for drawn in sample:
        if drawn.reading.plan is not None:
            _add_kernels(columns, drawn.number, drawn.reading, drawn.reading.plan)
    return columns


def _add_kernels(columns: Columns, number: int, reading: Reading, plan: PlanStatistics) -> None:
    count = len(plan.values)
    added: Columns = {
        "setting": [number] * count,
        "subgraph": list(range(count)),
        "launches": plan.launches.tolist(),
        "first_cluster": reading.homes[:, 0].tolist(),
        "clusters": reading.homes[:, 1].tolist(),
        "reads": reading.reads,
        "own": [_own(plan.overrides.get(row)) for row in range(count)],
        **_times(reading, count),
    }
    for index, name in enumerate(PLAN_COLUMNS):
        added[name] = plan.values[:, index].tolist()
    for name, values in columns.items():
        values.extend(added[name])


def _own(override: SubGraphKnobs | None) -> str | None:
    if override is None:
        return None
    return json.dumps(override.as_dict(), sort_keys=True, separators=(",", ":"))


def _times(reading: Reading, count: int) -> Columns:
    outcome, parts = reading.outcome, reading.parts
    if not isinstance(outcome, Measurement) or parts is None:
        return {n: [None] * count for n in ("time_s", "kernel_s", "signature", "signatures")}
    return {
        "time_s": list(outcome.subgraph_times),
        "kernel_s": parts.seconds.tolist(),
        "signature": parts.signatures,
        "signatures": parts.different.tolist(),
    }
