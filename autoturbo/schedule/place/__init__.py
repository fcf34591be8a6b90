"""Order, binding and movement of parts: Algorithms 3 and 4."""
