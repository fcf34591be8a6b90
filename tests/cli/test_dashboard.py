"""``dashboard``: the runs of a database on a page of this computer, while they go."""

from __future__ import annotations

import http.client
import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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


def text(page: Page) -> str:
    """Return what the page shows; nothing while it loads itself anew and has no body yet."""
    return str(page.run("document.body?.innerText ?? ''"))


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
            wait_for(lambda most=width: 0 < page.run(across) <= most)  # type: ignore[misc]
        more = cli("--json", "tune", "zfnet", "--batch", "1", "--trials", "2").object["run"]
        wait_for(lambda: more in text(page))
