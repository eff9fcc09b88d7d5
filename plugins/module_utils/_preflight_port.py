# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Whether the server's port will be free: SGLang binds it only after the whole model was loaded."""

from __future__ import annotations

from ansible_collections.cleanslate.gpu.plugins.module_utils._port_rulings import describe_owner, strangers
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import (
    Check,
    Context,
    Fault,
    failed,
    not_checked,
    passed,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_gate import OneLook

NAME = "port"


def port_free(_context: Context, seen: OneLook) -> Check:
    """Free, or kept only by what is stopped and released. What was asked to be seen says which port, and what is
    ours."""
    port = seen.port
    if port is None:
        return not_checked(NAME, "no port was given")
    scan = seen.holders()
    where = f"port {port.number} on {port.host}"
    if not scan.port_owners:
        if not scan.complete:
            return not_checked(NAME, f"whether {where} is free could not be told: {scan.incomplete_reason}")
        return passed(NAME, f"{where} is free")
    left = strangers(scan.port_owners)
    if left:
        faults = [
            Fault(
                f"{where} is taken by {describe_owner(owner)}",
                "Stop that where it belongs, give the server another port, or name its unit or container for the "
                "release if it is yours.",
            )
            for owner in left
        ]
        return failed(NAME, faults)
    names = "; ".join(describe_owner(owner) for owner in scan.port_owners)
    return passed(NAME, f"{where} is kept by what is stopped or released: {names}")
