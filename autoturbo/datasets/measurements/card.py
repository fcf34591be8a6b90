"""What is in a data set, in figures: the card, for programs as JSON and for people as Markdown.

It holds no date and nothing of the machine, so that the same collection has the same card.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from autoturbo.datasets.measurements.columns import DATASET_SCHEMA
from autoturbo.datasets.measurements.load import Measurements
from autoturbo.datasets.measurements.sampling import Origin
from autoturbo.files import NO_OTHERS, Kind, Outputs
from autoturbo.schedule.codegen.work import Floats
from autoturbo.schedule.knobs import AUTO, knob_specs, subgraph_knob_specs

LICENSE: Final = "Apache-2.0"

QUANTILES: Final = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "max": 1.0}
"""Of distributions."""

_DIGITS = 6


def make_card(data: Measurements) -> dict[str, Any]:
    """All figures; a quantity that nothing was measured for is None."""
    relative = relative_latency(data)
    return {
        "schema": DATASET_SCHEMA,
        "license": LICENSE,
        **{name: data.collection[name] for name in ("versions", "seed", "settings", "recipe")},
        "shards": {"there": len(data.repeats), "all": len(data.collection["parts"])},
        "rows": {"settings": len(data), "kernels": len(data.times)},
        "repeats_left_out": sum(data.repeats.values()),
        "outcomes": _counted(data.words["outcome"][i] for i in range(len(data))),
        "pairs": _pairs(data, relative),
        "origins": _origins(data, relative),
        "latency_over_default": _quantiles(relative),
        "kernel_sums": _sums(data),
        "knobs": _coverage(data),
    }


def relative_latency(data: Measurements) -> Floats:
    """Latency over that of the pair's default schedule; not a number for failures."""
    first = np.flatnonzero(data.numbers["number"] == 0)
    default = np.full(int(data.pairs.max(initial=-1)) + 1, np.nan)
    default[data.pairs[first]] = data.latency[first]
    found: Floats = data.latency / default[data.pairs]
    return found


def _counted(values: Iterable[str]) -> dict[str, int]:
    """Most frequent first, then by name."""
    counts = Counter(values)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _quantiles(values: Floats) -> dict[str, float] | None:
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    found = np.quantile(known, list(QUANTILES.values())).tolist()
    return {n: _short(v) for n, v in zip(QUANTILES, found, strict=True)}


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _pairs(data: Measurements, relative: Floats) -> list[dict[str, Any]]:
    """A row per shard."""
    kernels = np.diff(data.offsets)
    found = []
    for pair in range(int(data.pairs.max(initial=-1)) + 1):
        rows = np.flatnonzero(data.pairs == pair)
        default = data.latency[rows[0]]
        found.append(
            {
                **{name: data.words[name][int(rows[0])] for name in ("model", "target", "dtype")},
                "batch": int(data.numbers["batch"][rows[0]]),
                "settings": len(rows),
                "measured": int(data.measured[rows].sum()),
                "kernels": int(kernels[rows].sum()),
                "default_latency_s": None if np.isnan(default) else float(default),
                "latency_over_default": _quantiles(relative[rows]),
            }
        )
    return found


def _origins(data: Measurements, relative: Floats) -> dict[str, dict[str, Any]]:
    """By how settings came into the sample: how many, how many failed, how good they are."""
    found = {}
    for origin in Origin:
        rows = data.words["origin"].rows(origin.value)
        found[origin.value] = {
            "settings": int(rows.sum()),
            "measured": int((rows & data.measured).sum()),
            "latency_over_default": _quantiles(relative[rows]),
        }
    return found


def _sums(data: Measurements) -> dict[str, Any]:
    """How far launches times times, summed up, is from the latency."""
    error = data.sums / data.latency - 1
    alike = data.measured & (data.numbers["alike"] > 0)
    joint = data.measured & ~alike
    largest = np.abs(error[alike]).max(initial=0.0)
    return {
        "alike": {"settings": int(alike.sum()), "largest_relative_error": float(f"{largest:.1e}")},
        "joint": {
            "settings": int(joint.sum()),
            "relative_error": _quantiles(error[joint]),
            "replayed_relative_error": _quantiles((data.replayed / data.latency - 1)[joint]),
        },
    }


def _coverage(data: Measurements) -> dict[str, dict[str, dict[str, int]]]:
    """Settings by value of each of the model's knobs; those with each sub-graph's knob."""
    model: dict[str, Counter[str]] = {name: Counter() for name in knob_specs()}
    own: dict[str, Counter[str]] = {name: Counter() for name in subgraph_knob_specs()}
    for text in data.knobs:
        values = json.loads(text)
        for name, counts in model.items():
            counts[str(values.get(name, AUTO))] += 1
        _count_own(own, values.get("overrides", []))
    return {
        "model": {name: _counted(counts.elements()) for name, counts in model.items()},
        "subgraph": {name: _counted(counts.elements()) for name, counts in own.items()},
    }


def _count_own(counts: Mapping[str, Counter[str]], overrides: Sequence[Mapping[str, Any]]) -> None:
    """A value counts once per setting, however many sub-graphs have it."""
    for name, found in counts.items():
        found.update({str(o[name]) for o in overrides if name in o})


def readme(card: Mapping[str, Any]) -> str:
    """The card for people."""
    recipe, rows, shards = card["recipe"], card["rows"], card["shards"]
    versions = ", ".join(f"{name} {value}" for name, value in card["versions"].items())
    return "\n".join(
        [
            "# Measurements",
            "",
            f"{rows['settings']} settings with {rows['kernels']} kernels in {shards['there']} of",
            f"{shards['all']} shards. Made with AutoTurbo's simulator ({versions}; data set schema",
            f"{card['schema']}) from seed {card['seed']}; licence {card['license']}.",
            "",
            *(f"    {line}" for line in [recipe["command"]] if line),
            "",
            "Half of each sample is drawn at random, the other half are mutants of the default",
            "schedule and of the best that the sample had seen by then. Settings whose schedules",
            f"measure the same are one; {card['repeats_left_out']} were left out for that.",
            "",
            "## Outcomes",
            "",
            *_markdown(("outcome", "settings"), list(card["outcomes"].items())),
            "",
            "## Latency over that of the default schedule",
            "",
            *_markdown(("origin", *ORIGIN_TITLES), origin_cells(card)),
            "",
            "## Models and targets",
            "",
            *_markdown(PAIR_TITLES, pair_cells(card)),
            "",
            "## Kernels against the whole",
            "",
            *_sentences(card["kernel_sums"]),
            "",
            "## Values of knobs",
            "",
            *_markdown(("knob", "settings by value"), knob_cells(card)),
            "",
        ]
    )


PAIR_TITLES: Final = ("model", "batch", "target", "dtype", "settings", "measured", "kernels",
                      "default", "best/default", "median/default")  # fmt: skip
ORIGIN_TITLES: Final = ("settings", "measured", *QUANTILES)


def pair_cells(card: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Rows of the table of models and targets."""
    return [_pair_row(pair) for pair in card["pairs"]]


def _pair_row(pair: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("model", "batch", "target", "dtype", "settings", "measured", "kernels")
    default, relative = pair["default_latency_s"], pair["latency_over_default"] or {}
    return (
        *(str(pair[name]) for name in names),
        "-" if default is None else f"{1e3 * default:.4g} ms",
        *_figures([relative.get("min"), relative.get("median")]),
    )


def origin_cells(card: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Rows of the table of origins."""
    found = []
    for origin, row in card["origins"].items():
        relative = row["latency_over_default"] or {}
        figures = _figures([relative.get(name) for name in QUANTILES])
        found.append((origin, str(row["settings"]), str(row["measured"]), *figures))
    return found


def _figures(values: Iterable[float | None]) -> list[str]:
    return ["-" if value is None else f"{value:.3f}" for value in values]


def knob_cells(card: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Rows of the table of knobs; a sub-graph's are ``subgraph.NAME``."""
    prefix = {"model": "", "subgraph": "subgraph."}
    return [
        (prefix[group] + name, ", ".join(f"{value} {n}" for value, n in counts.items()) or "-")
        for group, knobs in card["knobs"].items()
        for name, counts in knobs.items()
    ]


def _sentences(sums: Mapping[str, Any]) -> list[str]:
    """How exact sums of kernels are, in words."""
    alike, joint = sums["alike"], sums["joint"]
    found = [
        f"Where clusters work alike ({alike['settings']} settings), launches times seconds of a",
        "launch, summed up, are the latency with a relative error of at most",
        f"{alike['largest_relative_error']:.1e}.",
    ]
    if joint["relative_error"]:
        median = joint["relative_error"]["median"]
        again = joint["replayed_relative_error"]["median"]
        found += [
            f"Where they share out one pass ({joint['settings']} settings), they run side by side",
            f"and wait for each other: there the sum is off by {100 * median:.3g} % in the median,",
            f"and sub-graphs run one after another on their clusters by {100 * again:.3g} %.",
        ]
    return found


def _markdown(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [titles, ["---"] * len(titles), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]


CARDS = {"card.json": Kind.DATASET_CARD, "README.md": Kind.DATASET_README}
"""Both forms of the card."""


def write_card(folder: Path, card: Mapping[str, Any], outputs: Outputs = NO_OTHERS) -> None:
    """Write both forms into the data set's folder.

    Raises:
        UsageError: a file cannot be written, or what is there may not be replaced.
    """
    text = json.dumps(card, indent=2, allow_nan=False) + "\n"
    outputs.write(folder / "card.json", Kind.DATASET_CARD, text)
    outputs.write(folder / "README.md", Kind.DATASET_README, readme(card))
