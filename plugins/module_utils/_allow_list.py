# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What the owner of a GPU host allows at most, whatever an inventory says: /etc/cleanslate/allowed.json on that host.

{"lxc": [101, 102], "gpus": ["GPU-…"]}: containers whose holders may be ended, GPUs that may be released. A key that is
missing allows all. The path is no option on purpose, and the file counts only if nobody but root can have written it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._file_errors import told
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._momentary_lock import FLAGS

ALLOWED = "/etc/cleanslate/allowed.json"
_KEYS = ("lxc", "gpus")
_MOST_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Allowed:
    """None: everything."""

    lxc: frozenset[str] | None = None
    gpus: frozenset[str] | None = None


class AllowListError(Exception):
    """The list is there but cannot be trusted or understood; nothing is allowed then."""


def read_allowed(path: str = ALLOWED, *, owner: int = 0) -> Allowed:
    """The list; a file that is not there allows everything."""
    try:
        handle = os.open(path, os.O_RDONLY | FLAGS)
    except FileNotFoundError:
        return Allowed()
    except OSError as exc:
        raise AllowListError(f"the allow-list {path} of this host cannot be read: {told(exc)}") from exc
    text = _text(handle, path, owner)
    try:
        data: t.Any = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise AllowListError(f"the allow-list {path} of this host is no JSON: {exc}") from exc
    if not isinstance(data, dict) or any(key not in _KEYS or not isinstance(data[key], list) for key in data):
        raise AllowListError(f'the allow-list {path} of this host must look like {{"lxc": [101], "gpus": ["GPU-…"]}}')
    sets = {key: frozenset(str(value) for value in data[key]) for key in data}
    return Allowed(lxc=sets.get("lxc"), gpus=sets.get("gpus"))


def _text(handle: int, path: str, owner: int) -> bytes:
    """What is in the open file, which is closed."""
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise AllowListError(f"the allow-list {path} of this host is no regular file; look at what it is")
        if info.st_uid != owner or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise AllowListError(f"the allow-list {path} of this host must belong to root and be writable by root only")
        if info.st_size > _MOST_BYTES:
            raise AllowListError(f"the allow-list {path} of this host is longer than {_MOST_BYTES} bytes")
        return os.read(handle, _MOST_BYTES)
    except OSError as exc:
        raise AllowListError(f"the allow-list {path} of this host cannot be read: {told(exc)}") from exc
    finally:
        os.close(handle)


def refusal(scope: Scope, allowed: Allowed, path: str = ALLOWED) -> str | None:
    """Why the host's owner does not allow this scope; None when he does."""
    if allowed.lxc is not None:
        if scope.name != "lxc":
            return (
                f"The scope {scope.name} is not allowed on this host: {path} allows containers {_words(allowed.lxc)} "
                "only, and nothing of the host itself."
            )
        over = sorted(set(scope.lxc) - allowed.lxc)
        if over:
            return f"Container {', '.join(over)} may not be touched on this host: {path} allows {_words(allowed.lxc)}."
    if allowed.gpus is not None:
        if not scope.gpus:
            return (
                f"This host allows the release of named GPUs only ({path}: {_words(allowed.gpus)}):"
                " name them by UUID (gpu_idle_expected_uuids)."
            )
        over = sorted(set(scope.gpus) - allowed.gpus)
        if over:
            return f"GPU {', '.join(over)} may not be released on this host: {path} allows {_words(allowed.gpus)}."
    return None


def _words(values: t.Collection[str]) -> str:
    return ", ".join(sorted(values)) or "none"
