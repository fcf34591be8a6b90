"""Models: ONNX import, the operator table, layers, batches. Knows no hardware."""
