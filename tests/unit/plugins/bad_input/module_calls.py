# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A module's main() in this process, with whatever it does to the machine written down by the interpreter itself."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pathlib
import sys
import types
import typing as t
from unittest import mock

from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args

from ansible_collections.cleanslate.gpu.plugins.modules import gpu_host_lock

MODULES = sorted(path.stem for path in pathlib.Path(gpu_host_lock.__file__).parent.glob("*.py"))
Spec = dict[str, dict[str, t.Any]]

# Audit events of CPython that change something outside this process or reach beyond it.
_TOUCHES = (
    "subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system",
    "os.kill", "os.killpg", "signal.pthread_kill",
    "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg",
    "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.truncate",
    "os.utime", "os.setxattr", "os.removexattr", "fcntl.flock", "fcntl.lockf", "tempfile.mkstemp", "tempfile.mkdtemp",
)  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Stopped(BaseException):
    """The module was about to touch the machine. Nothing that it can catch."""


class Touched:
    """What was about to be done to the machine while somebody watched. It is not done."""

    def __init__(self) -> None:
        self.watching = False
        self.seen: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[t.Any, ...]) -> None:
        if not self.watching:
            return
        touches = event in _TOUCHES
        if event == "open" and isinstance(arguments[2], int):
            touches = bool(arguments[2] & _WRITING)
        if touches:
            self.seen.append(f"{event} {str(arguments)[:200]}")
            raise Stopped

    @contextlib.contextmanager
    def watch(self) -> t.Iterator[list[str]]:
        self.seen = []
        self.watching = True
        try:
            yield self.seen
        finally:
            self.watching = False


TOUCHED = Touched()  # an audit hook cannot be taken away again, so there is one


def module(name: str) -> types.ModuleType:
    return importlib.import_module(f"ansible_collections.cleanslate.gpu.plugins.modules.{name}")


class _Asked(Exception):
    pass


def specification(name: str) -> Spec:
    """The argument specification as the module gives it to Ansible."""
    found: list[Spec] = []

    def ask(*, argument_spec: Spec, **dummy: t.Any) -> t.NoReturn:
        found.append(argument_spec)
        raise _Asked

    code = module(name)
    kept = code.AnsibleModule
    code.AnsibleModule = ask  # type: ignore[attr-defined]
    try:
        with contextlib.suppress(_Asked):
            code.main()
    finally:
        code.AnsibleModule = kept  # type: ignore[attr-defined]
    return found[0]


class Answer(t.NamedTuple):
    result: dict[str, t.Any]
    touched: list[str]


def call(name: str, arguments: t.Mapping[str, t.Any], *, check: bool = False) -> Answer:
    """One execution, up to where it would touch the machine. An exception that it does not answer for passes
    through."""
    code = module(name)
    said = io.StringIO()
    given = {**arguments, "_ansible_check_mode": check, "_ansible_no_log": False}
    basic._ANSIBLE_ARGS = None
    with (
        # Syslog takes no NUL, which Ansible would say before the module does.
        mock.patch.object(code.AnsibleModule, "log", return_value=None),
        patch_module_args(given),
        contextlib.redirect_stdout(said),
        TOUCHED.watch() as touched,
        contextlib.suppress(SystemExit, Stopped),
    ):
        code.main()
    lines = said.getvalue().strip().splitlines() or ["{}"]
    return Answer(json.loads(lines[-1]), list(touched))
