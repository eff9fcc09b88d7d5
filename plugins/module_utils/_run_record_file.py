# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The file of runs: one line is appended at a time, whole and on disk, or not at all.

Everything goes through the descriptor of the folder, under a momentary lock in it. The file is rotated under the same
lock, so no other program need do that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import stat
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._file_errors import told
from ansible_collections.cleanslate.gpu.plugins.module_utils._momentary_lock import FLAGS, LockBusy
from ansible_collections.cleanslate.gpu.plugins.module_utils._momentary_lock import locked as momentary_lock
from ansible_collections.cleanslate.gpu.plugins.module_utils._whole_file import replace

NAME = "runs.jsonl"
LOCK_NAME = "runs.lock"
FILE_MODE = 0o640
FOLDER_MODE = 0o755


class RecordError(Exception):
    """The file or its folder cannot be used. The text says what was done, to what, and what came back."""


@dataclasses.dataclass(frozen=True)
class Appended:
    """healed: the last line was torn (a power loss) and has been closed; rotated: a new file was begun."""

    path: str
    healed: bool
    rotated: bool


def failure(doing: str, path: str, error: OSError) -> RecordError:
    """A sentence for people, with a next step where the cause is a usual one."""
    return RecordError(f"cannot {doing} {path}: {told(error)}")


class RecordFolder:
    """One open folder."""

    def __init__(self, handle: int, path: str) -> None:
        self.handle = handle
        self.path = path

    def open(self, name: str, flags: int, mode: int = FILE_MODE) -> int:
        """A regular file in the folder, or RecordError; FileNotFoundError passes through."""
        path = f"{self.path}/{name}"
        try:
            handle = os.open(name, flags | FLAGS, mode, dir_fd=self.handle)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise failure("open", path, error) from error
        found = os.fstat(handle)
        why = ""
        if not stat.S_ISREG(found.st_mode):
            why = "it is no regular file; look at what it is and remove it"
        elif flags & os.O_ACCMODE != os.O_RDONLY and found.st_uid not in (0, os.geteuid()):
            why = (
                f"it belongs to user id {found.st_uid}, who could change the record. Look at what is in it, then:"
                f" chown {os.geteuid()} {path}"
            )
        if why:
            os.close(handle)
            raise RecordError(f"cannot use {path}: {why}")
        return handle

    def read(self, name: str, most: int) -> bytes | None:
        """The last `most` bytes of a file, None where there is none."""
        try:
            handle = self.open(name, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with os.fdopen(handle, "rb") as file:
            try:
                size = os.fstat(handle).st_size
                file.seek(max(0, size - most))
                return file.read(most)
            except OSError as error:
                raise failure("read", f"{self.path}/{name}", error) from error

    def replace(self, name: str, data: bytes, mode: int = FILE_MODE) -> None:
        """A file as a whole. Only under the lock."""
        try:
            replace(self.handle, name, data, mode)
        except OSError as error:
            raise failure("write", f"{self.path}/{name}", error) from error

    @contextlib.contextmanager
    def locked(self, clock: Clock) -> t.Iterator[None]:
        """The momentary lock of this folder."""
        path = f"{self.path}/{LOCK_NAME}"
        handle = self.open(LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(momentary_lock(handle, path, clock))
            except LockBusy as error:
                raise RecordError(str(error)) from None
            except OSError as error:
                raise failure("lock", path, error) from error
            yield

    def append(self, line: bytes, max_bytes: int, keep: int) -> Appended:
        """One line at the end of the file. Only under the lock."""
        path = f"{self.path}/{NAME}"
        rotated = self._rotate(len(line), max_bytes, keep)
        handle = self.open(NAME, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(handle).st_size
            torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            if size == 0:
                os.fchmod(handle, FILE_MODE)  # whatever the umask is
            self._write(handle, size, b"\n" + line if torn else line)
            if size == 0:
                os.fsync(self.handle)  # its name too must survive a power loss
        except OSError as error:
            raise failure("append to", path, error) from error
        finally:
            os.close(handle)
        return Appended(path, torn, rotated)

    @staticmethod
    def _write(handle: int, size: int, data: bytes) -> None:
        """One write. Where the disk takes only a part of it, that part is taken back."""
        try:
            written = os.write(handle, data)
            if written != len(data):
                raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes were written")
            os.fsync(handle)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, size)
            raise

    def _rotate(self, more: int, max_bytes: int, keep: int) -> bool:
        try:
            size = os.stat(NAME, dir_fd=self.handle, follow_symlinks=False).st_size
        except FileNotFoundError:
            return False
        except OSError as error:
            raise failure("look at", f"{self.path}/{NAME}", error) from error
        if size == 0 or size + more <= max_bytes:
            return False
        try:
            for number in range(keep - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    self._rename(f"{NAME}.{number}", f"{NAME}.{number + 1}")
            self._rename(NAME, f"{NAME}.1")
            for name in os.listdir(self.handle):
                number_text = name[len(NAME) + 1 :] if name.startswith(f"{NAME}.") else ""
                if number_text.isdecimal() and int(number_text) > keep:  # keep was larger once
                    os.unlink(name, dir_fd=self.handle)
        except OSError as error:
            raise failure("rotate", f"{self.path}/{NAME}", error) from error
        return True

    def _rename(self, name: str, to: str) -> None:
        os.rename(name, to, src_dir_fd=self.handle, dst_dir_fd=self.handle)

    def newest_first(self) -> t.Iterator[str]:
        """The names of the file and of those rotated away from it."""
        yield NAME
        numbers = (name[len(NAME) + 1 :] for name in os.listdir(self.handle) if name.startswith(f"{NAME}."))
        for number in sorted(int(number) for number in numbers if number.isdecimal()):
            yield f"{NAME}.{number}"


@contextlib.contextmanager
def opened(path: str, *, create: bool) -> t.Iterator[RecordFolder | None]:
    """Open the folder, made 0755 where create is set. None: there is none. Raises RecordError."""
    path = os.path.normpath(path)  # with a slash at its end a symbolic link would be followed
    if create:
        try:
            os.mkdir(path, FOLDER_MODE)
            os.chmod(path, FOLDER_MODE)  # whatever the umask is
        except FileExistsError:
            pass
        except OSError as error:
            raise failure("make the folder", path, error) from error
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        cause = OSError(errno.ELOOP, os.strerror(errno.ELOOP)) if os.path.islink(path) else error
        raise failure("use the folder", path, cause) from error
    try:
        found = os.fstat(handle)
        if create and found.st_uid not in (0, os.geteuid()):
            raise RecordError(
                f"cannot use the folder {path}: it belongs to user id {found.st_uid}, who could change the record."
                f" Look at what is in it, then: chown root {path}"
            )
        if create and found.st_mode & 0o022:
            raise RecordError(
                f"cannot use the folder {path}: others may write in it (mode {stat.S_IMODE(found.st_mode):04o})."
                f" Look at what is in it, then: chmod 0755 {path}"
            )
        yield RecordFolder(handle, path)
    finally:
        os.close(handle)
