"""A schedule spelled out, for compilers without this code: kernels, tiles, buffers, order.

A schedule file holds decisions, from which our passes follow everything else. A kernels file holds
what follows: which region of every tensor each kernel makes and reads, whom it waits for, into how
many tiles its layers are cut, and where and when every buffer lies. ``docs/schedule-format.md``
describes it, with a reader of thirty lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, NotRequired

from annotated_types import Ge, Le, Len
from typing_extensions import TypedDict

from autoturbo.schedule.codegen.tiling import Tiling
from autoturbo.schedule.context import SPLITS, SchedulingContext
from autoturbo.schedule.files import InScope
from autoturbo.schedule.knobs import SCHEDULER_VERSION
from autoturbo.schedule.schedule import Schedule, buffer_entries, document_text, instance_entry
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.work import MATRIX, Floats
from autoturbo.schema import (
    MOST,
    Bytes,
    Choice,
    Described,
    Index,
    WithoutFraction,
    json_schema,
)

KERNELS_SCHEMA: Final = 1
"""Version of kernels files: raised where a reader of the one before would read it wrongly."""

KERNELS_FORMAT: Final = "autoturbo-kernels"

KEPT: Final = ("nowhere", "GB", "LB")
"""Where a kernel keeps its inputs."""


class KernelsModel(TypedDict):
    """The model of a kernels file."""

    name: str
    hash: str
    batch: Index


class KernelsTarget(TypedDict):
    """The target of a kernels file; buffers per core and per cluster."""

    name: str
    hash: str
    clusters: Index
    cores_per_cluster: Index
    lb_bytes: Bytes
    gb_bytes: Bytes
    ddr_bytes: Bytes


class KernelsShare(TypedDict):
    """How clusters share the work out."""

    clusters: Index
    split: Annotated[str, Choice(SPLITS)]
    samples: Index
    samples_per_pass: Index
    passes: Index


class KernelTensor(TypedDict):
    """A tensor of the model."""

    name: str
    shape: list[Index]
    dtype: str
    weight: bool


class KernelOperator(TypedDict):
    """An operator and its tensors."""

    name: str
    kind: str
    inputs: list[Index]
    outputs: list[Index]


class Counts(TypedDict):
    """A matrix product's extents, and how many of them."""

    products: Index
    rows: Index
    columns: Index
    depth: Index


class CoreWork(Counts):
    """The work of one core."""

    vector_operations: Index


class Tiles(Counts):
    """Into how many tiles a core's work is cut."""

    outer: Annotated[str, Choice(("rows", "columns"))]
    inputs_kept: Annotated[str, Choice(KEPT)]


class KernelLayer(TypedDict):
    """A layer of a kernel."""

    name: str
    operators: list[Index]
    cores: list[Index]
    core_work: CoreWork
    tiles: Tiles


Region = list[Annotated[list[Index], Len(2, 2)]]
"""Begin and end of each dimension."""


class Made(TypedDict):
    """A region of a tensor that a kernel makes."""

    tensor: Index
    region: Region


class Read(Made):
    """A region of a tensor that a kernel reads."""

    made_by: list[Index]


class Kernel(TypedDict):
    """A kernel: what it reads and makes, whom it waits for, and where it runs."""

    cluster: Index | None
    subgraph: Index
    part: Index
    cores: list[Index]
    scope: InScope
    waits_for: list[Index]
    inputs: list[Read]
    outputs: list[Made]
    layers: list[KernelLayer]
    first_step: Index
    last_step: Index
    core_ids: NotRequired[list[Index]]
    most_cores: NotRequired[Index]


class KernelBuffer(TypedDict):
    """Where a buffer of a kernel lies, and from which step to which."""

    kind: str
    tensor: Index | None
    kernel: Index
    cluster: Index | None
    scope: InScope
    address: Annotated[int, Ge(-1), Le(MOST), WithoutFraction(), Described(unit="bytes")]
    bytes: Bytes
    first_step: Index
    last_step: Index


class KernelsDocument(TypedDict):
    """A kernels file."""

    format: Annotated[str, Choice((KERNELS_FORMAT,))]
    schema_version: Annotated[int, Choice((KERNELS_SCHEMA,))]
    scheduler_version: str
    model: KernelsModel
    target: KernelsTarget
    dtype: str
    share: KernelsShare
    tensors: list[KernelTensor]
    operators: list[KernelOperator]
    inputs: list[Index]
    outputs: list[Index]
    kernels: list[Kernel]
    buffers: list[KernelBuffer]


def kernels_text(schedule: Schedule) -> str:
    """Return the file's content: JSON, with each list element on one line."""
    context, share, model = schedule.context, schedule.share, schedule.model
    target, graph = context.target, context.graph
    number = {instance: position for position, instance in enumerate(schedule.order)}
    kernels = dict(_kernels(schedule, number))
    return document_text({
        "format": KERNELS_FORMAT,
        "schema_version": KERNELS_SCHEMA,
        "scheduler_version": SCHEDULER_VERSION,
        "model": {"name": model.name, "hash": model.hash, "batch": model.batch},
        "target": {
            "name": target.name, "hash": target.hash, "clusters": target.clusters,
            "cores_per_cluster": target.cores, "lb_bytes": target.lb.capacity,
            "gb_bytes": target.gb.capacity, "ddr_bytes": target.ddr.capacity,
        },
        "dtype": context.dtype,
        "share": {
            "clusters": share.clusters, "split": share.split, "samples": share.samples,
            "samples_per_pass": share.batches, "passes": share.loops,
        },
        "tensors": [
            {"name": t.name, "shape": list(t.shape), "dtype": t.dtype, "weight": t.constant}
            for t in graph.tensors
        ],
        "operators": [
            {"name": o.name, "kind": o.kind, "inputs": list(o.inputs), "outputs": list(o.outputs)}
            for o in graph.operators
        ],
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "kernels": [kernels[instance] for instance in schedule.order],
        "buffers": [{**entry, "kernel": number[of]} for entry, of in _buffers(schedule)],
    })  # fmt: skip


def _kernels(schedule: Schedule, number: Mapping[int, int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield instances with their kernels, cluster by cluster."""
    graph, links = schedule.instances, schedule.instances.links
    for cluster, timeline in enumerate(schedule.timelines):
        step = 0
        for place, index in enumerate(timeline.order.tolist()):
            span = slice(*links.start[index : index + 2])
            outputs, inputs = graph.regions_of(index)
            made_by: dict[int, set[int]] = {}
            for slot, maker in zip(links.slot[span], links.maker[span].tolist(), strict=True):
                made_by.setdefault(slot, set()).add(number[maker])
            layers = _layers(schedule, index, cluster, place)
            last = step + len(layers)  # movements take a step, then every layer one
            yield index, {
                "cluster": cluster if schedule.cluster else None,
                **instance_entry(schedule, index),
                "waits_for": sorted(number[producer] for producer in graph.producers[index]),
                "inputs": [
                    {"tensor": tensor, "region": region.tolist(),
                     "made_by": sorted(made_by.get(slot, ()))}
                    for slot, (tensor, region) in enumerate(inputs.items())
                ],
                "outputs": [
                    {"tensor": tensor, "region": region.tolist()}
                    for tensor, region in outputs.items()
                ],
                "layers": layers,
                "first_step": step,
                "last_step": last,
            }  # fmt: skip
            step = last + 1


def _layers(schedule: Schedule, index: int, cluster: int, place: int) -> list[dict[str, Any]]:
    """Return a kernel's layers: operators, one core's work, tile counts.

    Args:
        schedule: Where the kernel is from.
        index: Of the kernel's instance.
        cluster: The cluster that runs it.
        place: Of the kernel in the cluster's order.
    """
    context, timeline = schedule.context, schedule.timelines[cluster]
    template = timeline.templates[index]
    made = schedule.kernel(place, cluster)
    stages, counts = made.stages, made.tiles
    return [
        {
            "name": context.layers[layer].name,
            "operators": list(context.layers[layer].operators),
            "cores": list(binding),
            "core_work": {
                "products": _products(context, layer, stage), "rows": int(stage[Stage.ROWS]),
                "columns": int(stage[Stage.COLUMNS]), "depth": int(stage[Stage.DEPTH]),
                "vector_operations": int(stage[Stage.VECTOR] + stage[Stage.SPECIAL]),
            },
            "tiles": {
                "products": int(tiles[Tiling.PRODUCTS]), "rows": int(tiles[Tiling.ROWS]),
                "columns": int(tiles[Tiling.COLUMNS]), "depth": int(tiles[Tiling.DEPTHS]),
                "outer": "rows" if tiles[Tiling.ROWS_OUTSIDE] else "columns",
                "inputs_kept": KEPT[tiles[Tiling.KEPT]],
            },
        }
        for layer, binding, stage, tiles in zip(
            template.layers, template.bindings, stages, counts, strict=True
        )
    ]  # fmt: skip


def _products(context: SchedulingContext, layer: int, stage: Floats) -> int:
    """Return the number of products of a layer, undoing the scaling for a faster type."""
    work, operators = context.work, context.graph.operators
    matrix_ops = [op for op in context.layers[layer].operators if work.engine[op] == MATRIX]
    counted = float(stage[Stage.COUNT])
    return (
        round(counted * operators[matrix_ops[0]].work.macs / work.macs[matrix_ops[0]])
        if matrix_ops
        else int(counted)
    )


def _buffers(schedule: Schedule) -> Iterable[tuple[dict[str, Any], int]]:
    """Return each buffer's entry in a schedule file, with its tensor's number, and its instance."""
    for cluster, timeline in enumerate(schedule.timelines):
        entries = buffer_entries(schedule, timeline)
        of = {"cluster": cluster if schedule.cluster else None}
        columns = zip(entries, timeline.tensor.tolist(), timeline.owner.tolist(), strict=True)
        for entry, tensor, instance in columns:
            del entry["subgraph"], entry["part"]  # of its kernel
            yield {**entry, **of, "tensor": tensor if tensor >= 0 else None}, instance


def kernels_schema() -> dict[str, Any]:
    """Return the JSON schema of kernels files (draft 2020-12)."""
    return json_schema(KernelsDocument, f"AutoTurbo kernels file, version {KERNELS_SCHEMA}")
