"""The numbers: a scheduled model against its original, on the same random inputs and weights.

The original file itself runs where it takes the batch that is checked; a batch that is written into
the file and too large to run whole is changed first, and the report says so. Weights are random in
either case: what a file holds may be zeros and ones that hide a mistake, or may not be there.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from autoturbo.errors import UnrunnableError, VerifyError
from autoturbo.graph.operators import Graph
from autoturbo.schedule.schedule import Schedule
from autoturbo.verify.compare import Comparison, described
from autoturbo.verify.findings import Check, Finding, Numbers
from autoturbo.verify.locate import compare_calls
from autoturbo.verify.passes import one_pass, passes_of
from autoturbo.verify.regional import RegionError
from autoturbo.verify.runs import BrokenModelError
from autoturbo.verify.scheduled_model import BuildError, ScheduledModel, scheduled_model
from autoturbo.verify.setting import Setting, prepare

MOST_BYTES = 4 << 30
"""Bytes of activations that may be alive at once where nothing else is said."""

MOST_MACS = 600 * 10**9
"""Multiply-accumulates of a model that is run whole: seconds to a minute on a few cores."""


def check_numbers(
    schedule: Schedule,
    path: str | Path,
    *,
    seed: int = 0,
    whole: bool | None = None,
    memory_bytes: int = MOST_BYTES,
    folder: Path | None = None,
) -> Numbers:
    """Run the original and the scheduled model side by side.

    Args:
        schedule: what to check.
        path: the model's file; values that it keeps elsewhere need not be there.
        seed: of inputs and weights.
        whole: run all samples, or only those of one pass with the same decisions; None runs all
            where memory and patience allow.
        memory_bytes: of activations that may be alive at once.
        folder: where weights and models are kept, for further checks of the same model with the
            same seed; a temporary one if None.

    Raises:
        ModelError: the file is not usable.
    """
    if whole is None:
        whole = fits_whole(schedule, memory_bytes)
    passes = passes_of(schedule) if whole else (one_pass(schedule),)
    samples = max(one.start + one.samples for one in passes)
    all_of_it = samples == schedule.model.batch
    with TemporaryDirectory(prefix="autoturbo-verify-") as temporary:
        try:
            setting = prepare(schedule, Path(path), folder or Path(temporary), passes, seed)
            model = scheduled_model(schedule, setting.nodes, passes)
            return compare_models(schedule, setting, model, seed)
        except (VerifyError, UnrunnableError) as error:
            return Numbers(samples, all_of_it, seed, None, skipped=str(error))
        except BuildError as error:
            finding = Finding(Check.NUMBERS, error.kind, str(error), error.instance)
        except RegionError as error:
            finding = Finding(Check.NUMBERS, "halo", str(error))
        return Numbers(samples, all_of_it, seed, None, findings=(finding,))


def fits_whole(schedule: Schedule, memory_bytes: int = MOST_BYTES) -> bool:
    """Whether all samples of the model can be run in reasonable time and memory."""
    model = schedule.model
    return model.macs <= MOST_MACS and 2 * live_bytes(model) <= memory_bytes


def live_bytes(graph: Graph) -> int:
    """Most bytes of activations that are alive at once, operator by operator, in float32."""
    last = {t: index for index, op in enumerate(graph.operators) for t in op.inputs}
    last |= dict.fromkeys(graph.outputs, len(graph.operators))
    alive = sum(_bytes(graph, t) for t in graph.inputs)
    most = alive
    for index, operator in enumerate(graph.operators):
        alive += sum(_bytes(graph, t) for t in operator.outputs)
        most = max(most, alive)
        dying = [t for t in {*operator.inputs, *operator.outputs} if last.get(t, index) == index]
        alive -= sum(_bytes(graph, t) for t in dying)
    return most


def _bytes(graph: Graph, tensor: int) -> int:
    one = graph.tensors[tensor]
    return 0 if one.constant else 4 * one.elements


def compare_models(
    schedule: Schedule, setting: Setting, model: ScheduledModel, seed: int
) -> Numbers:
    """Run a scheduled model beside what it is compared with.

    Raises:
        UnrunnableError: ONNX Runtime cannot run the original.
    """
    try:
        compared = compare_calls(schedule, setting, model)
    except BrokenModelError as error:
        finding = Finding(Check.NUMBERS, "cannot run", f"the original runs, but {error}")
        return Numbers(setting.samples, setting.whole, seed, None, findings=(finding,))
    wrong = tuple(_finding(one) for one in compared.outputs if not one.ok)
    return Numbers(
        setting.samples, setting.whole, seed, _largest(compared.outputs),
        tuple((one.name, one.difference, one.tolerance) for one in compared.outputs),
        wrong + compared.findings, remarks=_remarks(compared.outputs),
    )  # fmt: skip


def _finding(comparison: Comparison) -> Finding:
    return Finding(Check.NUMBERS, "difference", f"output {described(comparison)}")


def _remarks(found: tuple[Comparison, ...]) -> tuple[str, ...]:
    return tuple(f"output {one.name} {one.remark}" for one in found if one.ok and one.remark)


def _largest(found: tuple[Comparison, ...]) -> float | None:
    return max((one.max_abs_error for one in found), default=None)
