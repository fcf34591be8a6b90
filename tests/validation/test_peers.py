"""Peers on their own machines: tables with sources, networks of known size, and what is found."""

from __future__ import annotations

import json

import peer_networks
import peers
import pytest
from product_traffic import PRODUCT, fewest_bytes, fused_bytes

from autoturbo.errors import UsageError
from autoturbo.graph.operators import Graph

ROWS = peers.results()
TRAFFIC = peers.traffic()


@pytest.mark.parametrize("name", sorted({row.machine for row in ROWS}))
def test_every_machine_of_the_table_is_a_target(name: str) -> None:
    target = peers.machine(name)
    assert target.name == name
    assert target.matrix.macs_per_cycle(peers.DTYPE) > 0


def test_no_machine_is_left_over() -> None:
    used = {row.machine.removesuffix(peers.IM2COL) for row in ROWS} | {"one-core"}
    assert {path.stem for path in peers.TARGETS.iterdir()} <= used


def test_every_figure_has_a_source() -> None:
    """What was run has the command that runs it again, where a command line does that."""
    for row in ROWS:
        assert row.source, row
        assert row.kind in peers.KINDS, row
        assert (row.kind == "none") == (row.cycles is None), row
        assert row.command or row.peer in {"Stream", "none"}, row
    assert all(row.source and row.kind in peers.KINDS for row in TRAFFIC)


def test_a_figure_is_no_better_than_its_bound() -> None:
    for row in ROWS:
        assert not (row.cycles and row.bound) or row.cycles >= row.bound, row
    for moved in TRAFFIC:
        assert moved.optimum >= moved.compulsory, moved
        assert moved.theorem is None or moved.optimum >= moved.theorem, moved


def test_soma_s_figures_stand_beside_both_versions_of_resnet() -> None:
    """v1 is what SoMa runs; v1.5 of the data set has 6 % more multiply-accumulates."""
    by_network = {
        name: {(r.machine, r.batch): r.cycles for r in ROWS if r.network == name and r.bound}
        for name in ("resnet50_v1", "resnet50")
    }
    assert by_network["resnet50_v1"] == by_network["resnet50"]
    assert len(by_network["resnet50"]) == 6
    v1, v15 = (peer_networks.network(name, 1).macs for name in ("resnet50_v1", "resnet50"))
    assert 1.05 < v15 / v1 < 1.07


# ----------------------------------------------------------------------------------------- networks


@pytest.mark.parametrize(
    ("name", "giga_macs", "million_weights"),
    [
        ("resnet50_v1", 3.86, 25.5),
        ("resnet101_v1", 7.57, 44.4),
        ("inception_v3", 5.71, 23.8),
        ("inception_resnet_v1", 6.21, 25.9),
        ("bert_block_128", 0.931, 7.08),
        ("gpt2_prefill_block_512", 4.03, 7.08),
        ("gpt2_decode_block_512", 0.00787, 7.08),
        ("gpt2_xl_prefill_block_1024", 34.8, 30.7),
    ],
)
def test_networks_have_the_work_that_is_known_of_them(
    name: str, giga_macs: float, million_weights: float
) -> None:
    graph = peer_networks.network(name, 1)
    assert graph.macs / 1e9 == pytest.approx(giga_macs, rel=0.005)
    assert _weights(graph) / 1e6 == pytest.approx(million_weights, rel=0.005)


def test_densenet_has_the_products_of_the_data_set_s() -> None:
    ours, theirs = (peer_networks.network(n, 1) for n in ("densenet121_plain", "densenet121"))
    assert ours.macs == theirs.macs


@pytest.mark.parametrize("name", list(peer_networks.BUILT))
def test_networks_have_any_batch(name: str) -> None:
    one, three = (peer_networks.network(name, batch) for batch in (1, 3))
    assert three.macs == 3 * one.macs
    assert _weights(three) == _weights(one)


def _weights(graph: Graph) -> int:
    return sum(tensor.elements for tensor in graph.tensors if tensor.constant)


def test_a_small_world_keeps_its_edges_and_has_no_circle() -> None:
    edges = peer_networks.small_world(10, 4, 0.75, seed=3)
    assert len(set(edges)) == 20
    assert all(0 <= a < b < 10 for a, b in edges)
    assert edges == peer_networks.small_world(10, 4, 0.75, seed=3)
    assert edges != peer_networks.small_world(10, 4, 0.75, seed=4)


def test_an_unrewired_small_world_is_a_ring() -> None:
    ring = peer_networks.small_world(6, 2, 0.0, seed=0)
    assert ring == [(0, 1), (0, 5), (1, 2), (2, 3), (3, 4), (4, 5)]


def test_an_unknown_network_or_machine_is_told() -> None:
    with pytest.raises(UsageError):
        peer_networks.network("resnet_101", 1)
    with pytest.raises(UsageError):
        peers.machine("soma")


# ------------------------------------------------------------------------------------------- tables


def test_buffers_of_any_size_are_split_as_the_file_s() -> None:
    for kib in (16, 512, 2048):
        buffer = peers.one_core(kib).lb
        assert buffer.capacity == 3 * buffer.weight_capacity == kib * 768
    assert peers.one_core(512).lb == peers.machine("one-core").lb


def test_the_optimum_of_one_product_is_what_enumeration_finds() -> None:
    rows = [row for row in TRAFFIC if row.network.startswith("matmul_4096")]
    assert len(rows) == 6
    for row in rows:
        found = fewest_bytes(*PRODUCT, row.buffer_kib * 1024) / peers.MIB
        assert found == pytest.approx(row.optimum, abs=0.5), row


def test_the_optimum_of_the_chain_is_what_its_rows_need() -> None:
    """Fused, nine groups of rows read all weights: eight would leave no room for a slice."""
    unfused, fused = (row.optimum for row in TRAFFIC if row.network == "matmul_chain")
    rows, width, inner = PRODUCT
    buffer = 512 * 1024
    sides = ((width, inner), (inner, width))
    assert unfused * peers.MIB == 2 * sum(fewest_bytes(rows, *both, buffer) for both in sides)
    assert fused * peers.MIB == fused_bytes(rows, width, inner, 2, buffer)


def test_a_product_moves_its_operands_once_where_all_fit_and_each_time_where_none_does() -> None:
    assert fewest_bytes(4, 6, 8, 200) == 4 * 6 + 6 * 8 + 4 * 8
    assert fewest_bytes(4, 6, 8, 3) == 4 * 6 * 8 * 2 + 4 * 8  # one element of each


def test_fewer_bytes_than_the_optimum_are_called_impossible() -> None:
    row = TRAFFIC[0]
    assert peers.traffic_cells(row, row.optimum)[-1] == "1.00"
    assert peers.traffic_cells(row, 0.5 * row.optimum)[-1] == "0.50 impossible"


def test_means_are_of_rows_with_a_figure_for_the_same_work() -> None:
    final = [row for row in ROWS if row.peer == "SoMa" and row.what == "final"]
    known = [row for row in final if row.cycles and row.same_work][:2]
    others = [next(row for row in final if row.cycles is None),
              next(row for row in final if not row.same_work)]  # fmt: skip
    pairs = [(row, peers.Ours(factor * (row.cycles or 0), 1.0, 1.0, 1.0))
             for row, factor in zip(known, (0.5, 2.0), strict=True)]  # fmt: skip
    found = peers.means([*pairs, *((row, peers.Ours(1.0, 1.0, 1.0, 1.0)) for row in others)])
    assert list(found) == ["SoMa, final, run"]
    assert found["SoMa, final, run"] == pytest.approx((1.0, 2))


def test_rows_that_nobody_has_are_refused() -> None:
    with pytest.raises(UsageError, match="no row"):
        peers.main(["--peers", "SoMa", "--machines", "set-16"])


@pytest.mark.full
def test_one_row_and_one_of_traffic_are_run(capsys: pytest.CaptureFixture[str]) -> None:
    peers.main(["--networks", "bert_block_128,conv_chain", "--batches", "1", "--trials", "4",
                "--json"])  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    (row,), (moved,) = found["results"], found["traffic"]
    assert row["theirs"]["cycles"] == 491_904
    assert 0 < row["ours"]["bound"] <= row["ours"]["cycles"] < 2 * row["theirs"]["cycles"]
    assert moved["compulsory"] <= moved["ours"] * 1.001


@pytest.mark.full
@pytest.mark.parametrize(("batch", "kilocycles", "megabytes"), [(1, 1624, 27), (4, 3000, 31)])
def test_resnet_50_on_soma_s_edge_machine(batch: int, kilocycles: float, megabytes: float) -> None:
    """SoMa's own take 1,624, 2,639 and 9,153 kilocycles, of a ResNet with 6 % less work."""
    ours = peers.tuned("soma-edge", "resnet50", batch, peers.Search())
    assert ours.cycles <= kilocycles * 1e3
    assert ours.megabytes <= megabytes
