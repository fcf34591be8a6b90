from __future__ import annotations

import dataclasses
import functools
import importlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from autoturbo.errors import ExecutorError, PluginError, UsageError
from autoturbo.extras import how_to_install
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.executors import (
    Executor,
    InProcessExecutor,
    ProcessExecutor,
    RayExecutor,
    Task,
    make_executor,
    measured,
    ray_actors,
    ray_session,
)
from autoturbo.search.executors.base import Answer, MakeEvaluator, guarded
from autoturbo.search.executors.lost_workers import ACQUITTED, RetryPolicy, lost
from autoturbo.search.executors.ray_cluster_watch import ClusterWatch
from autoturbo.search.executors.ray_session import Session, connect
from autoturbo.search.executors.remote import RemoteEvaluator
from autoturbo.search.executors.worker import HELD, PairCache
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, Measurement, Outcome
from autoturbo.simulator.outcomes import TIME_IS_UP, outcome_of
from autoturbo.testing.contract import small_networks
from tests.search.search_doubles import (
    Dying,
    DyingOnce,
    Hanging,
    Landscape,
    Raising,
    make_landscape,
    make_unbuildable,
    make_vanishing,
    measurement,
    toy_space,
)

SPACE = toy_space()
BATCH = [
    (n, SPACE.knobs_of(g))
    for n, g in enumerate(SPACE.neighbours((0,) * len(SPACE.dimensions))[:24].tolist(), 5)
]
POISON = (99, Knobs(prefetch_depth=2))
POOLS = [
    pytest.param(ProcessExecutor, id="processes"),
    pytest.param(RayExecutor, id="ray", marks=[pytest.mark.ray, pytest.mark.full]),
]


def build(kind: type, make: MakeEvaluator, jobs: int = 2, timeout: float | None = None) -> Executor:
    executor: Executor
    if kind is RayExecutor:
        OwnRay.start()
        executor = RayExecutor("local", jobs, timeout)
    else:
        executor = (
            InProcessExecutor() if kind is InProcessExecutor else ProcessExecutor(jobs, timeout)
        )
    executor.introduce("toy", make)
    return executor


def tasks(batch: list[tuple[int, Knobs]], pair: str = "toy") -> list[Task]:
    return [Task(pair, number, knobs) for number, knobs in batch]


def outcomes(executor: Executor, batch: list[tuple[int, Knobs]]) -> dict[int, Outcome]:
    found: dict[int, Outcome] = {}
    for answer in measured(executor, tasks(batch)):
        assert answer.pair == "toy"
        assert answer.number not in found
        found[answer.number] = answer.outcome
    assert not executor.busy
    return found


def expected() -> dict[int, Outcome]:
    land = Landscape()
    return {number: land.evaluate(knobs) for number, knobs in BATCH}


def descendants() -> set[int]:
    """Processes that this one started, and what they started."""
    return _below(os.getpid())


def _below(pid: int) -> set[int]:
    done = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, check=True, text=True)  # noqa: S607
    pairs = [line.split() for line in done.stdout.splitlines()]
    parents = {int(child): int(parent) for child, parent in pairs}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


class OwnRay:
    """A Ray of our own that the tests of this module share, started by the first that needs it."""

    session: ClassVar[Session | None] = None
    before: ClassVar[set[int]] = set()

    @classmethod
    def start(cls) -> None:
        if cls.session is None:
            cls.before = descendants()
            cls.session = connect("local", 2)
            assert cls.session.owner


@pytest.fixture(scope="module", autouse=True)
def _nothing_left() -> Iterator[None]:
    """At the end none of its processes is there.

    A worker that takes over tests of this module from another one comes to that end twice.
    """
    yield
    if OwnRay.session is None:
        return
    pids = {pid for pid in descendants() - OwnRay.before if "ray" in _name(pid)}
    names = [_name(pid) for pid in pids]
    session, OwnRay.session = OwnRay.session, None
    session.close()
    assert any("raylet" in name for name in names), names
    assert not ray_is_there()
    assert {pid for pid in pids if _alive(pid)} == set()


def ray_is_there() -> bool:
    ray: Any = importlib.import_module("ray")  # most of it is not annotated
    return bool(ray.is_initialized())


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def test_in_process_is_in_order() -> None:
    executor = build(InProcessExecutor, make_landscape)
    assert list(outcomes(executor, BATCH).items()) == list(expected().items())
    executor.close()


@pytest.mark.parametrize(
    ("kind", "jobs"),
    [
        pytest.param(ProcessExecutor, 1, id="processes-1", marks=pytest.mark.full),
        pytest.param(ProcessExecutor, 2, id="processes-2"),
        pytest.param(RayExecutor, 2, id="ray-2", marks=[pytest.mark.ray, pytest.mark.full]),
    ],
)
def test_pools_give_what_this_process_gives(kind: type, jobs: int) -> None:
    executor = build(kind, make_landscape, jobs)
    try:
        assert outcomes(executor, BATCH) == expected()
        assert outcomes(executor, BATCH[:3]) == dict(list(expected().items())[:3])
        assert outcomes(executor, []) == {}
    finally:
        executor.close()
        executor.close()


@pytest.mark.parametrize("kind", POOLS)
def test_a_setting_that_kills_its_worker_fails_after_two_tries(
    kind: type, capfd: pytest.CaptureFixture[str]
) -> None:
    executor = build(kind, Dying, 1)
    try:
        found = outcomes(executor, [*BATCH[:4], POISON, *BATCH[4:]])
        again = outcomes(executor, BATCH[:2])
    finally:
        executor.close()
    assert capfd.readouterr().out == ""
    failure = found.pop(99)
    assert isinstance(failure, Failure)
    assert (failure.reason, "2 times" in failure.message) == ("worker", True)
    ours = {n for n, k in BATCH if k.prefetch_depth == 2}
    assert {n: o for n, o in found.items() if n not in ours} == {
        n: o for n, o in expected().items() if n not in ours
    }
    assert len(again) == 2


@pytest.mark.full
@pytest.mark.parametrize("kind", POOLS)
def test_a_worker_that_dies_once_loses_nothing(kind: type, tmp_path: Path) -> None:
    executor = build(kind, functools.partial(DyingOnce, str(tmp_path / "mark")))
    try:
        found = outcomes(executor, [*BATCH[:4], POISON])
    finally:
        executor.close()
    assert found[99] == Landscape().evaluate(POISON[1])
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize("kind", POOLS)
def test_a_setting_that_hangs_is_given_up(kind: type) -> None:
    executor = build(kind, Hanging, timeout=3.0)
    try:
        found = outcomes(executor, [BATCH[0], POISON, BATCH[1]])
    finally:
        executor.close()
    assert found[99] == Failure("timeout", "not measured within 3 s")
    assert isinstance(found[5], Measurement)
    assert isinstance(found[6], Measurement)


@pytest.mark.parametrize("kind", POOLS)
def test_an_evaluator_that_cannot_be_built_is_one_line(kind: type) -> None:
    executor = build(kind, make_unbuildable)
    try:
        with pytest.raises(ExecutorError) as caught:
            outcomes(executor, BATCH)
    finally:
        executor.close()
    assert "\n" not in str(caught.value)


@pytest.mark.full
def test_workers_that_vanish_at_the_start_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoturbo.search.executors.worker_pool.STILLBORN", 4)
    executor = build(ProcessExecutor, make_vanishing, 1)
    with pytest.raises(ExecutorError):
        outcomes(executor, BATCH)
    executor.close()


@pytest.mark.full
def test_a_script_without_its_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(
        "from autoturbo.search.executors import ProcessExecutor, Task\n"
        "from autoturbo.schedule.knobs import Knobs\n"
        "pool = ProcessExecutor(1)\n"
        "pool.introduce('toy', dict)\n"
        "pool.put([Task('toy', 0, Knobs())])\n"
        "pool.take()\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert "in a script, call tune() under: if __name__ == '__main__'" in done.stderr


@pytest.mark.full
def test_a_recipe_that_cannot_be_sent_is_an_error() -> None:
    make = lambda: Landscape()  # noqa: E731, PLW0108  what cannot be pickled
    executor = build(ProcessExecutor, make, 1)
    with pytest.raises(ExecutorError):
        outcomes(executor, BATCH)
    executor.close()


@pytest.mark.parametrize("kind", POOLS)
def test_cancelling_begins_nothing_new(kind: type) -> None:
    executor = build(kind, make_landscape, 1)
    found = []
    many = [(n, BATCH[n % len(BATCH)][1]) for n in range(3000)]  # more than is ever on its way
    try:
        for answer in measured(executor, tasks(many)):
            found.append(answer.number)
            executor.cancel()
        assert 1 <= len(found) < len(many)
        assert outcomes(executor, BATCH) == {}
    finally:
        executor.close()


@pytest.mark.parametrize("kind", POOLS)
def test_what_is_abandoned_is_ended(kind: type) -> None:
    executor = build(kind, Hanging, 1)
    try:
        assert len(outcomes(executor, BATCH[:1])) == 1
        executor.put(tasks([POISON, *BATCH[1:]]))
        assert executor.take(0.2) == []
        executor.abandon()
        assert (executor.busy, executor.take(0.2)) == (False, [])
        assert len(outcomes(executor, BATCH[:1])) == 1
    finally:
        executor.close()


@pytest.mark.parametrize("kind", [InProcessExecutor, *POOLS])
def test_a_pool_measures_schedules_for_the_tuner(kind: type) -> None:
    graph, target = small_networks()[0], load_target("stcp920")
    make = functools.partial(Evaluator, graph, target, "float16")
    executor = build(kind, make, 1)
    elsewhere = RemoteEvaluator("toy", executor)
    there, here = Evaluator(graph, target, "float16", elsewhere, elsewhere=True), make()
    try:
        for name in ("tvm", "graphturbo"):
            assert there.measure_scheduler(name) == here.measure_scheduler(name)
        elsewhere.end_by(time.monotonic())
        there.until = time.monotonic()
        assert there.measure_scheduler("tvm") is TIME_IS_UP
        assert there.evaluate(Knobs()) is TIME_IS_UP
        assert there.schedule(Knobs()).expected is None
    finally:
        executor.close()


def test_what_a_pool_measures_too_long_is_ended() -> None:
    graph, target = small_networks()[0], load_target("stcp920")
    executor = build(
        ProcessExecutor, functools.partial(Evaluator, graph, target, "float16", Stuck()), 1
    )
    elsewhere = RemoteEvaluator("toy", executor)
    elsewhere.end_by(0.0, first=time.monotonic() + 1.0)
    there = Evaluator(graph, target, "float16", elsewhere, elsewhere=True)
    try:
        assert there.heuristic() == there.heuristic() == Knobs()
        assert there.measure_scheduler("graphturbo") is TIME_IS_UP
        assert not executor.busy
    finally:
        executor.close()


class Stuck:
    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        del schedules
        time.sleep(600)
        return []


def test_what_cannot_be_built_is_told_in_our_own_words() -> None:
    executor = build(ProcessExecutor, make_unplugged, 1)
    try:
        with pytest.raises(PluginError):
            outcomes(executor, BATCH)
    finally:
        executor.close()


def make_unplugged() -> Landscape:
    raise PluginError("the plug-in 'board' cannot be loaded", hint="mend it")


def test_cancelling_in_this_process() -> None:
    executor = build(InProcessExecutor, make_landscape)
    executor.put(tasks(BATCH))
    assert len(executor.take()) == 1
    executor.cancel()
    assert not executor.busy
    assert executor.take() == []


@pytest.mark.parametrize("kind", [InProcessExecutor, *POOLS])
def test_a_signal_may_cancel_in_the_middle_of_anything(kind: type) -> None:
    """A handler runs between any two steps: one after it was seen that a task waits, say."""
    executor = build(kind, make_landscape, 1)
    arrived = 0

    def watch(_: object, event: str, called: Any) -> None:
        nonlocal arrived
        takes = event == "c_call" and called.__name__ == "popleft"
        if takes and isinstance(next(iter(called.__self__), None), Task):
            arrived += 1
            executor.cancel()

    sys.setprofile(watch)
    try:
        found = list(measured(executor, tasks(BATCH)))
    finally:
        sys.setprofile(None)
        executor.close()
    assert arrived
    assert 1 <= len(found) < len(BATCH)


@pytest.mark.full
def test_closing_ends_workers_in_the_middle_of_a_measurement() -> None:
    executor = ProcessExecutor(2)
    executor.introduce("toy", Hanging)
    executor.put(tasks([BATCH[0], POISON]))
    assert [answer.number for answer in executor.take()] == [BATCH[0][0]]
    pids = [process.pid for process in multiprocessing.active_children()]
    assert pids
    executor.close()
    for pid in pids:
        assert pid is not None
        assert not Path(f"/proc/{pid}").exists()


@pytest.mark.full
def test_workers_leave_when_their_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import multiprocessing, sys; sys.path.append(sys.argv[1])\n"
        "from tests.search.search_doubles import Hanging\n"
        "from autoturbo.schedule.knobs import Knobs\n"
        "from autoturbo.search.executors import ProcessExecutor, Task\n"
        "if __name__ == '__main__':\n"
        "    pool = ProcessExecutor(1)\n"
        "    pool.introduce('toy', Hanging)\n"
        "    pool.put([Task('toy', 0, Knobs()), Task('toy', 1, Knobs(prefetch_depth=2))])\n"
        "    pool.take()\n"
        "    print(multiprocessing.active_children()[0].pid, flush=True)\n"
        "    pool.take()\n"
    )
    here = str(Path(__file__).parents[2])
    script = tmp_path / "driver.py"
    script.write_text(code)
    driver = subprocess.Popen(
        [sys.executable, str(script), here],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert driver.stdout is not None
    pid = int(driver.stdout.readline())
    driver.kill()
    driver.wait()
    driver.stdout.close()
    for _ in range(100):
        if not _alive(pid):
            return
        time.sleep(0.1)
    pytest.fail("the worker is still there")


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


class Returning(Landscape):
    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value

    def evaluate(self, knobs: Knobs) -> Outcome:
        del knobs
        return self.value  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3.5, "the measurer returned float"),
        (measurement(float("nan")), "nan as latency"),
        (measurement(-1.0), "-1.0 as latency"),
        (measurement(0.0), "0.0 as latency"),
        (dataclasses.replace(measurement(1.0), latency="fast"), "not a number"),  # type: ignore[arg-type]
        (measurement(1.0, (1.0, float("nan"))), "as subgraph_times"),
        (measurement(1.0, energy=float("inf")), "inf as energy"),
        (dataclasses.replace(measurement(1.0), latency=True), "True as latency"),
        (measurement(1e-30), "1e-30 s, below the lower bound of"),
    ],
)
def test_nonsense_is_a_failure(value: object, message: str) -> None:
    found = guarded(Returning(value), Knobs())
    assert isinstance(found, Failure)
    assert found.reason == "invalid"
    assert message in found.message


def test_an_exception_is_a_failure_on_one_line() -> None:
    found = guarded(Raising(), Knobs())
    assert found == Failure("raised", "the measurer raised RuntimeError: board on fire: {}")


class Unspeakable(Exception):  # noqa: N818  what a measurer may raise
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (SystemExit(0), "the measurer raised SystemExit: 0"),
        (Unspeakable(), "the measurer raised Unspeakable: a message that cannot be read"),
    ],
)
def test_whatever_a_measurer_raises_is_a_failure(raised: BaseException, said: str) -> None:
    def measure() -> object:
        raise raised

    assert outcome_of(measure) == Failure("raised", said)


def test_what_is_fine_is_handed_on() -> None:
    failure = Failure("DDR", "full")
    assert guarded(Returning(failure), Knobs()) is failure
    fine = measurement(1.0)
    assert guarded(Returning(fine), Knobs()) is fine


def test_numbers_of_numpy_are_numbers() -> None:
    times = tuple(np.asarray([0.25, 0.75], np.float32))
    given = measurement(1.0, times, energy=np.float64(2.0))
    found = guarded(Returning(dataclasses.replace(given, latency=np.float32(1.0))), Knobs())  # type: ignore[arg-type]
    assert found == measurement(1.0, (0.25, 0.75), energy=2.0)
    assert isinstance(found, Measurement)
    assert type(found.latency) is type(found.subgraph_times[0]) is float


def test_flags_choose_the_executor() -> None:
    assert isinstance(make_executor(), InProcessExecutor)
    assert isinstance(make_executor(jobs=2), ProcessExecutor)
    assert isinstance(make_executor(timeout_s=1.0), ProcessExecutor)
    assert isinstance(make_executor(apart=True), ProcessExecutor)


@pytest.mark.ray
@pytest.mark.parametrize(
    "address",
    ["bogus", "127.0.0.1:1", pytest.param("127.0.0.1:999999", marks=pytest.mark.full)],
)
def test_an_address_without_ray_is_one_line(address: str) -> None:
    with pytest.raises(UsageError, match=address) as caught:
        ray_session.probe(address)
    assert "\n" not in str(caught.value)


@pytest.mark.full
@pytest.mark.ray
def test_something_else_that_listens_is_not_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoturbo.search.executors.ray_session.HEALTH_S", 4.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepting = threading.Thread(target=_accept, args=(server,), daemon=True)
        accepting.start()
        with pytest.raises(UsageError):
            ray_session.probe(f"127.0.0.1:{server.getsockname()[1]}")
        server.shutdown(socket.SHUT_RDWR)
        accepting.join()


def _accept(server: socket.socket) -> None:
    try:
        while True:
            server.accept()[0].close()
    except OSError:
        return


@pytest.mark.full
@pytest.mark.ray
def test_a_ray_of_the_user_is_used_and_left_running() -> None:
    executor = build(RayExecutor, make_landscape, 1)
    assert outcomes(executor, BATCH[:2]) == dict(list(expected().items())[:2])
    executor.close()
    assert ray_is_there()


# A cluster that cannot serve


@pytest.mark.ray
def test_a_resource_that_no_node_has_is_refused() -> None:
    OwnRay.start()
    with pytest.raises(UsageError, match="'board'"):
        RayExecutor("local", resource="board")
    assert ray_is_there()


@pytest.mark.ray
@pytest.mark.full
def test_it_is_said_what_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ray_actors, "SAY_S", 0.3)
    OwnRay.start()
    ray: Any = importlib.import_module("ray")  # most of it is not annotated
    others = [ray.remote(num_cpus=1)(Landscape).remote() for _ in range(2)]
    ray.get([one.evaluate.remote(Knobs()) for one in others])
    executor = build(RayExecutor, make_landscape)
    try:
        executor.put(tasks(BATCH[:3]))
        assert executor.take(1.5) == []
        taken = "every CPU of the cluster is taken (2 in all)"
        assert caplog.messages == [f"waiting for Ray: {taken}; 'ray status' shows more"]
        with pytest.raises(ExecutorError):
            executor.withdraw()
        executor.put(tasks(BATCH[:3]))
        for one in others:
            ray.kill(one)
        found = {answer.number: answer.outcome for _ in range(3) for answer in executor.take(30)}
        assert found == dict(list(expected().items())[:3])
        executor.put(tasks(BATCH[3:6]))
        executor.withdraw()  # something was measured
        assert len(caplog.messages) == 1
    finally:
        executor.close()


@pytest.mark.full
@pytest.mark.ray
def test_a_lost_cluster_ends_a_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watches: list[ClusterWatch] = []

    def watched(address: str | None) -> ClusterWatch:
        watches.append(ray_session.watch(address))
        return watches[-1]

    monkeypatch.setattr(ray_actors, "watch", watched)
    executor = build(RayExecutor, make_landscape)
    (watch,) = watches
    try:
        watch.lost = "Ray's head has died: Connection refused"
        with pytest.raises(ExecutorError):
            executor.put(tasks(BATCH))
    finally:
        watch.lost = None
        executor.close()


@pytest.mark.parametrize("resource", ["CPU", "GPU", "memory", "object_store_memory"])
def test_a_resource_of_rays_own_is_refused(resource: str) -> None:
    with pytest.raises(UsageError) as caught:
        RayExecutor("local", resource=resource)
    assert caught.value.at.field == "--ray-resource"


def test_a_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError) as raised:
        make_executor(ray="local")
    said = f"--ray: needs Ray, which is not installed; {how_to_install('ray')}; "
    assert str(raised.value) == f"{said}'--jobs N' measures without it"


def test_a_broken_library_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ImportError('libray.so: no such file\\nor folder')\n")
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError) as raised:
        make_executor(ray="local")
    said = "--ray: Ray's library cannot be loaded: or folder; "
    assert str(raised.value) == f"{said}'--jobs N' measures without it"


# Several pairs on one pool


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(InProcessExecutor, id="in-process"),
        pytest.param(ProcessExecutor, id="processes", marks=pytest.mark.full),
        POOLS[1],
    ],
)
def test_pairs_share_a_pool(kind: type, tmp_path: Path) -> None:
    executor = build(kind, make_landscape)
    pairs = [f"pair{n}" for n in range(HELD + 2)]
    for number, pair in enumerate(pairs):
        executor.introduce(pair, functools.partial(CountedLandscape, number, str(tmp_path)))
    wanted = [Task(pair, n, knobs) for n, knobs in BATCH[:6] for pair in pairs[:3]]
    try:
        answers = {(a.pair, a.number): a.outcome for a in measured(executor, wanted)}
        built = len(list(tmp_path.iterdir()))
        every = list(measured(executor, [Task(pair, 0, Knobs()) for pair in pairs]))
    finally:
        executor.close()
    lands = [Landscape(seed) for seed in range(3)]
    assert answers == {
        (pairs[seed], n): lands[seed].evaluate(knobs) for n, knobs in BATCH[:6] for seed in range(3)
    }
    if kind is not InProcessExecutor:  # once in each worker, however often pairs take turns
        assert built <= 3 * executor.width
    assert len(every) == len(pairs)


class CountedLandscape(Landscape):
    """Leaves a file for every time that it was built."""

    def __init__(self, seed: int, folder: str) -> None:
        super().__init__(seed)
        (Path(folder) / f"{seed}-{os.getpid()}-{time.monotonic_ns()}").touch()


def test_a_setting_is_blamed_for_what_it_lost_alone() -> None:
    blame, poison = RetryPolicy(), Task("toy", 1, Knobs())
    assert blame.verdict(poison, guilty=False) is None  # any of its order may have done it
    assert blame.verdict(poison) is None
    told = blame.verdict(poison)
    assert told is not None
    assert told.outcome == lost(2, "worker")


def test_settings_have_more_tries_where_somebody_kills_workers() -> None:
    blame, poison = RetryPolicy(), Task("toy", 99, Knobs())
    for number in range(ACQUITTED):
        assert blame.acquitted < ACQUITTED
        assert blame.verdict(Task("toy", number, Knobs())) is None
        blame.acquit(Answer("toy", number, Landscape().evaluate(Knobs())))
    assert [blame.verdict(poison) for _ in range(3)] == [None] * 3
    told = blame.verdict(poison)
    assert told is not None
    assert told.outcome == lost(4, "worker")


@pytest.mark.full
@pytest.mark.ray
def test_an_answer_that_came_before_its_actor_died_is_kept(tmp_path: Path) -> None:
    task, poison = tasks([BATCH[1], POISON])
    executor = build(RayExecutor, functools.partial(CountedDying, str(tmp_path)), 1)
    try:
        outcomes(executor, BATCH[:1])  # so fast that an actor is given the next order beforehand
        executor.put([task, poison])
        end = time.monotonic() + 20
        while time.monotonic() < end and not any(tmp_path.iterdir()):
            time.sleep(0.01)
        time.sleep(1)  # by then Ray knows that the actor has died
        found = executor.take()
        assert [(a.number, a.outcome) for a in found] == [(task.number, expected()[task.number])]
        assert [a.outcome for a in measured(executor, [])] == [lost(2)]
        assert len(list(tmp_path.iterdir())) == 2  # it was alone from then on, so that each counts
    finally:
        executor.close()


class CountedDying(Dying):
    """Leaves a file for every time that it takes its process down."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = Path(folder)

    def evaluate(self, knobs: Knobs) -> Outcome:
        if knobs.prefetch_depth == POISON[1].prefetch_depth:
            (self.folder / f"{time.monotonic_ns()}").touch()
        return super().evaluate(knobs)


def test_a_worker_lets_go_of_the_pair_that_it_used_least() -> None:
    held: PairCache[str] = PairCache(2)
    made: list[str] = []

    def make(name: str) -> str:
        made.append(name)
        return name

    for name in ("a", "b", "a", "c", "a", "b"):
        assert held.get(name, functools.partial(make, name)) == name
    assert made == ["a", "b", "c", "b"]
    mirror: PairCache[None] = PairCache(2)
    assert [mirror.lacks(n) for n in ("a", "b", "a", "c", "a", "b")] == [
        True, True, False, True, False, True,
    ]  # fmt: skip


# A Ray of our own, and how the process that started it ends

_OWN_RAY = """
import signal, sys; sys.path.append(sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores it
import ray
from tests.search.search_doubles import Hanging
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.executors import RayExecutor, Task
pool = RayExecutor("local", 1)
pool.introduce("toy", Hanging)
pool.put([Task("toy", 0, Knobs()), Task("toy", 1, Knobs(prefetch_depth=2))])
pool.take()
print(ray._private.worker._global_node.get_session_dir_path(), flush=True)
try:
    pool.take()
finally:
    pool.close()
"""


@pytest.mark.full
@pytest.mark.ray
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_a_ray_of_our_own(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "driver.py"
    script.write_text(_OWN_RAY)
    command = [sys.executable, str(script), str(Path(__file__).parents[2])]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as driver:
        assert driver.stdout is not None
        folder = Path(driver.stdout.readline().strip()).parent
        pids = _below(driver.pid)
        names = {_name(pid) for pid in pids}
        if number == signal.SIGINT:
            os.killpg(driver.pid, number)  # as a terminal does
        else:
            driver.kill()
        driver.communicate(timeout=60)
    for word in ("raylet", "gcs_server", "ray::_Actor"):
        assert any(word in name for name in names), names
    for _ in range(100):
        if not any(_alive(pid) for pid in pids) and not folder.exists():
            break
        time.sleep(0.1)
    assert {_name(pid) for pid in pids if _alive(pid)} == set()
    assert not folder.exists()
