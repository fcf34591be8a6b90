"""What a schedule becomes on a GPU gives what ONNX Runtime gives for the model."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from autoturbo_gpu import models, targets
from conftest import HAS_GPU
from small_models import MODELS, Net

from autoturbo.api import load_model, load_target
from autoturbo.plugin import Knobs, ModelScheduler, Schedule, build_schedule

pytest.importorskip("triton")
pytest.importorskip("torch")

from autoturbo_gpu import plan as plans
from autoturbo_gpu.baselines import COMPILED, rows_of
from autoturbo_gpu.plan import Attended, Convolutions, NotLoweredError, Other, Plan, plan_of
from autoturbo_gpu.program import DoesNotFitError, Program

DEVICE = "cuda" if HAS_GPU else "cpu"

EDGE = Path(__file__).parents[2] / "targets" / "edge.yaml"

CLOSE = 1e-2
"""Largest difference over the largest output: FP16 between layers, sums in FP32."""


def small_chip(folder: Path) -> Path:
    """Return a chip whose buffers are so small that sub-graphs are split."""
    text = EDGE.read_text("utf-8")
    for size, smaller in (("kib: 256", "kib: 8"), ("kib: 128", "kib: 8"), ("kib: 2048", "kib: 32")):
        text = text.replace(size, smaller)
    path = folder / "small.yaml"
    path.write_text(text, "utf-8")
    return path


def scheduled(folder: Path, model: onnx.ModelProto, target: Path, **knobs: Any) -> Schedule:
    path = folder / "model.onnx"
    onnx.save(model, path)
    scheduler = ModelScheduler(load_model(path), load_target(target), "float16")
    return build_schedule(scheduler, Knobs(**knobs))


def assert_right(program: Program, path: Path) -> None:
    inputs = models.inputs_of(path)
    session = onnxruntime.InferenceSession(path)
    right = dict(
        zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True)
    )
    for name, values in program.answer(inputs).items():
        error = np.abs(values - right[name]).max() / np.abs(right[name]).max()
        assert error < CLOSE, name


def check(folder: Path, plan: Plan) -> Plan:
    assert_right(Program(plan, DEVICE), folder / "model.onnx")
    return plan


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("most_chained", [1, 2, 8])
def test_sub_graphs_give_what_the_model_gives(tmp_path: Path, name: str, most_chained: int) -> None:
    schedule = scheduled(tmp_path, MODELS[name](3), targets.h100())
    check(tmp_path, plan_of(schedule, most_chained))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch", [1, 4])
def test_instances_on_a_small_chip_give_it_too(tmp_path: Path, name: str, batch: int) -> None:
    schedule = scheduled(tmp_path, MODELS[name](batch), small_chip(tmp_path))
    check(tmp_path, plan_of(schedule))


def test_samples_in_passes_give_it_too(tmp_path: Path) -> None:
    schedule = scheduled(tmp_path, MODELS["residual"](6), targets.h100(), batches_per_cluster=2)
    plan = check(tmp_path, plan_of(schedule))
    assert (plan.samples, plan.pass_samples) == (6, 2)


def test_a_last_pass_that_is_not_full_takes_some_samples_again(tmp_path: Path) -> None:
    plan = plan_of(scheduled(tmp_path, MODELS["chain"](4), targets.h100()))
    turned = replace(
        plan, pass_samples=3, shapes={n: (3, *s[1:]) if s[:1] == (4,) else s
                                      for n, s in plan.shapes.items()},
        kernels=tuple(
            tuple(replace(step, region=((0, 3), *step.region[1:])) for step in steps)
            for steps in plan.kernels
        ),
    )  # fmt: skip
    check(tmp_path, turned)


def rows_asked(steps: tuple[plans.Step, ...]) -> set[tuple[int, int]]:
    return {step.region[2] for step in steps if len(step.region) == 4}


def test_a_sub_graph_in_parts_by_rows(tmp_path: Path) -> None:
    """Parts need rows of their neighbours, which they make again."""
    net = Net()
    y = net.conv(net.conv(net.conv("input", 8, 8), 8, 8), 8, 8, stride=2)
    schedule = scheduled(
        tmp_path, net.model([1, 8, 64, 24], y, [1, 8, 32, 12]), small_chip(tmp_path)
    )
    plan = check(tmp_path, plan_of(schedule))
    assert len(plan.kernels) > 1
    assert len(rows_asked(plan.steps)) > 1


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_a_chain_with_any_rows_in_a_program(tmp_path: Path, rows: int) -> None:
    plan = plan_of(scheduled(tmp_path, MODELS["chain"](2), targets.h100()))
    (step,) = plan.steps
    assert isinstance(step, Convolutions)
    assert len(step.layers) == 4
    check(tmp_path, replace(plan, kernels=((replace(step, rows=rows),),)))


def test_a_chain_that_does_not_fit_a_card_is_launched_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(scheduled(tmp_path, MODELS["chain"](2), targets.h100()))
    own = Program.fastest

    def tight(self: Program, key: Any, choices: Any, launch: Any) -> Any:
        if key[0] == "chain":
            raise DoesNotFitError("a chain does not fit")
        return own(self, key, choices, launch)

    monkeypatch.setattr(Program, "fastest", tight)
    program = Program(plan, DEVICE)
    assert len(program.launches) == 4
    assert_right(program, tmp_path / "model.onnx")


def test_what_goes_together(tmp_path: Path) -> None:
    """A residual ends a launch, attention is one, and what lies as it is wanted is not moved."""
    schedule = scheduled(tmp_path, MODELS["residual"](2), targets.h100())
    kinds = [type(step) for step in plan_of(schedule).steps]
    assert kinds.count(Convolutions) == 4  # alone, with a residual, three in a chain, a product
    schedule = scheduled(tmp_path, models.bert_attention(2, 16, 32, 2), targets.h100())
    plan = check(tmp_path, plan_of(schedule))
    assert sum(isinstance(step, Attended) for step in plan.steps) == 1
    program = Program(plan, DEVICE)
    moved = [launch.name for launch in program.launches]
    assert not [name for name in moved if name.startswith(("Transpose", "Reshape"))]
    apart = plan_of(schedule, most_chained=1)
    assert not [step for step in apart.steps if isinstance(step, Attended)]
    check(tmp_path, apart)


def test_a_feed_forward_is_one_launch(tmp_path: Path) -> None:
    schedule = scheduled(tmp_path, models.bert_feed_forward(2, 16, 32, 64), targets.h100())
    first, *rest = check(tmp_path, plan_of(schedule)).steps
    assert isinstance(first, Convolutions)
    assert (len(first.layers), first.layers[1].residual) == (2, "input")
    assert [type(step) for step in rest] == [Other]


def test_rows_of_the_case_study_agree(tmp_path: Path) -> None:
    schedule = scheduled(tmp_path, MODELS["residual"](2), targets.h100())
    scheduler = ModelScheduler(schedule.model, load_target(targets.h100()), "float16")
    for row in rows_of(scheduler, schedule, DEVICE, (COMPILED,)):
        assert_right(row, tmp_path / "model.onnx")  # type: ignore[arg-type]


def test_a_model_without_its_weights_runs_as_well(tmp_path: Path) -> None:
    """The workloads that come with AutoTurbo are stored so; weights beside a model are read."""
    path = tmp_path / "model.onnx"
    schedule = scheduled(tmp_path, MODELS["chain"](1), targets.h100())
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w", size_threshold=0)
    check(tmp_path, plan_of(schedule))
    (tmp_path / "w").unlink()
    (answer,) = Program(plan_of(schedule), DEVICE).answer(models.inputs_of(path)).values()
    assert np.isfinite(answer).all()
    assert np.abs(answer).max() > 0


def test_what_is_not_lowered_is_said(tmp_path: Path) -> None:
    net = Net()
    y = net.add("Softplus", net.conv("input", 8, 8))
    plan = plan_of(scheduled(tmp_path, net.model([1, 8, 9, 9], y, [1, 8, 9, 9]), targets.h100()))
    with pytest.raises(NotLoweredError, match="Softplus"):
        Program(plan, DEVICE)


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from autoturbo_gpu import kernels

LAYERS = ((28, 28, 64, 28, 28, 128, 3, 1, 1, 7, 256, 128, True, 1),
          (28, 28, 128, 28, 28, 32, 1, 1, 0, 7, 256, 32, True, 1),
          (28, 28, 32, 14, 14, 64, 3, 2, 1, 3, 64, 64, True, 1))
POINTERS = ("x", "weight", "residual", "y", "next_weight", "a", "b", "q", "k", "v", "mask")
CONSTANTS = {
    kernels.convolution: dict(
        IN_HEIGHT=28, IN_WIDTH=28, IN_CHANNELS=128, OUT_HEIGHT=28, OUT_WIDTH=28, OUT_CHANNELS=128,
        KERNEL_HEIGHT=3, KERNEL_WIDTH=3, STRIDE=1, PAD_TOP=1, PAD_LEFT=1, HAS_BIAS=True,
        HAS_RESIDUAL=True, ACTIVATION=1, POSITIONS=128, CHANNELS=128, DEPTH=64),
    kernels.chain: dict(LAYERS=LAYERS, DEPTH=64, HAS_RESIDUAL=False, LAST_CHANNELS=64),
    kernels.product: dict(ROWS=128, COLUMNS=128, DEPTH=32),
    kernels.attention: dict(HAS_MASK=True, SIZE=64, OUT_SIZE=64, ROWS=128, KEYS=64, BLOCK=64,
                            OUT_BLOCK=64),
    kernels.feed_forward: dict(
        WIDTH=768, INNER=3072, OUT=768, HAS_BIAS=True, ACTIVATION=2, NEXT_HAS_BIAS=True,
        HAS_RESIDUAL=True, NEXT_ACTIVATION=0, ROWS=32, INNERS=64, DEPTH=64, OUT_BLOCK=1024),
}
LARGEST = {80: 163 * 1024, 90: 227 * 1024}
for kernel, constants in CONSTANTS.items():
    signature = {name: "i32" for name in kernel.arg_names}
    signature |= {name: "*fp16" for name in kernel.arg_names if name in POINTERS}
    signature |= {name: "*fp32" for name in kernel.arg_names if name in ("bias", "next_bias")}
    signature |= {name: "constexpr" for name in constants}
    if "scale" in signature:
        signature["scale"] = "fp32"
    if "weights" in signature:
        signature |= {"weights": ("*fp16",) * 3, "biases": ("*fp32",) * 3}
    for card, most in LARGEST.items():
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
        made = triton.compile(source, target=GPUTarget("cuda", card, 32),
                              options={"num_warps": 8, "num_stages": 2})
        assert made.metadata.shared <= most, (kernel, card, made.metadata.shared)
        print(kernel.__name__, card, made.metadata.shared)
"""


def test_kernels_compile_for_the_cards_and_fit_them() -> None:
    """It takes no GPU: Triton has NVIDIA's assembler with it."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    ran = subprocess.run(
        [sys.executable, "-c", COMPILE], capture_output=True, text=True, check=False,
        env=environment,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) == 10
