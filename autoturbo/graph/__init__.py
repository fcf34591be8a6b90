"""What is computed: ONNX import, the operator table, layers, batches. Knows no hardware."""
