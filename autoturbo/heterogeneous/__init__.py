"""Machines of several kinds of processing units: who runs what, when, and the search over it."""
