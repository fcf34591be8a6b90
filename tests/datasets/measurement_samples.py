"""Small data sets, and samplers that cost nothing."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, save

from autoturbo.datasets.measurements import Collection, parts_of
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target, load_target
from autoturbo.schedule.knobs import AUTO, Knobs

CHOICES = (
    ("prefetch_depth", (AUTO, 2, 3)),
    ("output_scope", (AUTO, "GB", "DDR")),
    ("max_layers", (AUTO, 1, 2)),
    ("batches_per_cluster", (AUTO, 2, 1)),  # 2 is too many for each of four clusters
    ("cluster_partitioning", (AUTO, "pipeline", "spatial")),
)


@dataclass(frozen=True)
class FewDraws:
    """All settings of a few knobs."""

    starts: Sequence[tuple[int, ...]] = ((0,) * len(CHOICES), (1,) * len(CHOICES))

    def random(self, rng: np.random.Generator, *, dense: bool) -> tuple[int, ...]:
        genes = rng.integers(0, 3, len(CHOICES)) * (1 if dense else rng.integers(0, 2))
        return tuple(genes.tolist())

    def mutant(
        self, rng: np.random.Generator, point: tuple[int, ...], rate: float
    ) -> tuple[int, ...]:
        genes = np.asarray(point)
        moved = rng.random(len(genes)) < rate
        moved[rng.integers(len(genes))] = True
        return tuple(np.where(moved, (genes + 1) % 3, genes).tolist())

    def knobs(self, point: tuple[int, ...]) -> Knobs:
        chosen = zip(CHOICES, point, strict=True)
        return Knobs.from_dict({name: values[index] for (name, values), index in chosen})


def few_draws(_graph: Graph, _target: Target, _dtype: str) -> FewDraws:
    return FewDraws()


def write_models(folder: Path) -> list[Path]:
    """Two chains of convolutions, of three layers and of four."""
    return [_chain(folder / f"chain{layers}.onnx", layers) for layers in (3, 4)]


def _chain(path: Path, layers: int) -> Path:
    shape, names = [4, 8, 16, 16], [f"x{i}" for i in range(layers + 1)]
    weights = [
        helper.make_tensor(f"w{i}", TensorProto.FLOAT, [8, 8, 3, 3], np.ones(576, np.float32))
        for i in range(layers)
    ]
    nodes = [
        helper.make_node("Conv", [a, f"w{i}"], [b], name=f"conv{i}", pads=[1, 1, 1, 1])
        for i, (a, b) in enumerate(itertools.pairwise(names))
    ]
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in (names[0], names[-1])
    ]
    graph = helper.make_graph(nodes, path.stem, ends[:1], ends[1:], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@functools.cache
def two_targets() -> tuple[tuple[Target, str], ...]:
    """One with four clusters, one with a single one."""
    return tuple((load_target(name), "float16") for name in ("stcp920", "ascend-910"))


def collection(folder: Path, settings: int = 16, seed: int = 0) -> Collection:
    """Two models on two targets; the models' files are made in a folder."""
    folder.mkdir(exist_ok=True)
    parts = parts_of(write_models(folder), (None,), two_targets())
    return Collection(parts, settings, seed, few_draws, {"command": "", "sampler": "few"})


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a data set."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(files)}
