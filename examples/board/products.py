"""Asks the board how long matrix products take, and writes the table of a calibration.

    python products.py TARGET FOLDER

Each product is a model of one layer, scheduled as the published heuristic does it. The folder gets
models, schedules and ``board.csv``.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from statistics import median

import numpy as np
from my_board import MyBoard
from onnx import TensorProto, helper, numpy_helper, save

import autoturbo
from autoturbo.plugin import Knobs, ModelScheduler, build_schedule

ROWS = (16, 256, 2048)
INNER_AND_COLUMNS = ((256, 1024), (1024, 1024), (4096, 1024), (1024, 4096))
RUNS = 5


def product(file: Path, rows: int, inner: int, columns: int) -> None:
    """Write a model of one product of activations and weights."""
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [rows, inner]), ("y", [rows, columns]))
    ]
    weights = numpy_helper.from_array(np.zeros((inner, columns), np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "product", ends[:1], ends[1:], [weights])
    opsets = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), file)


def main() -> None:
    """Measure every product on the board."""
    board, target, folder = MyBoard(), autoturbo.load_target(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(exist_ok=True)
    with (folder / "board.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("model", "schedule", "latency_s"))
        for rows in ROWS:
            for inner, columns in INNER_AND_COLUMNS:
                model = folder / f"product-{rows}-{inner}-{columns}.onnx"
                product(model, rows, inner, columns)
                scheduler = ModelScheduler(autoturbo.load_model(model), target, "float16")
                schedule = build_schedule(scheduler, Knobs())
                schedule.save(model.with_suffix(".json"))
                seconds = median(board.run(board.build(schedule), RUNS))
                table.writerow((model.name, model.with_suffix(".json").name, seconds))


if __name__ == "__main__":
    main()
