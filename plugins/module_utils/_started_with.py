# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""With what a server was started: the port, the key and the workers by which a look has to judge it.

An inventory says what a server shall be; between an edit and the next relaunch that is not what runs. What runs read
the installed files when it started, and has its own command line. Files that were written to since then say nothing
about it: the ones that were last proved may, and where nothing does, that is said.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._config_drift import (
    NotUnderstood,
    config_options,
    launch_arguments,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_options import CANONICAL
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_processes import read_process, seconds_since_boot
from ansible_collections.cleanslate.gpu.plugins.module_utils._small_file import read_small
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd
from ansible_collections.cleanslate.gpu.plugins.module_utils._unit_files import PROVED

Source = t.Literal["installed", "proved", "given"]
# The first line of the unit's template; also read on the controller.
WRITTEN_FOR = re.compile(r"^# Written by cleanslate\.gpu\.sglang_server for profile ([A-Za-z0-9._-]+);", re.MULTILINE)
_COMMAND = re.compile(r"^ExecStart=(.+)$", re.MULTILINE)
_OUTPUT = re.compile(r"^StandardOutput=(?:append:(/.+)|journal)$", re.MULTILINE)
_SIZES = ("tp-size", "pp-size", "dp-size", "nnodes")


@dataclasses.dataclass(frozen=True)
class Asked:
    """How a server is asked, and how many workers it must have. workers None: no number is expected."""

    host: str
    port: int
    workers: int | None
    log_file: str | None
    api_key: str | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True)
class Files:
    """Where the unit and the configuration of a server are installed."""

    unit: str
    unit_path: str
    config_path: str


@dataclasses.dataclass(frozen=True)
class StartedWith:
    """told: whether it is known that what runs was started with this; why says what is in the way. installed: whether
    the live files could be read, which are what the next start takes."""

    source: Source
    told: bool
    asked: Asked
    installed: bool
    profile: str = ""
    why: str = ""

    def as_dict(self) -> dict[str, t.Any]:
        """Without the key."""
        return {
            "source": self.source,
            "told": self.told,
            "installed": self.installed,
            "profile": self.profile or None,
            "host": self.asked.host,
            "port": self.asked.port,
            "workers": self.asked.workers,
            "why": self.why or None,
        }


def _text(path: str) -> str:
    return read_small(path)[0].decode("utf-8", errors="replace")


def _command_of(unit_text: str) -> list[str]:
    """The command that a unit starts, as this collection quotes it."""
    found = _COMMAND.search(unit_text)
    return [word.replace("%%", "%") for word in shlex.split(found.group(1))] if found else []


def _named_on(arguments: t.Sequence[str]) -> dict[str, t.Any]:
    """What stands on the command line, which comes after the configuration and is stronger."""
    found: dict[str, t.Any] = {}
    for number, word in enumerate(arguments):
        name, equals, value = word[2:].partition("=")
        if word.startswith("--") and name:
            following = arguments[number + 1] if number + 1 < len(arguments) else ""
            found[CANONICAL.get(name, name)] = value if equals else following
    return found


def _size(name: str, value: t.Any) -> int:
    if isinstance(value, bool) or not str(value).isdigit() or int(value) < 1:
        raise ValueError(f"its {name} is no whole number of at least 1")
    return int(value)


def _workers(options: t.Mapping[str, t.Any]) -> int:
    """As the filter sglang_profile counts them: on this node, replicas with DP attention sharing their GPUs."""
    tensor, pipeline, data, nodes = (_size(name, options.get(name, 1)) for name in _SIZES)
    total = tensor * pipeline * (1 if "enable-dp-attention" in options else data)
    if total % nodes:
        raise ValueError(f"its {total} workers cannot be spread evenly over {nodes} nodes")
    return total // nodes


def read_files(files: Files, given: Asked, running: t.Sequence[str] = (), suffix: str = "") -> tuple[str, Asked]:
    """The profile that two files were rendered from, and how a server that was started with them is asked.

    :param running: the command line of the process that runs, if one does.
    :raises OSError, ValueError, NotUnderstood: in words that hold no value of the files, which could be a key.
    """
    unit_text, config_text = (_text(path + suffix) for path in (files.unit_path, files.config_path))
    named = WRITTEN_FOR.search(unit_text)
    if named is None:
        raise ValueError(f"{files.unit_path}{suffix} was not written by this collection")
    arguments = launch_arguments(running) or launch_arguments(_command_of(unit_text))
    on_line = _named_on(arguments or ())
    if on_line.get("config") != files.config_path:
        raise ValueError(f"{files.config_path} is not the configuration that {files.unit} reads")
    options = {CANONICAL.get(name, name): value for name, value in config_options(config_text).items()} | on_line
    host, key, output = str(options.get("host", "127.0.0.1")), options.get("api-key"), _OUTPUT.search(unit_text)
    log_file = given.log_file if output is None else (output.group(1) or "").replace("%%", "%") or None
    return named.group(1), Asked(
        host="127.0.0.1" if host == "0.0.0.0" else host,
        port=_size("port", options.get("port", 30000)),
        workers=_workers(options),
        log_file=log_file,
        api_key=None if key in (None, "") else str(key),
    )


def _written_since(path: str, started: float) -> bool:
    """Whether a file may be another one than a process read when it started. The text that was last proved is the same
    again, whatever its date says."""
    if os.stat(path).st_mtime <= started:
        return False
    try:
        return _text(path) != _text(path + PROVED)
    except OSError:
        return True


def _command_line(pid: int, proc_root: str) -> list[str]:
    try:
        with open(f"{proc_root}/{pid}/cmdline", "rb") as handle:
            return handle.read().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


def started_with(
    files: Files,
    given: Asked,
    check: t.Callable[[Asked], object],
    systemd: Systemd,
    clock: Clock,
    *,
    proc_root: str = "/proc",
    boot_clock: t.Callable[[], float] = seconds_since_boot,
) -> StartedWith:
    """Never raises for what the machine looks like.

    :param given: what is believed where the files do not tell, an inventory's word.
    :param check: raises ValueError where a server cannot be asked like that.
    """
    pid = next(iter(systemd.main_pids((files.unit,))), None)
    main = read_process(pid, proc_root) if pid is not None else None
    running = _command_line(main.pid, proc_root) if main is not None else []

    def read(suffix: str = "") -> tuple[str, Asked]:
        profile, asked = read_files(files, given, running, suffix)
        check(asked)
        return profile, asked

    try:
        profile, asked = read()
        since = [] if main is None else _since(files, clock.wall() - boot_clock() + main.started_after_boot())
    except (OSError, ValueError, NotUnderstood) as error:
        why = f"what is installed could not be read ({_short(error)})"
        return StartedWith("given", False, dataclasses.replace(given, workers=None), False, why=why)
    if not since:
        return StartedWith("installed", True, asked, True, profile)
    source: Source = "proved"
    try:
        profile, former = read(PROVED)
    except (OSError, ValueError, NotUnderstood):
        source, former = "given", given
    if former == asked:
        return StartedWith(source, True, asked, True, profile)
    why = f"{' and '.join(since)} was written to after the server had started"
    return StartedWith(source, False, dataclasses.replace(former, workers=None), True, profile, why)


def _since(files: Files, started: float) -> list[str]:
    return [path for path in (files.unit_path, files.config_path) if _written_since(path, started)]


def _short(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror or 'error'}"
    return str(error).rstrip(".")
