# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a person asked for: written by people's runs, read by everybody, never guessed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import stat
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _wanted_state
from ansible_collections.cleanslate.gpu.plugins.module_utils._wanted_state import (
    Wanted,
    WantedRequest,
    WantedResult,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import UNIT, SteppedClock

SOON, LATER, PAST = "2027-01-15T09:00:00Z", "2027-01-15T10:00:00Z", "2027-01-15T07:59:59Z"


class Folder:
    """Where people's runs write; it is 15 January 2027, 08:00:00."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = folder / "state" / "wanted.json"
        self.clock = SteppedClock()

    def ask(self, state: t.Any, check: bool = False, **options: t.Any) -> WantedResult:
        request = WantedRequest(**{"unit": UNIT, "state": state, **options})
        return _wanted_state.write(request, str(self.path), self.clock, check=check)

    def wanted(self, unit: str = UNIT) -> Wanted | None:
        found, problem = _wanted_state.shown(str(self.path), unit)
        assert problem is None
        return found


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Folder:
    return Folder(tmp_path)


RELAUNCH = {"profile": "kimi", "who": "ana", "by": "relaunch.yml", "run_id": "r1", "outcome": "ready"}


def test_a_relaunch_and_a_stop(folder: Folder) -> None:
    assert folder.wanted() is None
    assert folder.ask("serving", **RELAUNCH).changed
    kimi = Wanted("serving", "kimi", "relaunch.yml", "ana", "2027-01-15T08:00:00Z", "r1", "ready")
    assert folder.wanted() == kimi
    assert folder.ask("stopped", who="bo", by="stop.yml").reason == f"{UNIT}: stopped: what is installed, done."
    assert folder.wanted() == Wanted("stopped", None, "stop.yml", "bo", "2027-01-15T08:00:00Z", "", "done")
    document = json.loads(folder.path.read_text())
    assert set(document) == {"version", "units"}
    assert set(document["units"][UNIT]) == {"state", "profile", "by", "who", "at", "run_id", "outcome", "pause"}
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder.path.parent, folder.path)]
    assert modes == [0o755, 0o644]


def test_the_same_run_asking_again_changes_nothing(folder: Folder) -> None:
    folder.ask("serving", **RELAUNCH)
    folder.clock.sleep(60)
    assert folder.ask("serving", **RELAUNCH).verdict == "unchanged"
    assert folder.ask("serving", **{**RELAUNCH, "run_id": "r2"}).changed


def test_units_beside_each_other(folder: Folder) -> None:
    folder.ask("serving", **RELAUNCH)
    folder.ask("stopped", unit="sglang@b.service")
    assert [getattr(folder.wanted(unit), "state", None) for unit in (UNIT, "sglang@b.service")] == [
        "serving",
        "stopped",
    ]


class TestPause:
    def pause(self, folder: Folder, until: str = SOON) -> WantedResult:
        return folder.ask("paused", until=until, reason="rewiring, token=abcdefgh12345", who="bo")

    def test_it_leaves_what_is_wanted(self, folder: Folder) -> None:
        folder.ask("serving", **RELAUNCH)
        assert self.pause(folder).changed
        found = folder.wanted()
        assert found is not None
        assert found.pause is not None
        assert (found.state, found.profile, found.pause.until, found.pause.who) == ("serving", "kimi", SOON, "bo")
        assert "abcdefgh12345" not in folder.path.read_text()

    def test_a_relaunch_in_it_does_not_end_it(self, folder: Folder) -> None:
        self.pause(folder)
        folder.ask("serving", **RELAUNCH)
        found = folder.wanted()
        assert found is not None
        assert found.pause is not None

    def test_one_that_is_over_is_forgotten(self, folder: Folder) -> None:
        self.pause(folder)
        folder.clock.sleep(3600)
        folder.ask("serving", **RELAUNCH)
        found = folder.wanted()
        assert found is not None
        assert found.pause is None

    def test_resumed(self, folder: Folder) -> None:
        assert folder.ask("resumed").verdict == "unchanged"
        self.pause(folder)
        found = folder.wanted()
        assert found is not None
        assert found.state is None
        assert folder.ask("resumed").changed
        assert folder.wanted() is None

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"until": SOON, "reason": " "}, "reason is empty"),
            ({"until": "tomorrow", "reason": "x"}, "'tomorrow' is no date such as"),
            ({"until": "2027-02-30T08:00:00Z", "reason": "x"}, "until"),
            ({"until": PAST, "reason": "x"}, "which has passed: it is 2027-01-15T08:00:00Z on this node"),
            ({"until": "2030-01-01T00:00:00Z", "reason": "x"}, "1082 days from now; at most 366"),
            ({"until": "2027-01-15T08:00:00Z", "reason": "x"}, "which has passed"),
            ({"until": "2028-01-16T08:00:01Z", "reason": "x"}, "366 days from now; at most 366"),
        ],
    )
    def test_one_that_cannot_be_meant(self, folder: Folder, options: dict[str, str], sentence: str) -> None:
        found = folder.ask("paused", **options)
        assert (found.verdict, found.failed, folder.path.parent.exists()) == ("refused", True, False)
        assert sentence in found.reason

    @pytest.mark.parametrize("until", ["2027-01-15T08:00:01Z", "2028-01-16T08:00:00Z"])
    def test_from_a_second_to_a_leap_year(self, folder: Folder, until: str) -> None:
        assert self.pause(folder, until).verdict == "written"


def test_what_is_returned_says_what_was_and_what_is(folder: Folder) -> None:
    first = folder.ask("serving", **RELAUNCH)
    assert (first.verdict, first.failed, first.changed, first.before) == ("written", False, True, None)
    again = folder.ask("serving", **RELAUNCH)
    assert (again.verdict, again.failed, again.changed, again.before) == ("unchanged", False, False, first.after)


def test_the_file_says_which_version_of_it_this_is(folder: Folder) -> None:
    """Other releases read it too: the number changes only together with the shape."""
    folder.ask("serving", **RELAUNCH)
    assert json.loads(folder.path.read_text())["version"] == 1


def test_writing_is_what_happens_unless_only_told(folder: Folder) -> None:
    _wanted_state.write(WantedRequest("stopped", UNIT), str(folder.path), folder.clock)
    assert folder.wanted() is not None


def test_a_folder_of_somebody_else_is_refused(folder: Folder) -> None:
    folder.path.parent.mkdir()
    folder.path.parent.chmod(0o777)
    found = folder.ask("serving", **RELAUNCH)
    assert (found.verdict, found.failed, found.changed) == ("refused", True, False)
    assert f"What is wanted was not written to {folder.path}: cannot use the folder" in found.reason
    assert not folder.path.exists()


def test_a_lock_that_stays_taken_is_refused_after_a_while(folder: Folder) -> None:
    folder.path.parent.mkdir(mode=0o755)
    with contextlib.ExitStack() as held:
        lock = os.open(folder.path.parent / ".wanted.json.lock", os.O_RDWR | os.O_CREAT, 0o600)
        held.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = folder.ask("serving", **RELAUNCH)
    assert (found.verdict, found.failed, folder.path.exists()) == ("refused", True, False)
    assert "lock" in found.reason


def test_a_disk_that_is_full_is_told_and_what_stood_there_still_stands(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.ask("serving", **RELAUNCH)

    def full(*given: t.Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    found = folder.ask("stopped", who="bo")
    assert (found.verdict, found.failed, found.changed) == ("refused", True, False)
    assert "No space left on device" in found.reason
    assert "Drift follows what stands there" in found.reason
    kept = folder.wanted()
    assert kept is not None
    assert kept.state == "serving"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "null",
        '{"version": 1, "units": {"sglang.service": {"state": "serving"}}}',
        '{"version": 1, "units": {"sglang.service": null}}',
        '{"version": 9, "units": {}}',
        json.dumps({"version": 1, "units": {UNIT: {**Wanted().document(), "profile": 7}}}),
        json.dumps({"version": 1, "units": {UNIT: {**Wanted().document(), "profile": "a b"}}}),
    ],
)
def test_what_cannot_be_read_is_told_and_replaced_by_a_person(folder: Folder, text: str) -> None:
    folder.path.parent.mkdir()
    folder.path.write_text(text)
    found, problem = _wanted_state.shown(str(folder.path), UNIT)
    assert found is None
    assert problem is not None
    assert str(folder.path) in problem
    assert folder.ask("serving", check=True, **RELAUNCH).changed
    assert folder.path.read_text() == text, "check mode"
    written = folder.ask("serving", **RELAUNCH)
    assert written.changed
    assert "was set aside" in written.reason
    assert folder.path.with_name("wanted.json.unreadable").read_text() == text
    assert folder.wanted() is not None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"unit": "sglang"}, "with the suffix"),
        ({"unit": "../x.service"}, "suffix"),
        ({"profile": "a b"}, "profile is 'a b'"),
        ({"unit": "x" * 1000}, f"unit is '{'x' * 80}': give its name"),
        ({"profile": "=" * 1000}, f"profile is '{'=' * 80}': letters"),
    ],
)
def test_names_that_are_none(folder: Folder, options: dict[str, str], sentence: str) -> None:
    found = folder.ask("serving", **options)
    assert (found.verdict, sentence in found.reason) == ("refused", True)


def test_check_mode_tells_and_writes_nothing(folder: Folder) -> None:
    found = folder.ask("serving", check=True, **RELAUNCH)
    assert (found.verdict, found.changed, folder.path.parent.exists()) == ("written", True, False)


def test_a_name_with_a_line_end_stays_on_its_line(folder: Folder) -> None:
    folder.ask("stopped", who="ana\n\x1b[31m")
    found = folder.wanted()
    assert found is not None
    assert found.who == "ana??[31m"


def test_what_can_be_no_path_is_told() -> None:
    wanted, problem = _wanted_state.shown("/none/cut\0off", UNIT)
    assert wanted is None
    assert problem
    assert "no such path" in problem
