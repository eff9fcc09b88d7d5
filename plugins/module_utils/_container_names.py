# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Containers by name: a cgroup path holds only the id, so whoever manages the container is asked for it."""

from __future__ import annotations

import dataclasses
import re

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import Runner
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest

TOOLS = ("docker", "podman")
TIMEOUT = 10.0
_ID = re.compile(r"[0-9a-f]{12,64}\Z")


def with_container_ids(request: ScanRequest, runner: Runner) -> ScanRequest:
    """The same request with the id beside each name. A name that nobody knows stays alone: it matches no process."""
    wanted = request.scope.containers
    found = [*wanted]
    for name in wanted:
        if not _ID.match(name):
            found += [container for tool in TOOLS for container in _ids(tool, name, runner)]
    if len(found) == len(wanted):
        return request
    scope = dataclasses.replace(request.scope, containers=tuple(dict.fromkeys(found)))
    return dataclasses.replace(request, scope=scope)


def _ids(tool: str, name: str, runner: Runner) -> list[str]:
    result = runner((tool, "container", "inspect", "--format", "{{.Id}}", name), TIMEOUT)
    said = result.stdout.strip()
    return [said] if result.exit_code == 0 and _ID.match(said) else []
