# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What lies on the way to a file, along every link that the kernel would follow."""

from __future__ import annotations

import grp
import os
import pathlib
import types

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._root_only import weak_part

BOB = 4711
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")


class Chain:
    """place0/link -> place1/link -> ... -> the last place's file, each in a folder of its own."""

    def __init__(self, folder: pathlib.Path, links: int, relative: bool = False) -> None:
        self.places = [folder / f"place{number}" for number in range(links + 1)]
        self.steps = [place / "tool" for place in self.places]
        for place in self.places:
            place.mkdir()
        self.steps[-1].write_text("")
        for step, target in zip(self.steps, self.steps[1:]):
            step.symlink_to(os.path.relpath(target, step.parent) if relative else target)


@AS_ROOT
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("links", [0, 1, 2, 4])
def test_a_chain_of_links_is_roots_alone_only_where_every_part_of_it_is(
    tmp_path: pathlib.Path, links: int, relative: bool
) -> None:
    chain = Chain(tmp_path, links, relative)
    assert weak_part(str(chain.steps[0])) is None
    for part in (*chain.places, *chain.steps):
        os.chown(part, BOB, BOB, follow_symlinks=False)
        assert weak_part(str(chain.steps[0])) == f"{part} belongs to uid {BOB}, not to root"
        os.chown(part, 0, 0, follow_symlinks=False)
    for place in chain.places:
        place.chmod(0o775)
        assert weak_part(str(chain.steps[0])) == f"{place} may be written to by others (mode 0775)"
        place.chmod(0o755)


@AS_ROOT
def test_a_folder_that_is_a_link_is_followed_before_its_parent_is_taken(tmp_path: pathlib.Path) -> None:
    """link/../tool is beside what the link leads to, not beside the link."""
    chain = Chain(tmp_path, 0)
    (tmp_path / "bobs" / "deep").mkdir(parents=True)
    (tmp_path / "bobs" / "tool").write_text("")
    (chain.places[0] / "link").symlink_to(tmp_path / "bobs" / "deep")
    os.chown(tmp_path / "bobs" / "tool", BOB, BOB)
    assert weak_part(f"{chain.places[0]}/link/../tool") == f"{tmp_path}/bobs/tool belongs to uid {BOB}, not to root"


@AS_ROOT
def test_what_is_not_there_yet_is_not_vouched_for_where_its_folder_is_somebody_elses(tmp_path: pathlib.Path) -> None:
    chain = Chain(tmp_path, 2)
    chain.steps[-1].unlink()
    assert weak_part(str(chain.steps[0])) == f"{chain.steps[-1]} does not exist"
    assert weak_part(str(chain.steps[0]), must_exist=False) is None
    assert weak_part(f"{chain.places[0]}/not/yet/../there", must_exist=False) is None
    os.chown(chain.places[1], BOB, BOB)
    assert weak_part(str(chain.steps[0]), must_exist=False) == f"{chain.places[1]} belongs to uid {BOB}, not to root"


@AS_ROOT
def test_links_that_lead_to_each_other_end(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for must_exist in (True, False):
        assert "more than 40 links" in (weak_part(str(tmp_path / "a"), must_exist=must_exist) or "")


@AS_ROOT
def test_a_path_from_where_one_stands(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain(tmp_path, 1)
    monkeypatch.chdir(chain.places[0])
    os.chown(chain.places[1], BOB, BOB)
    assert weak_part("tool") == f"{chain.places[1]} belongs to uid {BOB}, not to root"
    assert weak_part("./none") == f"{chain.places[0]}/none does not exist"


@pytest.mark.parametrize(
    ("way", "mode", "group", "members", "weak"),
    [
        ("/var/log", 0o40775, "syslog", [], False),
        ("/var/log", 0o40777, "syslog", [], True),
        ("/var/log", 0o40775, "adm", [], True),
        ("/var/log", 0o40775, "syslog", ["bob"], True),
        ("/var/log", 0o40775, None, [], True),
        ("/var/log/sglang", 0o40775, "syslog", [], True),
    ],
)
def test_ubuntus_folder_of_logs_is_as_good_as_roots(
    way: str, mode: int, group: str | None, members: list[str], weak: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There every default place of a log would be refused: root:syslog 0775, and nobody but rsyslogd in that group."""

    def getgrgid(gid: int) -> types.SimpleNamespace:
        if group is None:
            raise KeyError(gid)
        return types.SimpleNamespace(gr_name=group, gr_mem=members)

    monkeypatch.setattr(grp, "getgrgid", getgrgid)
    found = os.stat_result((mode, 1, 1, 2, 0, 110, 4096, 0, 0, 0))
    real = os.lstat
    monkeypatch.setattr(os, "lstat", lambda path: found if path == way else real("/"))
    assert (weak_part(way) is not None) == weak
