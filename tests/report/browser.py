"""Headless Chromium, driven over its DevTools protocol.

Whatever a page writes to the console as a warning or an error, every exception, and every address
that it asks for are kept, so that a test can say that there were none.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-port=0",
)  # fmt: skip

_PATIENCE_S = 60.0
"""For anything that a page is waited for; a busy machine is slow."""


@dataclass(eq=False)
class Page:
    """A tab.

    Attributes:
        socket: to the browser.
        session: of the tab.
        complaints: warnings, errors and exceptions so far.
        asked: addresses that were asked for.
    """

    socket: ClientConnection
    session: str
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    _number: int = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        self.socket.send(json.dumps({**request, "sessionId": self.session}))
        while True:
            said = json.loads(self.socket.recv(timeout=_PATIENCE_S))
            if said.get("id") == self._number and said.get("sessionId") == self.session:
                assert "error" not in said, said
                result: dict[str, Any] = said["result"]
                return result
            self._note(said)

    def _note(self, said: dict[str, Any]) -> None:
        values = said.get("params", {})
        match said.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(values["exceptionDetails"])[:500])
            case "Runtime.consoleAPICalled" if values["type"] in ("warning", "error", "assert"):
                self.complaints.append(json.dumps(values["args"])[:500])
            case "Log.entryAdded" if values["entry"]["level"] in ("warning", "error"):
                self.complaints.append(values["entry"]["text"])
            case "Network.requestWillBeSent":
                self.asked.append(values["request"]["url"])

    def open(self, file: Path, *, drawn: bool = True) -> Self:
        """Load a page and wait until its figures are drawn, where it draws any."""
        address, end = file.resolve().as_uri(), time.monotonic() + _PATIENCE_S
        self.call("Page.navigate", url=address)
        ready = "document.documentElement?.dataset.drawn === 'yes'"
        if not drawn:
            ready = f"document.URL === '{address}' && document.readyState === 'complete'"
        while not self.run(ready):
            assert not self.complaints, self.complaints
            assert time.monotonic() < end, "the figures were not drawn"
            time.sleep(0.05)
        return self

    def run(self, script: str) -> Any:
        """What an expression is; a promise is waited for."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def size(self, width: int, height: int) -> None:
        """Give the window a size in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        # two frames later all listeners of the new size have drawn
        self.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 300)))")

    def prefer(self, scheme: str, media: str = "") -> None:
        """``"light"`` or ``"dark"``; for ``"print"``, as on paper."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key."""
        text = {"Enter": "\r", "Space": " "}.get(key, key if len(key) == 1 else "")
        named = {"Space": " "}.get(key, key)
        code = {"Enter": 13, "Space": 32, "Tab": 9}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            said = text if kind == "keyDown" else ""
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=named, text=said,
                windowsVirtualKeyCode=code, modifiers=8 if shift else 0,
            )  # fmt: skip

    def type(self, selector: str, text: str) -> None:
        """Put a text into a field, as keys would, and wait for what that shows."""
        self.run(f"(e => {{ e.focus(); e.select(); }})(document.querySelector('{selector}'))")
        if text:
            self.call("Input.insertText", text=text)
        else:
            self.call("Input.dispatchKeyEvent", type="keyDown", key="Delete",
                      windowsVirtualKeyCode=46)  # fmt: skip
        self.run("new Promise(done => setTimeout(done, 200))")

    def point(self, selector: str) -> None:
        """Move the pointer to the middle of an element, and wait for what that shows."""
        middle = self.run(
            f"(() => {{ const e = document.querySelector('{selector}');"
            " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " return [r.left + r.width / 2, r.top + r.height / 2]; })()"
        )
        for step in (1, 0):  # two moves: the first one enters
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=middle[0] - step,
                      y=middle[1])  # fmt: skip
        self.run("new Promise(done => setTimeout(done, 200))")

    def picture(self, file: Path, *, whole: bool = False) -> None:
        """A screenshot, as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **(
            {"clip": self._whole()} if whole else {}))  # fmt: skip
        file.write_bytes(base64.b64decode(shot["data"]))

    def _whole(self) -> dict[str, float]:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}

    def paper(self, file: Path) -> None:
        """Print, as PDF."""
        printed = self.call("Page.printToPDF", printBackground=False, paperWidth=8.27,
                            paperHeight=11.69)  # fmt: skip
        file.write_bytes(base64.b64decode(printed["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A browser with one empty tab; ``folder`` is its profile and must be new."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = _address(process)
            with connect(address, max_size=None, open_timeout=_PATIENCE_S) as socket:
                yield _tab(socket)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"DevTools listening on (ws://\S+)", line):
            return found[1]
    raise AssertionError("Chromium did not start")


def _tab(socket: ClientConnection) -> Page:
    target = _to_browser(socket, "Target.createTarget", {"url": "about:blank"})["targetId"]
    attach = {"targetId": target, "flatten": True}
    page = Page(socket, _to_browser(socket, "Target.attachToTarget", attach)["sessionId"])
    for domain in ("Runtime", "Log", "Network", "Page"):
        page.call(f"{domain}.enable")
    return page


def _to_browser(
    socket: ClientConnection, method: str, parameters: dict[str, Any]
) -> dict[str, Any]:
    socket.send(json.dumps({"id": 0, "method": method, "params": parameters}))
    while True:
        said = json.loads(socket.recv(timeout=_PATIENCE_S))
        if said.get("id") == 0:
            result: dict[str, Any] = said["result"]
            return result
