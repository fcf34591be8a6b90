"""Operators whose constants may have the file's batch in them, by how they read them."""

from __future__ import annotations

from autoturbo.graph.operator_table.build import MICROSOFT

COMBINES = frozenset(
    ("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum", "Mean", "Where", "Mod", "PRelu",
     "And", "Or", "Xor", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
)  # fmt: skip
"""Operators that broadcast their operands."""

INDEXED = frozenset(("Gather", "GatherND", "GatherElements", "ScatterElements", "Scatter"))
"""Operators whose constant indices may count the samples."""

ALIGNED = COMBINES | {"Concat", "MatMul"}
"""Operators whose operands agree in their dimensions, counted from the last."""

ROTATES = "RotaryEmbedding"
"""Its constants per sample, positions or angles, have the samples in front; ONNX's own and
Microsoft's are alike in that."""

STATES = {"LSTM": (4, 5, 6), "GRU": (4, 5), "RNN": (4, 5)}
"""Inputs of a recurrence that may be constants per sample: lengths of the sequences, states."""

REPEATS = ALIGNED | INDEXED | STATES.keys() | {ROTATES, f"{MICROSOFT}.{ROTATES}"}
"""Operators whose constants are repeated for another batch where they have the file's in them."""
