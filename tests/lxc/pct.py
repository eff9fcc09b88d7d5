# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this project calls of Proxmox's pct, for the played host: status, config, list, exec."""

from __future__ import annotations

import os
import subprocess
import sys
import typing as t

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.append(HERE)

from layout import CONSOLES, CONTAINERS, LXC_PATH, TTY_MAJOR, Container, HarnessError, container  # noqa: E402

USAGE = "usage: pct list | status VMID | config VMID | exec VMID -- COMMAND ..."


def state(one: Container) -> str:
    done = subprocess.run(
        ["lxc-info", "-P", LXC_PATH, "-n", str(one.vmid), "-s", "-H"], capture_output=True, text=True, check=False
    )
    return "running" if done.stdout.strip() == "RUNNING" else "stopped"


def config(one: Container) -> str:
    lines = ["arch: amd64", "hostname: %s" % one.name, "memory: 512", "ostype: debian"]
    names = sorted(CONSOLES, key=CONSOLES.__getitem__)
    if one.style == "devn":
        lines += ["dev%d: /dev/%s,mode=0666" % (n, name) for n, name in enumerate(names)]
    else:
        lines.append("lxc.cgroup2.devices.allow: c %d:* rwm" % TTY_MAJOR)
        lines += ["lxc.mount.entry: /dev/%s dev/%s none bind,optional,create=file" % (name, name) for name in names]
    return "\n".join(lines)


def main(argv: t.Sequence[str]) -> int:
    if argv == ["list"]:
        print("%-10s %-10s %-12s %-20s" % ("VMID", "Status", "Lock", "Name"))
        for one in CONTAINERS:
            print("%-10d %-10s %-12s %-20s" % (one.vmid, state(one), "", one.name))
        return 0
    if len(argv) < 2 or argv[0] not in ("status", "config", "exec") or not argv[1].isdigit():
        print(USAGE, file=sys.stderr)
        return 255
    try:
        one = container(int(argv[1]))
    except HarnessError:
        print("Configuration file 'nodes/pve/lxc/%s.conf' does not exist" % argv[1], file=sys.stderr)
        return 2
    if argv[0] == "status":
        print("status: %s" % state(one))
    elif argv[0] == "config":
        print(config(one))
    else:
        command = list(argv[2:])
        if command[:1] == ["--keep-env"]:
            del command[:2]
        if command[:1] == ["--"]:
            del command[:1]
        if not command:
            print(USAGE, file=sys.stderr)
            return 255
        if state(one) != "running":
            print("container '%d' not running!" % one.vmid, file=sys.stderr)
            return 255
        sys.stdout.flush()
        os.execvp("lxc-attach", ["lxc-attach", "-P", LXC_PATH, "-n", str(one.vmid), "--keep-env", "--", *command])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
