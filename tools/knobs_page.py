"""Write docs/knobs.md from the knobs' specifications.

::

    python tools/knobs_page.py            # write it
    python tools/knobs_page.py --check    # say whether it is current
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from autoturbo.schedule.knobs import KNOBS_SCHEMA, Knob, Stage, model_knobs, subgraph_knobs

PAGE = Path(__file__).resolve().parents[1] / "docs" / "knobs.md"

HEAD = """# Knobs

Written by `python tools/knobs_page.py` from the specifications in `autoturbo/schedule/knobs`;
do not edit. Knob set {schema}.

The value `auto` of a knob is the published heuristic (GraphTurbo, OSDI '23). Every search
begins with it, at its own best `batches_per_cluster`. `autoturbo space MODEL` shows the
knobs of a model on a target and the number of settings; `autoturbo simulate MODEL --knobs FILE`
measures one setting. A knobs file is a JSON object of the differences from `auto`:

```json
{{"prefetch_depth": 3, "overrides": [{{"layer": "conv1", "dim": 1, "factor": 4, "scope": "GB"}}]}}
```

`pass` is the first pass that reads a knob. In order, the passes are
{stages}.

## Knobs of the model

| knob | decision | pass | `auto` | accepted | tried |
|---|---|---|---|---|---|
"""

OWN = """
## Knobs of a sub-graph

An override in `overrides` names a layer and applies to the sub-graph with this layer, because other
knobs move the cuts. Of several such layers in one sub-graph, the last in topological order sets a
knob; `boundary` applies to the layer itself. Dimensions are counted from the outermost loop:
samples 0, then rows and columns, channels last, whatever the layout of the file; for tensors that
only products without windows read (cached keys and values), as in the file.

| knob | decision | pass | `auto` | accepted | tried |
|---|---|---|---|---|---|
"""

UNITS = """
## On a machine of several units

A machine (`docs/units.md`) has one knob, `units`; by default PartitionTuner assigns the layers. The
heuristic schedules each part on its unit, so a machine refuses the knobs above, and a target
refuses `units`.

```json
{"units": {"layers": {"conv1": "npu"}, "cuts": ["conv2"], "branches": "side_by_side"}}
```

| field | decision | default |
|---|---|---|
| `layers` | units of layers, by name; each must take its layer | the first unit |
| `cuts` | layers that open a part: they join nothing that they read from | none |
| `branches` | `in_turn`, one part or copy at a time: less memory, never faster | `side_by_side` |
"""

TAIL = """
## What a search tries

A search varies the model's knobs and those of the heaviest sub-graphs of the heuristic's plan
(`--subgraphs N`; isomorphic sub-graphs share theirs and count once). Where
`tried` says `-` a value has to be set or allowed: searches end no better with it. Equal settings
are one point:

- a value that equals `auto` or the model's knob is `auto`;
- a priority counts only where `instance_order` is `priority`;
- a factor must divide its extent at the samples of one pass, unless `factor_policy` is `ragged`; a
  second axis differs from the first, and has both a dimension and a factor.

Optuna's samplers get the model's knobs only, unless `--subgraphs` asks for more.
"""


def page() -> str:
    """Return the whole text."""
    return "".join(
        (
            HEAD.format(schema=KNOBS_SCHEMA, stages=", ".join(s.name.lower() for s in Stage)),
            *_rows(model_knobs().items()),
            OWN,
            *_rows(subgraph_knobs().items()),
            UNITS,
            TAIL,
        )
    )


def _rows(specs: Iterable[tuple[str, Knob]]) -> list[str]:
    return [
        f"| `{name}` | {spec.help} | {spec.stage.name.lower()} "
        f"| {spec.published} | {spec.accepted()} | {_tried(spec)} |\n"
        for name, spec in specs
    ]


def _tried(spec: Knob) -> str:
    if not spec.searched:
        return "-"
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
