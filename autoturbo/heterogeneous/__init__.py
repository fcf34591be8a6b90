"""Machines of several kinds of processing units: assignments, timetables, and their search."""
