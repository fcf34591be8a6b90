"""Whole layers on processing units of several kinds: which unit runs what, and in which parts."""
