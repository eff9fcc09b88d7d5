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
    lines = ["arch: amd64", f"hostname: {one.name}", "memory: 512", "ostype: debian"]
    names = sorted(CONSOLES, key=CONSOLES.__getitem__)
    if one.style == "devn":
        lines += [f"dev{n}: /dev/{name},mode=0666" for n, name in enumerate(names)]
    else:
        lines.append(f"lxc.cgroup2.devices.allow: c {TTY_MAJOR}:* rwm")
        lines += [f"lxc.mount.entry: /dev/{name} dev/{name} none bind,optional,create=file" for name in names]
    return "\n".join(lines)


def main(argv: t.Sequence[str]) -> int:
    if argv == ["list"]:
        print(f"{'VMID':<10} {'Status':<10} {'Lock':<12} {'Name':<20}")
        for one in CONTAINERS:
            print(f"{one.vmid:<10} {state(one):<10} {'':<12} {one.name:<20}")
        return 0
    if len(argv) < 2 or argv[0] not in ("status", "config", "exec") or not argv[1].isdigit():
        print(USAGE, file=sys.stderr)
        return 255
    try:
        one = container(int(argv[1]))
    except HarnessError:
        print(f"Configuration file 'nodes/pve/lxc/{argv[1]}.conf' does not exist", file=sys.stderr)
        return 2
    if argv[0] == "status":
        print(f"status: {state(one)}")
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
            print(f"container '{one.vmid}' not running!", file=sys.stderr)
            return 255
        sys.stdout.flush()
        os.execvp("lxc-attach", ["lxc-attach", "-P", LXC_PATH, "-n", str(one.vmid), "--keep-env", "--", *command])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
