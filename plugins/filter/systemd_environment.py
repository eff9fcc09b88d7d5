# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import kind_of
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd_quoting import environment


def systemd_environment(value: t.Any) -> str:
    """One NAME=value, quoted for Environment=."""
    if not isinstance(value, str):
        raise AnsibleFilterError(f"systemd_environment: NAME=value is text, not a {kind_of(value)}.")
    try:
        return environment(str(value))
    except ValueError as error:
        raise AnsibleFilterError(f"systemd_environment: {error}") from error


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"systemd_environment": systemd_environment}
