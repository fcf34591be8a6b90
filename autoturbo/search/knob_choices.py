"""Which values of the model's knobs are worth trying, and which mean the published one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoturbo.schedule.knobs import AUTO, KnobSpec, Value

if TYPE_CHECKING:
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.target import Target


def batch_share(graph: Graph, target: Target) -> int:
    """Samples of the busiest cluster when the batch is shared out."""
    batch = max(graph.batch, 1)
    return -(-batch // min(target.clusters, batch))


def choices_of(
    name: str, spec: KnobSpec, share: int, layers: int, target: Target
) -> tuple[Value, ...]:
    """What is worth trying besides ``"auto"``."""
    choices = spec.choices
    if name == "batches_per_cluster":
        choices = tuple(b for b in range(share, 0, -1) if share % b == 0)
    if name == "cluster_split" and target.clusters == 1:
        choices = ()
    return tuple(c for c in choices if canonical(name, spec, c, share, layers) != AUTO)


def canonical(name: str, spec: KnobSpec, value: Value, share: int, layers: int) -> Value:
    """``"auto"`` for what means the same."""
    if value == AUTO:
        return AUTO
    if spec.low is None:  # a word that is not tried is the published one's name
        return value if value in spec.choices else AUTO
    number = float(value)
    if name == "batches_per_cluster":
        return AUTO if number == share else value
    if name == "max_layers":
        return AUTO if number >= layers else value
    published = _number(spec.published)
    if published is not None and number == published:
        return AUTO
    return next((choice for choice in spec.choices if choice == value), value)  # 2.0 is 2


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
