"""The package as others install and import it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

import autoturbo
import autoturbo.plugin

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
USING = (ROOT / "docs" / "using.md").read_text(encoding="utf-8")

PUBLIC = {
    "CostModelSampler": "autoturbo.search.samplers",
    "Graph": "autoturbo.graph.operators",
    "Knobs": "autoturbo.schedule.knobs.candidate",
    "Measurement": "autoturbo.simulator.measurement",
    "Target": "autoturbo.hardware.target",
    "__version__": None,
    "apply_schedule": "autoturbo.commands.schedules.writing",
    "compare": "autoturbo.library.analysis",
    "errors": None,
    "explain": "autoturbo.library.analysis",
    "inspect": "autoturbo.library.analysis",
    "load_machine": "autoturbo.hardware.machine_files",
    "load_model": "autoturbo.commands.loading",
    "load_runner": "autoturbo.host.files",
    "load_schedule": "autoturbo.schedule.files",
    "load_target": "autoturbo.hardware.presets",
    "resume": "autoturbo.library.runs",
    "simulate": "autoturbo.library.analysis",
    "sweep": "autoturbo.library.runs",
    "testing": None,
    "tune": "autoturbo.library.runs",
    "verify": "autoturbo.library.analysis",
    "verify_schedule": "autoturbo.verifier",
}


PLUGIN = {
    "COST_MODELS", "MEASURERS", "SAMPLERS", "SCHEDULERS", "TARGETS", "CandidateEvaluator",
    "Example", "Failure", "KernelModel", "Kernels", "Knobs", "ModelStart",
    "LowerBound", "Measurement",
    "Measurer", "MeasurerInfo", "TimedMeasurer", "measurement_of", "Outcome", "Proposer",
    "Reading",
    "Registry", "Schedule", "SubGraphKnobs", "Target", "ModelScheduler", "build_schedule",
    "kernels_text", "lower_bound",
}  # fmt: skip


def fenced(marker: str) -> str:
    """The code block behind a marker, of the README or of docs/using.md."""
    found = re.search(rf"<!-- {marker} -->\n```\w*\n(.*?)```", README + USING, re.DOTALL)
    assert found is not None, marker
    return found[1].strip()


def test_the_public_surface() -> None:
    assert autoturbo.__all__ == sorted(PUBLIC)
    for name, home in PUBLIC.items():
        value = getattr(autoturbo, name)
        assert getattr(value, "__module__", None) == home, name


def test_the_public_surface_for_plug_ins() -> None:
    assert set(autoturbo.plugin.__all__) == PLUGIN
    assert len(autoturbo.plugin.__all__) == len(PLUGIN)


def test_every_public_name_is_documented_and_listed() -> None:
    assert set(PUBLIC) <= set(dir(autoturbo))
    for name in set(PUBLIC) - {"__version__"}:
        assert getattr(autoturbo, name).__doc__, name


def test_star_import() -> None:
    names: dict[str, object] = {}
    exec("from autoturbo import *", names)  # noqa: S102 - the statement is what is tested
    assert set(PUBLIC) <= set(names)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'tuna'"):
        _ = autoturbo.tuna
    with pytest.raises(ImportError):
        exec("from autoturbo import tuna")  # noqa: S102


def test_submodules_are_still_importable_as_attributes() -> None:
    import autoturbo.errors

    assert autoturbo.errors.UsageError.exit_status == 2


def is_editable() -> bool:
    origin = json.loads(distribution("autoturbo").read_text("direct_url.json") or "{}")
    return bool(origin.get("dir_info", {}).get("editable"))


@pytest.mark.skipif(is_editable(), reason="only where pip copied it")
def test_it_is_the_installed_package_that_is_tested() -> None:
    assert ROOT not in Path(autoturbo.__file__).resolve().parents or ".venv" in autoturbo.__file__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as pip does but with the back end that is installed here."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return folder


def test_what_is_in_the_wheel(wheel: Path) -> None:
    (file,) = wheel.glob("*.whl")
    assert file.name == f"autoturbo-{autoturbo.__version__}-py3-none-any.whl"
    names = set(zipfile.ZipFile(file).namelist())
    tops = {name.split("/")[0] for name in names}
    assert tops == {"autoturbo", f"autoturbo-{autoturbo.__version__}.dist-info"}
    assert "autoturbo/py.typed" in names
    assert "autoturbo/hardware/presets/stcp920.yaml" in names
    assert "autoturbo/data/datasets/workloads/resnet50.onnx" in names
    model = "autoturbo/data/cost_models/kernels"
    assert {f"{model}/card.json", f"{model}/factors.ubj"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [n for n in names if n.endswith((".weights.bin", ".pyc", ".nbi", ".nbc", ".db"))]
    sources = {str(f.relative_to(ROOT)) for f in (ROOT / "autoturbo").rglob("*.py")}
    assert sources <= names


@pytest.mark.full
def test_an_unpacked_wheel_finds_its_data(wheel: Path, tmp_path: Path) -> None:
    (file,) = wheel.glob("*.whl")
    zipfile.ZipFile(file).extractall(tmp_path)  # noqa: S202  it was built above
    code = (
        "from autoturbo.datasets import workloads; from autoturbo.cost_models import pretrained;"
        "print(workloads.get('resnet50').file, *pretrained.bundled().values())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    data = tmp_path / "autoturbo" / "data"
    expected = (data / "datasets/workloads/resnet50.onnx", data / "cost_models/kernels")
    assert done.stdout.split() == [str(path) for path in expected]
    assert all(path.exists() for path in expected)


@pytest.mark.full
def test_what_is_in_the_source_distribution(wheel: Path) -> None:
    (file,) = wheel.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"README.md", "LICENSE", "pyproject.toml", "tests/test_package.py"} <= names
    assert {"datasets/workloads/resnet50.onnx", "cost_models/kernels/card.json"} <= names


def test_the_readme_has_the_two_commands() -> None:
    assert fenced("command: tune").startswith("python3 -m venv .venv && .venv/bin/pip install .")
    model = fenced("command: tune").split()[-1]
    assert (ROOT / model).is_file()
    assert len(README.splitlines()) <= 100  # two screens
    assert fenced("command: test").endswith(".venv-test/bin/pytest -n auto")


def test_a_page_names_every_command() -> None:
    from autoturbo.commands.registry import COMMANDS

    table = USING.split("## Commands")[1].split("## Files")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    text = " ".join(rows)
    assert [name for name in COMMANDS if not re.search(rf"`{name}\b", text)] == []


def test_a_page_names_every_exit_status() -> None:
    from autoturbo import errors

    kinds = [k for k in vars(errors).values() if isinstance(k, type) and hasattr(k, "exit_status")]
    for status in {0, *(kind.exit_status for kind in kinds)}:
        assert f"\n| {status} | " in USING


@pytest.mark.full
def test_the_example_in_python_runs(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", fenced("example: python")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    latency, best = map(float, done.stdout.split())
    assert 0 < latency == pytest.approx(best)
    assert (tmp_path / "resnet50.stcp920.json").read_text().startswith('{\n"format"')


@pytest.mark.full
def test_the_readme_tuning_command_ends_with_the_table(tmp_path: Path) -> None:
    (tmp_path / "datasets").symlink_to(ROOT / "datasets")
    words = fenced("command: tune").split(".venv/bin/autoturbo ")[1].split()
    command = [sys.executable, "-m", "autoturbo", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    # a busy machine shows how far it is
    said = [line for line in done.stderr.splitlines() if " @ stcp920 | " not in line]
    assert (done.returncode, len(said)) == (0, 1), said
    assert "if it ends early, go on with: autoturbo resume " in said[0]
    assert "\ntuned " in done.stdout
    assert "\ngain " in done.stdout
    assert "\nnext " in done.stdout


def test_ci_runs_the_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    extract = re.search(r"command=\$\((awk .*? README\.md)\)", script)
    assert extract is not None
    found = subprocess.run(
        ["/bin/bash", "-c", extract[1]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == fenced("command: test")
