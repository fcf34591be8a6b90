"""All layers of an instance in one kernel: its stages, and what tiles read of each other."""
