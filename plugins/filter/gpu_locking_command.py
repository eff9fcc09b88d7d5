# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_locks import gpu_locks, locking_command


def gpu_locking_command(uuids: t.Any, folder: str, flock: str = "/usr/bin/flock") -> list[str]:
    """The arguments that stand before a server's own command line."""
    try:
        return locking_command(flock, gpu_locks(folder, [str(uuid) for uuid in uuids]))
    except ValueError as error:
        raise AnsibleFilterError(f"gpu_locking_command: {error}") from error


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"gpu_locking_command": gpu_locking_command}
