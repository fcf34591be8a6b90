"""Tuning: one run, several together, sweeps over targets."""
