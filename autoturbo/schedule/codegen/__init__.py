"""Kernels: tiles, instructions, and loads over kernels."""
