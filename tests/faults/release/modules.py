# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules of one tree of the collection, at a test's service: each call is a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
import typing as t

SERVER = pathlib.Path(__file__).with_name("module_server.py")
GUARD = "_start_guard_program"


@dataclasses.dataclass(frozen=True)
class Answer:
    """How one module ended. result: what it printed; of the start guard the record that it wrote."""

    rc: int
    result: dict[str, t.Any]
    said: str
    seconds: float


class DidNotEnd(AssertionError):
    """The module was still running when its time was over."""


class Modules:
    """A server that has imported the modules from one tree. root is the folder with ansible_collections in it."""

    def __init__(self, root: pathlib.Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
            start_new_session=True, cwd="/",
        )  # fmt: skip
        ready = self._line(60.0, lambda: None)
        if not ready:
            raise AssertionError(f"the modules of {root} could not be imported")
        self.core = pathlib.Path(ready["ready"]).parent

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _line(self, seconds: float, meanwhile: t.Callable[[], None]) -> dict[str, t.Any]:
        """The server's next line; what has to be done meanwhile is done again and again."""
        assert self._process.stdout is not None
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self._process.stdout], [], [], 0.01)[0]:
                line = self._process.stdout.readline()
                return json.loads(line) if line else {}
            meanwhile()
        return {}

    def call(
        self,
        request: t.Mapping[str, t.Any],
        folder: pathlib.Path,
        *,
        seconds: float,
        meanwhile: t.Callable[[], None] = lambda: None,
    ) -> Answer:
        """Run one module. DidNotEnd where it takes longer than that, and then it is ended."""
        out, err = folder / "module.out", folder / "module.err"
        for path in (out, err):
            path.write_text("")
            path.chmod(0o666)
        arguments = folder / "module.json"
        arguments.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": request.get("params", {})}))
        assert self._process.stdin is not None
        asked = {"out": str(out), "err": str(err), "arguments": str(arguments), **request}
        began = time.monotonic()
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        pid = self._line(30.0, meanwhile)["pid"]
        ended = self._line(seconds, meanwhile)
        took = time.monotonic() - began
        if not ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            self._line(30.0, meanwhile)
            raise DidNotEnd(f"{request['module']} was still running after {seconds:g} s: {err.read_text()[-2000:]}")
        printed, said = out.read_text(), err.read_text()
        if request["module"] == GUARD:
            written = folder / "guard" / "fault.service.json"
            return Answer(ended["rc"], json.loads(written.read_text()) if written.exists() else {}, said, took)
        if not printed.strip().startswith("{"):
            raise AssertionError(f"{request['module']} printed no result, rc {ended['rc']}: {printed!r} {said[-3000:]}")
        return Answer(ended["rc"], json.loads(printed), said, took)
