# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import typing as t

import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.filter.sglang_profile import sglang_profile
from ansible_collections.cleanslate.gpu.plugins.module_utils._started_with import WRITTEN_FOR

# On the command line, since SGLang's config file refuses it; it decides how many workers there are.
_SHARED_REPLICAS = re.compile(r"^ExecStart=.*\s\"?--enable-dp-attention\"?(\s|$)", re.MULTILINE)
_KEYS = {"api-key": "api_key", "admin-api-key": "admin_api_key"}


def sglang_installed_profile(unit: t.Any, config: t.Any) -> dict[str, t.Any]:
    """The profile that files on a node were rendered from, as far as a server can be recognised by it.

    :param unit: the text of the unit.
    :param config: the text of SGLang's configuration.
    :raises AnsibleFilterError: one sentence; it never quotes the configuration, which may hold keys.
    """
    named = WRITTEN_FOR.search(str(unit))
    if named is None:
        raise AnsibleFilterError("sglang_installed_profile: the unit was not written by this collection")
    name = named.group(1)
    try:
        args = yaml.safe_load(str(config))
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where is not None else ""
        raise AnsibleFilterError(f"sglang_installed_profile: the configuration is no YAML{line}") from None
    if not isinstance(args, dict):
        raise AnsibleFilterError("sglang_installed_profile: the configuration is no mapping of options")
    profile: dict[str, t.Any] = {"name": name}
    profile.update({field: args.pop(option) for option, field in _KEYS.items() if option in args})
    if _SHARED_REPLICAS.search(str(unit)):
        args["enable-dp-attention"] = True
    return sglang_profile([{**profile, "args": args}], name, 1)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"sglang_installed_profile": sglang_installed_profile}
