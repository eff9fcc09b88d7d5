# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nodes
author: cleanslate.gpu contributors (@cleanslate-gpu)
version_added: 0.1.0
short_description: The hosts of a group that a playbook will work on, never none
description:
  - Ansible ends well when a play matches no host, because of a wrong inventory or a C(--limit) beside the group. For
    a playbook that relaunches servers that would be a false success, so this lookup fails instead and says what was
    looked at.
  - With C(--syntax-check), where there may be no inventory, it returns V(localhost).
options:
  _terms:
    description: Names of the groups.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Work on the nodes, and fail where there are none
  hosts: "{{ query('cleanslate.gpu.nodes', 'sglang_nodes') }}"
  gather_facts: false
  tasks: []
"""

RETURN = r"""
_raw:
  description: Names of the hosts, in the order of the inventory.
  type: list
  elements: str
"""

import contextlib
import typing as t

from ansible import context
from ansible.errors import AnsibleError, AnsibleLookupError
from ansible.inventory.manager import InventoryManager
from ansible.plugins.loader import filter_loader
from ansible.plugins.lookup import LookupBase

# Any of them: to find one, Ansible loads them all.
A_FILTER = "cleanslate.gpu.misspelt_options"


class LookupModule(LookupBase):
    def run(self, terms: list[str], variables: dict[str, t.Any] | None = None, **dummy: t.Any) -> list[str]:
        # Plays are read in the process that every worker is a copy of. Loaded later, the filters would be loaded anew
        # by each task of each host that uses one, which costs more than most of these tasks do themselves.
        with contextlib.suppress(KeyError, AnsibleError):  # said where a filter is used
            filter_loader.get(A_FILTER)
        variables = variables or {}
        groups: dict[str, list[str]] = variables.get("groups") or {}
        limit = variables.get("ansible_limit")
        inventory = InventoryManager(self._loader, parse=False)
        for group, hosts in groups.items():
            inventory.add_group(group)
            for host in hosts:
                inventory.add_host(host, group=group)
        if limit:
            inventory.subset(limit)
        found = [host.name for group in terms if group in groups for host in inventory.get_hosts(group)]
        if found:
            return list(dict.fromkeys(found))
        if context.CLIARGS.get("syntax"):
            return ["localhost"]
        names = " or ".join(terms)
        members = sum(len(groups.get(group, [])) for group in terms)
        if members:
            raise AnsibleLookupError(f"--limit {limit} leaves none of the {members} hosts of the group {names}")
        raise AnsibleLookupError(f"the inventory has no host in the group {names}; give the right one with -i")
