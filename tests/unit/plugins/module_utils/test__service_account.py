# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import grp
import os
import pwd
import stat

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._service_account import Account, find_account
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.preflight_node import SGLANG, result


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "bits", "may"),
    [
        (0o666, 0, 0, 6, True),
        (0o660, 0, 0, 6, False),
        (0o660, 0, 44, 6, True),
        (0o640, 0, 44, 6, False),
        (0o600, 990, 0, 6, True),
        (0o066, 990, 44, 6, False),  # the owner gets what the owner has, and nothing else
        (0o606, 0, 44, 6, False),  # nor does the group get what all others have
        (0o711, 0, 0, 1, True),
        (0o750, 0, 0, 1, False),
    ],
)
def test_permission_bits(mode: int, uid: int, gid: int, bits: int, may: bool) -> None:
    assert SGLANG.may(result(stat.S_IFCHR, mode, (195, 0), uid, gid), bits) is may


def test_root_may() -> None:
    assert Account("root", 0, frozenset({0}), 0).may(result(stat.S_IFCHR, 0, (195, 0), 5, 5), 6)


def test_an_account_by_name_and_by_number() -> None:
    entry = pwd.getpwuid(os.getuid())
    group = grp.getgrgid(entry.pw_gid)
    for user in (entry.pw_name, str(entry.pw_uid)):
        for name in ("", group.gr_name, str(group.gr_gid)):
            found = find_account(user, name)
            assert (found.name, found.uid) == (entry.pw_name, entry.pw_uid)
            assert group.gr_gid in found.gids


def test_the_group_of_the_unit_counts_beside_those_of_the_user() -> None:
    entry = pwd.getpwuid(os.getuid())
    other = next(group for group in grp.getgrall() if group.gr_gid not in os.getgrouplist(entry.pw_name, entry.pw_gid))
    assert other.gr_gid in find_account(entry.pw_name, other.gr_name).gids
    assert other.gr_gid not in find_account(entry.pw_name).gids


@pytest.mark.parametrize(
    ("user", "group", "sentence"),
    [
        ("nobody-of-that-name", "", "the user nobody-of-that-name does not exist"),
        ("3999999", "", "the user 3999999 does not exist"),
        ("9" * 30, "", "the user " + "9" * 30 + " does not exist"),
        (str(os.getuid()), "no-such-group", "the group no-such-group does not exist"),
        (str(os.getuid()), "3999999", "the group 3999999 does not exist"),
    ],
)
def test_who_does_not_exist(user: str, group: str, sentence: str) -> None:
    with pytest.raises(LookupError) as caught:
        find_account(user, group)
    assert caught.value.args == (sentence,)


def test_the_group_and_home_of_the_unit() -> None:
    entry = pwd.getpwuid(os.getuid())
    other = next(group for group in grp.getgrall() if group.gr_gid != entry.pw_gid)
    assert (find_account(entry.pw_name).gid, find_account(entry.pw_name).home) == (entry.pw_gid, entry.pw_dir)
    assert find_account(entry.pw_name, other.gr_name).gid == other.gr_gid
