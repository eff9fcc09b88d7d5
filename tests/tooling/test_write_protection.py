# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page about what is never killed says what the rules say."""

from __future__ import annotations

import write_protection


def words(case: str) -> list[str]:
    """What the rules make of one row: in the scopes unit, own, lxc and all."""
    (found,) = (one for name, one in write_protection.CASES if name == case)
    return [word for word, _why in write_protection.rulings(found)]


def test_the_page_is_fresh() -> None:
    page = write_protection.PAGE.read_text(encoding="utf-8")
    assert page == write_protection.page(), "run: python tests/tooling/write_protection.py"


def test_what_is_never_touched_is_so_in_every_scope() -> None:
    for case in ("PID 1", "a kernel thread", "PID 1 of container 101", "the monitor of a container"):
        assert words(case) == ["never"] * 4, case
    assert words("this module or its SSH session") == ["self"] * 4
    assert words("nv-hostengine in the server's own unit") == ["protected"] * 4


def test_a_name_that_a_process_gives_itself_protects_and_condemns_nobody() -> None:
    assert words("python that calls itself nv-hostengine") == words("python in no unit (nohup, pct exec)")
    assert words("a user's file with the name nv-hostengine") == words("python in no unit (nohup, pct exec)")
    assert words("in another service, and it calls itself sglang") == words("in another active service")
    assert "protected" not in words("a user's service with the name dcgm.service")


def test_every_word_is_on_the_page() -> None:
    found = {word for name, _one in write_protection.CASES for word in words(name)}
    assert found == {"self", "never", "protected", "monitor", "foreign", "target"}
