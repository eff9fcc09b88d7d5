# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One look at the holders as a program of its own: scan_once.py DEVICES. What a module adds to it is Ansible's."""

from __future__ import annotations

import json
import sys

import measuring

measuring.use_collection()

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import HolderScan, Scope  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import (  # noqa: E402
    ScanRequest,
    look_for_holders,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd  # noqa: E402


def scan(devices: str) -> HolderScan:
    clock = SystemClock()
    request = ScanRequest(scope=Scope(name="own"), devices=(devices,), timeout=60.0)
    states = Systemd(CommandRunner(clock), "system").active
    return look_for_holders(request, unit_states=states, clock=clock)


if __name__ == "__main__":
    seen = scan(sys.argv[1])
    print(json.dumps({"pids": [holder.pid for holder in seen.holders], "complete": seen.complete}))
