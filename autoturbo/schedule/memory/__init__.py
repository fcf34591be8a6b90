"""Buffers in time and space, and the streams of kernels."""
