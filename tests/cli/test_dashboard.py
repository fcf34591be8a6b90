"""``dashboard``: the runs of a database on a page of this computer, while they go."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from autoturbo.commands.tuning import page_server
from tests.cli.command_line import Cli, cli_in
from tests.report.browser import CHROMIUM, Page, browser


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


@pytest.fixture
def run(cli: Cli) -> str:
    made = cli("--json", "tune", "alexnet", "--batch", "1", "--trials", "2")
    return str(made.object["run"])


@pytest.fixture
def port(cli: Cli, run: str) -> Iterator[int]:
    """A dashboard of a database with a run, in a process of its own; Ctrl-C ends it with 0."""
    assert run
    command = [sys.executable, "-m", "autoturbo", "--json", "dashboard", "--port", "0"]
    with subprocess.Popen(command, cwd=cli.folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said["database"] == "autoturbo.db"
        yield int(said["url"].rstrip("/").rpartition(":")[2])
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def wait_for(seen: Callable[[], bool]) -> None:
    """Wait until something is seen; the page loads itself anew every two seconds."""
    end = time.monotonic() + 30
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.1)


def run_in(page: Page, script: str) -> Any:
    """Return what an expression is; None while the page loads itself anew."""
    try:
        return page.run(script)
    except AssertionError as error:
        if "navigated" not in str(error):
            raise
        return None


def text(page: Page) -> str:
    """Return what the page shows; nothing while it loads itself anew and has no body yet."""
    return str(run_in(page, "document.body?.innerText ?? ''"))


def asked(port: int, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_it_shows_runs_and_reports_and_nothing_else(cli: Cli, run: str, port: int) -> None:
    status, page = asked(port, "/")
    assert (status, run in page, 'http-equiv="refresh"' in page) == (200, True, True)
    assert "href" not in page
    assert asked(port, f"/report/{run}")[0] == 404
    assert cli("report", run).status == 0
    assert f'href="/report/{run}"' in asked(port, "/")[1]
    assert asked(port, f"/report/{run}")[1].startswith("<!DOCTYPE html>")
    for path in ("/report/../autoturbo.db", "/report/%2e%2e", "/autoturbo.db", "/report/"):
        assert asked(port, path)[0] == 404
    assert asked(port, "/", f"evil.example:{port}")[0] == 403
    assert asked(port, "/", f"localhost:{port}")[0] == 200


def test_a_port_that_is_taken_is_one_line(cli: Cli, port: int) -> None:
    ran = cli("dashboard", "--port", str(port), "--for", "1")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert f"--port: {port}: " in ran.err
    assert cli("dashboard", "--port", "70000").status == 2


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


@contextlib.contextmanager
def half_requests(port: int, number: int) -> Iterator[list[socket.socket]]:
    """Connections that send the beginning of a request, and no more."""
    with contextlib.ExitStack() as held:
        found = []
        for _ in range(number):
            found.append(held.enter_context(socket.create_connection(("127.0.0.1", port), 30)))
            found[-1].sendall(b"GET / HTTP/1.1\r\nHost: ")
        yield found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are looked up there")
def test_half_requests_hold_few_threads_and_nobody_up(cli: Cli, run: str) -> None:
    assert run
    command = [sys.executable, "-m", "autoturbo", "--json", "dashboard", "--port", "0"]
    with (
        subprocess.Popen(
            command, cwd=cli.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
        contextlib.ExitStack() as held,
    ):
        held.callback(process.kill)
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())["url"].rstrip("/").rpartition(":")[2])
        assert asked(port, "/")[0] == 200  # what it needs for that has threads of its own
        before = threads_of(process.pid)
        with half_requests(port, 200) as halves:
            began = time.monotonic()
            assert asked(port, "/")[0] == 200
            assert time.monotonic() - began < 5
            wait_for(lambda: threads_of(process.pid) <= before + page_server._CONNECTIONS)
            assert halves[0].recv(1) == b""  # the oldest had to go
            halves[-1].settimeout(0.2)
            with pytest.raises(TimeoutError):  # the last one has its time
                halves[-1].recv(1)
            for half in halves:
                half.close()
        wait_for(lambda: threads_of(process.pid) <= before)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[1].splitlines() == ["ended"]


class Slow(page_server._Page):
    """Pages that are ready when the event says so."""

    asked: ClassVar[list[str]] = []
    ready: ClassVar[threading.Event] = threading.Event()

    def _page(self, path: str) -> bytes:
        self.asked.append(path)
        self.ready.wait(30)
        return path.encode()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a server in this process."""
    monkeypatch.setattr(page_server, "_REQUEST_S", 0.5)
    monkeypatch.setattr(page_server, "_CONNECTIONS", 3)
    monkeypatch.setattr(Slow, "asked", [])
    monkeypatch.setattr(Slow, "ready", threading.Event())
    with page_server._Server(("127.0.0.1", 0), partial(Slow, "127.0.0.1", "none.db")) as made:
        threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
        yield made.server_port
        Slow.ready.set()
        made.shutdown()


def test_half_a_request_is_ended_after_a_while_however_slowly_it_goes_on(
    slow: int,
) -> None:
    began = time.monotonic()
    with half_requests(slow, 1) as (half,):
        half.settimeout(0.1)
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - began < 10 and not has_ended(half):
                half.sendall(b"a")
    assert 0.4 < time.monotonic() - began < 5


def has_ended(connection: socket.socket) -> bool:
    with contextlib.suppress(TimeoutError):
        return connection.recv(1) == b""
    return False


def test_requests_that_have_come_are_answered_and_more_are_told_to_wait(slow: int) -> None:
    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(asked, slow, f"/{number}") for number in range(3)]
        wait_for(lambda: len(Slow.asked) == 3)
        assert asked(slow, "/more") == (503, "too many connections")
        time.sleep(1)  # a page may take longer than its request
        Slow.ready.set()
        assert sorted(one.result() for one in asking) == [(200, f"/{n}") for n in range(3)]
    assert asked(slow, "/more") == (200, "/more")


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_browser_sees_a_run_begin(cli: Cli, run: str, port: int, tmp_path: Path) -> None:
    with browser(tmp_path / "profile") as page:
        page.size(800, 600)
        page.call("Page.navigate", url=f"http://127.0.0.1:{port}/")
        wait_for(lambda: run in text(page))
        across = "document.body ? document.documentElement.scrollWidth : 0"
        for width, scheme in itertools.product((420, 800, 1280), ("light", "dark")):
            page.prefer(scheme)
            page.size(width, 600)
            wait_for(lambda most=width: 0 < (run_in(page, across) or 0) <= most)  # type: ignore[misc]
        more = cli("--json", "tune", "zfnet", "--batch", "1", "--trials", "2").object["run"]
        wait_for(lambda: more in text(page))
