# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plays a Proxmox host with two GPU containers on one Debian machine: harness.py up | down | status | exec.

Real LXC, real systemd, real sshd, Proxmox's cgroup names; README.md beside this file says what is played.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import typing as t

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import commands  # noqa: E402
import consoles  # noqa: E402
import containers  # noqa: E402
import image  # noqa: E402
import pct  # noqa: E402
import teardown  # noqa: E402
from layout import (  # noqa: E402
    BRIDGE,
    CONTAINERS,
    GPUS,
    HOST_ADDRESS,
    INVENTORY,
    LOCK,
    LOGS,
    MARKER,
    NODE,
    PCT,
    PORT,
    PYTHON,
    SOURCES,
    SSH,
    STATE,
    TESTS,
    HarnessError,
    container,
    read_marker,
    write,
)  # fmt: skip

import inventory  # noqa: E402


class Interrupted(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by signal {number}")
        self.number = number


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def only_one() -> t.Iterator[None]:
    """Names and numbers belong to the whole machine: one `up` or `down` at a time."""
    while True:
        fd = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise HarnessError(f"another harness.py is at work on this machine (it holds {LOCK})") from None
        try:
            if os.stat(LOCK).st_ino == os.fstat(fd).st_ino:
                break
        except FileNotFoundError:
            pass
        os.close(fd)  # the one before us removed it
    try:
        yield
    finally:
        if read_marker() is None:
            teardown.remove_lock()
        os.close(fd)


def make_marker(cache: str) -> None:
    """Before anything is made; says what was there already."""
    strange = teardown.strangers()
    if strange:
        raise HarnessError("not made by this harness, but with its names: {}. Left alone.".format(", ".join(strange)))
    if os.path.isdir(STATE) and os.listdir(STATE):
        raise HarnessError(f"{STATE} is not empty and has no {os.path.basename(MARKER)}: not made by this harness")
    consoles.check_free()
    parents = [os.path.join(root, parent) for root in teardown.cgroup_roots() for parent in teardown.PARENTS]
    about = {
        "cgroup_parents": [path for path in parents if os.path.isdir(path)],
        "consoles": consoles.allocated(),
        "unfinished": image.unfinished(cache),
    }
    os.makedirs(STATE, 0o755, exist_ok=True)
    write(MARKER, json.dumps(about) + "\n")


def make_node() -> None:
    """The host's simulated node: the simulator's, its plain files replaced by character devices."""
    ignore = shutil.ignore_patterns("__pycache__", "test_*", "*.partial")
    for name in ("simulator", "lxc", "recordings"):
        shutil.copytree(os.path.join(TESTS, name), os.path.join(SOURCES, name), ignore=ignore)
    simulate = os.path.join(SOURCES, "simulator", "simulate.py")
    commands.run([PYTHON, "-B", simulate, "create", NODE, "--gpus", str(GPUS), "--port", str(PORT), "--python", PYTHON])
    shutil.rmtree(os.path.join(NODE, "dev"))
    shutil.rmtree(os.path.join(NODE, "bin"))
    os.makedirs(os.path.join(NODE, "dev"), 0o755)
    consoles.make_all()
    for tool, text in containers.launchers().items():
        write(os.path.join(NODE, "bin", tool), text, 0o755)
    write(PCT, '#!/bin/sh\nexec {} -I {} "$@"\n'.format(PYTHON, os.path.join(SOURCES, "lxc", "pct.py")), 0o755)


def start_driver() -> None:
    log = open(os.path.join(LOGS, "gpu-driver.log"), "ab")  # noqa: SIM115
    with log:
        process = subprocess.Popen(
            [PYTHON, "-B", os.path.join(SOURCES, "lxc", "node_side", "gpu_driver.py"), NODE], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=log, start_new_session=True, env=commands.environment(), cwd="/",
        )  # fmt: skip
    assert process.stdout is not None
    with process.stdout as answer:
        if answer.readline() != b"ready\n":
            raise HarnessError(f"the GPUs' driver process did not start; see {log.name}")


def make_keys() -> str:
    """A key for this run, host keys for this run; the public key of the first."""
    os.makedirs(SSH, 0o700)
    known = []
    for name in ["key"] + [f"host-{one.vmid}" for one in CONTAINERS]:
        path = os.path.join(SSH, name)
        commands.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "cleanslate-lxc", "-f", path])
    for one in CONTAINERS:
        with open(os.path.join(SSH, f"host-{one.vmid}.pub"), encoding="ascii") as handle:
            known.append("{} {}\n".format(one.address, " ".join(handle.read().split()[:2])))
    write(os.path.join(SSH, "known_hosts"), "".join(known))
    with open(os.path.join(SSH, "key.pub"), encoding="ascii") as handle:
        return handle.read()


def make_bridge() -> None:
    commands.run(["ip", "link", "add", BRIDGE, "type", "bridge"])
    commands.run(["ip", "address", "add", HOST_ADDRESS, "dev", BRIDGE])
    commands.run(["ip", "link", "set", BRIDGE, "up"])


def up(cache: str) -> None:
    commands.check_machine()
    began = time.monotonic()
    teardown.down()
    make_marker(cache)

    def step(what: str) -> None:
        say(f"{time.monotonic() - began:6.1f} s  {what}")

    os.makedirs(LOGS)
    step("root file system (built by mmdebstrap the first time) ...")
    os.symlink(image.ensure(cache), containers.BASE)
    step("GPUs, keys, bridge ...")
    make_node()
    start_driver()
    public_key = make_keys()
    make_bridge()
    for one in CONTAINERS:
        containers.prepare(one, public_key)
    step("containers ...")
    for one in CONTAINERS:
        containers.start(one)
    for one in CONTAINERS:
        containers.wait_until_up(one)
    inventory.write_file()
    step("up")
    print(INVENTORY)


def up_or_nothing(cache: str) -> None:
    """Whatever ends an `up` early, nothing is left of it. (After kill -9 it is `down` that sees to that.)"""

    def interrupted(number: int, _frame: t.Any) -> None:
        raise Interrupted(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    try:
        up(cache)
    except BaseException as error:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if isinstance(error, HarnessError):
            say(f"harness.py: {error}")
        if os.geteuid() == 0 and not os.path.exists("/etc/pve"):
            say("taking down what was made ...")
            teardown.down()
        raise


def status() -> int:
    if read_marker() is None:
        print(f"down: there is no {MARKER}")
        return 3
    print(containers.show_all())
    smi = [os.path.join(NODE, "bin", "nvidia-smi"), "--format=csv,noheader"]
    print(commands.run([*smi, "--query-gpu=index,memory.used"], check=False).stdout, end="")
    print(
        commands.run([*smi, "--query-compute-apps=gpu_uuid,pid,process_name,used_memory"], check=False).stdout, end=""
    )
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="harness.py", description="A played Proxmox host with two GPU containers.")
    words = top.add_subparsers(dest="command", required=True)
    start = words.add_parser("up", help="make and start everything; prints the path of the inventory")
    start.add_argument("--cache", default=image.DEFAULT_CACHE, help="folder for the root file system (%(default)s)")
    words.add_parser("down", help="remove everything that up made, also of an interrupted up")
    words.add_parser("status", help="containers, GPU memory, processes on the GPUs")
    execute = words.add_parser("exec", help="run a command in a container, as pct exec does (outside every unit)")
    execute.add_argument("vmid", type=int)
    execute.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    return top


def main() -> int:
    options = parser().parse_args()
    try:
        if options.command == "up":
            with only_one():
                up_or_nothing(os.path.abspath(options.cache))
        elif options.command == "down":
            if os.geteuid() != 0:
                raise HarnessError("down must be root, as up was")
            with only_one():
                say("everything is down" if teardown.down() else "nothing to take down")
                left = teardown.remains()
            if left:
                raise HarnessError("still there: {}".format(", ".join(left)))
        elif options.command == "status":
            return status()
        else:
            return pct.main(["exec", str(container(options.vmid).vmid), *options.argv])
    except Interrupted as error:
        return 128 + error.number
    except (HarnessError, OSError) as error:
        if options.command != "up" or not isinstance(error, HarnessError):
            say(f"harness.py: {error}")
        else:
            say("harness.py: up failed")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
