# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""A small JSON file that lasts: replaced as a whole, flushed to the disk, changed by one process at a time.

Everybody may read it. It is written through the file descriptor of its folder, which must belong to whoever writes and
must not be writable by others.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._file_errors import told, with_cure
from ansible_collections.cleanslate.gpu.plugins.module_utils._momentary_lock import FLAGS
from ansible_collections.cleanslate.gpu.plugins.module_utils._momentary_lock import locked as momentary_lock
from ansible_collections.cleanslate.gpu.plugins.module_utils._whole_file import (
    FolderRefused,
    Unreadable,
    read_document,
    replace,
)

UNREADABLE_SUFFIX = ".unreadable"
Entry = t.TypeVar("Entry")
Entry_co = t.TypeVar("Entry_co", covariant=True)


def read(path: str) -> t.Any:
    """The document, None where there is none. Raises Unreadable."""
    return read_document(path)


def units(document: t.Any, version: int, parse_entry: t.Callable[[t.Any], Entry]) -> dict[str, Entry]:
    """Every unit's entry. One that cannot be understood makes the whole unreadable. Raises Unreadable."""
    if document is None:
        return {}
    try:
        if document["version"] != version:
            raise ValueError(f"its version is {document['version']!r}, and {version} is known here")
        return {str(unit): parse_entry(item) for unit, item in document["units"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise Unreadable(f"it is not what was written here ({str(error)[:120]})") from error


class Change(t.Protocol[Entry_co]):
    """What became of one change of one unit's entry."""

    @property
    def verdict(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def failed(self) -> bool: ...
    @property
    def changed(self) -> bool: ...
    @property
    def before(self) -> Entry_co | None: ...
    @property
    def after(self) -> Entry_co | None: ...


def returned(
    found: Change[Entry], name: str, document: t.Callable[[Entry], t.Any], lines: t.Callable[[Entry | None], list[str]]
) -> dict[str, t.Any]:
    """A change as a module returns it; the entry under its name."""
    before, after = ("".join(f"{line}\n" for line in lines(entry)) for entry in (found.before, found.after))
    return {
        "changed": found.changed,
        "verdict": found.verdict,
        "reason": found.reason,
        name: document(found.after) if found.after is not None else None,
        "problem": found.reason if found.failed else None,
        "diff": {"before": before, "after": after},
    }


class LockedFile:
    """One file whose lock this process has."""

    def __init__(self, folder: int, path: str) -> None:
        self._folder = folder
        self._name = os.path.basename(path)
        self.path = path

    def replace(self, document: t.Any) -> None:
        """Whoever reads sees the old or the new document."""
        replace(self._folder, self._name, json.dumps(document, indent=1, sort_keys=True).encode("utf-8") + b"\n", 0o644)

    def set_aside(self) -> str:
        """Keep what cannot be read under another name, for a person to look at."""
        os.rename(self._name, self._name + UNREADABLE_SUFFIX, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        return self.path + UNREADABLE_SUFFIX


@contextlib.contextmanager
def locked(path: str, clock: Clock) -> t.Iterator[LockedFile]:
    """The file under its lock, in a folder that is made 0755. Raises FolderRefused, LockBusy, OSError."""
    folder, name = os.path.split(os.path.normpath(path))
    with contextlib.suppress(FileExistsError):
        _make(folder)
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        why = "it is a symbolic link or no folder" if error.errno in (errno.ELOOP, errno.ENOTDIR) else error.strerror
        raise FolderRefused(f"cannot use the folder {folder}: {why}") from error
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise FolderRefused(
                f"cannot use the folder {folder}: it belongs to user id {found.st_uid} with mode"
                f" {stat.S_IMODE(found.st_mode):04o}. It must belong to {os.geteuid()}, who runs this, and others must"
                f" not write in it: use become (root), or mend it with chown and chmod 0755"
            )
        with with_cure():
            lock = os.open(f".{name}.lock", os.O_RDWR | os.O_CREAT | FLAGS, 0o600, dir_fd=handle)
        with momentary_lock(lock, f"{folder}/.{name}.lock", clock):
            yield LockedFile(handle, os.path.join(folder, name))
    finally:
        os.close(handle)


def _make(folder: str) -> None:
    try:
        os.mkdir(folder, 0o755)
    except FileExistsError:
        raise
    except OSError as error:
        raise FolderRefused(
            f"cannot make the folder {folder} as user id {os.geteuid()}: {told(error)}."
            " The module needs become (root), or a path whose parent exists and belongs to this user"
        ) from error
    os.chmod(folder, 0o755)  # whatever the umask is
