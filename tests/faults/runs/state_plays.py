# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the state files are spoilt, asked for, and compared afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import tracemalloc
import typing as t

from run_row import RunFault

from ansible_collections.cleanslate.gpu.plugins.module_utils import (
    _gpu_release,
    _lease,
    _run_recording,
    _run_records,
    _start_times,
    _wanted_state,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease import LeaseRequest
from ansible_collections.cleanslate.gpu.plugins.module_utils._run_recording import Keeping
from ansible_collections.cleanslate.gpu.plugins.module_utils._wanted_state import WantedRequest
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import UNIT, Node
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.lease_world import BOOT, FakeClock

HUGE = 100 << 20
STRANGER = 12345
MEMORY = 16 << 20  # bytes that a look at a file may cost


class Asked(t.NamedTuple):
    """obeyed: whether what the file allows would be done. said: what a person is told."""

    obeyed: bool
    said: str


def _spoil_bytes(path: pathlib.Path, spoil: str) -> bytes | None:
    good = path.read_bytes()
    if spoil == "of a later version":
        document = json.loads(good)
        return json.dumps({**document, "version": 99}).encode()
    return {
        "cut short": good[: len(good) // 2],
        "no JSON": b"{broken",
        "binary": bytes(range(256)) * 16,
        "nested too deep": b"[" * 200_000,
        "null": b"null\n",
    }.get(spoil)


def spoil(path: pathlib.Path, how: str) -> None:
    """Spoil a good file in place, or put something else in its place."""
    data = _spoil_bytes(path, how)
    if data is not None:
        path.write_bytes(data)
    elif how == "100 MB":
        with path.open("ab") as file:
            file.truncate(HUGE)
    elif how == "of another user":
        os.chown(path, STRANGER, STRANGER)
    else:
        elsewhere = path.with_name("elsewhere")
        path.rename(elsewhere)
        if how == "a symbolic link":
            path.symlink_to(elsewhere)
        elif how == "a folder":
            path.mkdir()
            (path / "something").write_text("somebody's")
        else:
            os.mkfifo(path)


def state_of(path: pathlib.Path) -> tuple[t.Any, ...]:
    """What identifies a file, and what is in it or in the file that it leads to."""
    if not os.path.lexists(path):
        return ("gone",)
    about = path.lstat()
    inside: t.Any = None
    if path.is_symlink():
        inside = (os.readlink(path), path.read_bytes())
    elif path.is_dir():
        inside = sorted(entry.name for entry in path.iterdir())
    elif path.is_file():
        with path.open("rb") as file:
            inside = hashlib.file_digest(file, "sha256").hexdigest()
    return about.st_ino, about.st_mode, about.st_uid, about.st_size, about.st_mtime_ns, inside


class Wanted:
    """A dead server that a person wants: drift would start it again."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.node = Node(folder)
        self.node.die()
        self.path = pathlib.Path(self.node.path).with_name("wanted.json")
        assert not self.write().failed

    def write(self) -> _wanted_state.WantedResult:
        request = WantedRequest("serving", UNIT, "kimi", "ana", "relaunch.yml", "r1", "ready")
        return _wanted_state.write(request, str(self.path), self.node.clock)

    def ask(self) -> Asked:
        entry, problem = _wanted_state.shown(str(self.path), UNIT)
        self.node.wanted = entry.document() if entry is not None else None
        look = self.node.look()
        look["node"]["wanted_problem"] = problem
        self.node.more = {"node": look["node"]}
        verdict = self.node.judge()
        return Asked(verdict.action not in ("report", "nothing"), " ".join(verdict.reasons))

    def mend(self) -> None:
        """What a person's run does."""
        before = self.path.lstat().st_ino
        result = self.write()
        assert result.verdict == "written", result
        assert str(self.path) in result.reason
        assert self.path.with_name("wanted.json.unreadable").lstat().st_ino == before


class Memory:
    """The same server, and what drift did before."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.node = Node(folder)
        self.node.die()
        self.path = pathlib.Path(self.node.path)
        assert not self.node.remember("noted", key="something", revision=0).failed
        assert not self.node.remember("cleared", revision=1).failed

    def ask(self) -> Asked:
        verdict = self.node.judge()
        begun = self.node.remember("begun", revision=2, run_id="run-1", action="relaunch")
        acts = verdict.action not in ("report", "nothing")
        assert acts is not begun.failed, "what is not decided is not counted either"
        return Asked(acts, " ".join((*verdict.reasons, begun.reason if begun.failed else "")))

    def mend(self) -> None:
        before = self.path.lstat().st_ino
        assert self.node.remember("reset").verdict == "written"
        assert self.path.with_name("drift.json.unreadable").lstat().st_ino == before


class Lease:
    """A host on which nobody works."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.clock = folder / "cleanslate", FakeClock()
        self.path = self.folder / f"leases-{BOOT}.json"
        assert self.take("first").verdict == "acquired"
        assert self.give_back("first").verdict == "released"

    def take(self, run_id: str, **more: t.Any) -> _lease.LeaseResult:
        return self._lease(LeaseRequest("held", run_id, "n1", **more))

    def give_back(self, run_id: str, **more: t.Any) -> _lease.LeaseResult:
        return self._lease(LeaseRequest("released", run_id, "n1", **more))

    def _lease(self, request: LeaseRequest) -> _lease.LeaseResult:
        return _lease.lease(request, str(self.folder), BOOT, self.clock)

    def ask(self) -> Asked:
        result = self.take("second")
        assert result.failed is (result.verdict != "acquired")
        return Asked(not result.failed, result.reason)

    def mend(self) -> None:
        thrown = self.give_back("unlock", takeover=_lease.CORRUPT)
        if self.path.is_dir():
            # Nobody's folder is removed with what is in it; the sentence says what to do.
            assert thrown.failed
            assert "it is a folder; look at what is in it and remove it" in thrown.reason
            assert (self.path / "something").exists()
        else:
            assert thrown.verdict == "released", thrown
            assert self.take("third").verdict == "acquired"


class Starts:
    """What the wait knows of former starts."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = folder / "starts.json"
        assert _start_times.remember(str(self.path), "kimi", {"load_weights": 60.0}, 1.8e9) == ""

    def ask(self) -> Asked:
        history, complaint = _start_times.read(str(self.path))
        return Asked(bool(history), complaint)

    def mend(self) -> None:
        link = os.readlink(self.path) if self.path.is_symlink() else ""
        before = pathlib.Path(link).read_bytes() if link else b""
        complaint = _start_times.remember(str(self.path), "kimi", {"load_weights": 61.0}, 1.8e9)
        assert bool(complaint) is self.path.is_dir(), complaint
        assert not link or pathlib.Path(link).read_bytes() == before, "replaced, not written through"


class AllowList:
    """A host whose owner lets container 101 be released."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = folder / "allowed.json"
        self.path.write_text('{"lxc": [101]}')

    def ask(self) -> Asked:
        said = _gpu_release.refusal(ScanRequest(Scope("lxc", lxc=("101",))), None, str(self.path))
        return Asked(said is None, said or "")

    def mend(self) -> None:
        """Only its owner may."""


FILES: dict[str, t.Callable[[pathlib.Path], t.Any]] = {
    "wanted": Wanted, "memory": Memory, "lease": Lease, "starts": Starts, "allowed": AllowList,
}  # fmt: skip


def spoilt(row: RunFault, folder: pathlib.Path) -> None:
    kept = FILES[row.options["file"]](folder)
    spoil(kept.path, row.options["spoil"])
    before = state_of(kept.path)
    tracemalloc.start()
    try:
        asked = kept.ask()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not asked.obeyed, asked.said
    assert state_of(kept.path) == before, "it was touched"
    assert str(kept.path) in asked.said, asked.said
    for piece in row.says:
        assert piece in asked.said, asked.said
    assert peak < MEMORY, peak
    kept.mend()


FIELDS = {
    "run_id": "20261129T200000Z-abc123",
    "playbook": "relaunch.yml",
    "node": "n1",
    "who": "ana",
    "unit": UNIT,
    "verdict": "ready",
}


def record(folder: pathlib.Path) -> _run_recording.Recorded:
    origin = _run_records.Origin(1.8e9, "n1", BOOT)
    return _run_recording.append_run("ended", FIELDS, Keeping(str(folder), 1 << 24, 3), origin, FakeClock())


def spoilt_record(row: RunFault, folder: pathlib.Path) -> None:
    place = folder / "record"
    assert record(place).verdict == "recorded"
    path = place / "runs.jsonl"
    spoil(path, row.options["spoil"])
    before, then = state_of(path), row.options["then"]
    old = path.read_bytes() if then == "appended" else b""
    result = record(place)
    if then == "refused":
        assert result.verdict == "not_recorded", result
        assert state_of(path) == before
        for piece in (str(path), *row.says):
            assert piece in result.reason, result.reason
        return
    assert result.verdict == "recorded", result
    if then == "rotated":
        assert state_of(path.with_name("runs.jsonl.1")) == before
        old = b""
    data = path.read_bytes()
    assert data.startswith(old)
    (line,) = [text for text in data[len(old) :].split(b"\n") if text]
    assert json.loads(line)["run_id"] == FIELDS["run_id"]


PLAYS: dict[str, t.Callable[[RunFault, pathlib.Path], None]] = {"spoilt": spoilt, "spoilt_record": spoilt_record}
