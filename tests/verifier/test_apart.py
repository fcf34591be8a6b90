"""Numbers are compared in a process of its own, with the same findings as in this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import pytest

from autoturbo.errors import ModelError
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.verifier.apart import check_numbers_apart
from autoturbo.verifier.numbers import check_numbers
from tests.verifier.verify_samples import Writer

if TYPE_CHECKING:
    from pathlib import Path

    from autoturbo.schedule.schedule import Schedule


def made(path: Path) -> Schedule:
    writer = Writer()
    last = writer.node("Relu", writer.linear("x", 8, 8))
    onnx.save(writer.model({"x": (4, 8)}, {last: (4, 8)}), path)
    scheduler = ModelScheduler(import_model(path), load_target("stcp920"), "float16")
    return build_schedule(scheduler, Knobs())


def test_the_same_as_in_this_process(tmp_path: Path) -> None:
    schedule = made(tmp_path / "net.onnx")
    apart = check_numbers_apart(schedule, tmp_path / "net.onnx", seed=3, whole=False)
    assert apart == check_numbers(schedule, tmp_path / "net.onnx", seed=3, whole=False)
    assert apart.skipped is None


def test_errors_of_the_child_are_raised_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import pickle, sys; pickle.load(sys.stdin.buffer); *_, out = pickle.load(sys.stdin.buffer)"
        "; from autoturbo.errors import ModelError as E; out.write_bytes(pickle.dumps(E('bad')))"
    )
    schedule = made(tmp_path / "net.onnx")
    monkeypatch.setattr("autoturbo.verifier.apart.CHILD", program)
    with pytest.raises(ModelError) as caught:
        check_numbers_apart(schedule, tmp_path / "net.onnx")
    assert caught.value.message == "bad"


@pytest.mark.parametrize(
    ("program", "end"),
    [
        ("import os; os.kill(os.getpid(), 11)", "with SIGSEGV"),
        ("raise SystemExit('no more memory')", "with status 1: no more memory"),
        ("raise SystemExit(3)", "with status 3"),
    ],
)
def test_a_child_that_dies_is_named(
    tmp_path: Path, program: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoturbo.verifier.apart.CHILD", program)
    found = check_numbers_apart(made(tmp_path / "net.onnx"), tmp_path / "net.onnx")
    assert found.skipped == f"the process that ran ONNX Runtime ended {end}"
    assert found.findings == ()
