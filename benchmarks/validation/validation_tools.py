"""What the comparisons share: reference tables, layers imported from ONNX."""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto, helper, save

from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph

REFERENCES = Path(__file__).parent / "references"


def reference_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a reference table."""
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def chosen_reference(doc: str, name: str) -> Path:
    """Return the table that the command line names, or the copy in the repository."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    text = "another table of the same columns"
    parser.add_argument("--reference", type=Path, default=REFERENCES / name, help=text)
    chosen: Path = parser.parse_args().reference
    return chosen


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors of some rows: ours over the reference's, less one.

    Attributes:
        values: Signed, one per row.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Return the mean of the absolute errors."""
        return statistics.fmean(map(abs, self.values))

    @property
    def median(self) -> float:
        """Return the median of the absolute errors."""
        return statistics.median(map(abs, self.values))

    @property
    def worst(self) -> float:
        """Return the largest absolute error."""
        return max(map(abs, self.values))

    def line(self, name: str) -> str:
        """Return a summary for people."""
        if not self.values:
            return f"{name}: no rows"
        return (
            f"{name}: {len(self.values)} rows, absolute error mean {self.mean:.1%}, "
            f"median {self.median:.1%}, worst {self.worst:.1%}, "
            f"signed mean {statistics.fmean(self.values):+.1%}"
        )


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table with its numbers to the right."""
    lines = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        print("  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)).rstrip())


# Layers


def convolution(
    size: tuple[int, int], kernel: tuple[int, int], channels: int, filters: int, stride: int
) -> Graph:
    """Return a convolution of one sample whose last windows may reach over the edge, from ONNX."""
    out = [-(-(s - f) // stride) + 1 for s, f in zip(size, kernel, strict=True)]
    over = [(o - 1) * stride + f - s for o, s, f in zip(out, size, kernel, strict=True)]
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[stride, stride], pads=[0, 0, *over])
    return _layer(node, (1, channels, *size), (filters, channels, *kernel), (1, filters, *out))


def _layer(node: NodeProto, x: Sequence[int], w: Sequence[int], y: Sequence[int]) -> Graph:
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=w)
    weights.data_location = TensorProto.EXTERNAL  # importing reads no weights: the file may lack
    weights.external_data.add(key="location", value="weights.bin")
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(x))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(y))]
    body = helper.make_graph([node], "layer", inputs, outputs, [weights])
    return _imported(helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)]))


def _imported(model: ModelProto) -> Graph:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        save(model, path)
        return import_model(path)
