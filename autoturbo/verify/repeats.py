"""Constants with the file's own batch written into them, for the samples at hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autoturbo.graph.model_nodes import Repeated
from autoturbo.verify.body import Body


def repeat(
    body: Body, constants: Iterable[Repeated], names: Mapping[str, str], start: int = 0
) -> None:
    """Write every constant for the samples that begin with ``start``.

    Args:
        body: where the nodes go.
        constants: which.
        names: per constant, how the value is to be called; its own name if it is not there.
        start: the first sample.
    """
    for constant in constants:
        indices = body.integers(constant.taken(start).tolist(), "samples")
        name = names.get(constant.name, constant.name)
        body.node("Gather", [constant.original, indices], [name], axis=constant.dim)
