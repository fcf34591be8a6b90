"""A model's nodes at other extents than its file was made for: the samples of a pass."""

from __future__ import annotations

from pathlib import Path

from autoturbo.errors import ModelError, VerifyError
from autoturbo.graph.model_nodes import ModelNodes, load_nodes
from autoturbo.graph.operators import Graph

Shape = tuple[int, ...]


def input_shapes(graph: Graph) -> dict[str, Shape]:
    """Extents of a graph's inputs by name."""
    return {graph.tensors[t].name: graph.tensors[t].shape for t in graph.inputs}


def nodes_at(path: Path, graph: Graph, model: Graph) -> ModelNodes:
    """The nodes of a file at the extents of a graph.

    Args:
        path: the file.
        graph: the model for some samples.
        model: the whole model, which can be read from the file.

    Raises:
        ModelError: the file is not usable.
        VerifyError: it is, but not for so many samples: they cannot be followed through its
            constants.
    """
    try:
        return load_nodes(path, shapes=input_shapes(graph), values=dict(model.given))
    except ModelError as error:
        if graph.batch == model.batch:
            raise
        why = f"{error.at}: {error.message}"
        message = f"the model cannot be written for {graph.batch} samples: {why}"
        raise VerifyError(message, hint=error.hint) from None
