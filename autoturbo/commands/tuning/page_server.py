"""The server of the dashboard's page, apart from its command: what it stands on loads slowly."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from autoturbo.commands.tuning.runs_site import EVENTS, RunsSite, Site
from autoturbo.errors import AutoTurboError

TICK_S = 0.5
"""Seconds between two looks at what a page shows."""

_BEAT_S = 2.0
"""Seconds without a change after which a stream says that it is still there."""

CONNECTIONS = 32
"""Connections at a time, each of which has a thread: browsers open six."""

STREAMS = 16
"""Connections that tell what becomes of a page, one for each page in view."""

REQUEST_S = 10.0
"""Seconds in which a request has to come, and its page has to be taken."""

_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 2\r\n\r\ntoo many connections"
"""The answer where all connections wait for their pages."""


def served(host: str, port: int, database: str) -> PageServer:
    """Return a server of the page of a database's runs; its user starts and ends it.

    Raises:
        OSError: The port cannot be had.
    """
    return PageServer(host, port, RunsSite(database))


class PageServer(ThreadingHTTPServer):
    """Has a thread for each of a few connections; half requests hold none of them for long.

    Args:
        host: Where it listens.
        port: Where it listens; 0 for a free one.
        site: Has the pages.

    Attributes:
        streams: The connections that may still follow a page.
        ending: Is set once it answers nothing any more.
    """

    request_queue_size = CONNECTIONS

    def __init__(self, host: str, port: int, site: Site) -> None:
        self._open: dict[Any, float | None] = {}
        """When each connection began; None once its request has come."""
        self._lock = threading.Lock()
        self.streams = threading.Semaphore(STREAMS)
        self.ending = threading.Event()
        super().__init__((host, port), partial(_Page, host, site))

    def shutdown(self) -> None:
        """Answer nothing any more, and end the streams."""
        self.ending.set()
        super().shutdown()

    def verify_request(self, request: Any, _: object) -> bool:
        """Let a connection have a thread, if need be that of the oldest half request."""
        with self._lock:
            if len(self._open) >= CONNECTIONS and not self._end_half(since=time.monotonic()):
                with suppress(OSError):
                    request.send(_BUSY)
                return False
            self._open[request] = time.monotonic()
        return True

    def service_actions(self) -> None:
        """End what has sent half a request for too long; called twice a second."""
        with self._lock:
            while self._end_half(since=time.monotonic() - REQUEST_S):
                pass

    def _end_half(self, since: float) -> bool:
        """End the oldest connection of half a request if it began before a time."""
        began = {one: at for one, at in self._open.items() if at is not None and at <= since}
        if not began:
            return False
        oldest = min(began, key=began.__getitem__)
        del self._open[oldest]
        with suppress(OSError):  # its thread reads the end, and closes it
            oldest.shutdown(socket.SHUT_RDWR)
        return True

    def came(self, request: Any) -> None:
        """Note that a request has come: it is answered in any case."""
        with self._lock:
            if request in self._open:
                self._open[request] = None

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, and forget it."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that has left before it was answered."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Page(BaseHTTPRequestHandler):
    """Answers requests from this computer, and none that another page sends here."""

    timeout = REQUEST_S
    server: PageServer

    def __init__(self, host: str, site: Site, *connection: object) -> None:
        self._host, self._site = host, site
        super().__init__(*connection)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answer with a page, or with what becomes of one."""
        self.server.came(self.connection)
        port = self.connection.getsockname()[1]
        # the name of another site may be made to lead here (DNS rebinding)
        if self.headers.get("Host") not in (f"{self._host}:{port}", f"localhost:{port}"):
            self._answer(HTTPStatus.FORBIDDEN, b"this page is for this computer alone")
            return
        path = unquote(self.path)
        try:
            if path.startswith(EVENTS):
                self._follow(path.removeprefix(EVENTS))
                return
            page = self._site.page(path)
        except AutoTurboError as error:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, str(error).encode())
        else:
            self._answer(
                HTTPStatus.NOT_FOUND if page is None else HTTPStatus.OK, page or b"no page"
            )

    def _follow(self, path: str) -> None:
        """Tell what a page shows, again whenever that changes, until the browser leaves."""
        if self._site.part(path) is None:
            self._answer(HTTPStatus.NOT_FOUND, b"no page")
            return
        if not self.server.streams.acquire(blocking=False):
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, b"too many pages")
            return
        try:
            self._head(HTTPStatus.OK, "text/event-stream", {"Cache-Control": "no-store"})
            self._tell_changes(path)
        finally:
            self.server.streams.release()

    def _tell_changes(self, path: str) -> None:
        """Send an event for every change; one without a word where nothing has changed for long."""
        told, at = "", -_BEAT_S
        while True:
            try:
                event = f"data: {json.dumps(self._site.part(path))}"
            except AutoTurboError as error:
                event = f"event: trouble\ndata: {json.dumps(str(error))}"
            now = time.monotonic()
            if event != told or now - at >= _BEAT_S:
                # of a browser that has left, or takes nothing any more, this is where it is seen
                self.wfile.write(f"{event if event != told else ':'}\n\n".encode())
                told, at = event, now
            if self.server.ending.wait(TICK_S):
                return

    def _answer(self, status: HTTPStatus, page: bytes) -> None:
        """Send a page, or a line of text where it is none."""
        kind = "text/html" if status is HTTPStatus.OK else "text/plain"
        self._head(status, f"{kind}; charset=utf-8", {"Content-Length": str(len(page))})
        self.wfile.write(page)

    def _head(self, status: HTTPStatus, kind: str, more: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep requests to itself: standard error is for people."""
