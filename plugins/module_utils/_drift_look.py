# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""One look at a node for drift: files, unit, what was asked for, and where told how to ask, the server and its GPUs."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils import _drift_memory_file, _wanted_state
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import Runner
from ansible_collections.cleanslate.gpu.plugins.module_utils._gate_look import GATE_LOOK_ARGUMENTS, gate_from
from ansible_collections.cleanslate.gpu.plugins.module_utils._installed_server import (
    Comparison,
    Installed,
    look_at_installed,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease import LeaseRequest, lease
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import BootClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._left_behind import boot_id
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import (
    check_line,
    check_path,
    check_unit,
    shown,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._server_look import server_look_from
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_arguments import SGLANG_ARGUMENTS, iso_time
from ansible_collections.cleanslate.gpu.plugins.module_utils._started_with import Files
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd

_Part = t.Callable[[], t.Optional[dict[str, t.Any]]]

_OF_HEALTH = (
    "host",
    "port",
    "served_model_name",
    "expected_workers",
    "log_file",
    "request_timeout",
    "with_server_info",
)
_OF_GATE = (
    "expected_count",
    "expected_uuids",
    "max_used_mib",
    "settled_mib",
    "containers",
    "devices",
    "majors",
    "scan_timeout",
    "nvidia_smi",
    "smi_timeout",
)
DRIFT_LOOK_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "unit": {"type": "str", "required": True},
    "systemd_scope": {"type": "str", "choices": ["system", "user"], "default": "system"},
    "unit_path": {"type": "path", "required": True},
    "config_path": {"type": "path", "required": True},
    "profiles": {"type": "dict", "default": {}},
    "profile": {"type": "str", "default": ""},
    "secrets": {"type": "dict", "default": {}, "no_log": True},
    "must_be_enabled": {"type": "bool", "default": True},
    "wanted_file": {"type": "path", "default": "/var/lib/cleanslate/wanted.json"},
    "memory_file": {"type": "path", "default": "/var/lib/cleanslate/drift.json"},
    "lease_dir": {"type": "path"},
    "health": {"type": "dict", "options": {name: SGLANG_ARGUMENTS[name] for name in _OF_HEALTH}},
    "count_installed": {"type": "bool", "default": False},
    "gate": {"type": "dict", "options": {name: GATE_LOOK_ARGUMENTS[name] for name in _OF_GATE}},
}


def _leases_of(path: str | None) -> dict[str, t.Any]:
    """Whose leases stand, and who is starting."""
    if not path:
        return {"leases": None, "starting": None, "leases_problem": None}
    found = lease(LeaseRequest(state="shown"), path, boot_id(), BootClock(), check=True)
    problem = found.reason if found.failed or found.unreadable else None
    return {"leases": found.leases, "starting": found.starting, "leases_problem": problem}


def _check_options(params: t.Mapping[str, t.Any]) -> None:
    """ValueError with a sentence where an option cannot be meant."""
    check_unit("unit", params["unit"])
    for name in ("unit_path", "config_path", "wanted_file", "memory_file", "lease_dir"):
        if params[name] is not None:
            check_path(name, params[name])
    check_line("profile", params["profile"])
    for name in ("profiles", "secrets"):
        for profile, of_it in params[name].items():
            if not isinstance(of_it, t.Mapping):  # which for secrets must not be shown
                raise ValueError(f"{name} holds a {type(of_it).__name__} for {shown(profile)}, which is no mapping.")
    for profile, texts in params["profiles"].items():
        for key, kind in (("unit_text", str), ("config_text", str), ("launch", list)):
            if not isinstance(texts.get(key), (kind, type(None))):
                raise ValueError(
                    f"profiles: {key} of {shown(profile)} is {shown(texts[key])}, which is no {kind.__name__}."
                )


def _installed(params: t.Mapping[str, t.Any], profile: str) -> Installed:
    """What the profile says of the files; nothing where it is not known."""
    texts = params["profiles"].get(profile) or {}
    return Installed(
        unit=params["unit"],
        unit_path=params["unit_path"],
        unit_text=texts.get("unit_text"),
        config_path=params["config_path"],
        config_text=texts.get("config_text"),
        launch=tuple(texts.get("launch") or ()),
        secrets={name: str(value) for name, value in (params["secrets"].get(profile) or {}).items()},
        must_be_enabled=params["must_be_enabled"],
    )


@contextlib.contextmanager
def _naming(option: str) -> t.Iterator[None]:
    """What is wrong with a part of an option is said with the option's name."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error


def _health_looks(params: t.Mapping[str, t.Any], clock: Clock, runner: Runner) -> dict[str, _Part]:
    """By the name of the profile, since each has its own key, what looks at the server."""
    profiles = ("", *params["profiles"])
    if params["health"] is None:
        return dict.fromkeys(profiles, lambda: None)
    common = {name: params[name] for name in ("unit", "systemd_scope")}
    options = {**common, "systemctl": SGLANG_ARGUMENTS["systemctl"]["default"], **params["health"]}
    files = Files(params["unit"], params["unit_path"], params["config_path"])
    looks: dict[str, _Part] = {}
    for profile in profiles:
        key = (params["secrets"].get(profile) or {}).get("api_key")
        keyed = {**options, "api_key": None if key is None else str(key)}
        with _naming("health"):
            looks[profile] = server_look_from(keyed, clock, runner, files)
    return looks


def _gate_look(params: t.Mapping[str, t.Any], clock: Clock, count: int | None = None) -> _Part:
    """What looks at the GPUs once. count: how many there must be, where what is installed has said so."""
    if params["gate"] is None:
        return lambda: None
    options = {name: spec.get("default") for name, spec in GATE_LOOK_ARGUMENTS.items()}
    options |= {"scope": "unit", "units": [params["unit"]], "systemd_scope": params["systemd_scope"], **params["gate"]}
    if count is not None:
        options["expected_count"] = count
    with _naming("gate"):
        wait = gate_from(options, clock, check_mode=True)
    return lambda: wait().as_dict()


def _gpus_installed(health: t.Mapping[str, t.Any] | None) -> int | None:
    """How many GPUs of this node the server was started on; None where that is not known."""
    started = (health or {}).get("started_with") or {}
    workers = started.get("workers")
    return workers if started.get("told") and isinstance(workers, int) else None


def nothing_seen(why: str, clock: Clock) -> dict[str, t.Any]:
    """The result where the options cannot be meant."""
    names = ("service", "wanted", "wanted_problem", "memory", "memory_problem", "leases", "starting", "leases_problem")
    return {
        **dict.fromkeys((*names, "health", "gate")),
        "profile": "",
        "config": Comparison((), (why,)).as_dict(),
        **_moment(clock),
    }


def _moment(clock: Clock) -> dict[str, t.Any]:
    return {
        "boot_id": boot_id(),
        "boottime_s": round(BootClock().monotonic(), 3),
        "looked_at": iso_time(clock.wall()),
    }


def drift_look_from(params: t.Mapping[str, t.Any], clock: Clock, runner: Runner) -> t.Callable[[], dict[str, t.Any]]:
    """What looks. ValueError with a sentence where the options cannot be meant, before anything is looked at."""
    _check_options(params)
    healths, gate = _health_looks(params, clock, runner), _gate_look(params, clock)

    def look() -> dict[str, t.Any]:
        asked_for, wanted_problem = _wanted_state.shown(params["wanted_file"], params["unit"])
        profile = (asked_for.profile if asked_for is not None else None) or params["profile"]
        known = profile in params["profiles"]
        systemd = Systemd(runner, params["systemd_scope"])
        config, service = look_at_installed(_installed(params, profile), systemd, clock)
        if not known:
            named = profile or "nobody asked for"
            config = config.but_not(f"profile {named} is not among those known: no text to compare")
        health = healths[profile]() if known else None
        count = _gpus_installed(health) if params["count_installed"] else None
        look_at_gpus = gate if count is None else _gate_look(params, clock, count)
        memory, memory_problem = _drift_memory_file.shown(params["memory_file"], params["unit"])
        return {
            "profile": profile if known else "",
            "config": config.as_dict(),
            "service": service,
            "wanted": asked_for.document() if asked_for is not None else None,
            "wanted_problem": wanted_problem,
            "memory": memory.view() if memory is not None else None,
            "memory_problem": memory_problem,
            **_leases_of(params["lease_dir"]),
            **_moment(clock),
            # The server of another profile may listen elsewhere, with another key.
            "health": health,
            "gate": look_at_gpus() if known else None,
        }

    return look
