# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Whether systemd of this node understands the unit that is about to be installed."""

from __future__ import annotations

import os
import re
import tempfile

from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import (
    Check,
    Context,
    Fault,
    failed,
    not_checked,
    passed,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_launch import NO_PROFILE
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact

TOOL = "systemd-analyze"
# What is staged and not yet installed; and a key that an older systemd does not know and leaves out.
_HARMLESS = re.compile(
    r"is not executable|No such file or directory|Command .* (?:does not exist|not found)|Unknown (?:key|lvalue)"
)
_CURE = (
    "Look at the variables that end up in that line of the unit; a value with odd characters is the usual cause. The"
    " template is roles/sglang_server/templates/sglang.service.j2."
)


def unit_syntax(context: Context) -> Check:
    """systemd-analyze takes the text under the unit's own name."""
    name = "unit_syntax"
    launch = context.launch
    if launch is None or not launch.unit_text:
        return not_checked(name, NO_PROFILE if launch is None else "no text of a unit was given")
    with tempfile.TemporaryDirectory(prefix="cleanslate-preflight-") as folder:
        path = os.path.join(folder, os.path.basename(launch.unit))
        with open(path, "w", encoding="utf-8") as handle:
            handle.write(launch.unit_text)
        scope = ["--user"] if launch.systemd_scope == "user" else []
        result = context.runner([TOOL, *scope, "verify", "--man=no", path], context.timeout)
    if result.error == "not_found":
        return not_checked(name, f"{TOOL} is not installed here")
    if result.error is not None or result.timed_out:
        said = result.error or f"it did not end within {context.timeout:g} s"
        return not_checked(name, f"{TOOL} could not be run: {said}")
    lines = [line.replace(f"{folder}/", "") for line in redact(result.stderr + result.stdout).splitlines()]
    own = [line for line in lines if os.path.basename(launch.unit) in line and not _HARMLESS.search(line)]
    if own:
        return failed(name, [Fault(f"{TOOL} says: {'; '.join(own[:8])}", _CURE)])
    if result.exit_code not in (0, 1):
        return not_checked(name, f"{TOOL} ended with exit code {result.exit_code}: {' '.join(lines)[:300]}")
    return passed(name, f"{TOOL} finds nothing in {launch.unit}")
