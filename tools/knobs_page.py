"""Write docs/knobs.md from the knobs' specifications.

::

    python tools/knobs_page.py            # write it
    python tools/knobs_page.py --check    # say whether it is current
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from autoturbo.schedule.knobs import KNOBS_SCHEMA, KnobSpec, Stage, knob_specs, subgraph_knob_specs

PAGE = Path(__file__).resolve().parents[1] / "docs" / "knobs.md"

HEAD = """# Knobs

Written by `python tools/knobs_page.py` from the specifications in `autoturbo/schedule/knobs.py`;
do not edit. Knob set {schema}.

Every knob has the value `auto`, which is what the published heuristic does (GraphTurbo, OSDI
'23): the setting without any knob is GraphTurbo as published. Trial 0 of every search is that at
its own best `batches_per_cluster`, which the paper chose by measuring as well.
`autoturbo space MODEL` shows what makes sense for a model on a target and how many settings that
gives; `autoturbo simulate MODEL --knobs FILE` measures one setting.

A knobs file is a JSON object of what differs from `auto`:

```json
{{"prefetch_depth": 3, "overrides": [{{"layer": "conv1", "dim": 1, "factor": 4, "scope": "GB"}}]}}
```

`pass` is the first one that reads a knob; nothing before depends on it. In order, the passes are
{stages}.

## Of the model

| knob | what it decides | pass | `auto` | accepted | tried |
|---|---|---|---|---|---|
"""

OWN = """
## Of a sub-graph

An override in `overrides` names a layer and holds for the sub-graph that the layer ends up in, so
that it stays meaningful when other knobs move the cuts. Where several such layers end up in one
sub-graph, each knob is that of the last of them, in topological order, that sets it; `boundary`
is about the layer itself. Dimensions are counted from the outermost loop: samples 0, then rows
and columns, channels last, whatever the layout of the file; of what only products without windows
read (cached keys and values), as in the file.

| knob | what it decides | pass | `auto` | accepted | tried |
|---|---|---|---|---|---|
"""

UNITS = """
## On a machine of several units

One knob, `units` (`docs/units.md`); left out, layers are assigned as PartitionTuner does. Each part
is scheduled on its unit by the heuristic, so the knobs above are refused there, as `units` is on a
target.

```json
{"units": {"layers": {"conv1": "npu"}, "cuts": ["conv2"], "branches": "side_by_side"}}
```

| field | what it decides | left out |
|---|---|---|
| `layers` | units of layers, by name; each must take its layer | the first unit |
| `cuts` | layers that open a part: they join nothing that they read from | none |
| `branches` | `in_turn`, one part or copy at a time: less memory, never faster | `side_by_side` |
"""

TAIL = """
## What a search tries

The model's knobs, and those of the heaviest sub-graphs of the published heuristic's plan
(`--subgraphs N`; alike sub-graphs, the blocks of a transformer, share theirs and count once).
Equal settings are one point:

- a value that is what `auto` stands for, or what the model's knob says already, is `auto`;
- a priority means something only where `instance_order` is `priority`;
- a factor must divide its extent, at the number of samples that are processed at once, unless
  `factor_policy` is `ragged`; a second axis is another one than the first, and has both a
  dimension and a factor.

Samplers of Optuna's get the model's knobs only, unless `--subgraphs` asks for more.
"""


def page() -> str:
    """Return the whole text."""
    return "".join(
        (
            HEAD.format(schema=KNOBS_SCHEMA, stages=", ".join(s.name.lower() for s in Stage)),
            *_rows(knob_specs().items()),
            OWN,
            *_rows(subgraph_knob_specs().items()),
            UNITS,
            TAIL,
        )
    )


def _rows(specs: Iterable[tuple[str, KnobSpec]]) -> list[str]:
    return [
        f"| `{name}` | {spec.help} | {spec.stage.name.lower()} "
        f"| {spec.published} | {_accepted(spec)} | {_tried(spec)} |\n"
        for name, spec in specs
    ]


def _accepted(spec: KnobSpec) -> str:
    if spec.low is None:
        return ", ".join(f"`{word}`" for word in spec.words[1:])
    kind = "whole" if spec.whole else "number"
    limit = f"{spec.low:g} or more" if spec.high is None else f"{spec.low:g} to {spec.high:g}"
    return f"{kind}, {limit}"


def _tried(spec: KnobSpec) -> str:
    if not spec.choices:
        return "what suits model and target"
    return ", ".join(f"{c:g}" if isinstance(c, float) else str(c) for c in spec.choices)


def main() -> int:
    """Write the page, or with ``--check`` compare it."""
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == text:
        return 0
    print(f"{PAGE}: not current; run python tools/knobs_page.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
