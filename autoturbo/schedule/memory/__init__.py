"""Buffers in time and space, and what kernels stream."""
