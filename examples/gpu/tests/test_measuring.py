"""The measurers, the intervals and tables of the case study, and its rehearsal."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from autoturbo_gpu import case_study, measurer, models, products, targets
from conftest import HAS_GPU
from onnx import numpy_helper
from small_models import MODELS

from autoturbo.api import load_model, load_target, simulate, tune
from autoturbo.errors import AutoTurboError
from autoturbo.plugin import Knobs, ModelScheduler, build_schedule
from autoturbo.testing import check_measurer

pytest.importorskip("triton")
torch = pytest.importorskip("torch")

from autoturbo_gpu import baselines, timing  # noqa: E402
from autoturbo_gpu.plan import plan_of  # noqa: E402
from autoturbo_gpu.program import Program  # noqa: E402


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_without_a_gpu_each_schedule_fails_and_says_why(tmp_path: Path) -> None:
    onnx.save(MODELS["chain"](1), tmp_path / "net.onnx")
    model, target = load_model(tmp_path / "net.onnx"), load_target(targets.h100())
    with pytest.raises(AutoTurboError, match="PyTorch finds no GPU"):
        tune(model, target, measurer="cuda", trials=2, jobs=1, database=tmp_path / "runs.db",
             runs_folder=tmp_path, progress=False)  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-m", "autoturbo_gpu.case_study"], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "error: PyTorch finds no GPU; --rehearse goes without a card\n"


@pytest.mark.parametrize("module", ["case_study", "products"])
def test_without_pytorch_it_is_one_line(tmp_path: Path, module: str) -> None:
    """Targets and models go without it; what runs says what to install."""
    (tmp_path / "torch.py").write_text("raise ImportError('none', name='torch')\n", "utf-8")
    arguments = ["--out", str(tmp_path / "out")]
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom autoturbo_gpu import {module}\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}raise SystemExit({module}.main({arguments!r}))"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), ran.stderr
    assert "torch is not installed: pip install 'autoturbo-gpu[gpu]'" in ran.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not HAS_GPU, reason="there is no GPU")
@pytest.mark.parametrize("kind", [measurer.Cuda, measurer.CudaCold])
def test_the_measurers_keep_the_contract(kind: type) -> None:
    check_measurer(kind)


def test_a_target_is_calibrated_with_measured_products(tmp_path: Path) -> None:
    """A card with other launches is told from the small products of such a table."""
    text = targets.h100().read_text("utf-8")
    assert "kernel_launch_us: 1.5" in text
    text = text.replace("kernel_launch_us: 1.5", "kernel_launch_us: 4.0")
    (tmp_path / "card.yaml").write_text(text, "utf-8")
    card = load_target(tmp_path / "card.yaml")

    def seconds_of(rows: int, depth: int, columns: int) -> float:
        onnx.save(models.product(rows, depth, columns), tmp_path / "product.onnx")
        return simulate(load_model(tmp_path / "product.onnx"), card).latency

    written = tmp_path / "products.csv"
    written.write_text(products.table(seconds_of, products.SHAPES[-5:]), "utf-8")
    fitted = tmp_path / "fitted.yaml"
    ran = subprocess.run(
        [sys.executable, "-m", "autoturbo", "targets", "calibrate", str(targets.h100()),
         "--measurements", str(written), "-o", str(fitted),
         "--fields", "overheads.kernel_launch_us"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = load_target(fitted)
    # the heuristic makes a product somewhat slower than the best grid of cores
    assert found.overheads.kernel_launch == pytest.approx(card.overheads.kernel_launch, rel=0.5)


def test_a_product_of_the_table_is_right(tmp_path: Path) -> None:
    onnx.save(models.product(37, 20, 45), tmp_path / "product.onnx")
    scheduler = ModelScheduler(
        load_model(tmp_path / "product.onnx"), load_target(targets.h100()), "float16"
    )
    program = Program(plan_of(build_schedule(scheduler, Knobs())), "cuda" if HAS_GPU else "cpu")
    x = np.random.default_rng(0).standard_normal((37, 20)).astype(np.float16)
    weight = numpy_helper.to_array(models.product(37, 20, 45).graph.initializer[0])
    found = program.answer({"input": x})["output"]
    assert found == pytest.approx(x.astype(np.float32) @ weight, abs=1e-2)


def test_conditions_are_kept_beside_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = timing.read_conditions("1980, 2619, 41, [N/A]\n")
    assert (found.sm_clock_mhz, found.memory_clock_mhz, found.temperature_c) == (1980, 2619, 41)
    assert math.isnan(found.power_w)
    log = tmp_path / "log.csv"
    for taken in ([3.0, 1.0, 2.0], [5.0]):
        measurer.note(log, taken, found)
    first, second = csv.DictReader(log.read_text("utf-8").splitlines())
    assert (first["median_s"], first["runs"], second["median_s"]) == ("2.0", "3", "5.0")
    assert first["sm_clock_mhz"] == "1980.0"
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    assert math.isnan(timing.conditions().temperature_c)


@pytest.mark.parametrize("count", [50, 51, 101])
def test_the_interval_of_a_median_holds_it_as_often_as_it_says(count: int) -> None:
    random = np.random.default_rng(0)
    samples = random.exponential(size=(2000, count))
    held = 0
    for sample in samples:
        low, high = case_study.median_interval(sample.tolist())
        held += low <= math.log(2) <= high
    assert 0.94 < held / 2000 < 0.985


def test_the_table_has_the_paper_s_figures_and_ratios_over_both_bases() -> None:
    def row(name: str, median: float) -> case_study.Timed:
        return case_study.Timed(name, median, 0.9 * median, 1.1 * median, 0.001)

    studies = [
        case_study.Study(
            "resnet18-tailor", batch,
            [row(baselines.PER_LAYER, base), row(baselines.PAIRS, 1.1e-3),
             row(baselines.SUBGRAPHS, 1e-3)],
            [("layer: relu1", 5e-4)],
        )
        for batch, base in ((64, 1.2e-3), (128, 1.3e-3))
    ]  # fmt: skip
    text = case_study.table(studies)
    assert "| sub-graphs | 0.83 | 1.50 | 2.83 | 5.44 |" in text
    assert f"| {baselines.PER_LAYER} | 1.200 (1.080 to 1.320) | 1.300 (1.170 to 1.430) |" in text
    assert f"'{baselines.PER_LAYER}': 1.20, 1.30; geometric mean 1.25" in text
    assert f"'{baselines.PAIRS}': 1.10, 1.10; geometric mean 1.10" in text
    assert "- 0.500 ms layer: relu1" in text


def test_numbers_that_are_not_close_end_the_study() -> None:
    def answering(name: str, values: list[float]) -> baselines.Row:
        return baselines.Row(name, lambda: None, lambda _: {"y": np.array(values)})

    right = answering(baselines.EAGER, [1.0, 2.0])
    near = answering(baselines.PAIRS, [1.01, 2.0])
    assert case_study.errors_of([right, near], {})[baselines.PAIRS] == pytest.approx(0.005)
    for wrong in ([1.2, 2.0], [math.nan, 2.0]):
        with pytest.raises(SystemExit, match="differ"):
            case_study.errors_of([right, answering(baselines.SUBGRAPHS, wrong)], {})


@pytest.mark.skipif(HAS_GPU, reason="the interpreter is for computers without one")
def test_the_rehearsal_goes_through_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert case_study.main(["--rehearse"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 * 4
    assert all("interpreter, no times" in line for line in lines)
