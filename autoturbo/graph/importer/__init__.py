"""The way from a model file to a graph: read, checked, shaped, folded and put together."""
