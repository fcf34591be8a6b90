"""What a schedule is compared with, in the same run: launches per layer, cuDNN, pairs.

All run the same model in FP16 with the same inputs, and all are recorded as CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from autoturbo.plugin import ModelScheduler, Schedule
from autoturbo_gpu.operators import CARRIED_OUT
from autoturbo_gpu.plan import Plan, permutation, plan_of, plan_of_model
from autoturbo_gpu.program import Program, Recordable

PER_LAYER, EAGER, COMPILED, PAIRS, SUBGRAPHS = (
    "a kernel per layer, ours", "cuDNN, PyTorch eager", "cuDNN, PyTorch compiled",
    "at most two layers in a kernel", "the schedule's sub-graphs",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """Something that runs the model.

    Attributes:
        name: In the table.
        run: Launches it once, for all samples.
        answer: Returns the outputs for inputs.
        launches: Kernels and operators of a run; 0 where PyTorch decides that.
    """

    name: str
    run: Callable[[], None]
    answer: Callable[[Mapping[str, NDArray[Any]]], dict[str, NDArray[Any]]]
    launches: int = 0


class OnPyTorch(Recordable):
    """A model run by PyTorch's own operators, one after another.

    Args:
        plan: Any plan of the model, for its operators and weights.
        device: ``"cuda"`` or ``"cpu"``.
        compiled: Whether PyTorch compiles the whole.
    """

    def __init__(self, plan: Plan, device: str, *, compiled: bool = False) -> None:
        self.plan, self.device = plan, device
        self.weights = {n: self._there(np.asarray(v)) for n, v in plan.weights.items()}
        self.inputs = {
            name: self._there(np.zeros((plan.samples, *plan.shapes[name][1:]), np.float32))
            for name in plan.inputs
        }
        self.outputs: dict[str, torch.Tensor] = {}
        # settings of operators are constants of the model, so that the whole is one graph
        self._forward = (
            torch.compile(self._all, mode="max-autotune-no-cudagraphs") if compiled else self._all
        )

    def _there(self, values: NDArray[Any]) -> torch.Tensor:
        tensor = torch.from_numpy(np.array(values)).to(self.device, torch.float16)
        return tensor.to(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor

    def _all(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        here = {**self.weights, **inputs}
        for operator in self.plan.operators:
            given = [here[name] for name in operator.inputs]
            if operator.kind == "MatMul":
                made = given[0] @ given[1]
            elif operator.kind == "Transpose":
                made = given[0].permute(permutation(operator, given[0].dim()))
            elif operator.kind in CARRIED_OUT:
                made = CARRIED_OUT[operator.kind](operator, given)
            else:  # views, at all samples in place of a pass's
                shape = self.plan.shapes[operator.outputs[0]]
                made = given[0].reshape(self.plan.samples, *shape[1:])
            here[operator.outputs[0]] = made
        return {name: here[name] for name in self.plan.outputs}

    def launch(self) -> None:
        """Launch everything once; on a GPU without waiting for it."""
        with torch.no_grad():
            self.outputs = self._forward(self.inputs)


def rows_of(
    scheduler: ModelScheduler, tuned: Schedule, device: str, left_out: Iterable[str] = ()
) -> list[Row]:
    """Return the rows of a comparison, ready to run.

    Args:
        scheduler: Of the model, for the rows that have no schedule.
        tuned: The schedule that is compared.
        device: ``"cuda"`` or ``"cpu"``.
        left_out: Names of rows.
    """
    rows = []
    for name in (PER_LAYER, EAGER, COMPILED, PAIRS, SUBGRAPHS):
        if name not in left_out:
            one = _running(name, scheduler, tuned, device)
            one.record()
            count = len(one.launches) if isinstance(one, Program) else 0
            rows.append(Row(name, one.run, one.answer, count))
    return rows


def _running(name: str, scheduler: ModelScheduler, tuned: Schedule, device: str) -> Recordable:
    if name == SUBGRAPHS:
        return Program(plan_of(tuned), device)
    plan = plan_of_model(scheduler, most_chained=2 if name == PAIRS else 1)
    if name in (EAGER, COMPILED):
        return OnPyTorch(plan, device, compiled=name == COMPILED)
    return Program(plan, device)
