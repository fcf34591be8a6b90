"""Which layers run together, and into how many parts: Algorithms 1 and 2."""
