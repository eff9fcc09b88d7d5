# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_options import config_text


def sglang_config(args: t.Any, api_key: t.Any = None, admin_api_key: t.Any = None) -> str:
    """The text of SGLang's config file."""
    try:
        if isinstance(args, t.Mapping):
            keys = {"api-key": api_key, "admin-api-key": admin_api_key}
            given = {name: key for name, key in keys.items() if key}
            twice = sorted({str(name).replace("_", "-") for name, value in args.items() if value} & set(given))
            if twice:
                raise ValueError(f"{', '.join(twice)} is given both in the arguments and apart; give it once.")
            args = {**args, **given}
        return config_text(args)
    except ValueError as error:
        raise AnsibleFilterError(f"sglang_config: {error}") from error


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"sglang_config": sglang_config}
