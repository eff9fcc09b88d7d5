# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running commands: each with a deadline, an error that says what came back, and the mark by which `down` finds it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import typing as t

from layout import HERE, MARK, STATE, HarnessError

TOOLS = {
    "ip": "iproute2",
    "lsof": "lsof",
    "lxc-attach": "lxc",
    "lxc-info": "lxc",
    "lxc-start": "lxc",
    "mmdebstrap": "mmdebstrap",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "fuser": "psmisc",
}


def environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C", MARK: STATE}


def missing_packages() -> list[str]:
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return sorted({package for tool, package in TOOLS.items() if shutil.which(tool, path=path) is None})


def check_machine() -> None:
    """Refuse a machine on which this cannot work, before anything is made."""
    if os.geteuid() != 0:
        raise HarnessError("the harness makes device nodes, mounts and cgroups: it must be root")
    if os.path.exists("/etc/pve"):
        raise HarnessError("this is a real Proxmox host (/etc/pve exists): the harness stays away from it")
    missing = missing_packages()
    if missing:
        raise HarnessError(
            "missing Debian packages: {}. Install them: apt-get install --no-install-recommends {} "
            "(the whole list stands in {})".format(
                ", ".join(missing), " ".join(missing), os.path.join(HERE, "packages.txt")
            )
        )


def run(
    argv: t.Sequence[str], *, timeout: float = 60, check: bool = True, feed: str | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        done = subprocess.run(
            list(argv), input=feed, stdin=subprocess.DEVNULL if feed is None else None, capture_output=True, text=True,
            timeout=timeout, env=environment(), check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise HarnessError("{}: no end after {} s".format(" ".join(argv), timeout)) from None
    if check and done.returncode != 0:
        raise HarnessError(
            "{}: exit code {}: {}".format(" ".join(argv), done.returncode, (done.stderr or done.stdout).strip()[-2000:])
        )
    return done


def wait_for(what: str, test: t.Callable[[], t.Any], timeout: float, interval: float = 0.1) -> t.Any:
    deadline = time.monotonic() + timeout
    while True:
        result = test()
        if result:
            return result
        if time.monotonic() > deadline:
            raise HarnessError(f"{what}: not so within {timeout} s")
        time.sleep(interval)
