r"""Write the vendor's published schedule of ResNet-50 as a schedule file.

::

    python examples/schedules/resnet50_vendor.py        # writes resnet50-vendor.json next to it
    autoturbo simulate examples/models/resnet50.onnx --batch 64 --target stcp920 \
        --schedule examples/schedules/resnet50-vendor.json

The decisions are those of the schedule that the guide to the chip's compiler (TensorTurbo V1.12)
lists for 16 images per cluster: four groups, cut behind the 16th, 32nd and 56th sum of the graph as
that compiler sees it (the 4th, 8th and 14th that joins a residual block), in 8, 4, 2 and 1 parts
along the batch; the order of the parts; where each keeps its output; over how many cores the batch
and the rows are spread, and over which. Its ``split`` and ``concatenate`` nodes follow from these,
as do movements and addresses here. The file holds decisions alone, so it has no buffers.

The way to turn anybody's decisions into a schedule file: :func:`schedule` is all of it.
"""

from __future__ import annotations

from pathlib import Path

import autoturbo
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.split import Split, split_axes
from autoturbo.schedule.pipeline import ModelScheduler, assemble
from autoturbo.schedule.place.bind import Placement, Scope
from autoturbo.schedule.place.instances import PartBook, make_instances
from autoturbo.schedule.schedule import Schedule

HERE = Path(__file__).parent
FILE = HERE / "resnet50-vendor.json"
MODEL = HERE.parent / "models" / "resnet50.onnx"
BATCH = 64
"""16 images for each of the four clusters."""

SUMS = (4, 8, 14)
"""Residual sums at the end of each group but the last."""

PARTS = (8, 4, 2, 1)
"""Parts of each group along the batch."""

CORES = ((2, 4), (4, 2), (8, 1), (8, 1))
"""Per group, how many ways the batch and the rows of a part are spread over the eight cores."""

CORE_IDS = (
    (),
    (1, 3, 5, 7, 0, 2, 4, 6),
    (3, 7, 2, 6, 1, 5, 0, 4),
    (7, 6, 5, 4, 3, 2, 1, 0),
)
"""Per group, the cores of its parts: those of the concatenation before it, so that of every image
that comes from L1 one half is in place already."""

SCOPES = {"L1": Scope.LB, "LLB": Scope.GB, "DDR": Scope.DDR}
"""The vendor's names of the memories."""

ORDER = """
G0[0] LLB   G0[1] L1   G1[0] LLB
G0[2] LLB   G0[3] L1   G1[1] L1    G2[0] LLB
G0[4] LLB   G0[5] L1   G1[2] LLB
G0[6] LLB   G0[7] L1   G1[3] L1    G2[1] L1    G3[0] DDR
"""
"""Order of execution, and where each part keeps its output: the first of two waits in LLB, the
second stays in L1, where they are put together."""


def published() -> list[tuple[int, int, Scope]]:
    """Return group, part and scope in order of execution."""
    words = ORDER.split()
    names = (word.removeprefix("G").removesuffix("]").split("[") for word in words[::2])
    return [
        (int(group), int(part), SCOPES[scope])
        for (group, part), scope in zip(names, words[1::2], strict=True)
    ]


def groups(context: SchedulingContext) -> tuple[SubGraph, ...]:
    """Return the vendor's four groups as sub-graphs."""
    kinds = [
        [context.graph.operators[op].kind for op in layer.operators] for layer in context.layers
    ]
    sums = [index for index, found in enumerate(kinds) if "Add" in found]
    ends = [*(sums[number - 1] + 1 for number in SUMS), len(context.layers)]
    starts = [0, *ends[:-1]]
    return tuple(
        SubGraph(index, layers, _split(context, layers, parts))
        for index, (start, end, parts) in enumerate(zip(starts, ends, PARTS, strict=True))
        if (layers := tuple(range(start, end)))
    )


def _split(context: SchedulingContext, layers: tuple[int, ...], parts: int) -> Split:
    depth, axis = split_axes(context, layers, "batch")[0]
    return Split(axis if parts > 1 else -1, parts, depth, 0, 0)


def _binding(group: int, rank: int) -> tuple[int, ...]:
    """Return the factors of an output in NCHW; the last has no rows."""
    batch, rows = CORES[group]
    return (batch, 1, rows, 1)[:rank]


def schedule(model: Graph, target: Target) -> Schedule:
    """Return the published decisions as a schedule of ours."""
    model_scheduler = ModelScheduler(model, target, "float16")
    share = model_scheduler.share()
    context = model_scheduler.context(share.batches)
    instances = make_instances(PartBook(context), groups(context))
    pairs = list(zip(instances.subgraph.tolist(), instances.part.tolist(), strict=True))
    index = {pair: instance for instance, pair in enumerate(pairs)}
    scope = {(group, part): where for group, part, where in published()}
    ranks = [len(context.graph.tensors[parts.outputs[0]].shape) for parts in instances.parts]
    placement = Placement(
        tuple(_binding(group, ranks[group]) for group, _ in pairs),
        tuple(scope[pair] for pair in pairs),
        tuple(CORE_IDS[group] for group, _ in pairs),
    )
    order = tuple(index[group, part] for group, part, _ in published())
    return assemble(model, context, "vendor", Knobs(), share, instances, order, placement)


def text(made: Schedule) -> str:
    """Return the schedule file up to its buffers: the rest follows from the decisions."""
    decisions, _, _ = made.text.partition(',\n"buffers"')
    return decisions + "\n}\n"


def main() -> None:
    """Write the file."""
    model = autoturbo.load_model(MODEL, batch=BATCH)
    made = schedule(model, autoturbo.load_target("stcp920"))
    FILE.write_text(text(made), encoding="utf-8")
    print(f"wrote {FILE}")


if __name__ == "__main__":
    main()
