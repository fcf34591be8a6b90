"""The card of a data set: its figures, as JSON for programs and as Markdown for people.

It holds no date and nothing of the machine, so that the same collection has the same card.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from autoturbo.datasets.measurements.load import Measurements
from autoturbo.datasets.measurements.sampling import Origin
from autoturbo.datasets.measurements.shards import DATASET_SCHEMA
from autoturbo.files import NO_OTHERS, Kind, Outputs
from autoturbo.hardware.fields import Dtype
from autoturbo.schedule.knobs import AUTO, model_knobs, subgraph_knobs
from autoturbo.schedule.work import Floats
from autoturbo.schema import Duration, Natural, TypedDict

LICENSE: Final = "Apache-2.0"

QUANTILES: Final = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "max": 1.0}
"""Of distributions."""


Quantiles = TypedDict(
    "Quantiles", {"min": float, "p10": float, "median": float, "p90": float, "max": float}
)


Recipe = TypedDict("Recipe", {"command": str, "subgraphs": Natural})
"""The command that collects the same, without paths."""

Shards = TypedDict("Shards", {"there": Natural, "all": Natural})
"""Files of the data set."""

Rows = TypedDict("Rows", {"settings": Natural, "kernels": Natural})
"""Rows of its tables."""

PairCard = TypedDict("PairCard", {
    "model": str, "target": str, "dtype": Dtype, "batch": Natural, "settings": Natural,
    "measured": Natural, "kernels": Natural, "default_latency_s": Duration | None,
    "latency_over_default": Quantiles | None,
})  # fmt: skip
"""What was measured of a model on a target."""

OriginCard = TypedDict("OriginCard", {
    "settings": Natural, "measured": Natural, "latency_over_default": Quantiles | None,
})  # fmt: skip
"""What was measured of the settings of one origin."""

AlikeCard = TypedDict("AlikeCard", {"settings": Natural, "largest_relative_error": float | None})
"""Settings whose clusters work alike, and how far sums of kernels are off at most."""

JointCard = TypedDict("JointCard", {
    "settings": Natural, "relative_error": Quantiles | None,
    "replayed_relative_error": Quantiles | None,
})  # fmt: skip
"""Settings whose clusters share out one pass, and how far sums of kernels are off."""

SumsCard = TypedDict("SumsCard", {"alike": AlikeCard, "joint": JointCard})
"""How far launches times times, summed up, are from the latency."""

Coverage = TypedDict("Coverage", {
    "model": dict[str, dict[str, Natural]], "subgraph": dict[str, dict[str, Natural]],
})  # fmt: skip
"""Settings by value of each knob."""


class DataCard(TypedDict):
    """The contents of a data set."""

    schema: Natural
    license: str
    versions: dict[str, str]
    seed: Natural
    settings: Natural
    recipe: Recipe
    shards: Shards
    rows: Rows
    repeats_left_out: Natural
    outcomes: dict[str, Natural]
    pairs: list[PairCard]
    origins: dict[str, OriginCard]
    latency_over_default: Quantiles | None
    kernel_sums: SumsCard
    knobs: Coverage


def make_card(data: Measurements) -> DataCard:
    """Return all figures; a quantity that nothing was measured for is None."""
    of = data.collection
    return {
        "schema": DATASET_SCHEMA, "license": LICENSE,
        "versions": of["versions"], "seed": of["seed"],
        "settings": of["settings"], "recipe": of["recipe"],
        "shards": {"there": len(data.repeats), "all": len(of["parts"])},
        "rows": {"settings": len(data), "kernels": len(data.times)},
        "repeats_left_out": sum(data.repeats.values()),
        "outcomes": _ranked(Counter(data.settings["outcome"].tolist())),
        "pairs": [_pair(data, pair) for pair in range(len(data.repeats))],
        "origins": {
            origin: {
                "settings": int(rows.sum()),
                "measured": int((rows & data.measured).sum()),
                "latency_over_default": _quantiles(data.relative[rows]),
            }
            for origin in _origins(data)
            for rows in [data.settings["origin"] == origin]
        },
        "latency_over_default": _quantiles(data.relative),
        "kernel_sums": _sums(data),
        "knobs": _coverage(data),
    }  # fmt: skip


def _origins(data: Measurements) -> list[str]:
    """Return origins of settings, those of earlier releases last."""
    known = [origin.value for origin in Origin]
    there = dict.fromkeys(data.settings["origin"].tolist())
    return [origin for origin in dict.fromkeys([*known, *there]) if origin in there]


def _ranked(counts: Counter[str]) -> dict[str, int]:
    """Return the most frequent first, then by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _quantiles(values: Floats) -> Quantiles | None:
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    quantiles = np.quantile(known, list(QUANTILES.values())).tolist()
    least, p10, median, p90, most = (float(f"{value:.6g}") for value in quantiles)
    return {"min": least, "p10": p10, "median": median, "p90": p90, "max": most}


def _pair(data: Measurements, pair: int) -> PairCard:
    rows = np.flatnonzero(data.pairs == pair)
    first, default = rows[0], float(data.latency[rows[0]])
    return {
        "model": data.settings["model"][first], "target": data.settings["target"][first],
        "dtype": data.settings["dtype"][first], "batch": int(data.settings["batch"][first]),
        "settings": len(rows), "measured": int(data.measured[rows].sum()),
        "kernels": int(np.diff(data.offsets)[rows].sum()),
        "default_latency_s": None if math.isnan(default) else default,
        "latency_over_default": _quantiles(data.relative[rows]),
    }  # fmt: skip


def _sums(data: Measurements) -> SumsCard:
    """Return how far launches times times, summed up, is from the latency."""
    error = data.sums / data.latency - 1
    alike = data.timed & (data.settings["alike"] > 0)
    joint = data.timed & ~alike
    largest = np.abs(error[alike]).max(initial=0.0)
    return {
        "alike": {"settings": int(alike.sum()), "largest_relative_error": float(f"{largest:.1e}")},
        "joint": {
            "settings": int(joint.sum()),
            "relative_error": _quantiles(error[joint]),
            "replayed_relative_error": _quantiles((data.replayed / data.latency - 1)[joint]),
        },
    }


def _coverage(data: Measurements) -> Coverage:
    """Return settings by value of each of the model's knobs; those with each sub-graph's knob.

    A sub-graph's value counts once per setting, however many sub-graphs have it.
    """
    model = {name: Counter[str]() for name in model_knobs()}
    own = {name: Counter[str]() for name in subgraph_knobs()}
    for text in data.settings["knobs"]:
        values = json.loads(text)
        overrides = values.get("overrides", [])
        for name, counts in model.items():
            counts[str(values.get(name, AUTO))] += 1
        for name, counts in own.items():
            counts.update({str(one[name]) for one in overrides if name in one})
    return {
        "model": {name: _ranked(counts) for name, counts in model.items()},
        "subgraph": {name: _ranked(counts) for name, counts in own.items()},
    }


README: Final = """\
# Measurements

{settings} settings with {kernels} kernels in {there} of
{all} shards. {maker} ({versions}; data set schema
{schema}) from seed {seed}; licence {license}.
{command}
Each sample begins with what a search begins with. Half of the others are drawn at
random, the other half are mutants of those first ones and of the best that the sample
had seen by then. Settings whose schedules measure the same are one;
{repeats_left_out} were left out for that.

## Outcomes

{outcomes}

## Latency over that of the default schedule

{origins}

## Models and targets

{pairs}

## Kernels against the whole

{sums}

## Values of knobs

{knobs}
"""


def readme(card: DataCard) -> str:
    """Return the card for people."""
    command = card["recipe"]["command"]
    tables = {
        "outcomes": _markdown(("outcome", "settings"), card["outcomes"].items()),
        "origins": _markdown(("origin", *ORIGIN_TITLES), origin_cells(card)),
        "pairs": _markdown(PAIR_TITLES, pair_cells(card)),
        "knobs": _markdown(("knob", "settings by value"), knob_cells(card)),
    }
    versions = ", ".join(f"{name} {value}" for name, value in card["versions"].items())
    measurer = card["recipe"].get("measurer")
    about = {
        "maker": f"Measured by {measurer}" if measurer else "Made with AutoTurbo's simulator",
        "versions": versions,
        "command": f"\n    {command}\n" if command else "\n",
        "sums": _sentences(card["kernel_sums"]),
    }
    return README.format(**{**card, **card["rows"], **card["shards"], **tables, **about})


PAIR_TITLES: Final = ("model", "batch", "target", "dtype", "settings", "measured", "kernels",
                      "default", "best/default", "median/default")  # fmt: skip
ORIGIN_TITLES: Final = ("settings", "measured", *QUANTILES)


def pair_cells(card: DataCard) -> list[tuple[str, ...]]:
    """Return rows of the table of models and targets."""
    rows = []
    for pair in card["pairs"]:
        default, figures = pair["default_latency_s"], dict(pair)
        shown = "-" if default is None else f"{1e3 * default:.4g} ms"
        texts = (str(figures[name]) for name in PAIR_TITLES[:7])
        relative = _figures(pair["latency_over_default"], "min", "median")
        rows.append((*texts, shown, *relative))
    return rows


def origin_cells(card: DataCard) -> list[tuple[str, ...]]:
    """Return rows of the table of origins."""
    return [
        (origin, str(row["settings"]), str(row["measured"]),
         *_figures(row["latency_over_default"], *QUANTILES))
        for origin, row in card["origins"].items()
    ]  # fmt: skip


def _figures(values: Quantiles | None, *names: str) -> list[str]:
    known = dict(values or {})
    return [f"{known[name]:.3f}" if name in known else "-" for name in names]


def knob_cells(card: DataCard) -> list[tuple[str, ...]]:
    """Return rows of the table of knobs; a sub-graph's are ``subgraph.NAME``."""
    knobs = card["knobs"]
    return [
        (prefix + name, ", ".join(f"{value} ({n})" for value, n in counts.items()) or "-")
        for prefix, of in (("", knobs["model"]), ("subgraph.", knobs["subgraph"]))
        for name, counts in of.items()
    ]


def _sentences(sums: SumsCard) -> str:
    """Return how exact sums of kernels are, in words."""
    alike, joint = sums["alike"], sums["joint"]
    sentences = (
        f"Where clusters work alike ({alike['settings']} settings), launches times seconds of a\n"
        "launch, summed up, are the latency with a relative error of at most\n"
        f"{alike['largest_relative_error']:.1e}."
    )
    errors, replayed = joint["relative_error"], joint["replayed_relative_error"]
    if not errors or not replayed:
        return sentences
    median, again = errors["median"], replayed["median"]
    return sentences + (
        f"\nWhere they share out one pass ({joint['settings']} settings), they run side by side\n"
        f"and wait for each other: there the sum is off by {100 * median:.3g} % in the median,\n"
        f"and sub-graphs run one after another on their clusters by {100 * again:.3g} %."
    )


def _markdown(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


CARDS = {"card.json": Kind.DATASET_CARD, "README.md": Kind.DATASET_README}
"""Both forms of the card."""


def write_card(folder: Path, card: DataCard, outputs: Outputs = NO_OTHERS) -> None:
    """Write both forms into the data set's folder.

    Raises:
        UsageError: A file cannot be written, or what is there may not be replaced.
    """
    text = json.dumps(card, indent=2, allow_nan=False) + "\n"
    outputs.write(folder / "card.json", Kind.DATASET_CARD, text)
    outputs.write(folder / "README.md", Kind.DATASET_README, readme(card))
