"""Labels of layers: alike where the layers and what lies around them are, whatever the batch."""

from __future__ import annotations

import pytest

from autoturbo.graph.layers import layers_of
from autoturbo.graph.operators import Graph
from autoturbo.search.warm_starts.transfer import RADII, layer_contexts
from tests.schedule.schedule_samples import Net, workload


def line(count: int, batch: int = 2, side: int = 8) -> Graph:
    """Convolutions behind each other, each with its activation."""
    net = Net(x=(batch, 16, side, side))
    at = "x"
    for _ in range(count):
        at = net.relu(net.conv(at, 16))
    return net.graph()


def labels(graph: Graph) -> tuple[tuple[str, ...], ...]:
    return layer_contexts(graph, layers_of(graph))


def test_labels_go_from_the_widest_view_to_the_layer_alone() -> None:
    found = labels(line(9))
    assert {len(own) for own in found} == {RADII + 2}
    alone = [own[RADII] for own in found]
    assert len(set(alone)) == 1
    # in a line of nine, the ends are seen from all but the middle one within four steps
    assert len({own[0] for own in found}) == 9
    assert len({own[RADII - 1] for own in found}) == 3


@pytest.mark.parametrize("name", ["resnet18", "bert_base_s128"])
def test_labels_are_the_same_at_any_batch(name: str) -> None:
    assert labels(workload(name, 1)) == labels(workload(name, 4))


def test_a_larger_image_has_only_the_last_label_in_common() -> None:
    small, large = labels(line(4)), labels(line(4, side=16))
    assert [own[-1] for own in small] == [own[-1] for own in large]
    assert not {label for own in small for label in own[:-1]} & {
        label for own in large for label in own[:-1]
    }


def test_a_longer_line_shares_the_labels_of_what_is_far_from_its_ends() -> None:
    short, long = labels(line(9)), labels(line(20))
    assert long[0][0] == short[0][0]
    assert long[10][0] == short[4][0]
    assert long[10][0] == long[9][0]
