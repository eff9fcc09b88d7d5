# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import kind_of
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import names_a_secret, secret_in_variable
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_options import CANONICAL, check_text, plain

_FIELDS = {"name", "description", "inherit", "args", "env", "api_key", "admin_api_key", "expect"}
_SECRETS = {"api-key": "api_key", "admin-api-key": "admin_api_key"}
_KEY = re.compile(r"[a-z][a-z0-9-]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
# Also what the redactor finds again in every quoting.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _fail(message: str) -> t.NoReturn:
    raise AnsibleFilterError(f"sglang_profile: {message}")


def _canonical_args(profile: str, args: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    result: dict[str, t.Any] = {}
    for key, value in args.items():
        name = str(key).replace("_", "-").removeprefix("--")
        if not _KEY.fullmatch(name):
            _fail(f"profile {profile!r}: {key!r} is not the name of an SGLang option (letters, digits and dashes)")
        name = CANONICAL.get(name, name)
        if name in _SECRETS:
            _fail(
                f"profile {profile!r}: a key belongs into the profile's {_SECRETS[name]}, not into args:"
                " there it is kept out of every log and diff"
            )
        if value and names_a_secret(name):
            _fail(
                f"profile {profile!r}: {name} is a secret, and the arguments of a server stand in diffs, logs and"
                " /proc; leave it out (a TLS key, for one, can be stored without a password, readable by the server)"
            )
        if name in result:
            _fail(f"profile {profile!r}: {name} is given twice (as {key!r} and in another spelling)")
        try:
            plain(name, value)
        except ValueError as error:
            _fail(f"profile {profile!r}, args: {error}")
        result[name] = value
    return result


def _environment(where: str, env: t.Any) -> dict[str, str | None]:
    """As text; a null stays, to take away what was inherited."""
    if not isinstance(env, t.Mapping):
        _fail(f"{where} must be a mapping of variable to value, not {kind_of(env)}")
    result: dict[str, str | None] = {}
    for key, value in env.items():
        name = str(key)
        if not _VARIABLE.fullmatch(name):
            _fail(f"{where}: {name[:40]!r} is no name of a variable (letters, digits, underscores)")
        secret = secret_in_variable(name, "" if value is None else str(value))
        if secret:
            _fail(
                f"{where}: {secret}, and everybody on the node can read the unit; put it into a file that only root can"
                " read (mode 0600) on the node and name that in sglang_server_environment_files"
            )
        if isinstance(value, bool):
            # YAML reads yes, on and true alike; what the program is meant to see is for a person to say.
            _fail(f"{where}: {name} is {value}; write the text that the program expects in quotes")
        if isinstance(value, (t.Mapping, list, tuple)):
            _fail(f"{where}: {name} is a {kind_of(value)}, not text or a number")
        if value is not None:
            try:
                check_text(f"{where}: {name}", str(value))
            except ValueError as error:
                _fail(str(error))
        result[name] = None if value is None else str(value)
    return result


def _checked(profiles: t.Any) -> dict[str, t.Mapping[str, t.Any]]:
    if not isinstance(profiles, t.Sequence) or isinstance(profiles, (str, bytes)):
        _fail(f"sglang_server_profiles must be a list of profiles, not {kind_of(profiles)}")
    by_name: dict[str, t.Mapping[str, t.Any]] = {}
    for position, profile in enumerate(profiles, 1):
        if not isinstance(profile, t.Mapping):
            _fail(f"entry {position} of sglang_server_profiles is a {kind_of(profile)}, not a mapping")
        name = profile.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            _fail(
                f"entry {position} of sglang_server_profiles has the name {name!r}; a name is 1 to 64 letters,"
                " digits, dots, dashes or underscores"
            )
        if name in by_name:
            _fail(f"two profiles are called {name!r}")
        unknown = sorted(set(map(str, profile)) - _FIELDS)
        if unknown:
            _fail(f"profile {name!r} has unknown fields {', '.join(unknown)}; known are {', '.join(sorted(_FIELDS))}")
        for field in ("inherit", "description"):
            if not isinstance(profile.get(field) or "", str):
                _fail(f"profile {name!r}: {field} must be text, not {kind_of(profile[field])}")
        for field, meaning in (("args", "SGLang option to value"), ("env", "variable to value")):
            if not isinstance(profile.get(field) or {}, t.Mapping):
                _fail(f"profile {name!r}: {field} must be a mapping of {meaning}, not {kind_of(profile[field])}")
        expect = profile.get("expect") or []
        if not isinstance(expect, (list, tuple)) or not all(isinstance(one, t.Mapping) for one in expect):
            _fail(f"profile {name!r}: expect must be a list of mappings, each with a query and a comparison")
        by_name[name] = profile
    return by_name


def _size(profile: str, args: t.Mapping[str, t.Any], key: str, default: int) -> int:
    value = args.get(key, default)
    if isinstance(value, bool) or not str(value).isdigit() or int(value) < 1:
        _fail(f"profile {profile!r}: {key} must be a whole number of at least 1, not {value!r}")
    return int(value)


def _gpus_per_node(profile: str, args: t.Mapping[str, t.Any]) -> int:
    tensor = _size(profile, args, "tp-size", 1)
    pipeline = _size(profile, args, "pp-size", 1)
    # With DP attention the replicas share the GPUs of the tensor-parallel group.
    data = 1 if args.get("enable-dp-attention") else _size(profile, args, "dp-size", 1)
    nodes = _size(profile, args, "nnodes", 1)
    total = tensor * pipeline * data
    if total % nodes:
        _fail(f"profile {profile!r}: {total} GPUs (tp x pp x dp) cannot be spread evenly over nnodes {nodes}")
    return total // nodes


def sglang_profile(profiles: t.Any, name: t.Any, tp_size: t.Any = 8, environment: t.Any = None) -> dict[str, t.Any]:
    """One profile with everything it inherits, ready to be rendered.

    :param profiles: the list of typed profiles.
    :param name: the profile to resolve.
    :param tp_size: tensor-parallel size where the profile says none.
    :param environment: what every profile inherits into its env.
    :raises AnsibleFilterError: one sentence that names the profile and the field.
    """
    by_name = _checked(profiles)
    if name not in by_name:
        known = ", ".join(sorted(by_name)) or "none at all"
        _fail(f"there is no profile {name!r}; sglang_server_profiles defines {known}")
    chain: list[str] = []
    current: t.Any = name
    while current:
        if current in chain:
            _fail(f"profiles inherit from each other in a circle: {' -> '.join([*chain, current])}")
        if current not in by_name:
            _fail(f"profile {chain[-1]!r} inherits from {current!r}, which does not exist")
        chain.append(current)
        current = by_name[current].get("inherit")

    args: dict[str, t.Any] = {}
    env = _environment("sglang_server_environment", environment or {})
    expect: list[t.Any] = []
    secrets: dict[str, t.Any] = {}
    for ancestor in reversed(chain):
        profile = by_name[ancestor]
        args.update(_canonical_args(ancestor, profile.get("args") or {}))
        env.update(_environment(f"profile {ancestor!r}, env", profile.get("env") or {}))
        expect += profile.get("expect") or []
        secrets.update({key: profile[key] for key in _SECRETS.values() if profile.get(key)})
    # A null takes away what was inherited.
    args = {key: value for key, value in args.items() if value is not None}
    args.setdefault("tp-size", tp_size)
    if "model-path" not in args:
        _fail(f"profile {name!r} has no model-path, neither of its own nor inherited")
    for key, value in secrets.items():
        if not isinstance(value, str) or not _TOKEN.fullmatch(value):
            _fail(
                f"profile {name!r}: {key} must be what a client can send as a bearer token (RFC 6750): letters, digits"
                " and - . _ ~ + / with = at its end only"
            )
    if "admin_api_key" in secrets and "api_key" not in secrets:
        _fail(f"profile {name!r}: an admin_api_key without an api_key leaves the ordinary endpoints open to everybody")
    return {
        "name": name,
        "inherits": chain[1:],
        "args": args,
        "env": {key: value for key, value in env.items() if value is not None},
        "expect": expect,
        "api_key": secrets.get("api_key", ""),
        "admin_api_key": secrets.get("admin_api_key", ""),
        "served_model_name": str(args.get("served-model-name", args["model-path"])),
        "host": str(args.get("host", "127.0.0.1")),
        "port": _size(name, args, "port", 30000),
        "gpus": _gpus_per_node(name, args),
        "workers": _gpus_per_node(name, args),
    }


def wrong_profiles(profiles: t.Any) -> list[str]:
    """What is wrong with the shape of the profiles, launched or not, as a sentence that names the profile."""
    try:
        _checked(profiles)
    except AnsibleFilterError as error:
        return [f"{error.message.removeprefix('sglang_profile: ')}."]
    return []


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"sglang_profile": sglang_profile, "wrong_profiles": wrong_profiles}
