#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_host_lock
short_description: Take, renew, give back or show the lease on a host's GPUs
version_added: 0.1.0
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
description:
  - Two runs that stop and start servers on the same GPUs kill each other's. Whoever works on the GPUs of a host holds
    a lease on them.
  - A lease stands in a file on the GPU host and lasts between tasks and connections. No process stays behind. It runs
    out by itself after O(ttl) seconds, which are counted from the boot (CLOCK_BOOTTIME), so that a changed date does
    not matter, and it ends with the boot.
  - A lease is for a set of GPUs. Leases with no GPU in common stand side by side. A lease that names no GPU is for
    all of the host.
  - An owner (O(run_id) and O(node)) has one lease on a host. Asking again renews it, and replaces its set of GPUs by
    O(gpus).
  - A lease file that cannot be read never counts as free.
  - The lease is for those who ask for it. It does not keep anybody from using a GPU.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
attributes:
  check_mode:
    support: full
    details:
      - Does not wait. What would have been waited for is told in RV(reason) and does not fail.
  diff_mode:
    support: full
    details:
      - Shows who holds what before and after.
  idempotent:
    support: full
    details:
      - Renewing prolongs the lease and counts as no change.
options:
  state:
    description:
      - V(held) takes the lease, or renews it where this owner holds it.
      - V(released) gives it back, or with O(takeover) all those of another run.
      - V(shown) changes nothing and needs no owner.
    type: str
    choices: [held, released, shown]
    default: held
  run_id:
    description:
      - Names the run, the same in all its tasks and different from that of every other run.
      - 1 to 128 letters, digits and C(_.:@+-). Required unless O(state=shown).
    type: str
  node:
    description:
      - The node for which the run works, in the same characters as O(run_id). Required unless O(state=shown).
    type: str
  gpus:
    description:
      - UUIDs of the GPUs. Without any, all GPUs of the host.
      - With O(state=released) the GPUs of the lease itself count, whatever is given here.
      - With O(state=shown) only leases and markers on these GPUs are told of in RV(reason) and RV(verdict).
    type: list
    elements: str
    default: []
  ttl:
    description:
      - Seconds from now until the lease runs out unless it is renewed, 1 to 86400.
    type: float
    default: 900
  wait:
    description:
      - Seconds to wait for a lease of the same run to be given back or to run out. With V(0) a busy lease is refused
        at once.
      - Nodes of one run take GPUs that they share in turn. A lease of another run is refused at once and not waited
        for.
      - The module does not answer while it waits.
    type: float
    default: 0
  wait_for_others:
    description:
      - Whether leases of other runs are waited for as well.
    type: bool
    default: false
  takeover:
    description:
      - A run whose leases may be displaced, because it is known to be dead. With O(state=held) those on the same
        GPUs, with O(state=released) all of its leases on this host.
      - V(corrupt) throws away a lease file that cannot be read.
    type: str
  marker_ttl:
    description:
      - With O(state=released), leaves a marker on the GPUs of the lease for this many seconds, which says that a
        server is starting there. V(0) leaves none.
      - A marker keeps nobody from taking a lease. RV(starting) shows it, so that a server that still loads is not
        taken for a dead one.
    type: float
    default: 0
  withdraw_marker:
    description:
      - With O(state=released), takes away the markers of O(node), whichever run left them, also where no lease is
        held. The server has become ready, or was stopped.
    type: bool
    default: false
  containers:
    description:
      - VMIDs of containers of this host, of which RV(container_locks) is to say whether Proxmox itself has locked them.
        Nothing here depends on it.
    type: list
    elements: str
    default: []
  pve_dir:
    description:
      - Where Proxmox shows its configuration. On a host without it nothing is locked.
    type: path
    default: /etc/pve
  purpose:
    description:
      - What the lease is for, such as the name of the playbook. It is shown to whoever is refused.
    type: str
    default: ''
  who:
    description:
      - Who runs this, such as the name of the user on the controller. It is shown to whoever is refused.
    type: str
    default: ''
  path:
    description:
      - Folder for the lease file, on a local file system of the GPU host. The last part of the path is made with mode
        0700.
      - It must belong to the user that the module runs as, must not be writable by others, and must not be a symbolic
        link.
    type: path
    default: /run/cleanslate
seealso:
  - module: cleanslate.gpu.gpu_force_release
  - module: cleanslate.gpu.gpu_wait_idle
"""

EXAMPLES = r"""
- name: Take all GPUs of the host for this node, after the other nodes of this run
  cleanslate.gpu.gpu_host_lock:
    run_id: "{{ relaunch_id }}"
    node: "{{ inventory_hostname }}"
    purpose: relaunch.yml
    who: "{{ lookup('ansible.builtin.env', 'USER') }}"
    wait: 600
  delegate_to: pve1

- name: Give them back, now that the server has been started and loads for 45 minutes at most
  cleanslate.gpu.gpu_host_lock:
    state: released
    run_id: "{{ relaunch_id }}"
    node: "{{ inventory_hostname }}"
    marker_ttl: 2700
  delegate_to: pve1

- name: See who holds what
  cleanslate.gpu.gpu_host_lock:
    state: shown
  delegate_to: pve1
"""

RETURN = r"""
verdict:
  description:
    - With O(state=held), V(acquired), V(renewed), V(busy) another owner holds some of these GPUs, V(expired) the own
      lease had ended and the GPUs have been taken meanwhile. With the last two the module fails.
    - With O(state=released), V(released), V(not_held), V(expired) the own lease had run out or had been taken over.
    - With O(state=shown), V(busy) or V(not_held).
    - V(busy) also where the lease file cannot be read, or where another process did not let go of it for 5 seconds.
    - V(refused) the options or the folder cannot be used, and nothing was changed. The module fails.
  returned: always
  type: str
  sample: acquired
reason:
  description:
    - The verdict as a sentence. Of a lease that is in the way it names run, node, user, purpose, age, and the seconds
      until it runs out.
  returned: always
  type: str
  sample: >-
    all GPUs of the host: held by run 7f3a, node gpu1 (anna, relaunch.yml) for 3 minutes; expires in 540 s unless it
    is renewed. unlock.yml shows it; if that run is known to be dead, unlock.yml -e unlock_run_id=7f3a takes it over.
unreadable:
  description:
    - Whether there is a lease file that cannot be read.
  returned: always
  type: bool
lease:
  description:
    - The lease that the owner has now, in the form of an entry of RV(leases), or null.
  returned: always
  type: dict
leases:
  description:
    - All leases that stand on this host now, or would in check mode.
  returned: always
  type: list
  elements: dict
  contains:
    run_id:
      description:
        - The run that holds it.
      type: str
    node:
      description:
        - The node for which it is held.
      type: str
    gpus:
      description:
        - UUIDs of its GPUs, none for all of the host.
      type: list
      elements: str
    who:
      description:
        - Who runs that run.
      type: str
    purpose:
      description:
        - What it is for.
      type: str
    since:
      description:
        - Date and time at which it was taken, in UTC by the clock of the GPU host at that time.
      type: str
      sample: "2026-11-29T16:09:02Z"
    age_s:
      description:
        - Seconds since it was taken.
      type: float
    expires_in_s:
      description:
        - Seconds until it runs out.
      type: float
    text:
      description:
        - All of this in a line for people.
      type: str
starting:
  description:
    - Markers on the GPUs that were asked about, of servers that have been started there and may still be loading.
  returned: always
  type: list
  elements: dict
  contains:
    run_id:
      description:
        - The run that started the server.
      type: str
    node:
      description:
        - The node on which it starts.
      type: str
    gpus:
      description:
        - UUIDs of its GPUs, none for all of the host.
      type: list
      elements: str
    who:
      description:
        - Who ran that run.
      type: str
    until_s:
      description:
        - Seconds for which the marker still counts.
      type: float
    text:
      description:
        - All of this in a line for people.
      type: str
container_locks:
  description:
    - What Proxmox says of each of O(containers). A locked one is being backed up, migrated or changed.
  returned: always
  type: list
  elements: dict
  contains:
    container:
      description:
        - Its VMID.
      type: str
    lock:
      description:
        - Proxmox's word for what is at work, such as V(backup), or null where nothing is.
      type: str
    problem:
      description:
        - Why that cannot be told, or null.
      type: str
    text:
      description:
        - All of this in a line for people.
      type: str
displaced:
  description:
    - Leases that were taken over, as they stood before, in the form of entries of RV(leases).
  returned: always
  type: list
  elements: dict
"""

import dataclasses
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils import _lease
from ansible_collections.cleanslate.gpu.plugins.module_utils._container_locks import container_locks
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import BootClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._left_behind import boot_id
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import check_path, check_vmid


def _result(found: _lease.LeaseResult) -> dict[str, t.Any]:
    result = dataclasses.asdict(found)
    before, after = result.pop("before"), result.pop("after")
    del result["failed"]  # fail_json says it
    result["diff"] = {
        "before": "".join(f"{line}\n" for line in before),
        "after": "".join(f"{line}\n" for line in after),
    }
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["held", "released", "shown"], "default": "held"},
            "run_id": {"type": "str"},
            "node": {"type": "str"},
            "gpus": {"type": "list", "elements": "str", "default": []},
            "ttl": {"type": "float", "default": 900},
            "wait": {"type": "float", "default": 0},
            "wait_for_others": {"type": "bool", "default": False},
            "takeover": {"type": "str"},
            "marker_ttl": {"type": "float", "default": 0},
            "withdraw_marker": {"type": "bool", "default": False},
            "containers": {"type": "list", "elements": "str", "default": []},
            "pve_dir": {"type": "path", "default": "/etc/pve"},
            "purpose": {"type": "str", "default": ""},
            "who": {"type": "str", "default": ""},
            "path": {"type": "path", "default": "/run/cleanslate"},
        },
        supports_check_mode=True,
    )
    options = dict(module.params)
    path = options.pop("path")
    try:
        check_path("pve_dir", options["pve_dir"])
        for container in options["containers"]:
            check_vmid("containers", container)
    except ValueError as error:
        refused = _lease.LeaseResult("refused", f"{error} Nothing was changed.", failed=True)
        module.fail_json(msg=refused.reason, **_result(refused), container_locks=[])
    locks = [one.as_dict() for one in container_locks(options.pop("containers"), options.pop("pve_dir"))]
    for name in ("run_id", "node", "takeover"):
        options[name] = options[name] or ""
    options["gpus"] = tuple(options["gpus"])
    request = _lease.LeaseRequest(**options)
    found = _lease.lease(request, path, boot_id(), BootClock(), check=module.check_mode)
    if found.failed:
        module.fail_json(msg=found.reason, container_locks=locks, **_result(found))
    module.exit_json(container_locks=locks, **_result(found))


if __name__ == "__main__":
    main()
