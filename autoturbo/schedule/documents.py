"""What stands in schedule files, in those of machines, and in kernels files: their declarations.

The schemas that are published and the checks of what is read follow from them. Indices are exact:
``1.0`` is no index. Operators, layers, sub-graphs, kernels and tensors are indices; buffers lie at
bytes, steps count from 0.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NotRequired

from typing_extensions import TypedDict

from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import SPLITS
from autoturbo.schedule.unit_knobs import BRANCHES
from autoturbo.schema import MOST, Bool, Choice, Duration, Entries, Index, Version, Whole

SCHEDULE_SCHEMA: Final = 1
"""Version of schedule files."""

MACHINE_SCHEDULE_SCHEMA: Final = 1
"""Version of schedule files of machines."""

KERNELS_SCHEMA: Final = 1
"""Version of kernels files: raised where a reader of the one before would read it wrongly."""

FORMAT: Final = "autoturbo-schedule"
MACHINE_FORMAT: Final = "autoturbo-machine-schedule"
KERNELS_FORMAT: Final = "autoturbo-kernels"

KEPT: Final = ("nowhere", "GB", "LB")
"""Where a kernel keeps its inputs."""

Positive = Annotated[int, Whole(least=1, exact=True)]
Signed = Annotated[int, Whole(least=-MOST, exact=True)]
Address = Annotated[int, Whole(least=-1, exact=True, unit="bytes")]
Size = Annotated[int, Whole(exact=True, unit="bytes")]
InScope = Annotated[str, Choice(of=tuple(scope.name for scope in Scope), kind="scope")]


class MadeFor(TypedDict):
    """The model or the target that a file is made for."""

    name: str
    hash: str
    batch: NotRequired[Positive]


class LayerEntry(TypedDict):
    """A layer: its operators."""

    name: str
    operators: list[Index]


class SubGraphEntry(TypedDict):
    """A sub-graph and how it is split, perhaps along a second axis inside a part of the first."""

    layers: list[Index]
    axis: Signed
    depth: Index
    instances: Index
    inner_axis: NotRequired[Index]
    inner_factor: NotRequired[Positive]


class InstanceEntry(TypedDict):
    """A part of a sub-graph: its cores and the scope of its output."""

    subgraph: Index
    part: Index
    cores: list[Index]
    scope: InScope
    core_ids: NotRequired[list[Index]]
    cluster: NotRequired[Index]


class BufferEntry(TypedDict):
    """Where a buffer lies, and from which step to which."""

    kind: str
    tensor: str
    subgraph: Index
    part: Index
    scope: InScope
    address: Annotated[int, Whole(least=-MOST, exact=True, unit="bytes")]
    bytes: Size
    first_step: Index
    last_step: Index
    cluster: NotRequired[Index]


class ShareEntry(TypedDict):
    """How clusters share the batch, or the model, out."""

    clusters: Index
    samples: Index
    batches: Index
    split: NotRequired[Annotated[str, Choice(of=SPLITS[1:], kind="split")]]


class ScheduleDocument(TypedDict):
    """A schedule file."""

    format: Annotated[str, Version(is_=FORMAT)]
    schema_version: Annotated[int, Version(is_=SCHEDULE_SCHEMA)]
    scheduler_version: str
    scheduler: str
    model: MadeFor
    target: MadeFor
    dtype: str
    knobs: dict[str, Any]
    share: ShareEntry
    layers: list[LayerEntry]
    subgraphs: list[SubGraphEntry]
    order: list[InstanceEntry]
    buffers: NotRequired[list[BufferEntry]]
    expected: NotRequired[dict[str, Any] | None]


class PartEntry(TypedDict):
    """Layers that a unit runs together."""

    unit: str
    layers: list[Index]


class RunEntry(TypedDict):
    """When a part runs on its unit, or is copied to another."""

    part: Index
    unit: str
    begin_s: Duration
    end_s: Duration
    copied_bytes: NotRequired[Size]


class MachineScheduleDocument(TypedDict):
    """A schedule file of a machine of several processing units."""

    format: Annotated[str, Version(is_=MACHINE_FORMAT)]
    schema_version: Annotated[int, Version(is_=MACHINE_SCHEDULE_SCHEMA)]
    scheduler_version: str
    scheduler: str
    model: MadeFor
    target: MadeFor
    dtype: str
    knobs: dict[str, Any]
    layers: list[LayerEntry]
    parts: list[PartEntry]
    branches: NotRequired[Annotated[str, Choice(of=BRANCHES, kind="order of branches")]]
    runs: NotRequired[list[RunEntry]]
    expected: NotRequired[dict[str, Any] | None]


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
    lb_bytes: Size
    gb_bytes: Size
    ddr_bytes: Size


class KernelsShare(TypedDict):
    """How clusters share the work out."""

    clusters: Index
    split: Annotated[str, Choice(of=SPLITS, kind="split")]
    samples: Index
    samples_per_pass: Index
    passes: Index


class KernelTensor(TypedDict):
    """A tensor of the model."""

    name: str
    shape: list[Index]
    dtype: str
    weight: Bool


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

    outer: Annotated[str, Choice(of=("rows", "columns"))]
    inputs_kept: Annotated[str, Choice(of=KEPT)]


class KernelLayer(TypedDict):
    """A layer of a kernel."""

    name: str
    operators: list[Index]
    cores: list[Index]
    core_work: CoreWork
    tiles: Tiles


Region = list[Annotated[list[Index], Entries(least=2, most=2)]]
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


class KernelBuffer(TypedDict):
    """Where a buffer of a kernel lies, and from which step to which."""

    kind: str
    tensor: Index | None
    kernel: Index
    cluster: Index | None
    scope: InScope
    address: Address
    bytes: Size
    first_step: Index
    last_step: Index


class KernelsDocument(TypedDict):
    """A kernels file."""

    format: Annotated[str, Version(is_=KERNELS_FORMAT)]
    schema_version: Annotated[int, Version(is_=KERNELS_SCHEMA)]
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
