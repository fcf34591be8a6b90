"""``dashboard``: the runs of a database on a page of this computer, while they go."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import html
import http.client
import itertools
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autoturbo.commands.tuning import page_server, runs_site
from autoturbo.database import Database
from autoturbo.errors import DatabaseError
from autoturbo.report.runs import dashboard_part
from tests.cli.command_line import Cli, cli_in
from tests.processes import started
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
        try:
            said = json.loads(process.stdout.readline())
            assert said["database"] == "autoturbo.db"
            yield int(said["url"].rstrip("/").rpartition(":")[2])
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()  # else the test waits for one that Ctrl-C has not ended


def wait_for(seen: Callable[[], bool]) -> None:
    """Wait until something is seen; pages are told of changes twice a second."""
    end = time.monotonic() + 120
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.1)


def asked(port: int, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_it_shows_runs_and_their_pages_and_nothing_else(cli: Cli, run: str, port: int) -> None:
    status, page = asked(port, "/")
    assert (status, run in page) == (200, True)
    assert f'href="/report/{run}"' in page
    light = asked(port, f"/report/{run}")
    assert (light[0], f'href="/report/{run}/whole"' in light[1]) == (200, True)
    whole = asked(port, f"/report/{run}/whole")
    assert (whole[0], "chart-timeline" in whole[1]) == (200, True)
    assert not list(cli.folder.glob("runs/*/*.html"))  # looking on writes nothing
    assert cli("report", run).status == 0
    assert "chart-timeline" in asked(port, f"/report/{run}")[1]
    for path in (
        *("/report/../autoturbo.db", "/report/%2e%2e", "/autoturbo.db", "/report/"),
        *("/events", "/events/report/none", f"/report/{run}/whole/whole"),
    ):
        assert asked(port, path)[0] == 404
    for path in ("/", "/events/", f"/report/{run}"):
        assert asked(port, path, f"evil.example:{port}")[0] == 403
    assert asked(port, "/", f"localhost:{port}")[0] == 200


def test_its_scripts_alone_may_run_and_talk_to_it_alone(run: str, port: int) -> None:
    for path in ("/", f"/report/{run}"):
        page = asked(port, path)[1]
        found = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
        assert found is not None
        rules = dict(rule.split(" ", 1) for rule in html.unescape(found[1]).split("; "))
        (code,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        assert rules["script-src"] == f"'sha256-{digest}'"
        assert (rules["default-src"], rules["connect-src"]) == ("'none'", "'self'")


@pytest.mark.full
def test_without_a_report_the_page_says_why(run: str) -> None:
    with Database.open("autoturbo.db", create=False) as database:
        info = database.run(run)
        gone = dataclasses.replace(info, id="90ne", model_file="gone.onnx", refused=())
        database.add_run(gone)
        database.add_trials(
            [dataclasses.replace(trial, run=gone.id) for trial in database.trials(run)]
        )
    page = (runs_site.RunsSite("autoturbo.db").page("/report/90ne/whole") or b"").decode()
    assert "No whole report: gone.onnx" in page


@pytest.mark.full
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


@pytest.mark.full
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
            wait_for(lambda: threads_of(process.pid) <= before + page_server.CONNECTIONS)
            assert halves[0].recv(1) == b""  # the oldest had to go
            halves[-1].settimeout(0.2)
            with pytest.raises(TimeoutError):  # the last one has its time
                halves[-1].recv(1)
            for half in halves:
                half.close()
        wait_for(lambda: threads_of(process.pid) <= before)
        with events(port) as stream:  # a page in view does not hold its end up
            assert stream.recv(8) == b"HTTP/1.0"
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=30)[1].splitlines() == ["ended"]


class Slow:
    """Pages that are ready when the event says so, and parts that change when asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.ready = threading.Event()
        self.trouble = ""

    def page(self, path: str) -> bytes:
        self.asked.append(path)
        self.ready.wait(30)
        return path.encode()

    def part(self, path: str) -> str:
        self.asked.append(path)
        if self.trouble:
            raise DatabaseError(self.trouble)
        return f"{path}\n{len(self.asked)}"


@pytest.fixture
def site() -> Slow:
    return Slow()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, site: Slow) -> Iterator[int]:
    """The port of a server in this process."""
    monkeypatch.setattr(page_server, "REQUEST_S", 0.5)
    monkeypatch.setattr(page_server, "CONNECTIONS", 3)
    monkeypatch.setattr(page_server, "STREAMS", 2)
    monkeypatch.setattr(page_server, "TICK_S", 0.05)
    with page_server.PageServer("127.0.0.1", 0, site) as made:
        threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
        yield made.server_port
        site.ready.set()
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


def test_requests_that_have_come_are_answered_and_more_are_told_to_wait(
    slow: int, site: Slow
) -> None:
    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(asked, slow, f"/{number}") for number in range(3)]
        wait_for(lambda: len(site.asked) == 3)
        assert asked(slow, "/more") == (503, "too many connections")
        time.sleep(1)  # a page may take longer than its request
        site.ready.set()
        assert sorted(one.result() for one in asking) == [(200, f"/{n}") for n in range(3)]
    assert asked(slow, "/more") == (200, "/more")


def events(port: int) -> socket.socket:
    """A connection at which a page's events come."""
    made = socket.create_connection(("127.0.0.1", port), 30)
    made.sendall(f"GET /events/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    return made


def test_a_stream_tells_every_change_and_gives_its_place_up_when_the_browser_leaves(
    slow: int, site: Slow
) -> None:
    with events(slow) as first, events(slow) as second:
        told = b""
        while told.count(b"data: ") < 3:
            told += first.recv(4096)
        assert b"Content-Type: text/event-stream" in told
        assert b'data: "/\\n' in told  # a line, whatever is in it
        assert second.recv(16).startswith(b"HTTP/1.0 200")
        assert asked(slow, "/events/")[0] == 503
        site.ready.set()
        wait_for(lambda: asked(slow, "/page") == (200, "/page"))  # streams leave room for pages
        site.trouble = "gone"
        while b'event: trouble\ndata: "gone"\n\n' not in told:
            told += first.recv(4096)
        site.trouble = ""
    wait_for(lambda: has_begun(slow))


def has_begun(port: int) -> bool:
    with events(port) as one:
        return one.recv(16).startswith(b"HTTP/1.0 200")


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Page]:
    with browser(tmp_path / "profile") as page:
        page.size(800, 600)
        yield page
        assert page.complaints == []


def text(page: Page) -> str:
    """Return what the page shows."""
    return str(page.run("document.body?.innerText ?? ''"))


def visit(page: Page, address: str) -> None:
    page.call("Page.navigate", url=address)
    wait_for(lambda: page.run("document.readyState") == "complete" and "live" in text(page))


@pytest.mark.full
def test_runs_that_end_stay_in_view_and_others_are_read_once(run: str) -> None:
    with Database.open("autoturbo.db", create=False) as database:
        info = database.run(run)
        database.add_run(dataclasses.replace(info, id="60e5", state="running", handed_out=None))
        watch = runs_site.Watch("autoturbo.db")
        with database.holding("60e5"):
            first = watch.runs()
            assert [one.state for one in first] == ["done", "running"]
            assert watch.ended() == frozenset()
            assert dashboard_part(first, "autoturbo.db", watch.ended()).count('id="going-') == 1
        time.sleep(runs_site.FRESH_S)
        wait_for(lambda: watch.runs()[1].state == "killed")
        assert watch.ended() == {"60e5"}
        last = watch.runs()
        assert last[0].course is first[0].course
        time.sleep(2 * runs_site.FRESH_S)
        assert watch.runs() is last
    assert 'id="going-60e5"' in dashboard_part(last, "autoturbo.db", watch.ended())


@pytest.mark.full
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_browser_sees_a_run_go_on_without_loading_anew(
    cli: Cli, run: str, port: int, tab: Page
) -> None:
    visit(tab, f"http://127.0.0.1:{port}/")
    tab.run("window.marker = 'still here'")
    tab.run("document.querySelectorAll('#runs th button')[1].click()")  # by model
    tab.run(f"document.querySelector('#run-{run} a').focus()")
    command = [sys.executable, "-m", "autoturbo", "--json", "tune", "zfnet", "--batch", "1"]
    command += ["--trials", "400"]
    with started(command, cwd=cli.folder) as tuning:
        try:
            card = "document.querySelector('.going .card')"
            curve = f"{card}?.querySelector('path.best')?.getAttribute('d')"
            wait_for(lambda: tab.run(curve))
            seen, recorded = tab.run(f"[{curve}, {COUNTS}]")
            wait_for(lambda: tab.run(curve) != seen)
            wait_for(lambda: tab.run(COUNTS) > recorded)
            models = (
                "[...document.querySelectorAll('#runs tbody tr')].map(r => r.cells[1].innerText)"
            )
            assert tab.run(models) == ["alexnet", "zfnet"]  # as sorted: the newest is the last
            assert tab.run("document.querySelector('#runs th[aria-sort]').innerText") == "model"
            assert tab.run("window.marker") == "still here"
            assert tab.run("document.activeElement.textContent.trim()") == run
            across = "document.documentElement.scrollWidth"
            for width, scheme in itertools.product((420, 800, 1280), ("light", "dark")):
                tab.prefer(scheme)
                tab.size(width, 600)
                assert tab.run(across) <= width
        finally:
            tuning.terminate()
            tuning.communicate()
    wait_for(lambda: "interrupted" in text(tab))
    name = tab.run(f"{card}.id").removeprefix("going-")
    tab.run(f"{card}.querySelector('a').click()")
    wait_for(lambda: tab.run("location.pathname") == f"/report/{name}")
    wait_for(lambda: tab.run("document.querySelector('h1')?.innerText") == "zfnet on stcp920")
    assert f"autoturbo resume {name}" in text(tab)


@pytest.mark.full
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_page_that_nobody_sees_holds_no_stream_and_one_without_server_says_so(
    run: str, tab: Page
) -> None:
    def turn(hidden: str) -> None:
        tab.run(f"Object.defineProperty(document, 'hidden', {{get: () => {hidden},"
                " configurable: true})")  # fmt: skip
        tab.run("document.dispatchEvent(new Event('visibilitychange'))")

    def free() -> int:
        return server.streams._value

    with page_server.served("127.0.0.1", 0, "autoturbo.db") as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        visit(tab, f"http://127.0.0.1:{server.server_port}/")
        assert free() == page_server.STREAMS - 1
        turn("true")
        wait_for(lambda: free() == page_server.STREAMS)
        with Database.open("autoturbo.db", create=False) as database:
            database.add_run(dataclasses.replace(database.run(run), id="60e5", handed_out=None))
        time.sleep(2 * page_server.TICK_S)
        assert "60e5" not in text(tab)
        turn("false")
        wait_for(lambda: "60e5" in text(tab))
        server.shutdown()
    wait_for(lambda: "no answer from the dashboard" in text(tab))
    assert run in text(tab)  # what was told last is still there
    tab.complaints.clear()  # of the connection that is refused


COUNTS = "Number(document.querySelector('.going [role=progressbar]').getAttribute('aria-valuenow'))"
"""Trials recorded of the run that goes on, as the page says."""
