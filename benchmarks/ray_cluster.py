"""A Ray cluster of several machines on this one: separate processes that can be killed apart.

Every node is a ``ray start`` of its own, all on loopback. A node can also be put into a network
namespace of its own, joined by a pair of virtual interfaces, so that its network can be cut for
good; that needs the right to make one (:func:`namespaces_allowed`).
"""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from autoturbo.search.executors import ray_cleanup
from autoturbo.search.executors.ray_cleanup import started

_MARK = "AUTOTURBO_TEST_NODE"
_CLUSTER = "AUTOTURBO_TEST_CLUSTER"
_START_S = 180.0
_HASTY = {
    # seconds instead of half a minute until a node that is silent counts as dead
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_DEDUP_LOGS": "0",
}
_NUMBERS = itertools.count(1)


@dataclass(eq=False)
class Node:
    """A machine of the cluster.

    Attributes:
        mark: In the environment of all its processes.
        process: ``ray start --block``.
        namespace: Of its network, None for this machine's.
    """

    mark: str
    process: subprocess.Popen[bytes]
    namespace: str | None = None

    @property
    def pids(self) -> list[int]:
        """Return its processes: naming themselves, they lose the mark, but not their parents."""
        return sorted({*started(f"{_MARK}={self.mark}"), *descendants(self.process.pid)})

    def kill(self) -> None:
        """Kill all its processes at once, as if the power were cut."""
        while found := self.pids:
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        self.process.wait()

    def signal(self, number: int) -> None:
        """Send a signal to all its processes."""
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def workers(self) -> list[int]:
        """Return the processes that measure."""
        return [pid for pid in self.pids if "ray::_Actor" in _name(pid)]


def descendants(pid: int) -> set[int]:
    """Return a process that is alive, all that it started, and what those started."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            if state != "Z":
                parents[int(folder.name)] = int(parent)
    found = {pid} & set(parents)
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


@dataclass(eq=False)
class Cluster:
    """A head without CPUs, and nodes that measure. A context manager that leaves nothing behind.

    Attributes:
        networked: Nodes can be in networks of their own, which a bridge joins to this machine's.
        python: The interpreter that nodes run.
        host: Address of the head.
    """

    networked: bool = False
    python: str = sys.executable
    host: str = "127.0.0.1"
    nodes: list[Node] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.folder = tempfile.mkdtemp(prefix="ray-")
        self._networks: list[str] = []
        self._mark = f"{_CLUSTER}={uuid.uuid4().hex}"
        command = [sys.executable, "-I", "-S", ray_cleanup.__file__, self._mark, self.folder]
        self._guard = subprocess.Popen(  # noqa: S603  our interpreter and our file
            command, stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            if self.networked:
                self._build_bridge()
            self.port = _free_port(self.host)
            self.head = self._start_head()
        except BaseException:
            self._tear_down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in [*self.nodes, self.head]:
            node.kill()
        self._tear_down()

    def _tear_down(self) -> None:
        if self._guard.stdin is not None:
            self._guard.stdin.close()  # it ends what outlived its parent
        self._guard.wait()
        for network in self._networks:
            _ip("netns", "delete", network)
        if self.networked:
            _ip("link", "delete", self._bridge)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _build_bridge(self) -> None:
        number = os.getpid() % 250 + 1
        self.host, self._bridge = f"10.213.{number}.1", f"atbr{number}"
        _ip("link", "add", self._bridge, "type", "bridge", check=True)
        _ip("addr", "add", f"{self.host}/24", "dev", self._bridge, check=True)
        _ip("link", "set", self._bridge, "up", check=True)

    @property
    def address(self) -> str:
        """Return what ``--ray`` takes."""
        return f"{self.host}:{self.port}"

    def _start_head(self) -> Node:
        return self._start(
            f"--head --port {self.port} --node-ip-address {self.host} --num-cpus 0 "
            f"--include-dashboard false --temp-dir {self.folder} --object-store-memory {80 << 20}"
        )

    def restart_head(self) -> None:
        """Start a new head at the same address, after the old one was killed with all nodes."""
        self.head = self._start_head()
        self.wait()

    def wait(self) -> None:
        """Wait until the head can be connected to."""
        wait_until(lambda: _listens(self.host, self.port), "the head to listen")

    def add(self, cpus: int = 1, *, memory: int = 80 << 20, **more: str) -> Node:
        """Start a node.

        Args:
            cpus: How many it offers.
            memory: Bytes of its object store.
            more: Environment variables of its processes.

        Returns:
            The node, which may not have joined yet.
        """
        self.wait()
        node = self._start(self._joining(self.host, cpus, memory), more)
        self.nodes.append(node)
        return node

    def _joining(self, host: str, cpus: int, memory: int) -> str:
        """Return a node's arguments; folders of their own let several start at the same time."""
        return (
            f"--address {self.address} --node-ip-address {host} --num-cpus {cpus} "
            f"--object-store-memory {memory} --temp-dir {self.folder}/n{next(_NUMBERS)}"
        )

    def add_behind_network(self, cpus: int = 1) -> Node:
        """Start a node in a network of its own; the cluster must be networked."""
        self.wait()
        number = next(_NUMBERS)
        name = f"at{os.getpid() % 10000}n{number}"
        ours = f"{self.host.rpartition('.')[0]}.{number + 1}"
        self._networks.append(name)
        _ip("netns", "add", name, check=True)
        pair = ["type", "veth", "peer", "name", f"{name}b", "netns", name]
        _ip("link", "add", f"{name}a", *pair, check=True)
        _ip("link", "set", f"{name}a", "master", self._bridge, "up", check=True)
        for command in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{ours}/24", "dev", f"{name}b"],
            ["link", "set", f"{name}b", "up"],
            ["route", "add", "default", "via", self.host],
        ):
            _ip("-n", name, *command, check=True)
        node = self._start(self._joining(ours, cpus, 80 << 20), namespace=name)
        self.nodes.append(node)
        return node

    def settle(self) -> None:
        """Wait until all nodes have joined; one that could not start in time is started again.

        Connected to it, this process can see that.
        """
        ray: Any = importlib.import_module("ray")  # most of it is not annotated

        def alive() -> bool:
            for node in [node for node in self.nodes if node.process.poll() is not None]:
                self.remove(node)
                _ = self.add_behind_network() if node.namespace else self.add()
            found = [n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) > 0]
            return len(found) == len(self.nodes)

        wait_until(alive, f"{len(self.nodes)} nodes to join")

    def cut(self, node: Node) -> None:
        """Cut a node's network for good; one without a network of its own is stopped instead."""
        if node.namespace is None:
            node.signal(signal.SIGSTOP)
        else:
            _ip("link", "set", f"{node.namespace}a", "down", check=True)

    def remove(self, node: Node) -> None:
        """Kill a node and forget it."""
        node.kill()
        self.nodes.remove(node)

    def _path(self) -> dict[str, str]:
        """Let nodes import what this process imports, unless they run another interpreter."""
        if self.python != sys.executable:
            return {"PYTHONPATH": ""}
        return {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}

    def _start(
        self, arguments: str, more: dict[str, str] | None = None, namespace: str | None = None
    ) -> Node:
        mark = uuid.uuid4().hex
        inside = ["ip", "netns", "exec", namespace] if namespace else []
        command = [*inside, self.python, "-m", "ray.scripts.scripts", "start", *arguments.split()]
        process = subprocess.Popen(  # noqa: S603  our interpreter
            [*command, "--block", "--disable-usage-stats"],
            env={
                **os.environ,
                **_HASTY,
                **self._path(),
                **(more or {}),
                _MARK: mark,
                _CLUSTER: self._mark.partition("=")[2],
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return Node(mark, process, namespace)


def namespaces_allowed() -> bool:
    """Return whether this user may make network namespaces and interfaces."""
    if shutil.which("ip") is None:
        return False
    name = f"at{os.getpid() % 10000}try"
    made = _ip("netns", "add", name) and _ip("link", "add", name, "type", "bridge")
    _ip("link", "delete", name)
    _ip("netns", "delete", name)
    return made


def wait_until(holds: Callable[[], bool], what: str, seconds: float = _START_S) -> None:
    """Wait for something.

    Raises:
        TimeoutError: It does not come.
    """
    end_at = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end_at:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.05)


def _listens(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), 1.0):
        return True
    return False


def _free_port(host: str) -> int:
    with suppress(OSError), socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _ip(*arguments: str, check: bool = False) -> bool:
    done = subprocess.run(["ip", *arguments], check=check, capture_output=True)  # noqa: S603, S607
    return done.returncode == 0
