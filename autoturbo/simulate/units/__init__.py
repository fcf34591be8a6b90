"""Kernels and transfers of several processing units in time."""
