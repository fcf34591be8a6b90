"""Parts in order, on cores, with what moves between them: Algorithms 3 and 4."""
