# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The two containers: their files, their LXC configuration with Proxmox's cgroup names, and their start."""

from __future__ import annotations

import json
import os
import shutil
import typing as t
import uuid

import commands
from layout import (
    BRIDGE,
    CONSOLES,
    CONTAINERS,
    LOGS,
    LXC_PATH,
    NODE,
    PYTHON,
    SOURCES,
    SSH,
    STATE,
    TTY_MAJOR,
    Container,
    HarnessError,
    write,
)  # fmt: skip

BASE = os.path.join(STATE, "base")  # a link to the root file system in the cache
COMMON = "/usr/share/lxc/config/common.conf"


def launchers() -> dict[str, str]:
    """Programs of the simulated node, for host and containers: they see the shared GPUs."""
    lxc, simulator = os.path.join(SOURCES, "lxc", "node_side"), os.path.join(SOURCES, "simulator")
    pycache = os.path.join(NODE, "pycache")
    smi = f"import sys; sys.path[:0] = [{lxc!r}]; import shared_smi; shared_smi.main({NODE!r}, sys.argv[1:])"
    path = os.pathsep.join((lxc, os.path.join(simulator, "fake_sglang"), simulator))
    server = f"CLEANSLATE_SIMULATED_NODE={NODE} PYTHONPYCACHEPREFIX={pycache} PYTHONPATH={path}"
    return {
        "nvidia-smi": f"#!/bin/sh\nexec {PYTHON} -I -S -X pycache_prefix={pycache} -c \"{smi}\" \"$@\"\n",
        "python": f"#!/bin/sh\nexport {server}\nexec {PYTHON} \"$@\"\n",
    }  # fmt: skip


def folder_in(one: Container, path: str) -> str:
    """A folder of the container's own layer, with the mode and owner that it has in the base."""
    target = os.path.join(one.folder, "own")
    os.makedirs(target, exist_ok=True)
    base = BASE
    for part in path.strip("/").split("/"):
        target, base = os.path.join(target, part), os.path.join(base, part)
        if not os.path.isdir(target):
            os.mkdir(target, 0o755)
            if os.path.isdir(base):
                shutil.copystat(base, target)
                about = os.stat(base)
                os.chown(target, about.st_uid, about.st_gid)
    return target


def put(one: Container, path: str, text: str, mode: int = 0o644) -> None:
    write(os.path.join(folder_in(one, os.path.dirname(path)), os.path.basename(path)), text, mode)


def prepare(one: Container, public_key: str) -> None:
    put(one, "/etc/hostname", one.name + "\n")
    put(one, "/etc/hosts", f"127.0.0.1 localhost\n{one.address} {one.name}\n")
    put(one, "/etc/machine-id", uuid.uuid4().hex + "\n", 0o444)
    put(one, "/root/.ssh/authorized_keys", public_key, 0o600)
    os.chmod(folder_in(one, "/root/.ssh"), 0o700)
    for suffix, mode in (("", 0o600), (".pub", 0o644)):
        with open(os.path.join(SSH, f"host-{one.vmid}{suffix}"), encoding="ascii") as handle:
            put(one, "/etc/ssh/ssh_host_ed25519_key" + suffix, handle.read(), mode)
    # Its own half of the simulated node: faults, counters and process list are its own, the contexts are the host's.
    node = folder_in(one, NODE)
    for name in ("counters", "processes", "pycache", "contexts", "run", "dev/nvidia-caps"):
        os.makedirs(os.path.join(node, name), exist_ok=True)
        os.chmod(os.path.join(node, name), 0o777)
    for name in ("node.json", "scenario.json", ".simulated-node"):
        shutil.copy(os.path.join(NODE, name), os.path.join(node, name))
    shutil.copytree(os.path.join(NODE, "models"), os.path.join(node, "models"))
    for name in ("calls.jsonl", "sglang.log", "holders.log"):
        write(os.path.join(node, name), "", 0o666)
    for name in CONSOLES:
        os.symlink("/dev/" + name, os.path.join(node, "dev", name))
    for tool, text in launchers().items():
        write(os.path.join(node, "bin", tool), text, 0o755)
    os.symlink(os.path.join(NODE, "bin", "nvidia-smi"), os.path.join(folder_in(one, "/usr/bin"), "nvidia-smi"))
    os.symlink(os.path.join(NODE, "bin", "python"), os.path.join(folder_in(one, "/opt/sglang/bin"), "python"))
    folder_in(one, SOURCES)
    write(os.path.join(one.folder, "config"), configuration(one))


def configuration(one: Container) -> str:
    inside, monitor = one.cgroups
    lines = [
        "lxc.include = " + COMMON,
        "lxc.uts.name = " + one.name,
        # A layer over the common base, mounted by LXC in the container's own mount namespace.
        "lxc.rootfs.path = overlay:{}:{}".format(BASE, os.path.join(one.folder, "own")),
        "lxc.init.cmd = /sbin/init",
        "lxc.apparmor.profile = unconfined",
        "lxc.mount.auto =",
        "lxc.mount.auto = proc:rw sys:rw cgroup:rw",
        "lxc.tty.max = 0",
        # The lines that Proxmox writes.
        "lxc.cgroup.relative = 0",
        "lxc.cgroup.dir.monitor = " + monitor,
        "lxc.cgroup.dir.container = " + inside,
        "lxc.cgroup.dir.container.inner = ns",
        "lxc.net.0.type = veth",
        f"lxc.net.0.veth.pair = veth{one.vmid}i0",
        "lxc.net.0.link = " + BRIDGE,
        "lxc.net.0.name = eth0",
        "lxc.net.0.flags = up",
        f"lxc.net.0.ipv4.address = {one.address}/24",
    ]
    for minor in CONSOLES.values():
        lines.append(f"lxc.cgroup.devices.allow = c {TTY_MAJOR}:{minor} rwm")
        lines.append(f"lxc.cgroup2.devices.allow = c {TTY_MAJOR}:{minor} rwm")
    for name in CONSOLES:
        lines.append(f"lxc.mount.entry = {os.path.join(one.passthrough, name)} dev/{name} none bind,create=file 0 0")
    for source, options in ((SOURCES, "bind,ro,create=dir"), (os.path.join(NODE, "contexts"), "bind,create=dir")):
        lines.append("lxc.mount.entry = {} {} none {} 0 0".format(source, source.lstrip("/"), options))
    return "\n".join(lines) + "\n"


def lxc(tool: str, one: Container, *rest: str, timeout: float = 60, check: bool = True) -> str:
    done = commands.run(["lxc-" + tool, "-P", LXC_PATH, "-n", str(one.vmid), *rest], timeout=timeout, check=check)
    return done.stdout


def start(one: Container) -> None:
    log = os.path.join(LOGS, f"{one.vmid}.log")
    try:
        lxc("start", one, "-d", "-l", "INFO", "-o", log)
    except HarnessError as error:
        try:
            with open(log, encoding="utf-8", errors="replace") as handle:
                told = [line for line in handle if " ERROR " in line]
        except OSError:
            told = []
        raise HarnessError("container {} did not start: {}\n{}".format(one.vmid, error, "".join(told[-8:]))) from None


def init_pid(one: Container) -> int:
    """The host PID of the container's init; 0 when it does not run."""
    text = lxc("info", one, "-p", "-H", check=False).strip()
    return int(text) if text.isdigit() else 0


def attach(one: Container, *argv: str, timeout: float = 60, check: bool = True) -> str:
    return lxc("attach", one, "--clear-env", "--", *argv, timeout=timeout, check=check)


def ssh_command(one: Container) -> list[str]:
    return ["ssh", "-i", os.path.join(SSH, "key"), "-o", "UserKnownHostsFile=" + os.path.join(SSH, "known_hosts"),
            "-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
            "-o", "ConnectTimeout=5", "-F", "/dev/null", "root@" + one.address]  # fmt: skip


def wait_until_up(one: Container, timeout: float = 90) -> None:
    def systemd() -> bool:
        return attach(one, "systemctl", "is-system-running", check=False).strip() in ("running", "degraded")

    def ssh() -> bool:
        return commands.run([*ssh_command(one), "true"], timeout=20, check=False).returncode == 0

    commands.wait_for(f"systemd of container {one.vmid} is up", systemd, timeout, 0.3)
    commands.wait_for(f"sshd of container {one.vmid} lets us in", ssh, timeout, 0.3)


def about(one: Container) -> dict[str, t.Any]:
    pid = init_pid(one)
    if not pid:
        return {"vmid": one.vmid, "running": False}
    state = attach(one, "systemctl", "is-system-running", check=False).strip()
    return {"vmid": one.vmid, "running": True, "init_pid": pid, "systemd": state, "address": one.address,
            "gpus": one.style}  # fmt: skip


def show_all() -> str:
    return "\n".join(json.dumps(about(one)) for one in CONTAINERS)
