"""Watches a Ray cluster: whether its head answers, and what its machines have.

Ray says nothing of a dead head for a minute, and then ends the process that asks; meanwhile every
question about the cluster blocks. So the head's port is tried from a thread of its own, and another
thread asks the questions.
"""

from __future__ import annotations

import importlib
import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from autoturbo.errors import UsageError, did_you_mean

LOG = logging.getLogger("autoturbo")

NODE = "Ray's node of this machine"
"""What the node is called that this process is connected to."""

EVERY_S = 1.0
"""Seconds between two tries of the head's port, and between two looks at the machines."""

PATIENCE_S = 5.0
"""Seconds for the head to answer a try: one that is busy takes milliseconds."""

LATE = f"no answer within {PATIENCE_S:g} s"
"""What is said of a server that takes longer."""

LEAVE_S = 10.0
"""Seconds for Ray to let go of a dead head; it takes five."""

_FAILURES = 3
"""Tries in a row that fail until the head counts as dead."""

_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What an HTTP/2 client says first; every server, gRPC's too, answers at once with its settings."""

_EVERYWHERE = ("node:", "memory", "object_store_memory", "accelerator_type:")
"""Resources that Ray gives machines by itself, and of which a worker cannot take one."""


@dataclass(frozen=True, slots=True)
class Machines:
    """What a cluster has.

    Attributes:
        nodes: Resources of each node that lives.
        free: Resources of all nodes that nobody has taken.
        here: The host and port of the node that this process is connected to, while it lives.
    """

    nodes: Sequence[Mapping[str, float]] = ()
    free: Mapping[str, float] = field(default_factory=dict)
    here: tuple[str, int] | None = None

    def places(self, takes: Sequence[str]) -> int:
        """Return how many workers find a place, each of which takes one of some resources."""
        return sum(min(int(node.get(one, 0)) for one in takes) for node in self.nodes)

    def unused(self, takes: Sequence[str]) -> int:
        """Return how many workers could find a place now, at most."""
        return min(int(self.free.get(one, 0)) for one in takes)

    def check(self, resource: str) -> None:
        """Refuse a resource of which no worker could ever take one.

        Raises:
            UsageError: No node has it, or none that has a CPU.
        """
        if self.places([resource, "CPU"]):
            return
        flag = f"""give a node one: ray start --resources '{{"{resource}": 1}}'"""
        if self.places([resource]):
            message = f"no node of the Ray cluster has both a CPU and the resource {resource!r}"
            raise UsageError(message, hint="add --num-cpus 1 where 'ray start' gives it")
        found = sorted({one for node in self.nodes for one in node})
        names = [one for one in found if not one.startswith(_EVERYWHERE)]
        message = f"no node of the Ray cluster has the resource {resource!r}"
        message += f", they have {', '.join(names)}" if names else ""
        raise UsageError(message, hint=did_you_mean(resource, names, flag))


def look() -> Machines:
    """Return what the cluster has that this process is connected to; the head must answer."""
    ray: Any = importlib.import_module("ray")  # most of it is not annotated
    nodes = [node for node in ray.nodes() if node["Alive"]]
    mine = ray.get_runtime_context().get_node_id()
    ports = {n["NodeID"]: (n["NodeManagerAddress"], n["NodeManagerPort"]) for n in nodes}
    return Machines(
        [node["Resources"] for node in nodes], ray.available_resources(), ports.get(mine)
    )


class Silence(NamedTuple):
    """Why a server does not answer.

    Attributes:
        reason: In words.
        hung: Whether it can be connected to all the same: it lives, or its machine does.
    """

    reason: str
    hung: bool = False


def silence_of(address: tuple[str, int]) -> Silence | None:
    """Return why a server does not answer; None where it does."""
    try:
        with socket.create_connection(address, PATIENCE_S) as connection:
            try:
                connection.sendall(_GREETING)
                connection.recv(1)
            except TimeoutError:
                return Silence(LATE, hung=True)
            except OSError:  # it wants to be greeted otherwise
                return None
    except TimeoutError:
        return Silence(LATE)
    except OSError as error:
        return Silence(error.strerror or str(error))
    return None


@dataclass(eq=False)
class _Server:
    """A server of Ray's.

    Attributes:
        name: In what is said.
        address: Its host and port.
        silences: Why the last tries failed, those in a row.
    """

    name: str
    address: tuple[str, int]
    silences: list[Silence] = field(default_factory=list)

    def ask(self) -> None:
        """Try the server once."""
        silence = silence_of(self.address)
        self.silences = [*self.silences, silence] if silence else []

    @property
    def hung(self) -> bool:
        """Return whether it takes connections and says nothing; what refuses them is dead."""
        return any(one.hung for one in self.silences[-_FAILURES:])


class ClusterWatch:
    """Watches a cluster until it is closed.

    Args:
        servers: Hosts and ports of the servers that this process needs, by what they are called,
            the head first; those that cannot be reached from here are left out.

    Attributes:
        machines: What the cluster had a moment ago.
        lost: Why it is given up; None while it is not.
    """

    def __init__(self, servers: Mapping[str, tuple[str, int]]) -> None:
        self.machines = look()
        self._here = self.machines.here is not None  # a client's program has no node
        self.lost: str | None = None
        self._ended = threading.Event()
        self._giving_up = threading.Lock()
        reached = [name for name, address in servers.items() if silence_of(address) is None]
        self._servers = [_Server(name, servers[name]) for name in reached]
        tries = [partial(self._try, server) for server in self._servers]
        self._threads = [self._repeated(self._look), *map(self._repeated, tries)]

    @property
    def leaving_s(self) -> float | None:
        """Return the seconds that leaving the cluster may take; None for as long as it takes.

        Leaving a head that is hung, Ray waits for ever.
        """
        silent = [server for server in self._servers if server.silences]
        if any(server.silences[-1].reason == LATE for server in silent):
            return 0.0
        return LEAVE_S if silent else None

    def close(self) -> None:
        """End its threads; those that wait for an answer are left to themselves."""
        self._ended.set()
        for thread in self._threads if self.leaving_s is None else ():
            thread.join(PATIENCE_S)

    def _repeated(self, step: Callable[[], None]) -> threading.Thread:
        def repeat() -> None:
            while self.lost is None and not self._ended.wait(EVERY_S):
                step()

        thread = threading.Thread(target=repeat, daemon=True)
        thread.start()
        return thread

    def _look(self) -> None:
        if any(silence_of(server.address) for server in self._servers):
            return  # the question would block, even the end of this process
        with suppress(Exception):  # Ray raises whatever it likes while it is being left
            self.machines = look()
            if self._here and self.machines.here is None:
                self._give_up(f"{NODE} has died")

    def _try(self, server: _Server) -> None:
        """Try a server; who refuses connections is dead, who takes them may be busy."""
        server.ask()
        if len(server.silences) < _FAILURES:
            return
        if not server.hung:
            first = next(one for one in self._servers if one.silences)  # a node dies with its head
            self._give_up(f"{first.name} has died: {first.silences[-1].reason}")
        elif len(server.silences) == _FAILURES:
            LOG.warning("%s is hung; the run goes on while its workers do", server.name)

    def _give_up(self, why: str) -> None:
        with self._giving_up:  # by several threads at once
            if self.lost is None and not self._ended.is_set():
                LOG.warning("%s", why)  # before who reads `lost` ends the run
                self.lost = why
