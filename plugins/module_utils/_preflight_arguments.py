# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Whether SGLang's own parser, that of the environment which will run the server, takes what is rendered for it."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import shutil
import tempfile
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils import _sglang_parser_program
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult, CommandRunner, Runner
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import (
    Check,
    Context,
    Fault,
    failed,
    not_checked,
    passed,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_launch import NO_PROFILE, Launch
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._service_account import Account

_PROFILE_CURE = (
    "Correct the profile's args: the names and values are those that `python -m sglang.launch_server --help` of this"
    " very environment gives."
)
_CONFIG_CURE = "Name the option in to_argv of sglang_split_args, or use the option that replaced it."
_PYTHON_CURE = "Name the interpreter of the environment in which SGLang is installed (sglang_server_python)."
_IMPORT_CURE = "Repair the environment; this shows the whole of it: {python} -c 'import sglang.srt.server_args'"
_SLOW_CURE = (
    "See whether the environment lies on a mount that does not answer; where importing SGLang takes this long on a cold"
    " cache, raise sglang_server_parser_timeout."
)
# What a library says that does not find the GPU which is hidden from it here.
_WANTS_GPU = ("cuda", "gpu", "nvidia", "nvml", "device")
_LONGEST = 300  # characters of one refusal; a list of choices can have fifty
_MOST = 50  # refusals that are told

Prober = t.Callable[[Context, Launch], CommandResult]


def arguments(context: Context, *, probe: Prober | None = None) -> Check:
    """The environment's parser takes config file and command line."""
    name = "arguments"
    launch = context.launch
    if launch is None:
        return not_checked(name, NO_PROFILE)
    if not launch.python:
        return not_checked(name, "no interpreter was given in which SGLang's parser could be asked")
    shown = launch.python[-1] if len(launch.python) == 1 else " ".join(launch.python[:2]) + " …"
    try:
        result = (probe or ask_parser)(context, launch)
    except LookupError as error:
        return not_checked(name, f"the parser was not asked, because {error}")
    if result.timed_out:
        what = f"{shown} did not answer within {launch.parser_timeout:g} s when SGLang's parser was asked"
        return failed(name, [Fault(what, _SLOW_CURE)])
    if result.error is not None:
        reason = {"not_found": "does not exist", "not_permitted": "may not be run by the service user"}
        return failed(name, [Fault(f"{shown} {reason.get(result.error, result.error)}", _PYTHON_CURE)])
    answer = _answer_of(result.stdout)
    if answer is None:
        last = (redact(result.stderr).strip().splitlines() or ["it printed nothing"])[-1]
        what = f"{shown} ended with exit code {result.exit_code} before SGLang's parser answered: {last}"
        return failed(name, [Fault(what, _IMPORT_CURE.format(python=shown))])
    if "error" in answer:
        return _of_import(name, shown, answer)
    return _of_parser(name, answer)


def ask_parser(context: Context, launch: Launch) -> CommandResult:
    """Run the program as the service user, with no GPU in sight and nothing to write but a folder that goes away.
    LookupError where that user does not exist."""
    account = context.account(context.service_user, context.service_group) if context.service_user else None
    if context.own_uid != 0 or (account is not None and account.uid == 0):
        account = None
    folder = tempfile.mkdtemp(prefix="cleanslate-preflight-")
    try:
        if account is not None:
            os.chown(folder, account.uid, account.gid)
        runner: Runner = CommandRunner(
            context.clock, environment=_environment(launch, account, folder), inherit=False, account=account
        )
        program = inspect.getsource(_sglang_parser_program)
        question = json.dumps({"config": launch.config, "argv": list(launch.argv), "seconds": launch.parser_timeout})
        return runner([*launch.python, "-c", program, question], launch.parser_timeout)
    finally:
        # Whoever ran in there may have nested folders deeper than they can be taken away.
        with contextlib.suppress(OSError, RecursionError):
            shutil.rmtree(folder)


def _environment(launch: Launch, account: Account | None, folder: str) -> dict[str, str]:
    """That of a unit, with every cache in the folder, and no GPU and no network for what SGLang imports."""
    home = account.home if account is not None else os.path.expanduser("~")
    user = account.name if account is not None else os.environ.get("USER", "")
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": home,
        "USER": user,
        "LOGNAME": user,
        **launch.environment,
        "TMPDIR": folder,
        "XDG_CACHE_HOME": folder,
        "SGLANG_CACHE_DIR": folder,
        "FLASHINFER_WORKSPACE_BASE": folder,
        "TRITON_CACHE_DIR": folder,
        "TORCHINDUCTOR_CACHE_DIR": folder,
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }


def _answer_of(stdout: str) -> dict[str, t.Any] | None:
    """What the program said; None where it said nothing, or what it never says: all of that environment can speak."""
    for line in reversed(stdout.splitlines()):
        if line.startswith(_sglang_parser_program.MARK):
            try:
                found = json.loads(line[len(_sglang_parser_program.MARK) :])
            except (ValueError, RecursionError):
                return None
            return found if isinstance(found, dict) and _is_answer(found) else None
    return None


def _is_answer(found: t.Mapping[str, t.Any]) -> bool:
    if not all(isinstance(found.get(word, ""), str) for word in ("version", "error", "missing")):
        return False
    refused = [found.get(word) for word in ("config_refused", "arguments_refused")]
    return "error" in found or all(isinstance(each, list) and {str} >= {*map(type, each)} for each in refused)


def _of_import(name: str, shown: str, answer: t.Mapping[str, t.Any]) -> Check:
    said = _short(answer["error"])
    if not answer.get("imports") and any(word in said.lower() for word in _WANTS_GPU):
        return not_checked(name, f"SGLang cannot be imported while no GPU is shown to it ({said})")
    which = f"SGLang {_short(answer['version'])}" if answer.get("version") else "SGLang"
    if str(answer.get("missing", "")).split(".", maxsplit=1)[0] == "sglang" and not answer.get("version"):
        return failed(name, [Fault(f"there is no SGLang in the environment of {shown} ({said})", _PYTHON_CURE)])
    fault = Fault(f"{which} cannot be imported by {shown}: {said}", _IMPORT_CURE.format(python=shown))
    return failed(name, [fault])


def _of_parser(name: str, answer: t.Mapping[str, t.Any]) -> Check:
    which = f"SGLang {_short(answer.get('version') or 'of an unknown version')}"
    faults = [
        Fault(f"{which} refuses in its config file, with exit code 1: {_short(said)}", _CONFIG_CURE)
        for said in answer["config_refused"][:_MOST]
    ]
    faults += [
        Fault(f"{which} refuses, with exit code 2: {_short(said)}", _PROFILE_CURE)
        for said in answer["arguments_refused"][:_MOST]
    ]
    if faults:
        return failed(name, faults)
    return passed(name, f"the parser of {which} takes all of them")


def _short(said: t.Any) -> str:
    text = " ".join(str(said).split()).encode("utf-8", "replace").decode()  # JSON can carry what no UTF-8 can
    text = redact(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
