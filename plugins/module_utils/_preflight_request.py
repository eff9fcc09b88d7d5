# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The options that describe a launch to the preflight, and the launch that they describe."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._model_reading import ModelReader
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import (
    check_line,
    check_number,
    check_path,
    check_program,
    check_seconds,
    check_unit,
    is_variable,
    shown,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_launch import Launch
from ansible_collections.cleanslate.gpu.plugins.module_utils._service_account import Account, find_account
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_options import canonical_args, check_text

LAUNCH_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "profile": {
        "type": "dict",
        "options": {
            "args": {"type": "dict", "default": {}},
            "argv": {"type": "list", "elements": "str", "default": []},
            "config": {"type": "str", "default": ""},
            "env": {"type": "dict", "default": {}},
        },
    },
    "python": {"type": "list", "elements": "str", "default": []},
    "parser_timeout": {"type": "float", "default": 120.0},
    "model_timeout": {"type": "float", "default": 120.0},
    "volumes": {"type": "list", "elements": "str"},
    "folders": {"type": "list", "elements": "path", "default": []},
    "root_files": {"type": "list", "elements": "path", "default": []},
    "root_folders": {"type": "list", "elements": "path", "default": []},
    "min_free_mib": {"type": "int", "default": 1024},
    "min_shm_mib": {"type": "int", "default": 1024},
    "unit": {"type": "str", "default": ""},
    "unit_text": {"type": "str", "default": ""},
}


def check_timeouts(params: t.Mapping[str, t.Any], *names: str) -> None:
    """ValueError where one of these is no sensible number of seconds."""
    for name in names:
        check_seconds(name, params[name])


def reader_of(user: str, group: str) -> Account | None:
    """As whom models are read. A user that does not exist is told by a check of its own."""
    try:
        return find_account(user, group) if user else None
    except LookupError:
        return None


def launch_of(params: t.Mapping[str, t.Any], clock: Clock, account: Account | None) -> Launch | None:
    """None where no profile was given. ValueError with a sentence. account: as whom models are read."""
    check_timeouts(params, "parser_timeout", "model_timeout")
    for name in ("min_free_mib", "min_shm_mib"):
        check_number(name, params[name], 0)
    if params["unit"]:
        check_unit("unit", params["unit"])
    for name in ("python", "volumes"):
        for entry in params[name] or ():
            check_line(f"an entry of {name}", entry)
    for program in params["python"][:1]:
        check_program("python", program)
    if params["unit_text"] and not params["unit"]:
        raise ValueError("unit_text is given, but unit is empty; name the unit that it is for, as in sglang.service.")
    profile = params["profile"]
    if profile is None:
        return None
    try:
        options = canonical_args(profile["args"])
    except ValueError as error:
        raise ValueError(f"profile.args: {error}") from None
    for argument in profile["argv"]:
        check_line("an entry of profile.argv", argument)
    for variable, value in profile["env"].items():
        if not is_variable(str(variable)):
            raise ValueError(f"profile.env has {shown(str(variable))}, which can be no name of a variable.")
        check_text(f"profile.env: {variable}", str(value))  # which does not show the value
    for name in ("folders", "root_files", "root_folders"):
        for path in params[name]:
            check_path(f"an entry of {name}", path)
    return Launch(
        options=options,
        argv=tuple(profile["argv"]),
        config=profile["config"],
        environment={str(name): str(value) for name, value in profile["env"].items()},
        python=tuple(params["python"]),
        parser_timeout=params["parser_timeout"],
        read=ModelReader(
            clock,
            timeout=params["model_timeout"],
            stall=params["timeout"],
            account=account,
        ),
        unit=params["unit"],
        unit_text=params["unit_text"],
        systemd_scope=params["systemd_scope"],
        folders=tuple(params["folders"]),
        root_files=tuple(params["root_files"]),
        root_folders=tuple(params["root_folders"]),
        volumes=None if params["volumes"] is None else tuple(params["volumes"]),
        min_free_mib=params["min_free_mib"],
        min_shm_mib=params["min_shm_mib"],
    )
