"""The two tables of a data set: names and types of their columns.

Types are named as pyarrow names them, so that this module does without it.
"""

from __future__ import annotations

from typing import Final

from autoturbo.schedule.knobs import KNOBS_SCHEMA
from autoturbo.schedule.schedule import SCHEDULER_VERSION
from autoturbo.simulate.measurement import SIMULATOR_VERSION
from autoturbo.simulate.plan import COLUMNS as PLAN_COLUMNS

DATASET_SCHEMA: Final = 4
"""Raised whenever a column changes its name, meaning or type; others are refused."""

VERSIONS: Final = {
    "scheduler": SCHEDULER_VERSION,
    "simulator": SIMULATOR_VERSION,
    "knobs": str(KNOBS_SCHEMA),
}
"""What the same setting may measure differently under."""

MEASURES: Final = (
    "latency_s",
    "ddr_bytes",
    "gb_bytes",
    "matrix_utilization",
    "vector_utilization",
    "peak_lb_bytes",
    "peak_gb_bytes",
    "kernels",
    "lower_bound_s",
    "energy_j",
)
"""Measures of a setting, as :meth:`autoturbo.simulate.measurement.Measurement.as_json` has them."""

WORD: Final = "dictionary"
"""Text that repeats: a number and a table of words."""

LIST: Final = "list"
"""Whole numbers, any number of them."""

SETTINGS: Final[dict[str, str]] = {
    "model": WORD,
    "graph_hash": WORD,
    "batch": "int64",
    "target": WORD,
    "target_hash": WORD,
    "target_figures": WORD,  # the target file's content, so that features need nothing else
    "dtype": WORD,
    "scheduler_version": WORD,
    "simulator_version": WORD,
    "knobs_version": WORD,
    "seed": "int64",  # of this shard
    "number": "int32",  # place in the sample, 0 for the default schedule
    "origin": WORD,
    "parent": "int32",  # place of what it is a mutant of, -1 for none
    "knobs": "string",  # canonical JSON
    "outcome": WORD,  # "measured", or the failure's reason
    "message": "string",
    "demand_bytes": "int64",
    "capacity_bytes": "int64",
    **{name: "float64" if name.endswith(("_s", "_j", "zation")) else "int64" for name in MEASURES},
    "loops": "int64",  # passes
    "clusters": "int32",  # that work
    "alike": "bool",  # whether clusters work alike: then launches x time_s sum up to the latency
}
"""Columns of the table of settings; measures are null where the outcome is a failure."""

KERNELS: Final[dict[str, str]] = {
    "setting": "int32",  # place in the sample
    "subgraph": "int32",  # row of the plan
    **dict.fromkeys(PLAN_COLUMNS, "float64"),
    "launches": "int64",  # by one cluster over the whole batch
    "first_cluster": "int32",
    "clusters": "int32",  # that launch it: these many from the first on
    "reads": LIST,  # sub-graphs that it reads from
    "own": "string",  # knobs of its own as JSON, null for none
    "time_s": "float64",  # mean of a launch, with the movements and overheads before it
    "kernel_s": "float64",  # of these the kernels alone
    "signature": "binary",  # of its first kernel
    "signatures": "int32",  # different ones among its kernels
}
"""Columns of the table of kernels; times and signatures are null where nothing was measured."""

MEASURED: Final = "measured"
"""The outcome of a setting that could be measured."""
