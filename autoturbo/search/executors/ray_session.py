"""A connection to Ray: to a cluster, or to one of our own that ends with it."""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autoturbo.errors import ExecutorError, Location, UsageError
from autoturbo.extras import how_to_install
from autoturbo.search.executors import ray_cleanup
from autoturbo.search.executors.ray_cluster_watch import NODE, ClusterWatch, look

LOCAL = "local"
"""The address that means: start a Ray of our own on this machine."""

_CLIENT = "ray://"
"""Before the address of a cluster's port for clients."""

_CONNECT_S = 3.0
"""Seconds for a cluster's port to answer."""

HEALTH_S = 30.0
"""Seconds for a cluster to say that it is one."""

_LEAVE_S = 10.0
"""Seconds for the watchdog to clear away."""

_LONGEST = 40
"""Characters of a folder's name below which Ray's sockets in it have names short enough."""

_WITHOUT = "'--jobs N' measures without it"

_MARK = "AUTOTURBO_RAY_SESSION"

_AUTH_MODE = "RAY_AUTH_MODE"

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}
"""No usage statistics, no advice on standard error."""


@dataclass(eq=False)
class Session:
    """A connection to Ray, of our own or to a running cluster.

    Attributes:
        owner: Whether :meth:`close` ends it.
    """

    owner: bool
    _guard: subprocess.Popen[bytes] | None = None
    _mode: str | None = None
    """``RAY_AUTH_MODE`` as it was before."""

    def close(self, within_s: float | None = None) -> None:
        """Leave Ray, and end all of it where it is our own; a second call does nothing.

        Args:
            within_s: Seconds after which it is left as it is, where its head does not answer; None
                for as long as it takes.
        """
        if self.owner:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)  # Ray's own pipes
                _leave(within_s)
            _restore(_AUTH_MODE, self._mode)
            _refresh_authentication()
        _dismiss(self._guard)
        self.owner, self._guard = False, None


def connect(
    address: str | None,
    jobs: int | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    resource: str | None = None,
) -> Session:
    """Connect to Ray, or start one.

    Args:
        address: Of a cluster (``host:port``, ``ray://host:port``, ``auto``); None, empty or
            ``"local"`` starts one here.
        jobs: CPUs of one that is started.
        runtime_env: Ray's ``runtime_env`` for what runs there.
        resource: Of which one that is started has one for each CPU.

    Returns:
        The connection. It owns what it started; of a Ray that this process was connected to before,
        it leaves everything as it is.

    Raises:
        UsageError: Nothing answers at the address, or there is no library.
        ExecutorError: Ray does not start.
    """
    _load()
    if sys.modules["ray"].is_initialized():
        return Session(owner=False)
    local, mode = address in (None, "", LOCAL), os.environ.get(_AUTH_MODE)
    if not local:
        probe(str(address))
    _refresh_authentication()
    more: dict[str, Any] = {"runtime_env": dict(runtime_env)} if runtime_env else {}
    if not local:
        _start(address=address, **more)
        return Session(owner=True, _mode=mode)
    with _own_folder() as (guard, folder), _same_path():
        more |= {"_temp_dir": folder} if folder else {}
        more |= {"resources": {resource: jobs or os.cpu_count()}} if resource else {}
        _start(address=LOCAL, num_cpus=jobs, include_dashboard=False, **more)
    return Session(owner=True, _guard=guard, _mode=mode)


def require_ray() -> None:
    """Say before anything is begun that there is no Ray.

    Raises:
        UsageError: Ray is not installed.
    """
    if find_spec("ray") is None:
        hint = f"{how_to_install('ray')}; {_WITHOUT}"
        message = "needs Ray, which is not installed"
        raise UsageError(message, Location(field="--ray"), hint)


def watch(address: str | None) -> ClusterWatch:
    """Watch the Ray that this process is connected to.

    Args:
        address: As it was given to :func:`connect`.

    Returns:
        The watch of its head, and of its node on this machine.
    """
    import ray

    if str(address).startswith(_CLIENT):  # its port is all that this process talks to
        return ClusterWatch({f"Ray's head at {address}": _host_and_port(str(address))})
    local = address in (None, "", LOCAL)
    name = "the Ray that was started for this run" if local else f"Ray's head at {address}"
    servers: dict[str, tuple[str, int]] = {}
    with suppress(Exception):  # a client that its program has connected may not know
        servers[name] = _host_and_port(ray.get_runtime_context().gcs_address)
        servers |= {NODE: here} if (here := look().here) else {}
    return ClusterWatch(servers)


def _leave(within_s: float | None) -> None:
    """Leave Ray, or give it up after some seconds: it would wait again when the process ends."""
    import ray

    if within_s is None:
        ray.shutdown()
        return
    if within_s:
        leaving = threading.Thread(target=ray.shutdown, daemon=True)
        leaving.start()
        leaving.join(within_s)
    atexit.unregister(ray.shutdown)


def _load() -> None:
    """Load Ray's library.

    Raises:
        UsageError: It is not installed, or broken.
    """
    require_ray()
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        importlib.import_module("ray")
    except ImportError as error:
        message = f"Ray's library cannot be loaded: {line_of(error)}"
        raise UsageError(message, Location(field="--ray"), _WITHOUT) from None


def _refresh_authentication() -> None:
    """Make Ray read the environment again on whether its next cluster asks for a token.

    Ray keeps the mode of the first one, which it sets itself for one that it starts: the head of
    another cluster could not talk to this process, and no actor would start.
    """
    import ray

    raylet: Any = importlib.import_module("ray._raylet")  # most of it is not annotated
    if hasattr(raylet, "Config") and not ray.is_initialized():
        raylet.Config.initialize("")
    if hasattr(raylet, "AuthenticationTokenLoader"):  # since Ray 2.52
        raylet.AuthenticationTokenLoader.instance().reset_cache()


def _start(**how: Any) -> None:
    import ray

    try:
        with warnings.catch_warnings(), _own_signals():
            warnings.simplefilter("ignore")
            ray.init(**how, log_to_driver=False, logging_level=logging.CRITICAL)
    except ConnectionError as error:
        raise _unreachable(str(how["address"]), line_of(error)) from None
    except Exception as error:  # noqa: BLE001  Ray raises that very class where a server is late
        raise ExecutorError(f"Ray does not start: {line_of(error)}") from None
    _hush()


@contextmanager
def _own_folder() -> Iterator[tuple[subprocess.Popen[bytes] | None, str | None]]:
    """Make a folder for our own Ray and a watchdog for both; processes started within are marked.

    Yields:
        The watchdog's process and the folder; None, for Ray's own choice, where the temporary
        folder's name is too long.
    """
    mark = uuid.uuid4().hex
    short = len(tempfile.gettempdir()) < _LONGEST
    folder = tempfile.mkdtemp(prefix="autoturbo-ray-") if short else ""
    command = [sys.executable, "-I", "-S", ray_cleanup.__file__, f"{_MARK}={mark}", folder]
    guard = subprocess.Popen(  # noqa: S603  our interpreter and our file
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    os.environ[_MARK] = mark
    try:
        yield guard, folder or None
    except BaseException:
        _dismiss(guard)
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        del os.environ[_MARK]


def _dismiss(guard: subprocess.Popen[bytes] | None) -> None:
    """Let the watchdog clean up, and wait for it."""
    if guard is None or guard.stdin is None:
        return
    guard.stdin.close()
    try:
        guard.wait(_LEAVE_S)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()


def _hush() -> None:
    """Keep Ray from printing to standard output.

    Whatever ``log_to_driver`` says, it prints there when a worker dies, in the middle of what a
    script reads under ``--json``; what happened is in the outcome. No public setting stops it.
    """
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = _print_nothing


def _print_nothing(*_: object, **__: object) -> None:
    """Print nothing, in place of Ray's own printing."""


@contextmanager
def _same_path() -> Iterator[None]:
    """Let workers of our own Ray import what this process imports; clusters keep their own path."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    try:
        yield
    finally:
        _restore("PYTHONPATH", before)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep hang-ups of the terminal from Ray's processes, and Ray from handling our SIGTERM.

    Processes inherit which signals are blocked; one that comes meanwhile is handled at the end.
    Ray's handler would end all at once, what is being measured and what holds the outcomes.

    Raises:
        KeyboardInterrupt: Ray's handler ended the block for a SIGTERM.
    """
    before, here = signal.getsignal(signal.SIGTERM), hasattr(signal, "SIGHUP")
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP}) if here else set()
    try:
        yield
    except SystemExit:  # of that handler
        raise KeyboardInterrupt from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
        if here:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _restore(name: str, before: str | None) -> None:
    """Restore an environment variable; None removes it."""
    if before is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = before


def probe(address: str) -> None:
    """Refuse an address where no cluster listens, long before Ray would.

    Args:
        address: Of a cluster; ``auto`` is left to Ray.

    Raises:
        UsageError: It is no address, or no cluster answers there.
    """  # noqa: DOC501  _unreachable() makes the error
    if address == "auto":
        return
    try:
        with closing(socket.create_connection(_host_and_port(address), _CONNECT_S)):
            pass
    except (OSError, OverflowError) as error:
        raise _unreachable(address, line_of(error)) from None
    if not address.startswith(_CLIENT):
        _ask_health(address)


def _host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of an address.

    Raises:
        UsageError: It is none.
    """
    host, _, port = address.removeprefix(_CLIENT).rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"{address!r} is not a Ray address", hint="for example 10.0.0.1:6379")
    return host.strip("[]"), int(port)


def _ask_health(address: str) -> None:
    """Check a cluster's health first: Ray itself would retry for minutes, with log lines.

    A cluster of Ray 2.59 or later may ask for a token where nobody told this process so; Ray's own
    setting makes it send the user's, if there is one.
    """  # noqa: DOC501  _unreachable() makes the error
    reason = _health(address)
    if reason is not None and "AuthenticationError" in reason and _AUTH_MODE not in os.environ:
        os.environ[_AUTH_MODE] = "token"
        reason = _health(address)
        if reason is not None:
            del os.environ[_AUTH_MODE]
    if reason is not None:
        raise _unreachable(address, reason)


def _health(address: str) -> str | None:
    """Return what is wrong with a cluster, in a line; None if nothing is."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        done = subprocess.run(  # noqa: S603  our interpreter, and an address already parsed
            command, capture_output=True, check=False, timeout=HEALTH_S
        )
    except subprocess.TimeoutExpired:
        return "what listens there is not Ray"
    error = RuntimeError(done.stderr.decode("utf-8", "replace"))
    return line_of(error) if done.returncode else None


def _unreachable(address: str, reason: str) -> UsageError:
    hint = "'ray start --head' starts a cluster; without an address a local one is started"
    if "AuthenticationError" in reason:
        reason, hint = "it asks for a token", "RAY_AUTH_MODE=token with its token in RAY_AUTH_TOKEN"
    return UsageError(f"no Ray cluster answers at {address}: {reason}", hint=hint)


def line_of(error: BaseException) -> str:
    """Return the last line of an error's message, where Ray's say what matters."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
