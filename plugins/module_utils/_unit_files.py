# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The files of a server unit: written beside the live ones, swapped in together, put back together.

PATH.staged waits to become PATH; PATH.previous is what PATH was before the last swap; PATH.proved is what PATH was when
the server was last proved to serve, which is not the same after two launches that failed. Staging happens while the old
server still serves and is the slow, fallible half (rendering, owners, disk space). The swap is renames only.
"""

from __future__ import annotations

import dataclasses
import os
import stat
import tempfile
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._file_errors import told
from ansible_collections.cleanslate.gpu.plugins.module_utils._server_log_mode import LOG_MODE
from ansible_collections.cleanslate.gpu.plugins.module_utils._small_file import MOST_BYTES, read_small

STAGED = ".staged"
PREVIOUS = ".previous"
PROVED = ".proved"


class UnitFileError(Exception):
    """What was being done, to which file, and what came back."""


@dataclasses.dataclass(frozen=True)
class UnitFile:
    """What one file shall be. uid and gid None: whoever the module runs as."""

    path: str
    content: bytes
    mode: int = 0o644
    uid: int | None = None
    gid: int | None = None


@dataclasses.dataclass(frozen=True)
class UnitFolder:
    """What the folder of a file shall be. uid and gid None: whoever made it.

    log: the name of a file in it that systemd appends to, and would make readable for everybody. keep: a folder that is
    there already stays as it is.
    """

    path: str
    mode: int = 0o755
    uid: int | None = None
    gid: int | None = None
    log: str = ""
    keep: bool = False

    @property
    def log_path(self) -> str:
        return os.path.join(self.path, self.log)


@dataclasses.dataclass(frozen=True)
class FileChange:
    """A file that differs (or would): its content before (None: there was none) and after."""

    path: str
    before: bytes | None
    after: bytes


def _wrong(doing: str, path: str, exc: OSError) -> UnitFileError:
    return UnitFileError(f"{doing} {path}: {told(exc)}")


def _read(path: str) -> bytes | None:
    try:
        return read_small(path)[0]
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise _wrong("cannot read", path, exc) from exc


def _is_live(wanted: UnitFile) -> bool:
    try:
        info = os.lstat(wanted.path)
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise _wrong("cannot look at", wanted.path, exc) from exc
    if not stat.S_ISREG(info.st_mode):
        raise UnitFileError(f"{wanted.path} is no regular file (a symbolic link or folder?); it is left as it is")
    return (
        stat.S_IMODE(info.st_mode) == wanted.mode
        and wanted.uid in (None, info.st_uid)
        and wanted.gid in (None, info.st_gid)
        and _read(wanted.path) == wanted.content
    )


def differing(files: t.Sequence[UnitFile]) -> tuple[FileChange, ...]:
    """Which of the files are not live as wanted (content, mode or owner). Reads only."""
    return tuple(FileChange(file.path, _read(file.path), file.content) for file in files if not _is_live(file))


def _write(wanted: UnitFile, path: str) -> None:
    folder, name = os.path.split(path)
    if len(wanted.content) > MOST_BYTES:
        raise UnitFileError(f"{path} would have {len(wanted.content)} bytes, and more than {MOST_BYTES} are never read")
    try:
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
    except OSError as exc:
        raise _wrong("cannot write into", folder, exc) from exc
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(wanted.content)
            stream.flush()
            # The mode is set before the name exists: a secret is never readable for an instant.
            os.fchmod(stream.fileno(), wanted.mode)
            if wanted.uid is not None or wanted.gid is not None:
                os.fchown(
                    stream.fileno(), -1 if wanted.uid is None else wanted.uid, -1 if wanted.gid is None else wanted.gid
                )
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as exc:
        _remove(temporary)
        raise _wrong("cannot write", path, exc) from exc


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise _wrong("cannot remove", path, exc) from exc
    return True


def stage(files: t.Sequence[UnitFile]) -> tuple[FileChange, ...]:
    """Write what differs beside the live files; nothing that is live changes. All or nothing."""
    changes = differing(files)
    paths = {change.path for change in changes}
    written: list[str] = []
    try:
        for file in files:
            if file.path in paths:
                _write(file, file.path + STAGED)
                written.append(file.path + STAGED)
            else:
                _remove(file.path + STAGED)
    except UnitFileError:
        for path in written:
            _remove(path)
        raise
    return changes


def folders_differing(folders: t.Sequence[UnitFolder]) -> tuple[str, ...]:
    """Which folders and logs are not there as wanted (mode or owner). Reads only."""
    wrong = [folder.path for folder in folders if not _is_there(folder)]
    return (*wrong, *(folder.log_path for folder in folders if folder.log and not _is_closed(folder)))


def make_folders(folders: t.Sequence[UnitFolder]) -> tuple[str, ...]:
    """Make what is missing, parents too, and correct mode and owner. Returns the paths changed, logs last."""
    changed = []
    for folder in folders:
        if _is_there(folder):
            continue
        try:
            os.makedirs(os.path.dirname(folder.path), 0o755, exist_ok=True)
            if not os.path.isdir(folder.path):
                # For nobody else until owner and mode are right.
                os.mkdir(folder.path, 0o700)
            handle = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if folder.uid is not None or folder.gid is not None:
                    os.fchown(
                        handle, -1 if folder.uid is None else folder.uid, -1 if folder.gid is None else folder.gid
                    )
                os.fchmod(handle, folder.mode)
            finally:
                os.close(handle)
        except OSError as exc:
            raise _wrong("cannot make the folder", folder.path, exc) from exc
        changed.append(folder.path)
    for folder in folders:
        if folder.log and not _is_closed(folder):
            _close(folder)
            changed.append(folder.log_path)
    return tuple(changed)


def _is_closed(folder: UnitFolder) -> bool:
    """Whether the log is there for its owner only. What stands in it is never touched."""
    try:
        info = os.lstat(folder.log_path)
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise _wrong("cannot look at", folder.log_path, exc) from exc
    if not stat.S_ISREG(info.st_mode):
        raise UnitFileError(
            f"{folder.log_path} is no regular file (a symbolic link?), and the server's keys would go wherever it"
            " leads; move it away, or name another file for the log"
        )
    return not info.st_mode & 0o077 and folder.uid in (None, info.st_uid)


def _close(folder: UnitFolder) -> None:
    # Neither through a link nor into a pipe, should one have come there since the look.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(folder.log_path, flags, LOG_MODE)
        try:
            os.fchmod(handle, LOG_MODE)
            if folder.uid is not None:
                os.fchown(handle, folder.uid, -1)
        finally:
            os.close(handle)
    except OSError as exc:
        raise _wrong("cannot close to others", folder.log_path, exc) from exc


def _is_there(folder: UnitFolder) -> bool:
    try:
        info = os.stat(folder.path)
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise _wrong("cannot look at", folder.path, exc) from exc
    if not stat.S_ISDIR(info.st_mode):
        raise UnitFileError(f"{folder.path} must be a folder and is none; move away what is there")
    return folder.keep or (
        stat.S_IMODE(info.st_mode) == folder.mode
        and folder.uid in (None, info.st_uid)
        and folder.gid in (None, info.st_gid)
    )


def staged(paths: t.Sequence[str]) -> tuple[str, ...]:
    """The paths for which something waits to be swapped in."""
    return tuple(path for path in paths if os.path.lexists(path + STAGED))


def install(paths: t.Sequence[str]) -> tuple[str, ...]:
    """Swap in what is staged and keep what was live as PATH.previous. Returns the paths swapped. All or nothing."""
    done: list[str] = []
    for path in staged(paths):
        try:
            _remove(path + PREVIOUS)
            if os.path.lexists(path):
                os.link(path, path + PREVIOUS, follow_symlinks=False)
            os.replace(path + STAGED, path)
        except (OSError, UnitFileError) as exc:
            restore(done)
            why = told(exc) if isinstance(exc, OSError) else exc
            raise UnitFileError(f"cannot swap in {path}: {why}; every file is as it was before") from exc
        done.append(path)
    return tuple(done)


def restore(paths: t.Sequence[str]) -> tuple[str, ...]:
    """Put back what was live before install(); a file that install() created is removed. Returns the paths changed.

    What still waits to be swapped in never was: it is thrown away, and what is live stays. So a caller who does not
    know how far install() got can give all that was staged.
    """
    done: list[str] = []
    for path in paths:
        if _remove(path + STAGED):
            continue
        if os.path.lexists(path + PREVIOUS):
            try:
                os.replace(path + PREVIOUS, path)
            except OSError as exc:
                raise _wrong("cannot put back", path, exc) from exc
            done.append(path)
        elif _remove(path):
            done.append(path)
    return tuple(done)


def discard(paths: t.Sequence[str]) -> tuple[str, ...]:
    """Throw away what is staged. Returns the paths for which something was."""
    return tuple(path for path in paths if _remove(path + STAGED))


def unproved(paths: t.Sequence[str]) -> tuple[str, ...]:
    """The paths whose live file is not the one that was there when the server was last proved to serve."""
    return tuple(path for path in paths if not _same(path, path + PROVED))


def prove(paths: t.Sequence[str]) -> tuple[str, ...]:
    """Keep a copy of what is live as PATH.proved. Returns the paths for which that was something else before."""
    done = unproved(paths)
    for path in done:
        _copy(path, path + PROVED)
    return done


def reinstatable(paths: t.Sequence[str]) -> tuple[str, ...]:
    """The paths that reinstate() would change. Raises where nothing was ever proved."""
    if not any(os.path.lexists(path + PROVED) for path in paths):
        raise UnitFileError(
            f"no server was ever proved to serve with {', '.join(paths)}: there is nothing to go back to"
        )
    for path in paths:
        _read(path + PROVED)  # what cannot be read is told here, before the server is stopped for it
    return unproved(paths)


def reinstate(paths: t.Sequence[str]) -> tuple[str, ...]:
    """Make what was proved live again, keeping what is live as PATH.previous. All or nothing; returns the paths
    changed, none where just that is live."""
    done: list[str] = []
    for path in reinstatable(paths):
        try:
            _link(path, path + PREVIOUS)
            _copy(path + PROVED, path)
        except UnitFileError as exc:
            restore(done)
            raise UnitFileError(f"cannot go back to the proved {path}: {exc}; every file is as it was before") from exc
        done.append(path)
    return tuple(done)


def _same(one: str, other: str) -> bool:
    """Whether both are alike in text, mode and owner, or both are not there. Two names of one file are not: whoever
    writes into it changes both."""
    try:
        first, second = (os.lstat(path) if os.path.lexists(path) else None for path in (one, other))
    except OSError as exc:
        raise _wrong("cannot look at", one, exc) from exc
    if first is None or second is None:
        return first is second
    alike = all(getattr(first, name) == getattr(second, name) for name in ("st_mode", "st_uid", "st_gid"))
    return not os.path.samestat(first, second) and alike and _read(one) == _read(other)


def _copy(source: str, path: str) -> None:
    """The same text, mode and owner in a file of its own, in place of whatever has the name; where there is no source,
    nobody has the name any more.

    The owner of the live file may write into it: a second name for it would be written to as well.
    """
    try:
        content, info = read_small(source, follow=False)
    except FileNotFoundError:
        _remove(path)
        return
    except OSError as exc:
        raise _wrong("cannot read", source, exc) from exc
    _write(UnitFile(path, content, stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid), path)


def _link(source: str, path: str) -> None:
    """A second name for a file that is about to be replaced, in place of whatever has it; where there is no file,
    nobody has the name any more."""
    if not os.path.lexists(source):
        _remove(path)
        return
    temporary = f"{path}.new"
    _remove(temporary)
    try:
        os.link(source, temporary, follow_symlinks=False)
        os.replace(temporary, path)
    except OSError as exc:
        raise _wrong(f"cannot keep {source} as", path, exc) from exc
    finally:
        # Renaming one name of a file to another name of it does nothing, and leaves both.
        _remove(temporary)
