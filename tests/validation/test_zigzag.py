"""The comparison with ZigZag: what it must show, and that it can show the opposite."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import zigzag
from mappers import REFERENCES, Errors, Program, rank_correlation, read_table

from autoturbo.errors import UsageError

pytestmark = pytest.mark.full


LAYERS = [
    zigzag.layer_of(row) for row in read_table(REFERENCES / "zigzag_layers.csv", zigzag.COLUMNS)
]
POSSIBLE = [layer for layer in LAYERS if not layer.impossible]
RESULTS = Path(__file__).parents[2] / "docs" / "results.md"
PAGE = " ".join(RESULTS.read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def errors() -> dict[str, Errors]:
    results = {layer: zigzag.compare(layer) for layer in dict.fromkeys(POSSIBLE)}
    return zigzag.summary([(layer, results[layer]) for layer in POSSIBLE])


def test_the_reference_is_whole() -> None:
    assert len(LAYERS) == 73
    assert len(LAYERS) - len(POSSIBLE) == 10


def test_ideal_temporal_cycles_are_exact(errors: dict[str, Errors]) -> None:
    assert errors["temporal"].worst < 1e-9


def test_tiles_cost_the_array_little(errors: dict[str, Errors]) -> None:
    assert errors["busy"].median < 0.02


def test_the_same_mapping_takes_the_same_time(errors: dict[str, Errors]) -> None:
    assert errors["replayed"].mean < 0.05
    assert errors["replayed"].median < 0.03
    assert errors["replayed"].worst < 0.15
    assert errors["replayed"].rank > 0.98


def test_our_schedules_are_of_the_same_speed(errors: dict[str, Errors]) -> None:
    assert errors["scheduled"].mean < 0.12
    assert errors["scheduled"].median < 0.05
    assert errors["scheduled"].rank > 0.97


@pytest.mark.parametrize("question", ["temporal", "replayed", "scheduled"])
def test_the_page_says_what_comes_out(errors: dict[str, Errors], question: str) -> None:
    found = errors[question]
    shares = " ".join(f"{100 * x:.1f} %" for x in (found.mean, found.median, found.worst))
    assert f" {found.rows} {shares} {found.rank:.3f} " in PAGE


def test_an_impossible_row_is_known_by_its_port() -> None:
    layer = POSSIBLE[0]
    least = (layer.read + layer.written) / layer.bits_per_cycle
    assert not dataclasses.replace(layer, total=least).impossible
    assert dataclasses.replace(layer, total=least - 1).impossible


def test_weights_are_cut_where_the_mapping_cuts_them() -> None:
    layer = dataclasses.replace(POSSIBLE[0], mapping="O: C2 | K3; W: C2 OY7 K4 | K2 | K5; I: C2")
    assert zigzag.weight_parts(layer) == 40
    layer = dataclasses.replace(layer, mapping="W: K2 C2 | K4 OX3")
    assert zigzag.weight_parts(layer) == 1


def test_a_slower_port_replays_slower() -> None:
    layer = POSSIBLE[0]
    ddr = dataclasses.replace(layer.target.ddr, bandwidth=layer.target.ddr.bandwidth / 8)
    slow = dataclasses.replace(layer.target, ddr=ddr)
    assert zigzag.replay(dataclasses.replace(layer, target=slow)) > 1.1 * zigzag.replay(layer)


def test_a_program_written_by_hand() -> None:
    target = POSSIBLE[0].target
    program = Program()
    loaded = program.load(3200)  # 100 cycles
    done = program.product(10, 32, 32, loaded)  # 10 cycles
    program.store(320, done)  # 10 cycles
    assert program.run(target, "int8").seconds == pytest.approx(120e-9)


def test_figures_of_errors() -> None:
    found = Errors.of([1.1, 0.8, 1.0], [1.0, 1.0, 2.0])
    assert (found.mean, found.median, found.worst) == pytest.approx((0.8 / 3, 0.2, 0.5))
    assert found.bias == pytest.approx(-0.2)
    assert rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)


@pytest.mark.parametrize("text", [None, "", "hardware,model\na,b\n"])
def test_a_table_of_another_kind_is_refused(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "table.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_table(path, zigzag.COLUMNS)
    assert caught.value.at.file == path


def test_hardware_without_a_target_is_refused() -> None:
    row = read_table(REFERENCES / "zigzag_layers.csv", zigzag.COLUMNS)[0]
    with pytest.raises(UsageError) as caught:
        zigzag.layer_of({**row, "hardware": "meta_prototype.yaml"})
    assert caught.value.at.field == "hardware"


def test_a_figure_that_is_missing_is_named() -> None:
    row = read_table(REFERENCES / "zigzag_layers.csv", zigzag.COLUMNS)[0]
    with pytest.raises(UsageError) as caught:
        zigzag.layer_of({**row, "latency_total_cycles": ""})
    assert caught.value.at.field == "latency_total_cycles"


def test_groups_are_products_of_their_own() -> None:
    row = read_table(REFERENCES / "zigzag_layers.csv", zigzag.COLUMNS)[0]
    figures = {"K": "1", "C": "1", "G": "24", "OY": "8", "OX": "8", "IY": "8", "IX": "8"}
    more = {"FY": "3", "FX": "3", "stride_y": "1", "stride_x": "1", "pads": "1 1 1 1"}
    layer = zigzag.layer_of({**row, **figures, **more})
    assert zigzag.compare(layer).temporal == 24 * 64 * 9
