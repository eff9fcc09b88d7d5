# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Running a command under a deadline that holds even when the command cannot be killed."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import selectors
import shutil
import signal
import subprocess
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._left_behind import LeftBehind, group_survivor
from ansible_collections.cleanslate.gpu.plugins.module_utils._service_account import Account

MOST_OUTPUT = 8 * 1024 * 1024  # bytes that are kept of each stream: more is no answer to anything that is asked here
KILL_GRACE = 1.0  # how long a killed command may take to disappear; more than enough unless it is in state D


@dataclasses.dataclass(frozen=True)
class CommandResult:
    """What became of one command. exit_code is negative for a signal, None when it timed out or never started."""

    argv: tuple[str, ...]
    exit_code: int | None
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False
    hung_pid: int | None = None  # started, killed at the deadline, and still there: left behind
    error: str | None = None  # could not be started: "not_found", "not_permitted", or the text of the system


class Runner(t.Protocol):
    """Runs a command and always comes back: about at the timeout at the latest."""

    def __call__(self, argv: t.Sequence[str], timeout: float) -> CommandResult: ...


class CommandRunner:
    """The real Runner.

    environment is added to that of this process, or is all there is without `inherit`. account is the user as whom the
    command runs; only root can name another one. memory is the folder in which a command that had to be left behind is
    remembered; while that process is there no second one of the same tool is started, and the result says timed_out
    with its pid.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        environment: t.Mapping[str, str] | None = None,
        inherit: bool = True,
        account: Account | None = None,
        memory: str | None = None,
        kill_group: t.Callable[[int, int], None] = os.killpg,
    ) -> None:
        self._clock = clock
        self._environment = {**(os.environ if inherit else {}), **(environment or {}), "LC_ALL": "C"}
        self._account = account
        self._memory = LeftBehind(memory)
        self._kill_group = kill_group

    def __call__(self, argv: t.Sequence[str], timeout: float) -> CommandResult:
        command = tuple(argv)
        found = shutil.which(command[0], path=self._environment.get("PATH", os.defpath))
        tool = os.path.realpath(found or command[0])
        earlier = self._memory.recall(tool)
        if earlier is not None:
            return CommandResult(command, None, "", "", 0.0, timed_out=True, hung_pid=earlier)
        started = self._clock.monotonic()
        try:
            # run_command of Ansible waits without limit for a child in state D, and there is no Ansible in the core.
            process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
                **_identity(self._account),
            )
        except (OSError, ValueError) as error:
            return CommandResult(
                command, None, "", "", self._clock.monotonic() - started, error=_start_error(error, found)
            )
        output = _Output(process, self._clock)
        try:
            ended = output.collect(started + timeout)
            hung_pid = None if ended else self._end(process)
        except BaseException:
            with contextlib.suppress(OSError):
                self._kill_group(process.pid, signal.SIGKILL)
            raise
        finally:
            output.close()
        if hung_pid is not None:
            self._memory.remember(tool, hung_pid)
        return CommandResult(
            command,
            process.returncode if ended else None,
            output.text(0),
            output.text(1),
            self._clock.monotonic() - started,
            timed_out=not ended,
            hung_pid=hung_pid,
            error=f"it printed more than {MOST_OUTPUT >> 20} MiB" if output.too_much else None,
        )

    def _end(self, process: subprocess.Popen[bytes]) -> int | None:
        """Kill the whole group; the pid of a process that is still there afterwards, or None."""
        with contextlib.suppress(OSError):
            self._kill_group(process.pid, signal.SIGKILL)
        until = self._clock.monotonic() + KILL_GRACE
        while True:
            # A wrapper script dies while the tool that it started is stuck: the group counts, not only the leader.
            survivor = process.pid if process.poll() is None else group_survivor(process.pid)
            if survivor is None or self._clock.monotonic() >= until:
                return survivor
            self._clock.sleep(0.02)


class _Output:
    """Both streams of a child, read without blocking."""

    def __init__(self, process: subprocess.Popen[bytes], clock: Clock) -> None:
        self._process = process
        self._clock = clock
        self._parts: tuple[list[bytes], list[bytes]] = ([], [])
        self._kept = 0
        self.too_much = False
        self._selector = selectors.DefaultSelector()
        for parts, stream in zip(self._parts, (process.stdout, process.stderr)):
            if stream is None:
                raise AssertionError("Contract violation: the child was started without pipes")
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, parts)

    def collect(self, deadline: float) -> bool:
        """Read until the child has ended (True) or the deadline has come (False).

        The end of the child decides, not the end of the streams: something that it started may hold them open.
        """
        pause = 0.001
        while True:
            ended = self._process.poll() is not None
            while self._read_some(0.0) and self._clock.monotonic() < deadline:
                pass
            if ended:
                return True
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return False
            if self._selector.get_map():
                self._selector.select(min(left, 0.05))
            else:
                self._clock.sleep(min(left, pause))
                pause = min(pause * 2, 0.05)

    def _read_some(self, wait: float) -> bool:
        """Read once from each stream that has something; False where there was nothing to read."""
        if not self._selector.get_map():
            return False
        ready = self._selector.select(wait)
        for key, _events in ready:
            try:
                data = os.read(key.fd, 65536)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if data and self._kept > MOST_OUTPUT:
                self.too_much = True  # read on, so that the child can end
            elif data:
                self._kept += len(data)
                key.data.append(data)
            else:
                self._selector.unregister(key.fileobj)
        return bool(ready)

    def close(self) -> None:
        self._selector.close()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def text(self, number: t.Literal[0, 1]) -> str:
        return "" if self.too_much else b"".join(self._parts[number]).decode("utf-8", "replace")


def _identity(account: Account | None) -> dict[str, t.Any]:
    """How subprocess is told to become that user. /: the folder of this process may be closed to it."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": sorted(account.gids), "cwd": "/"}


def _start_error(error: Exception, found: str | None) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOENT, errno.ENOTDIR) and found is None:
        return "not_found"
    if number in (errno.EACCES, errno.EPERM):
        return "not_permitted"
    # A script whose interpreter is missing ends here too: the file is there, so "not found" would mislead.
    return str(error)
