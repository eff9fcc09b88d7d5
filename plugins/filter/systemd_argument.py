# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import kind_of
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd_quoting import argument


def systemd_argument(value: t.Any) -> str:
    """One argument, quoted for ExecStart=."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise AnsibleFilterError(f"systemd_argument: an argument is text or a number, not a {kind_of(value)}.")
    try:
        return argument(str(value))
    except ValueError as error:
        raise AnsibleFilterError(f"systemd_argument: {error}") from error


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"systemd_argument": systemd_argument}
