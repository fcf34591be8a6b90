"""Kernels: work, tiles and instructions."""
