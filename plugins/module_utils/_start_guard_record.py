# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What the start guard leaves for others to read: its verdict, the GPUs' numbers for the server, its words."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import stat
import sys
import tempfile
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._file_errors import told, with_cure
from ansible_collections.cleanslate.gpu.plugins.module_utils._start_guard_rules import GuardVerdict

_JOURNAL = "/run/systemd/journal/socket"
_MOST_BYTES = 1 << 20


class FolderRefused(Exception):
    """The folder of the verdicts cannot be used. The text says why and what to do."""


@dataclasses.dataclass(frozen=True)
class GuardRecord:
    """The verdict as JSON. refused_count: how often in a row the guard has said no in this boot. invocation_id is
    systemd's own name for this start of the unit ("" where there is none). Times are seconds since the epoch."""

    unit: str
    verdict: GuardVerdict
    reason: str
    boot_id: str
    invocation_id: str
    pid: int
    started_at: float
    updated_at: float
    gate: str | None = None
    waited_s: float = 0.0
    refused_count: int = 0
    gpus: tuple[t.Mapping[str, t.Any], ...] = ()
    holders: tuple[t.Mapping[str, t.Any], ...] = ()
    leftovers: t.Mapping[str, t.Any] | None = None

    def as_dict(self) -> dict[str, t.Any]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**fields, "gpus": list(self.gpus), "holders": list(self.holders)}


class GuardFolder:
    """The folder of the verdicts. Everybody may read what is in it, only its owner writes."""

    def __init__(self, path: str, unit: str) -> None:
        self._path = path
        self.verdict_path = os.path.join(path, f"{unit}.json")
        self.environment_path = os.path.join(path, f"{unit}.env")

    def prepare(self) -> None:
        """Make it where it is missing. FolderRefused says what stands against it."""
        try:
            if not os.path.lexists(self._path):
                os.makedirs(self._path)
                os.chmod(self._path, 0o755)  # whatever the umask says
            found = os.lstat(self._path)
        except OSError as error:
            raise FolderRefused(f"cannot make the folder {self._path}: {told(error)}") from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise FolderRefused(
                f"cannot use the folder {self._path}: it must be a folder of user id {os.geteuid()} in which nobody"
                f" else may write (it belongs to {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o})"
            )

    def refusals(self, boot_id: str) -> int:
        """How often in a row the guard said no before, in this boot. What cannot be understood counts as never."""
        try:
            with open(os.open(self.verdict_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                record = json.loads(file.read(_MOST_BYTES))
            count = record["refused_count"] if record["boot_id"] == boot_id and boot_id else 0
        except (OSError, ValueError, KeyError, TypeError):
            return 0
        return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0

    def write(self, record: GuardRecord) -> None:
        self._replace(self.verdict_path, json.dumps(record.as_dict(), indent=1, sort_keys=True) + "\n")

    def write_environment(self, numbers: str | None) -> None:
        """systemd reads it after this program has ended. None: the server sees every GPU."""
        if numbers is None:
            # On a read-only disk the kernel refuses to remove even what is not there.
            if os.path.lexists(self.environment_path):
                with with_cure(self.environment_path):
                    os.unlink(self.environment_path)
            return
        self._replace(self.environment_path, f"CUDA_DEVICE_ORDER=PCI_BUS_ID\nCUDA_VISIBLE_DEVICES={numbers}\n")

    def _replace(self, path: str, text: str) -> None:
        with with_cure(path):
            self._write_beside(path, text)

    def _write_beside(self, path: str, text: str) -> None:
        handle, temporary = tempfile.mkstemp(prefix=".guard-", dir=self._path)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


class Voice:
    """Says one line. To the journal itself where systemd runs the unit: standard error is the server's log file."""

    def __init__(self, unit: str, environment: t.Mapping[str, str], journal: str = _JOURNAL) -> None:
        self._unit = unit
        # A service manager that is not systemd gives no invocation, and then the journal is not this node's.
        there = bool(environment.get("INVOCATION_ID")) and os.path.exists(journal)
        self._journal = journal if there and not environment.get("JOURNAL_STREAM") else None

    def say(self, text: str, *, warning: bool = False) -> None:
        line = " ".join(text.split())
        if self._journal is None or not self._send(line, 4 if warning else 6):
            sys.stderr.write(f"start guard of {self._unit}: {line}\n")
            sys.stderr.flush()

    def _send(self, line: str, priority: int) -> bool:
        fields = {
            "MESSAGE": line,
            "PRIORITY": str(priority),
            "SYSLOG_IDENTIFIER": "cleanslate-guard",
            # The journal may be too late to see which unit the sender belonged to; `journalctl -u` finds this as well.
            "OBJECT_SYSTEMD_UNIT": self._unit,
        }
        data = "".join(f"{name}={value}\n" for name, value in fields.items()).encode("utf-8", "backslashreplace")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
                there.setblocking(False)
                there.sendto(data, str(self._journal))
        except OSError:
            return False
        return True
