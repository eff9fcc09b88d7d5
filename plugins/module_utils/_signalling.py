# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Sending a signal to exactly the process that was looked at, and waiting for it to be gone.

A PID can be taken over by another process between the look and the signal. A pidfd cannot: it stays with the process
it was opened for. Where the kernel (before 5.3) or a sandbox has none, the start time is read again right before the
signal, which leaves a gap of some microseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import select
import signal
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock, SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._left_behind import is_there, read_stat

# The same numbers on every architecture that has these calls, alpha excepted.
_SYS_PIDFD_SEND_SIGNAL = 424
_SYS_PIDFD_OPEN = 434

# What pidfd_open answers where it cannot be had at all, as opposed to "no such process".
_NO_PIDFD = (errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EINVAL, errno.EMFILE, errno.ENFILE, errno.ENODEV)

# Descriptors that pidfds leave to the looks that follow: a child with a pipe for each processor, and its tables.
_SPARE = 48

# Seconds between looks at processes that have no pidfd.
_LIVENESS_INTERVAL = 0.01

SendOutcome = t.Literal["sent", "gone", "refused"]


class Aim(t.Protocol):
    """One process, held on to by identity."""

    def send(self, signum: int) -> SendOutcome:
        """Send. gone: it had ended already, which is as good. refused: the kernel does not let us."""

    def gone(self) -> bool:
        """Whether the process has ended, all of its threads included."""

    def close(self) -> None:
        """Let go of it."""


class Signaller(t.Protocol):
    """Where aims come from. None: no process with this PID and this start time is there any more."""

    def aim(self, pid: int, start_time: int) -> Aim | None: ...

    def wait(self, aims: t.Sequence[Aim], seconds: float) -> bool:
        """Wait until one of them has ended (True), at most so many seconds."""


def wait_for_ends(
    signaller: Signaller, aims: t.Collection[Aim], seconds: float, clock: Clock, *, together: bool
) -> bool:
    """Until one of them has ended (together: until all have), or the time is over. Whether one has."""
    deadline = clock.monotonic() + seconds
    ended = False
    while True:
        # What a scan still shows of those that ended (a leader that nobody reaps) is not worth waking up for.
        alive = [aim for aim in aims if not aim.gone()]
        left = max(deadline - clock.monotonic(), 0.0)
        if (together and not alive) or (ended and (not together or left <= 0)):
            return True
        if not signaller.wait(alive, left):
            return ended
        ended = True


def start_time_of(pid: int, proc_root: str = "/proc") -> int | None:
    """Field 22 of /proc/PID/stat, None where there is no such process. The name in it may hold anything."""
    try:
        with open(f"{proc_root}/{pid}/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
        return int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def pidfd_open(pid: int) -> int:
    """os.pidfd_open, also on a Python that was built without it."""
    native = getattr(os, "pidfd_open", None)
    if native is not None:
        return int(native(pid))
    return _syscall(_SYS_PIDFD_OPEN, pid, 0)


def pidfd_send_signal(fd: int, signum: int) -> None:
    """signal.pidfd_send_signal, also on a Python that was built without it."""
    native = getattr(signal, "pidfd_send_signal", None)
    if native is not None:
        native(fd, signum)
    else:
        _syscall(_SYS_PIDFD_SEND_SIGNAL, fd, signum, None, 0)


def _syscall(number: int, *arguments: int | None) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    values = [ctypes.c_void_p(None) if value is None else ctypes.c_long(value) for value in arguments]
    result = int(libc.syscall(ctypes.c_long(number), *values))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _outcome(action: t.Callable[[], None]) -> SendOutcome:
    try:
        action()
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        return "refused"
    return "sent"


class PidfdAim:
    """A process held by a pidfd."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._gone = False

    def fileno(self) -> int:
        return self._fd

    def send(self, signum: int) -> SendOutcome:
        return _outcome(lambda: pidfd_send_signal(self._fd, signum))

    def gone(self) -> bool:
        if not self._gone:
            poller = select.poll()
            poller.register(self._fd, select.POLLIN)
            self._gone = bool(poller.poll(0))
        return self._gone

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fd)


class StartTimeAim:
    """A process held by PID and start time, where there is no pidfd."""

    def __init__(self, pid: int, start_time: int, proc_root: str, kill: t.Callable[[int, int], None]) -> None:
        self._pid = pid
        self._start_time = start_time
        self._proc_root = proc_root
        self._kill = kill

    def send(self, signum: int) -> SendOutcome:
        if start_time_of(self._pid, self._proc_root) != self._start_time:
            return "gone"
        return _outcome(lambda: self._kill(self._pid, signum))

    def gone(self) -> bool:
        """As a pidfd tells it: a leader that nobody reaps has ended once its threads have."""
        found = read_stat(self._pid, self._proc_root)
        return found is None or found.start_time != self._start_time or not is_there(found, self._proc_root)

    def close(self) -> None:
        """Nothing is held."""


class KernelSignaller:
    """The real one. Where descriptors are scarce, later aims are held by their start time."""

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        proc_root: str = "/proc",
        open_pidfd: t.Callable[[int], int] = pidfd_open,
        kill: t.Callable[[int, int], None] = os.kill,
    ) -> None:
        self._clock: Clock = clock or SystemClock()
        self._proc_root = proc_root
        self._open_pidfd = open_pidfd
        self._kill = kill

    def aim(self, pid: int, start_time: int) -> Aim | None:
        if pid <= 1:
            raise AssertionError(f"Contract violation: asked to aim a signal at PID {pid}")
        try:
            fd = self._open_pidfd(pid)
        except ProcessLookupError:
            return None
        except OSError as error:
            if error.errno not in _NO_PIDFD:
                raise
            return self._by_start_time(pid, start_time)
        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and fd >= soft - _SPARE:
            os.close(fd)
            return self._by_start_time(pid, start_time)
        # Only now: the process the pidfd was opened for is the one whose start time is read here.
        if start_time_of(pid, self._proc_root) != start_time:
            os.close(fd)
            return None
        return PidfdAim(fd)

    def _by_start_time(self, pid: int, start_time: int) -> Aim | None:
        aim = StartTimeAim(pid, start_time, self._proc_root, self._kill)
        return None if aim.gone() else aim

    def wait(self, aims: t.Sequence[Aim], seconds: float) -> bool:
        waiting = [aim for aim in aims if not aim.gone()]
        if len(waiting) < len(aims):
            return True
        fds = [aim.fileno() for aim in waiting if isinstance(aim, PidfdAim)]
        others = [aim for aim in waiting if not isinstance(aim, PidfdAim)]
        if not waiting:
            self._clock.sleep(seconds)
            return False
        poller = select.poll()
        for fd in fds:
            poller.register(fd, select.POLLIN)
        deadline = self._clock.monotonic() + seconds
        while True:
            left = max(deadline - self._clock.monotonic(), 0.0)
            slice_s = min(left, _LIVENESS_INTERVAL) if others else left
            if poller.poll(slice_s * 1000) or any(aim.gone() for aim in others):
                return True
            if left <= 0:
                return False
