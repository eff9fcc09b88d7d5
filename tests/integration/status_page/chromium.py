# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A headless Chromium, spoken to in the DevTools protocol through two pipes: each message is JSON and a NUL."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import tempfile
import time
import typing as t

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60.0  # seconds for one answer, on a loaded machine
_FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run", "--no-default-browser-check",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--proxy-server=127.0.0.1:1", "--force-color-profile=srgb",
)  # fmt: skip


def find() -> str | None:
    """The browser of this machine."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Chromium:
    """One browser with one page. Made by opened()."""

    def __init__(self, program: str) -> None:
        self._home = pathlib.Path(tempfile.mkdtemp(prefix="cleanslate-chromium-"))
        hears, self._ask = os.pipe()
        self._answer, says = os.pipe()
        # Out of the way of 3 and 4, which the browser reads from and writes to.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (hears, says)]
        arguments = [program, *_FLAGS, f"--user-data-dir={self._home}"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # it refuses to run as root otherwise; the pages are our own
        log = os.open(self._home / "log", os.O_WRONLY | os.O_CREAT, 0o600)
        self._pid = os.posix_spawn(
            program, [*arguments, "about:blank"], {**os.environ, "HOME": str(self._home)}, setpgroup=0,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2),
                (os.POSIX_SPAWN_DUP2, ends[0], 3), (os.POSIX_SPAWN_DUP2, ends[1], 4),
            ],
        )  # fmt: skip
        for fd in (hears, says, log, *ends):
            os.close(fd)
        self._number = 0
        self._read = b""
        self._session: str | None = None
        self.events: list[dict[str, t.Any]] = []

    def attach(self) -> None:
        """Open the page that is spoken to from now on."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def end(self) -> None:
        """End the browser and remove what it wrote."""
        os.close(self._ask)
        os.close(self._answer)
        # Its own group, so only what was started here.
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(self._pid, 0)
        shutil.rmtree(self._home, ignore_errors=True)

    def _message(self, deadline: float) -> dict[str, t.Any]:
        while b"\0" not in self._read:
            if not select.select([self._answer], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium said nothing for {PATIENCE:.0f} s: {self._log()}")
            piece = os.read(self._answer, 1 << 20)
            if not piece:
                raise ConnectionError(f"Chromium has ended: {self._log()}")
            self._read += piece
        message, self._read = self._read.split(b"\0", 1)
        return t.cast("dict[str, t.Any]", json.loads(message))

    def _log(self) -> str:
        return (self._home / "log").read_text(errors="replace")[-2000:]

    def ask(self, method: str, **parameters: t.Any) -> dict[str, t.Any]:
        """One command and its answer; what happened meanwhile is kept in events."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._ask, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._message(deadline)
            if answer.get("id") != self._number:
                self.events.append(answer)
            elif "error" in answer:
                raise ValueError(f"{method}: {answer['error']}")
            else:
                return t.cast("dict[str, t.Any]", answer["result"])

    def show(self, path: pathlib.Path, width: int, scheme: str, height: int = 900) -> None:
        """Open a page on a screen of this width, in light or dark."""
        self.events.clear()
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 800}
        self.ask("Emulation.setDeviceMetricsOverride", **metrics)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Page.navigate", url=path.as_uri())
        deadline = time.monotonic() + PATIENCE
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message(deadline))

    def evaluate(self, expression: str) -> t.Any:
        """The value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise ValueError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def complaints(self) -> list[dict[str, t.Any]]:
        """What the console has shown since the page was opened, and dialogs."""
        asked = (
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
            "Page.javascriptDialogOpening",
        )
        return [event for event in self.events if event.get("method") in asked]

    def fetched(self) -> list[str]:
        """Every address that the page has asked for since it was opened."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def picture(self, path: pathlib.Path, height: int | None = None) -> None:
        """The page as PNG, whole or down to a height."""
        size = self.evaluate("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], height or size[1]), "scale": 1}
        shot = self.ask("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextlib.contextmanager
def opened(program: str) -> t.Iterator[Chromium]:
    """A browser with an empty page, ended behind the block."""
    browser = Chromium(program)
    try:
        browser.attach()
        yield browser
    finally:
        browser.end()
