"""Tuning for this computer: batches run by ONNX Runtime, every figure measured."""
