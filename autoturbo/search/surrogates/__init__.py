"""Surrogate models of studies whose parameters have no structure, and what they propose."""
