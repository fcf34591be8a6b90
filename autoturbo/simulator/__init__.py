"""Measuring schedules: kernels engine by engine, then kernels in order."""
