# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a file that lasts says of each unit, how a change of it is returned, and with which modes it is written."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import stat
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _state_file
from ansible_collections.cleanslate.gpu.plugins.module_utils._whole_file import FolderRefused, Unreadable
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import SteppedClock


def parse(item: t.Any) -> int:
    return int(item["n"])


def test_no_file_has_no_unit() -> None:
    assert _state_file.units(None, 1, parse) == {}


def test_every_unit_has_its_entry() -> None:
    document = {"version": 1, "units": {"a.service": {"n": 1}, "b.service": {"n": 2}}}
    assert _state_file.units(document, 1, parse) == {"a.service": 1, "b.service": 2}


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_version_is_not_guessed_at(version: object) -> None:
    with pytest.raises(Unreadable, match=f"its version is {version!r}, and 1 is known here"):
        _state_file.units({"version": version, "units": {}}, 1, parse)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"version": 1},
        [],
        3,
        "version",
        {"version": 1, "units": []},
        {"version": 1, "units": 3},
        {"version": 1, "units": {"a": {}}},
        {"version": 1, "units": {"a": 3}},
        {"version": 1, "units": {"a": {"n": "x"}}},
        {"version": 1, "units": {"a": {"n": None}}},
    ],
)
def test_what_cannot_be_understood_is_unreadable_and_not_an_end_of_the_module(document: t.Any) -> None:
    with pytest.raises(Unreadable, match="it is not what was written here"):
        _state_file.units(document, 1, parse)


def test_a_list_that_is_too_short_is_unreadable_too() -> None:
    with pytest.raises(Unreadable):
        _state_file.units({"version": 1, "units": {"a": []}}, 1, lambda item: item[0])


def test_a_number_beyond_all_numbers_is_unreadable_too() -> None:
    """JSON's Infinity, and what Python makes of 1e999."""
    with pytest.raises(Unreadable):
        _state_file.units({"version": 1, "units": {"a": {"n": json.loads("1e999")}}}, 1, parse)


def test_one_bad_entry_makes_the_whole_unreadable() -> None:
    """Else the next writer would drop it, and with it what a person asked for."""
    with pytest.raises(Unreadable):
        _state_file.units({"version": 1, "units": {"a": {"n": 1}, "b": {}}}, 1, parse)


def test_a_long_complaint_is_cut() -> None:
    with pytest.raises(Unreadable) as error:
        _state_file.units({"version": "v" * 5000, "units": {}}, 1, parse)
    assert len(str(error.value)) < 200


@dataclasses.dataclass(frozen=True)
class Made:
    """A change as the callers have it."""

    failed: bool = False
    changed: bool = True
    verdict: str = "written"
    reason: str = "because"
    before: int | None = None
    after: int | None = None


def returned(**fields: t.Any) -> dict[str, t.Any]:
    return _state_file.returned(
        Made(**fields),
        "wanted",
        lambda entry: {"n": entry},
        lambda entry: [] if entry is None else ["unit", f"n {entry}"],
    )


def test_a_change_as_a_module_returns_it() -> None:
    assert returned(before=1, after=2) == {
        "changed": True,
        "verdict": "written",
        "reason": "because",
        "wanted": {"n": 2},
        "problem": None,
        "diff": {"before": "unit\nn 1\n", "after": "unit\nn 2\n"},
    }


def test_a_change_that_failed_says_the_problem() -> None:
    assert returned(failed=True, changed=False)["problem"] == "because"


def test_nothing_before_and_nothing_after_are_no_entries() -> None:
    found = returned(before=1)
    assert (found["wanted"], found["diff"]) == (None, {"before": "unit\nn 1\n", "after": ""})
    assert returned(after=0)["wanted"] == {"n": 0}, "an entry, though it is empty"


def mode(path: pathlib.Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_everybody_may_read_it_and_only_the_writer_may_lock_it(tmp_path: pathlib.Path, umask: int) -> None:
    """Whatever the umask is: a plain user's status reads it, and nobody else can keep the next writer waiting."""
    path = tmp_path / "state" / "x.json"
    before = os.umask(umask)
    try:
        with _state_file.locked(str(path), SteppedClock()) as file:
            file.replace({"b": 1, "a": 2})
    finally:
        os.umask(before)
    assert (mode(path.parent), mode(path)) == (0o755, 0o644)
    assert mode(path.parent / ".x.json.lock") & ~0o600 == 0


def test_the_lock_is_the_writers_own(tmp_path: pathlib.Path) -> None:
    before = os.umask(0)
    try:
        with _state_file.locked(str(tmp_path / "state" / "x.json"), SteppedClock()):
            pass
    finally:
        os.umask(before)
    assert mode(tmp_path / "state" / ".x.json.lock") == 0o600


def test_the_folder_is_never_open_to_others(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not between its making and its chmod either, when somebody could put a link into it."""
    monkeypatch.setattr(os, "chmod", lambda path, mode: None)
    before = os.umask(0)
    try:
        with _state_file.locked(str(tmp_path / "state" / "x.json"), SteppedClock()):
            pass
    finally:
        os.umask(before)
    assert mode(tmp_path / "state") == 0o755


def test_the_same_document_is_the_same_text(tmp_path: pathlib.Path) -> None:
    """For a person's diff, and line by line for their eye."""
    path = tmp_path / "x.json"
    tmp_path.chmod(0o755)
    with _state_file.locked(str(path), SteppedClock()) as file:
        file.replace({"b": {"c": 1}, "a": 2})
    assert path.read_text() == '{\n "a": 2,\n "b": {\n  "c": 1\n }\n}\n'


def test_what_cannot_be_read_is_kept_under_another_name(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.json"
    tmp_path.chmod(0o755)
    path.write_text("half")
    with _state_file.locked(str(path), SteppedClock()) as file:
        assert file.path == str(path)
        kept = file.set_aside()
        file.replace([])
    assert kept == f"{path}.unreadable"
    assert pathlib.Path(kept).read_text() == "half"
    assert json.loads(path.read_text()) == []


def test_a_file_where_the_folder_should_be_is_told(tmp_path: pathlib.Path) -> None:
    (tmp_path / "state").write_text("")
    with (
        pytest.raises(FolderRefused, match="a symbolic link or no folder"),
        _state_file.locked(str(tmp_path / "state" / "x.json"), SteppedClock()),
    ):
        pass


def test_whose_folder_it_should_be_is_told(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    owner = os.stat(tmp_path).st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with (
        pytest.raises(
            FolderRefused, match=f"it belongs to user id {owner} with mode 0755. It must belong to {owner + 1}"
        ),
        _state_file.locked(str(tmp_path / "x.json"), SteppedClock()),
    ):
        pass


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_who_else_may_write_in_the_folder_is_refused(tmp_path: pathlib.Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with (
        pytest.raises(FolderRefused, match=f"with mode {mode:04o}"),
        _state_file.locked(str(tmp_path / "x.json"), SteppedClock()),
    ):
        pass
