# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The root file system of both containers: built once by mmdebstrap, then only read (each has a layer of its own)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil

import commands
from layout import ROOT, HarnessError

SUITE = "bookworm"
PACKAGES = ("systemd", "systemd-sysv", "dbus", "libpam-systemd", "openssh-server", "python3", "iproute2", "procps")
DEFAULT_CACHE = os.path.join(ROOT, ".nox", "lxc")
# What every container needs and none has of its own. Host keys and machine-id are made for each run.
CUSTOMIZE = """set -e
chroot "$1" useradd --system --create-home --home-dir /var/lib/sglang --shell /usr/sbin/nologin sglang
chroot "$1" systemctl mask console-getty.service getty.target getty@.service container-getty@.service \
  apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/machine-id "$1"/var/lib/dbus/machine-id
printf '%s\\n' 'PermitRootLogin prohibit-password' 'PasswordAuthentication no' 'UseDNS no' \
  >"$1"/etc/ssh/sshd_config.d/lxc.conf
"""
OPTIONS = (
    "--dpkgopt=force-unsafe-io",
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "locale", "man")),
)


def place(cache: str) -> str:
    """The folder for what is built now; another list of packages is another folder."""
    key = hashlib.sha256(json.dumps([SUITE, PACKAGES, CUSTOMIZE, OPTIONS]).encode()).hexdigest()[:16]
    return os.path.join(cache, f"rootfs-{SUITE}-{key}")


def unfinished(cache: str) -> str:
    """Where a build is going on; `down` removes that of an interrupted one."""
    return place(cache) + ".partial"


def ensure(cache: str) -> str:
    """The root file system; built if it is not there (about half a minute and 100 MB of downloads)."""
    folder, partial = place(cache), unfinished(cache)
    if os.path.isdir(folder):
        return folder
    os.makedirs(cache, exist_ok=True)
    for old in os.listdir(cache):
        if old.startswith(f"rootfs-{SUITE}-"):
            shutil.rmtree(os.path.join(cache, old))
    argv = ["mmdebstrap", "--mode=root", "--format=directory", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    argv += [*OPTIONS, "--customize-hook=" + CUSTOMIZE, SUITE, partial]
    try:
        commands.run(argv, timeout=900)
    except HarnessError as error:
        raise HarnessError(f"the root file system could not be built (is deb.debian.org reachable?): {error}") from None
    os.replace(partial, folder)
    return folder
