# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is said of a change in drift's memory, and what a change that failed says."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _drift_memory_file, _state_file
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_memory import (
    GaveUp,
    Memory,
    Remediation,
    Suspicion,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_memory_file import (
    MemoryRequest,
    lines,
    refusal,
    words,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._momentary_lock import LockBusy
from ansible_collections.cleanslate.gpu.plugins.module_utils._moments import Moment
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import MOST
from ansible_collections.cleanslate.gpu.plugins.module_utils._whole_file import FolderRefused
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import UNIT, Node

NOON = Moment(1.8e9, "boot-1", 5000.0)
LATER = Moment(1.8e9 + 60, "boot-1", 5060.0)


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        (None, "nothing is remembered"),
        (Memory(), "nothing is remembered"),
        (Memory(suspicions=(Suspicion("hung: a", 2, NOON, NOON),)), "suspected for 2 looks: hung: a"),
        (
            Memory(
                remediations=(Remediation("r", "relaunch", NOON, outcome="failed"), Remediation("s", "release", LATER))
            ),
            "2 begun so far, the last at 2027-01-15T08:01:00Z: begun",
        ),
        (
            Memory(remediations=(Remediation("r", "relaunch", NOON, outcome="ready"),), gave_up=GaveUp("now", "twice")),
            "1 begun so far, the last at 2027-01-15T08:00:00Z: ready; gave up at now: twice",
        ),
    ],
)
def test_an_entry_in_words(memory: Memory | None, told: str) -> None:
    assert words(memory) == told
    assert lines(memory) == ([] if memory in (None, Memory()) else [told])


@pytest.mark.parametrize(
    ("options", "quoted"),
    [
        ({"state": "reset", "unit": "x" * 100}, f"unit is '{'x' * 80}': "),
        ({"state": "noted", "revision": 0, "key": "\n" * 100}, f"key is '{chr(92) + 'n'}"),
        ({"state": "noted", "revision": 0, "key": "ä" * 100}, f"key is '{'ä' * 80}': "),
        ({"state": "begun", "revision": 0, "run_id": " " * 100}, f"run_id is '{' ' * 40}'; "),
        ({"state": "begun", "revision": 0, "run_id": "r", "action": "x" * 100}, f"action is '{'x' * 40}'; "),
        ({"state": "ended", "run_id": "r", "outcome": "x" * 100}, f"outcome is '{'x' * 40}'; "),
        ({"state": "reset", "revision": -1}, "revision is -1: it must be between 0 and "),
        ({"state": "reset", "revision": MOST + 1}, f"revision is {MOST + 1}: it must be between 0 and "),
    ],
)
def test_what_is_quoted_of_an_odd_option_is_short(options: dict[str, t.Any], quoted: str) -> None:
    assert (refusal(MemoryRequest(**{"unit": UNIT, **options})) or "").startswith(quoted)


@pytest.mark.parametrize("revision", [0, 1, MOST])
def test_revisions_that_can_be(revision: int) -> None:
    assert refusal(MemoryRequest("reset", UNIT, revision)) is None


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (FolderRefused("its folder is open to others"), "its folder is open to others."),
        (LockBusy("somebody has had it for 5 s"), "somebody has had it for 5 s."),
        (OSError(28, "No space left on device"), "No space left on device. Without it nothing is remedied."),
        (OSError("odd"), "odd. Without it nothing is remedied."),
    ],
)
def test_a_memory_that_cannot_be_written_is_a_failure(
    node: Node, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    def locked(path: str, clock: t.Any) -> t.NoReturn:
        raise error

    monkeypatch.setattr(_state_file, "locked", locked)
    found = node.remember("begun", revision=0, run_id="r", action="relaunch")
    assert (found.verdict, found.failed, found.changed) == ("refused", True, False)
    assert found.reason == f"Drift's memory was not written to {node.path}: {told}"


def test_a_good_change_is_no_failure(node: Node) -> None:
    for found in (node.remember("noted", key="hung: a", revision=0), node.remember("cleared", revision=1)):
        assert (found.verdict, found.failed, found.changed) == ("written", False, True)
    assert found.before is not None
    assert (found.before.revision, found.reason) == (1, f"{UNIT}: nothing is remembered.")
    again = node.remember("cleared", revision=2)
    assert (again.verdict, again.failed, again.changed) == ("unchanged", False, False)


def test_what_is_held_back_fails_and_says_why(node: Node) -> None:
    assert node.remember("begun", revision=0, run_id="r", action="relaunch").verdict == "written"
    found = node.remember("begun", revision=1, run_id="s", action="relaunch")
    assert (found.verdict, found.failed, found.changed) == ("held_back", True, False)
    assert found.reason.startswith(f"{UNIT}: no relaunch is begun: the last remediation failed; the next one may begin")
    ended = node.remember("ended", run_id="nobody", outcome="ready")
    assert (ended.verdict, ended.failed, ended.changed) == ("refused", True, False)
    assert ended.before == ended.after == node.memory()


def test_giving_up_is_kept_once(node: Node) -> None:
    """The latch that is there stays as it is, with the reason it has."""
    for number in range(2):
        node.remember("begun", revision=node.memory().revision, run_id=f"r{number}", action="relaunch")
        node.remember("ended", run_id=f"r{number}", outcome="failed", reason="no rank")
        node.pass_time(86400)
    before = node.memory()
    assert before.gave_up is not None
    found = node.remember("begun", revision=before.revision, run_id="s", action="relaunch")
    assert (found.verdict, found.changed, node.memory()) == ("held_back", False, before)


def test_a_unit_that_was_never_seen_has_no_entry(node: Node) -> None:
    node.remember("noted", key="hung: a", revision=0)
    assert _drift_memory_file.shown(node.path, "other.service") == (None, None)
