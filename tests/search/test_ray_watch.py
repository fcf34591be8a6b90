"""What a run sees of a Ray cluster, and what it says of one that fails."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from autoturbo.errors import UsageError
from autoturbo.search.executors import ray_cluster_watch
from autoturbo.search.executors.ray_cluster_watch import ClusterWatch, Machines, Silence, silence_of

HEAD = {"node:10.0.0.1": 1.0, "memory": 1e9, "object_store_memory": 1e8}
BOARDS = {"CPU": 2.0, "board": 3.0, "accelerator_type:A": 1.0}
HERE = ("10.0.0.1", 6379)
REFUSED = Silence("Connection refused")
LATE = Silence("no answer within 0.2 s", hung=True)


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster_watch, "EVERY_S", 0.02)
    monkeypatch.setattr(ray_cluster_watch, "PATIENCE_S", 0.2)
    monkeypatch.setattr(ray_cluster_watch, "LATE", LATE.reason)


@contextlib.contextmanager
def served(answer: Callable[[socket.socket], object]) -> Iterator[tuple[str, int]]:
    """A server that treats each connection in some way."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection = server.accept()[0]
                    held.append(connection)
                    answer(connection)

        held: list[socket.socket] = []
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield server.getsockname()
        server.shutdown(socket.SHUT_RDWR)
        accepting.join()
        for connection in held:
            connection.close()


def test_a_head_that_answers_in_any_way_lives() -> None:
    with served(lambda one: one.sendall(b"settings")) as address:
        assert silence_of(address) is None
    with served(lambda one: one.close()) as address:  # as one does that wants to be asked by TLS
        assert silence_of(address) is None


def test_a_head_is_dead_or_hung() -> None:
    with served(lambda _: None) as address:
        assert silence_of(address) == LATE
    assert silence_of(address) == REFUSED


def test_places_are_counted_node_by_node() -> None:
    machines = Machines([HEAD, BOARDS, {"CPU": 4.0}], {"CPU": 5.0, "board": 1.5})
    assert (machines.places(["CPU"]), machines.places(["CPU", "board"])) == (6, 2)
    assert (machines.unused(["CPU"]), machines.unused(["CPU", "board"])) == (5, 1)
    assert (Machines().places(["CPU"]), Machines().unused(["CPU"])) == (0, 0)


@pytest.mark.parametrize(
    ("nodes", "resource", "said"),
    [
        ([HEAD, BOARDS], "bord", "has the resource 'bord', they have CPU, board; did you mean"),
        (
            [HEAD, BOARDS],
            "fpga",
            """they have CPU, board; give a node one: ray start --resources '{"fpga": 1}'""",
        ),
        ([HEAD], "board", "no node of the Ray cluster has the resource 'board'; give a node"),
        ([], "board", "no node of the Ray cluster has the resource 'board'; give a node"),
        (
            [{"board": 1.0}, {"CPU": 1.0}],
            "board",
            "no node of the Ray cluster has both a CPU and the resource 'board'; add --num-cpus",
        ),
        ([{"CPU": 4.0, "board": 0.5}], "board", "they have CPU, board"),
    ],
)
def test_a_resource_that_no_worker_can_take_is_refused(
    nodes: list[dict[str, float]], resource: str, said: str
) -> None:
    with pytest.raises(UsageError) as raised:
        Machines(nodes).check(resource)
    assert said in str(raised.value)
    Machines([HEAD, BOARDS]).check("board")


@contextlib.contextmanager
def watching(
    monkeypatch: pytest.MonkeyPatch, seen: list[Machines], tries: list[Silence | None]
) -> Iterator[ClusterWatch]:
    """A watch of a cluster that looks as told, and in the end always as told last."""
    monkeypatch.setattr(ray_cluster_watch, "look", lambda: seen.pop(0) if seen[1:] else seen[0])
    monkeypatch.setattr(
        ray_cluster_watch, "silence_of", lambda _: tries.pop(0) if tries[1:] else tries[0]
    )
    watch = ClusterWatch({"Ray's head": ("127.0.0.1", 1)})
    try:
        yield watch
    finally:
        watch.close()


def wait_for(seen: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_dead_head_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING),
        watching(monkeypatch, [Machines(here=HERE)], [None, REFUSED, None, REFUSED]) as watch,
    ):
        assert (watch.lost, watch.leaving_s) == (None, None)
        wait_for(lambda: watch.lost is not None)
        assert watch.lost == "Ray's head has died: Connection refused"
        assert watch.leaving_s == ray_cluster_watch.LEAVE_S
    assert caplog.messages == [watch.lost]


def test_a_hung_head_does_not_end_a_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING),
        watching(monkeypatch, [Machines(here=HERE)], [None, LATE]) as watch,
    ):
        wait_for(lambda: bool(caplog.messages))
        time.sleep(0.2)
        assert (watch.lost, watch.leaving_s) == (None, 0.0)
    assert caplog.messages == ["Ray's head is hung; the run goes on while its workers do"]


def test_machines_come_and_the_node_of_this_process_goes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen = [Machines([HEAD], here=HERE), Machines([HEAD, BOARDS], here=HERE), Machines([BOARDS])]
    with caplog.at_level(logging.WARNING), watching(monkeypatch, seen, [None]) as watch:
        wait_for(lambda: watch.lost is not None)
        assert watch.lost == "Ray's node of this machine has died"
        assert watch.machines.nodes == [BOARDS]


def test_a_server_that_cannot_be_reached_from_here_is_not_watched(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with watching(monkeypatch, [Machines(here=HERE)], [REFUSED]) as watch:
        time.sleep(0.2)
        assert (watch.lost, watch.leaving_s, caplog.messages) == (None, None, [])


def test_a_process_without_a_node_misses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with watching(monkeypatch, [Machines(), Machines([HEAD])], [None]) as watch:
        wait_for(lambda: watch.machines.nodes == [HEAD])
        time.sleep(0.1)
        assert watch.lost is None


def test_questions_that_fail_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with watching(monkeypatch, [Machines([HEAD], here=HERE)], [None]) as watch:
        asked = threading.Event()

        def failing() -> Machines:
            asked.set()
            raise RuntimeError("Ray is being left")

        monkeypatch.setattr(ray_cluster_watch, "look", failing)
        assert asked.wait(20)
        assert (watch.lost, watch.machines.nodes) == (None, [HEAD])
        monkeypatch.setattr(ray_cluster_watch, "look", lambda: Machines([BOARDS], here=HERE))
        wait_for(lambda: watch.machines.nodes == [BOARDS])
