"""Proof that a schedule computes its model: regions, memory, and numbers in ONNX Runtime."""
