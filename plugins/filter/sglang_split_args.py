# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_options import split_args


def sglang_split_args(args: t.Any, to_argv: t.Any = (), to_config: t.Any = ()) -> dict[str, t.Any]:
    """The arguments as config (a mapping) and argv (a list)."""
    for name, value in (("to_argv", to_argv), ("to_config", to_config)):
        if isinstance(value, (str, bytes)) or not isinstance(value, t.Sequence):
            raise AnsibleFilterError(f"sglang_split_args: {name} must be a list of option names, not {value!r}.")
    try:
        config, argv = split_args(args, to_argv, to_config)
    except ValueError as error:
        raise AnsibleFilterError(f"sglang_split_args: {error}") from error
    return {"config": config, "argv": argv}


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"sglang_split_args": sglang_split_args}
