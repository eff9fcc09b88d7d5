# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What is about to be launched, as the checks before downtime look at it."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._model_files import ModelReading

NO_PROFILE = "no launch profile was given"
OVERWRITE = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
# SGLang's own suffixes: k is 1000, Ki is 1024.
_SUFFIXES = {"": 1, **{letter: 10 ** (3 * n) for n, letter in enumerate("kMGT", 1)}}
_SUFFIXES.update({f"{letter}i": 2 ** (10 * n) for n, letter in enumerate("KMGT", 1)})
_COUNT = re.compile(r"(\d+(?:\.\d+)?)(|[kMGT]|[KMGT]i)")


@dataclasses.dataclass(frozen=True)
class Launch:
    """A resolved profile. No secret is in it: the config text has placeholders."""

    options: t.Mapping[str, t.Any]  # SGLang's option, canonical, to its value
    argv: tuple[str, ...]  # what follows the config file on the command line
    config: str
    environment: t.Mapping[str, str]
    python: tuple[str, ...]  # the command that starts the interpreter of SGLang's environment
    parser_timeout: float
    read: t.Callable[[str, str], ModelReading]  # a model folder for a load format, as the service user reads it
    unit: str = ""
    unit_text: str = ""
    systemd_scope: str = "system"
    folders: tuple[str, ...] = ()  # what the server writes into
    volumes: tuple[str, ...] | None = None  # HOST:CONTAINER[:OPTIONS], where it runs in a container
    root_files: tuple[str, ...] = ()  # what root reads or runs at each start
    root_folders: tuple[str, ...] = ()  # where root makes what belongs to the unit
    min_free_mib: int = 0
    min_shm_mib: int = 0

    def text(self, name: str) -> str:
        value = self.options.get(name)
        return "" if value is None else str(value)

    def flag(self, name: str) -> bool:
        return self.options.get(name) is True

    def count(self, name: str, default: int | None = None) -> int | None:
        """A number with or without a suffix. None where it is not there, or is no number: that is told by the
        parser."""
        value = self.options.get(name)
        if value is None or isinstance(value, bool):
            return default
        found = _COUNT.fullmatch(str(value).strip())
        count = float(found.group(1)) * _SUFFIXES[found.group(2)] if found else math.inf
        return int(count) if math.isfinite(count) else None

    def place(self, path: str) -> tuple[str, str]:
        """Where on this node a model is, or else why it cannot be looked at."""
        if not path.startswith("/"):
            return "", f"{path} is no absolute path, SGLang looks for it in its cache or on a hub"
        if self.volumes is None:
            return path, ""
        for host, inside in sorted((_volume(volume) for volume in self.volumes), key=lambda pair: -len(pair[1])):
            if host.startswith("/") and (path == inside or path.startswith(inside.rstrip("/") + "/")):
                return os.path.normpath(os.path.join(host, os.path.relpath(path, inside))), ""
        return "", f"{path} is in no folder of this node that the container gets"

    @property
    def model_path(self) -> str:
        return self.text("model-path")

    @property
    def load_format(self) -> str:
        return self.text("load-format") or "auto"

    @property
    def overrides(self) -> t.Mapping[str, t.Any]:
        """What the launch changes in the config.json of its model."""
        try:
            found = json.loads(self.text("json-model-override-args") or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def longer_context_allowed(self) -> bool:
        return str(self.environment.get(OVERWRITE, "")).strip().lower() in ("1", "true", "yes", "y")


def _volume(text: str) -> tuple[str, str]:
    host, _colon, rest = text.partition(":")
    return host, rest.partition(":")[0] or host
