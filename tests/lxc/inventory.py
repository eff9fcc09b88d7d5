# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Ansible inventory of the played host, with the names that a user's inventory has."""

from __future__ import annotations

import json
import os
import typing as t

from layout import CONTAINERS, INVENTORY, NODE, PORT, SSH, TTY_MAJOR, write

HEAD = """\
# Written by tests/lxc/harness.py for the containers that run now.
---
all:
  children:
    proxmox_hosts:
      hosts:
        pve:
          ansible_connection: local
          ansible_python_interpreter: "{{ ansible_playbook_python }}"
    sglang_nodes:
      hosts:
"""
HOST = """\
        %(name)s:
          ansible_host: %(address)s
          gpu_release_host: pve
          gpu_release_lxc: [%(vmid)s]
"""
UUIDS = """\
        # By GPU number, for what is about some of them: gpu_idle_expected_uuids.
        played_gpu_uuids: %s
"""
VARIABLES = """\
      vars:
        ansible_user: root
        ansible_python_interpreter: /usr/bin/python3
        ansible_ssh_private_key_file: %(ssh)s/key
        ansible_ssh_pipelining: true
        ansible_ssh_common_args: >-
          -F /dev/null -o UserKnownHostsFile=%(ssh)s/known_hosts -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes
        # The same places on the host and in the containers, as on a real one.
        gpu_release_devices: ["%(node)s/dev/nvidia*"]
        gpu_release_majors: [%(major)s]
        gpu_release_nvidia_smi: %(node)s/bin/nvidia-smi
        gpu_idle_timeout: 60
        sglang_server_settle: 1
        sglang_server_profile: all
        sglang_server_profiles:
          - name: all
            description: A server on all eight GPUs.
            api_key: lxc-key-0123456789abcdef
            args: {model-path: %(node)s/models/demo-397b, served-model-name: demo-397b, tp-size: 8, port: %(port)s}
          - name: low
            inherit: all
            description: A server on GPUs 0 to 3.
            args: {tp-size: 4}
            env: {CUDA_VISIBLE_DEVICES: "0,1,2,3"}
          - name: high
            inherit: all
            description: A server on GPUs 4 to 7.
            args: {tp-size: 4}
            env: {CUDA_VISIBLE_DEVICES: "4,5,6,7"}
"""


def text() -> str:
    hosts = "".join(HOST % {"name": c.name, "address": c.address, "vmid": c.vmid} for c in CONTAINERS)
    values: dict[str, t.Any] = {"ssh": SSH, "node": NODE, "major": TTY_MAJOR, "port": PORT}
    with open(os.path.join(NODE, "node.json"), encoding="utf-8") as handle:
        uuids = [gpu["uuid"] for gpu in json.load(handle)["gpus"]]
    return HEAD + hosts + VARIABLES % values + UUIDS % json.dumps(uuids)


def write_file() -> str:
    write(INVENTORY, text())
    os.chmod(os.path.dirname(INVENTORY), 0o700)  # it names a key
    return INVENTORY
