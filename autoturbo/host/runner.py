"""Runs batches as a plan says: ONNX Runtime's sessions bound to memory that is there beforehand.

A call takes views of buffers, so samples are cut and joined without a copy. Models of parts are
built once for each number of samples, and shared by workers of one thread each: ONNX Runtime then
runs a call in the thread that makes it.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from autoturbo.errors import UsageError, did_you_mean
from autoturbo.host.divided import DividedModel, Placement
from autoturbo.schedule.host_plan import HostPlan, HostSubGraph
from autoturbo.verifier.execution import (
    FATAL,
    open_session,
    plain_model,
    plain_options,
    runtime,
    session_of,
    takes,
    unrunnable,
)
from autoturbo.verifier.execution import run as run_session

if TYPE_CHECKING:
    import onnxruntime


Array = NDArray[Any]

_BESIDE = "session.model_external_initializers_file_folder_path"
"""The setting that says where files with weights are of a model that is not read from a file."""

_STOP_SPINNING = "session.force_spinning_stop"
"""The setting that lets threads of one session stop before another's begin."""


def runtime_version() -> str:
    """Return the name and the version of the runtime of models."""
    return f"onnxruntime {runtime().__version__}"


@dataclass(frozen=True, slots=True)
class _Key:
    """Key of a session: a part for some samples, its threads, and the worker that has it."""

    first: int
    stop: int
    samples: int
    threads: int
    alone: bool
    worker: int


@dataclass(eq=False)
class SessionCache:
    """Sessions of one model; those used least recently go first.

    Attributes:
        model: Whose parts they run.
        most: Sessions that are kept.
    """

    model: DividedModel
    most: int = 64
    _kept: OrderedDict[_Key, onnxruntime.InferenceSession] = field(default_factory=OrderedDict)

    def session(self, part: HostSubGraph, plan: HostPlan, worker: int) -> Any:
        """Return the session of a sub-graph for one worker.

        Raises:
            UnrunnableError: ONNX Runtime does not run the model.
        """
        # A session of one thread has no pool of threads, so workers may share it, and its weights.
        shared = plan.threads == 1
        alone = len(plan.subgraphs) == 1
        key = _Key(
            part.first, part.stop, part.samples, plan.threads, alone or shared,
            0 if shared else worker,
        )  # fmt: skip
        if key not in self._kept:
            self._kept[key] = self._made(key)
        self._kept.move_to_end(key)
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)
        return self._kept[key]

    def _made(self, key: _Key) -> Any:
        model = self.model.model_of(range(key.first, key.stop), key.samples)
        options = _options(key.threads)
        options.add_session_config_entry(_BESIDE, str(self.model.path.absolute().parent))
        # Threads that spin after their work would keep other sessions of the plan from the cores.
        if not key.alone:
            options.add_session_config_entry(_STOP_SPINNING, "1")
        return session_of(model, options, self.model.path)


def _options(threads: int) -> Any:
    """Return the options of a session: everything that makes it fast is on by default."""
    options = runtime().SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = FATAL
    if _shares_memory():
        options.add_session_config_entry("session.use_env_allocators", "1")
    return options


@functools.cache
def _shares_memory() -> bool:
    """Return whether all sessions of this process take memory from one pool, and let them.

    What a call has worked in is then in the cache when the next one gets it, whatever it runs:
    without this, a batch that runs in parts takes a tenth longer (MobileNet-v2, 32 samples).
    """
    found = runtime()
    pool = found.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    try:
        where = found.OrtMemoryInfo("Cpu", pool, 0, found.OrtMemType.DEFAULT)
        found.create_and_register_allocator(where, None)
    except Exception:  # noqa: BLE001 - its classes share no other base
        return False
    return True


def product_session(extent: int, threads: int) -> Callable[[], object]:
    """Return a function that multiplies two square matrices of float32.

    Args:
        extent: Extent of both sides of the matrices.
        threads: Threads that work on the product.
    """
    info = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [extent, extent]) for name in "abc"
    ]
    node = helper.make_node("MatMul", ["a", "b"], ["c"])
    graph = helper.make_graph([node], "product", info[:2], info[2:])
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = session_of(model.SerializeToString(), _options(threads), None)
    values = np.random.default_rng(0).standard_normal((2, extent, extent)).astype(np.float32)
    feeds = dict(zip("ab", values, strict=True))
    return lambda: session.run(None, feeds)


@dataclass(eq=False)
class Runner:
    """Runs batches of a model, one at a time.

    Write into :attr:`inputs`, call :meth:`run`, and read :attr:`outputs`: they are always the same
    arrays. Arrays that are handed to :meth:`run` are copied there.

    Attributes:
        model: The model that runs.
        plan: The plan by which a batch is divided.
        inputs: Inputs of the whole batch, by name.
        outputs: Outputs of the whole batch, by name.
    """

    model: DividedModel
    plan: HostPlan
    sessions: SessionCache
    inputs: dict[str, Array] = field(default_factory=dict)
    outputs: dict[str, Array] = field(default_factory=dict)
    _workers_own: list[dict[str, Array]] = field(default_factory=list)
    """What calls are bound to besides; it has to stay."""

    def __post_init__(self) -> None:
        batch, model = self.model.graph.batch, self.model
        run = range(self.plan.subgraphs[0].first, self.plan.subgraphs[-1].stop)
        inputs, outputs = model.inputs, model.outputs
        if len(run) < len(model.graph.operators):
            inputs = {place.name: place for place in model.inputs_of(run)}
            outputs = {place.name: place for place in model.outputs_of(run)}
        whole = (*inputs.values(), *outputs.values())
        memory = {place.name: np.zeros(place.shape, place.dtype) for place in whole}
        self.inputs = {name: memory[place.name] for name, place in inputs.items()}
        self.outputs = {name: memory[place.name] for name, place in outputs.items()}
        # In runs that follow each other, so that a worker stays in its own part of the memory.
        passes = np.array_split(np.arange(batch // self.plan.pass_samples), self.plan.workers)
        self._work = [
            self._bound(worker, passes[worker].tolist(), memory)
            for worker in range(self.plan.workers)
            if len(passes[worker])
        ]
        self._pool = ThreadPoolExecutor(len(self._work)) if len(self._work) > 1 else None

    def _bound(
        self, worker: int, passes: Sequence[int], memory: Mapping[str, Array]
    ) -> list[tuple[Any, Any]]:
        """Return the calls of a worker in order: sessions, and what they are bound to."""
        own: dict[str, Array] = {}
        self._workers_own.append(own)
        calls, work = list(self.plan.calls()), []
        sessions = [self.sessions.session(p, self.plan, worker) for p in self.plan.subgraphs]
        places = [
            (self.model.inputs_of(p.operators), self.model.outputs_of(p.operators))
            for p in self.plan.subgraphs
        ]
        for number in passes:
            begin = number * self.plan.pass_samples
            for index, done in calls:
                part, session = self.plan.subgraphs[index], sessions[index]
                binding = session.io_binding()
                for bind, placed in zip(
                    (binding.bind_ortvalue_input, binding.bind_ortvalue_output),
                    places[index], strict=True,
                ):  # fmt: skip
                    for place in placed:
                        if place.name in memory:
                            array, first = memory[place.name], begin + done
                        else:
                            array, first = self._own(place, own), done
                        bind(place.name, _value(array, place, first, part.samples))
                work.append((session, binding))
        return work

    def _own(self, place: Placement, own: dict[str, Array]) -> Array:
        """Return a worker's memory of a tensor for the samples of a pass."""
        if place.name not in own:
            own[place.name] = np.zeros(place.extents(self.plan.pass_samples), place.dtype)
        return own[place.name]

    def run(self, feeds: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Return the outputs of a batch, by name; they are overwritten by the next one.

        Args:
            feeds: An array for each input that changes; none where :attr:`inputs` are written to.

        Raises:
            UsageError: An input that the model does not have, or of other extents.
            UnrunnableError: ONNX Runtime fails.
        """  # noqa: DOC501  unrunnable() makes the error
        for name, array in (feeds or {}).items():
            self._fill(name, array)
        try:
            if self._pool is None:
                _made(self._work[0])
            else:
                # Gone through for the errors.
                for _ in self._pool.map(_made, self._work):
                    pass
        except Exception as error:  # noqa: BLE001 - ONNX Runtime's classes share no other base
            raise unrunnable(error, self.model.path) from None
        return self.outputs

    def _fill(self, name: str, array: Array) -> None:
        if name not in self.inputs:
            raise UsageError(f"no input is called {name!r}", hint=did_you_mean(name, self.inputs))
        mine, given = self.inputs[name], np.asarray(array)
        if given.shape != mine.shape:
            has, wants = list(given.shape), list(mine.shape)
            raise UsageError(f"input {name!r} has extents {has}, the model takes {wants}")
        if given is not mine:
            np.copyto(mine, given, casting="same_kind")

    def close(self) -> None:
        """End the threads of workers."""
        if self._pool is not None:
            self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def reference_outputs(model: DividedModel, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of the model's file for a batch, its nodes run as they are written.

    Raises:
        UnrunnableError: ONNX Runtime does not run the model.
    """
    if takes(model.proto, feeds):
        return run_session(open_session(model.path), feeds)
    batch, options = model.graph.batch, plain_options(runtime())
    options.add_session_config_entry(_BESIDE, str(model.path.absolute().parent))
    whole = model.nodes(batch)
    session = session_of(plain_model(whole).SerializeToString(), options, model.path)
    return run_session(session, feeds)


def _made(work: Iterable[tuple[Any, Any]]) -> None:
    """Make calls one after another."""
    for session, binding in work:
        session.run_with_iobinding(binding)


def _value(array: Array, place: Placement, first: int, samples: int) -> Any:
    """Return some samples of an array as a value of ONNX Runtime's: its memory, not a copy."""
    rows = array
    if place.dim >= 0:
        each = place.shape[place.dim] // place.batch
        at = (slice(None),) * place.dim
        rows = array[(*at, slice(first * each, (first + samples) * each))]
    return runtime().OrtValue.ortvalue_from_numpy(rows)
