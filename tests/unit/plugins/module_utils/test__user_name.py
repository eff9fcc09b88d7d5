# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A user's name in the container's words."""

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc
from ansible_collections.cleanslate.gpu.plugins.module_utils._user_name import user_name

PRIVILEGED = "         0          0 4294967295\n"
UNPRIVILEGED = "         0     100000      65536\n"


@pytest.fixture
def proc(tmp_path: pathlib.Path) -> Proc:
    (tmp_path / "7/root/etc").mkdir(parents=True)
    (tmp_path / "7/root/etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nsglang:x:999:999::/srv:/bin/sh\nbroken\n")
    (tmp_path / "7/uid_map").write_text(PRIVILEGED)
    return Proc(str(tmp_path))


@pytest.mark.parametrize(
    ("uid_map", "uid", "name"),
    [
        (PRIVILEGED, 999, "sglang"),
        (PRIVILEGED, 0, "root"),
        (PRIVILEGED, 12345, None),
        (UNPRIVILEGED, 100999, "sglang"),
        (UNPRIVILEGED, 100000, "root"),
        (UNPRIVILEGED, 999, None),
        ("0 100000 999\n", 100998, None),
        ("0 100000 1000\n", 100999, "sglang"),
        ("0 100000 999\n", 100999, None),
        ("0 100000 10\n999 200000 1\n", 200000, "sglang"),
        ("nonsense\n", 0, None),
        ("", 0, None),
    ],
)
def test_the_containers_own_name(proc: Proc, uid_map: str, uid: int, name: str | None) -> None:
    pathlib.Path(proc.root, "7/uid_map").write_text(uid_map)
    assert user_name(proc, 7, uid, inside=True) == name


def test_outside_the_machines_own_name_counts(proc: Proc) -> None:
    assert user_name(proc, 7, 0, inside=False) == "root"
    assert user_name(proc, 7, 4_000_000_000, inside=False) is None


def test_what_a_container_puts_there_instead_is_not_followed(proc: Proc) -> None:
    passwd = pathlib.Path(proc.root, "7/root/etc/passwd")
    passwd.unlink()
    passwd.symlink_to("/etc/passwd")
    assert user_name(proc, 7, 0, inside=True) is None
    passwd.unlink()
    os.mkfifo(passwd)
    assert user_name(proc, 7, 0, inside=True) is None
    passwd.unlink()
    assert user_name(proc, 7, 0, inside=True) is None


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("sglang:x:999", "sglang"),
        ("sglang:x:999:999:a\tcomment:/srv:/bin/sh\t", "sglang"),
        ("sglang:\x07:999:999::/srv:/bin/sh", "sglang"),
        ("sg\x1b[31mlang:x:999:999::/srv:/bin/sh", None),
        ("sglang:x:1:999::/srv:/bin/sh", None),
        ("sglang:999", None),
        ("sglang", None),
        ("x" * 200 + ":x:999:999::/srv:/bin/sh", "x" * 64),
    ],
)
def test_lines_that_a_container_may_write(proc: Proc, line: str, name: str | None) -> None:
    """What it puts there goes to a terminal."""
    pathlib.Path(proc.root, "7/root/etc/passwd").write_text(f"root:x:0:0::/root:/bin/sh\n{line}\n")
    assert user_name(proc, 7, 999, inside=True) == name


@pytest.mark.parametrize(("before", "name"), [(999_988, "sglang"), (999_989, None)])
def test_no_more_than_a_megabyte_of_it_is_read(proc: Proc, before: int, name: str | None) -> None:
    comment = "#" * (before - 1) + "\n"
    pathlib.Path(proc.root, "7/root/etc/passwd").write_text(f"{comment}sglang:x:999")
    assert user_name(proc, 7, 999, inside=True) == name
