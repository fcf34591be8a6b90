"""Warm starts: partitions by dynamic programming, and decisions from other models."""
