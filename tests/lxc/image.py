# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The root file system of both containers: built once by mmdebstrap, kept as a tar file, unpacked for each."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess

import commands
from layout import ROOT, STATE, HarnessError

SUITE = "bookworm"
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "libpam-systemd", "openssh-server", "python3", "iproute2", "procps",
)  # fmt: skip
DEFAULT_CACHE = os.path.join(ROOT, ".nox", "lxc")
# What every container needs and none has of its own. Host keys and machine-id are made for each run.
CUSTOMIZE = """set -e
chroot "$1" useradd --system --create-home --home-dir /var/lib/sglang --shell /usr/sbin/nologin sglang
chroot "$1" systemctl mask console-getty.service getty.target getty@.service container-getty@.service \
  systemd-logind-varlink.socket apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/machine-id "$1"/var/lib/dbus/machine-id
printf 'PermitRootLogin prohibit-password\\nPasswordAuthentication no\\nUseDNS no\\n' >"$1"/etc/ssh/sshd_config.d/lxc.conf
"""
OPTIONS = ("--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
           "--dpkgopt=path-exclude=/usr/share/doc/*")  # fmt: skip


def tar_path(cache: str) -> str:
    key = hashlib.sha256(json.dumps([SUITE, PACKAGES, CUSTOMIZE, OPTIONS]).encode()).hexdigest()[:16]
    return os.path.join(cache, "rootfs-%s-%s.tar" % (SUITE, key))


def ensure(cache: str) -> str:
    """The tar file; built if it is not there (about half a minute and 100 MB of downloads)."""
    tar = tar_path(cache)
    if os.path.isfile(tar):
        return tar
    os.makedirs(cache, exist_ok=True)
    for old in os.listdir(cache):
        if old.startswith("rootfs-"):
            os.unlink(os.path.join(cache, old))
    # Its temporary folder lies below STATE, so that `down` removes that of an interrupted build.
    temporary = os.path.join(STATE, "build")
    os.makedirs(temporary, exist_ok=True)
    partial = tar + ".partial"
    argv = ["mmdebstrap", "--mode=root", "--format=tar", "--variant=minbase", "--include=" + ",".join(PACKAGES), *OPTIONS,
            "--customize-hook=" + CUSTOMIZE, SUITE, partial]  # fmt: skip
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False,
            env=dict(commands.environment(), TMPDIR=temporary, SOURCE_DATE_EPOCH="0"),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise HarnessError("mmdebstrap did not end within 900 s; is %s reachable?" % "deb.debian.org") from None
    if done.returncode != 0:
        raise HarnessError("mmdebstrap ended with %d: %s" % (done.returncode, done.stderr.strip()[-3000:]))
    os.replace(partial, tar)
    shutil.rmtree(temporary, ignore_errors=True)
    return tar


def unpack(tar: str, folder: str) -> None:
    os.makedirs(folder)
    commands.run(["tar", "--extract", "--numeric-owner", "--xattrs", "--xattrs-include=*", "--file", tar,
                  "--directory", folder], timeout=300)  # fmt: skip
