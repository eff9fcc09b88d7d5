# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import signal
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _lease
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease import LeaseRequest, LeaseResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import BootClock

GPUS = tuple(f"GPU-0d951c95-602f-417c-2d01-7e07fc10d0f{number}" for number in range(8))
BOOT = "7d1f6c1e-0000-4000-8000-000000000001"


class FakeClock:
    def __init__(self) -> None:
        self.now, self.date = 1000.0, 1.8e9
        self.while_asleep: t.Callable[[], None] = lambda: None
        self.slept = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.date

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds
        self.while_asleep()


class Host:
    def __init__(self, folder: pathlib.Path) -> None:
        self.path = str(folder / "cleanslate")
        self.boot = BOOT
        self.clock = FakeClock()

    @property
    def file(self) -> pathlib.Path:
        return pathlib.Path(self.path, f"leases-{self.boot}.json")

    def ask(self, state: t.Any, run_id: str, node: str, check: bool, **options: t.Any) -> LeaseResult:
        request = LeaseRequest(state, run_id, node, **options)
        return _lease.lease(request, self.path, self.boot, self.clock, check=check)

    def held(self, run_id: str = "A", node: str = "n1", check: bool = False, **options: t.Any) -> LeaseResult:
        return self.ask("held", run_id, node, check, **options)

    def released(self, run_id: str = "A", node: str = "n1", check: bool = False, **options: t.Any) -> LeaseResult:
        return self.ask("released", run_id, node, check, **options)

    def shown(self, **options: t.Any) -> LeaseResult:
        return self.ask("shown", "", "", False, **options)

    def runs(self) -> list[str]:
        return [lease["run_id"] for lease in self.shown().leases]


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


def outcome(result: LeaseResult) -> tuple[str, bool, bool]:
    return result.verdict, result.failed, result.changed


def test_take_renew_and_give_back(host: Host) -> None:
    first = host.held(ttl=900)
    assert outcome(first) == ("acquired", False, True)
    assert first.lease is not None
    assert first.lease["expires_in_s"] == 900
    host.clock.now += 600
    second = host.held(ttl=900)
    assert outcome(second) == ("renewed", False, False)
    assert second.lease is not None
    assert (second.lease["age_s"], second.lease["expires_in_s"]) == (600, 900)
    host.clock.now += 600
    assert host.runs() == ["A"], "renewed, it stands beyond the end of the first time"
    assert outcome(host.released()) == ("released", False, True)
    assert outcome(host.released()) == ("not_held", False, False)
    assert host.runs() == []
    assert oct(host.file.stat().st_mode & 0o777) == "0o600"
    assert oct(os.stat(host.path).st_mode & 0o777) == "0o700"


def test_renewing_with_other_gpus_replaces_the_set(host: Host) -> None:
    host.held(gpus=GPUS[:4])
    assert outcome(host.held(gpus=GPUS[4:])) == ("renewed", False, True)
    assert host.held("B", gpus=GPUS[:4]).verdict == "acquired"
    assert host.held(gpus=GPUS[3:]).verdict == "busy"


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        pytest.param(GPUS[:4], GPUS[4:], "acquired", id="disjoint"),
        pytest.param(GPUS[:5], GPUS[4:], "busy", id="one in common"),
        pytest.param((), GPUS[4:], "busy", id="all, then some"),
        pytest.param(GPUS[:1], (), "busy", id="some, then all"),
        pytest.param((), (), "busy", id="all, then all"),
        pytest.param(GPUS[:1], (GPUS[0].upper().replace("GPU-", "GPU-"),), "busy", id="the same in capitals"),
    ],
)
def test_sets(host: Host, one: tuple[str, ...], other: tuple[str, ...], verdict: str) -> None:
    assert host.held("A", gpus=one).verdict == "acquired"
    second = host.held("B", gpus=other)
    assert second.verdict == verdict
    assert second.failed == (verdict == "busy")
    assert len(second.leases) == (1 if verdict == "busy" else 2)


def test_the_refused_one_is_told_whose_it_is(host: Host) -> None:
    host.held("run-1", "gpu1", ttl=900, who="anna", purpose="relaunch.yml", gpus=GPUS[:1])
    host.clock.now += 200
    refused = host.held("run-2", "gpu2")
    assert outcome(refused) == ("busy", True, False)
    for part in ("run run-1", "node gpu1", "anna", "relaunch.yml", "for 3 minutes", "700 s", GPUS[0]):
        assert part in refused.reason
    assert "unlock.yml -e unlock_run_id=run-1" in refused.reason
    assert [lease["run_id"] for lease in refused.leases] == ["run-1"]
    assert refused.lease is None


def test_another_run_or_node_cannot_give_it_back(host: Host) -> None:
    host.held("A", "n1")
    assert outcome(host.released("B", "n1")) == ("not_held", False, False)
    assert outcome(host.released("A", "n2")) == ("not_held", False, False)
    assert host.runs() == ["A"]


def test_it_runs_out(host: Host) -> None:
    host.held("A", ttl=60)
    host.clock.now += 59.9
    assert host.held("B").verdict == "busy"
    host.clock.now += 0.1
    assert host.held("B").verdict == "acquired"
    assert host.runs() == ["B"]


@pytest.mark.parametrize("jump", [-3.0e8, 3.0e8])
def test_a_changed_date_neither_ends_nor_keeps_it(host: Host, jump: float) -> None:
    host.held("A", ttl=60)
    host.clock.date += jump
    assert host.held("B").verdict == "busy"
    host.clock.now += 60
    assert host.held("B").verdict == "acquired"


def test_it_ends_with_the_boot(host: Host) -> None:
    host.held("A", ttl=86400)
    old = host.file
    host.boot = "7d1f6c1e-0000-4000-8000-000000000002"
    host.clock.now = 5.0
    assert host.shown().verdict == "not_held"
    assert host.held("B").verdict == "acquired"
    assert not old.exists()


def test_an_own_lease_that_ran_out(host: Host) -> None:
    host.held("A", ttl=60)
    host.clock.now += 100
    again = host.held("A", ttl=60)
    assert outcome(again) == ("acquired", False, True)
    assert "had run out 40 seconds ago" in again.reason

    host.clock.now += 100
    back = host.released("A")
    assert outcome(back) == ("expired", False, False)
    assert host.released("A").verdict == "not_held"

    host.held("A", ttl=60)
    host.clock.now += 100
    host.held("B", ttl=60)
    lost = host.held("A", wait=30, wait_for_others=True)
    assert outcome(lost) == ("expired", True, False), "what was done under the lease may have been undone: no waiting"
    assert host.clock.slept == 0
    assert "had run out 40 seconds ago" in lost.reason
    assert "run B" in lost.reason
    back = host.released("A")
    assert outcome(back) == ("expired", False, False)
    assert "Meanwhile" in back.reason
    assert host.runs() == ["B"]


def test_an_ended_lease_is_forgotten_after_a_day(host: Host) -> None:
    host.held("A", ttl=60)
    host.clock.now += 60 + 86400
    host.held("B")
    assert "A" not in host.file.read_text()
    assert host.released("A").verdict == "not_held"


def test_takeover(host: Host) -> None:
    host.held("dead", "n1", gpus=GPUS[:4], who="anna")
    host.held("alive", "n2", gpus=GPUS[4:])
    wrong = host.held("B", gpus=GPUS[:4], takeover="deaf")
    assert outcome(wrong) == ("busy", True, False)
    assert "takeover names deaf, which holds none" in wrong.reason
    part = host.held("B", gpus=(), takeover="dead")
    assert outcome(part) == ("busy", True, False), "not the other one's as well"
    assert host.runs() == ["dead", "alive"]
    right = host.held("B", gpus=GPUS[:4], takeover="dead")
    assert outcome(right) == ("acquired", False, True)
    assert [lease["who"] for lease in right.displaced] == ["anna"]
    assert sorted(host.runs()) == ["B", "alive"]
    late = host.held("dead", gpus=GPUS[:4])
    assert outcome(late) == ("expired", True, False)
    assert "was taken over by run B" in late.reason


def test_takeover_and_give_back_in_one_step(host: Host) -> None:
    host.held("dead", "n1", gpus=GPUS[:2])
    host.held("dead", "n2", gpus=GPUS[2:4])
    host.held("alive", "n3", gpus=GPUS[4:])
    wrong = host.released("me", takeover="deaf")
    assert outcome(wrong) == ("not_held", False, False)
    assert "run deaf holds no lease" in wrong.reason
    assert "run alive" in wrong.reason
    right = host.released("me", takeover="dead")
    assert outcome(right) == ("released", False, True)
    assert [lease["node"] for lease in right.displaced] == ["n1", "n2"]
    assert host.runs() == ["alive"]
    late = host.released("dead", "n1")
    assert outcome(late) == ("expired", False, False)
    assert "was taken over by run me" in late.reason


def altered(change: t.Callable[[dict[str, t.Any]], None]) -> t.Callable[[str], str]:
    def alter(text: str) -> str:
        document = json.loads(text)
        change(document)
        return json.dumps(document)

    return alter


CORRUPT: dict[str, t.Callable[[str], str]] = {
    "empty": lambda text: "",
    "cut short": lambda text: text[: len(text) // 2],
    "no JSON": lambda text: "held by anna\n",
    "a list": lambda text: "[]",
    "null": lambda text: "null",
    "deep": lambda text: "[" * 100000,
    "NaN": lambda text: text.replace('"expires": 1900.0', '"expires": NaN'),
    "endless": lambda text: text.replace('"expires": 1900.0', '"expires": 1e999'),
    "enormous": lambda text: text + " " * (1 << 20),
    "another version": altered(lambda document: document.update(version=2)),
    "no owner": altered(lambda document: document["leases"][0].pop("run_id")),
    "hostile owner": altered(lambda document: document["leases"][0].update(run_id="a\nb")),
    "time is text": altered(lambda document: document["leases"][0].update(expires="1900")),
    "GPU is a number": altered(lambda document: document["leases"][0].update(gpus=[0])),
    "lease is a number": altered(lambda document: document.update(leases=[1])),
}


@pytest.mark.parametrize("how", CORRUPT)
def test_a_corrupt_file_is_never_free(host: Host, how: str) -> None:
    host.held("A", ttl=900)
    before = host.file.read_text()
    text = CORRUPT[how](before)
    assert text != before
    host.file.write_text(text)
    for result in (host.held("B", wait=60), host.held("A"), host.released("A"), host.held("B", check=True)):
        assert outcome(result) == ("busy", True, False)
        assert result.unreadable
        assert "unreadable lease" in result.reason
        assert "unlock_run_id=corrupt" in result.reason
    assert host.shown().unreadable
    assert not host.shown().failed
    assert host.file.read_text() == text
    taken = host.held("B", takeover="corrupt")
    assert outcome(taken) == ("acquired", False, True)
    assert "thrown away" in taken.reason
    assert host.runs() == ["B"]


def test_a_corrupt_file_can_be_given_back(host: Host) -> None:
    host.held("A")
    assert host.released("me", takeover="corrupt").verdict == "not_held", "it can be read"
    host.file.write_text("?")
    assert host.released("me", takeover="corrupt", check=True).changed
    assert host.file.read_text() == "?"
    assert outcome(host.released("me", takeover="corrupt")) == ("released", False, True)
    assert host.runs() == []


def test_a_corrupt_file_of_an_earlier_boot_does_not_matter(host: Host) -> None:
    host.held("A")
    host.file.write_text("?")
    host.boot = "7d1f6c1e-0000-4000-8000-000000000002"
    assert host.held("B").verdict == "acquired"


def test_marker(host: Host) -> None:
    host.held("A", "n1", gpus=GPUS[:4], who="anna")
    back = host.released("A", "n1", marker_ttl=2700)
    assert outcome(back) == ("released", False, True)
    host.clock.now += 700
    shown = host.shown()
    assert (shown.verdict, shown.leases) == ("not_held", [])
    assert [(one["run_id"], one["node"], one["gpus"], one["until_s"]) for one in shown.starting] == [
        ("A", "n1", list(GPUS[:4]), 2000)
    ]
    assert "is starting, for 2000 s at most" in shown.reason
    for run in ("A", "B"):
        taken = host.held(run, gpus=GPUS[3:])
        assert taken.verdict == "acquired", "a marker is no lock"
        assert [one["who"] for one in taken.starting] == ["anna"]
        host.released(run, gpus=GPUS[3:])
    assert host.held("B", gpus=GPUS[4:]).starting == [], "other GPUs"
    host.clock.now += 2000
    assert host.shown().starting == []


def test_a_marker_replaces_that_of_the_same_gpus(host: Host) -> None:
    for run in ("A", "B"):
        host.held(run)
        host.released(run, marker_ttl=100)
    assert [one["run_id"] for one in host.shown().starting] == ["B"]


def test_nodes_of_one_run_take_turns(host: Host) -> None:
    host.held("A", "n1")

    def give_back() -> None:
        if host.clock.now > 1020:
            host.released("A", "n1")

    host.clock.while_asleep = give_back
    second = host.held("A", "n2", wait=60)
    assert second.verdict == "acquired"
    assert 20 < host.clock.slept < 23


def test_waiting_ends(host: Host) -> None:
    host.held("A", "n1", ttl=900)
    refused = host.held("A", "n2", wait=60)
    assert outcome(refused) == ("busy", True, False)
    assert host.clock.slept == pytest.approx(60)
    assert refused.reason.startswith("Waited 60 s in vain.")


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        pytest.param({}, False, id="of another run"),
        pytest.param({"wait_for_others": True}, True, id="of another run, asked for"),
        pytest.param({"wait_for_others": True, "wait": 0}, False, id="no wait"),
    ],
)
def test_whether_another_run_is_waited_for(host: Host, options: dict[str, t.Any], waits: bool) -> None:
    host.held("B", ttl=20)
    result = host.held("A", **{"wait": 60, **options})
    assert result.verdict == ("acquired" if waits else "busy")
    assert (host.clock.slept > 0) == waits


def test_a_run_that_comes_in_while_waiting_ends_the_wait(host: Host) -> None:
    host.held("A", "n1", ttl=10, gpus=GPUS[:1])
    host.clock.while_asleep = lambda: host.held("B", gpus=GPUS[1:2]) and None
    result = host.held("A", "n2", wait=60)
    assert outcome(result) == ("busy", True, False)
    assert host.clock.slept < 1


def test_check_mode_tells_and_writes_nothing(host: Host) -> None:
    taken = host.held("A", check=True)
    assert outcome(taken) == ("acquired", False, True)
    assert taken.reason.startswith("Check mode, nothing was written.")
    assert taken.after == ["held by run A, node n1: all GPUs of the host"]
    assert not os.path.exists(host.path)
    assert outcome(host.released("A", check=True)) == ("not_held", False, False)
    host.held("A")
    before = host.file.read_bytes()
    assert outcome(host.held("B", check=True)) == ("busy", True, False)
    assert outcome(host.held("B", check=True, takeover="A")) == ("acquired", False, True)
    assert outcome(host.released("A", check=True, marker_ttl=9)) == ("released", False, True)
    would_wait = host.held("A", "n2", check=True, wait=60)
    assert outcome(would_wait) == ("busy", False, False)
    assert "would be waited for, up to 60 s" in would_wait.reason
    assert host.clock.slept == 0
    assert host.file.read_bytes() == before


HOSTILE = ["a\nb", "a\n", "../etc", "a b", "x" * 129, "x" * 10000, "ä", "\x1b[31m", "a\0"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((option, value) for option in ("run_id", "node", "takeover") for value in HOSTILE),
        ("run_id", ""),
        ("node", ""),
    ],
)
def test_hostile_names_are_refused(host: Host, option: str, value: str) -> None:
    options = {"run_id": "A", "node": "n1", option: value}
    result = host.held(**options)
    assert outcome(result) == ("refused", True, False)
    assert result.reason.startswith(f"{option} is ")
    assert len(result.reason) < 300
    assert result.reason.isprintable()
    assert not os.path.exists(host.path)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"ttl": 0.0}, "ttl is 0.0 seconds; it must be between 1 and 86400"),
        ({"ttl": float("nan")}, "ttl is nan"),
        ({"wait": -1.0}, "wait is -1.0"),
        ({"wait": float("inf")}, "wait is inf"),
        ({"marker_ttl": 1e6}, "marker_ttl is 1000000.0"),
        ({"gpus": ("0",)}, "gpus has '0', which is no UUID"),
        ({"gpus": (GPUS[0][:12],)}, "which is no UUID"),
        ({"run_id": "corrupt"}, "run_id is 'corrupt'"),
    ],
)
def test_impossible_options_are_refused(host: Host, options: dict[str, t.Any], part: str) -> None:
    result = host.held(**options)
    assert outcome(result) == ("refused", True, False)
    assert part in result.reason


@pytest.mark.parametrize("boot", [None, "", "../x", "a b"])
def test_without_a_boot_id_nothing_is_done(host: Host, boot: str | None) -> None:
    result = _lease.lease(LeaseRequest("held", "A", "n1"), host.path, boot, host.clock)
    assert (result.verdict, result.failed) == ("refused", True)
    assert "which boot" in result.reason


def test_free_text_is_one_harmless_line(host: Host) -> None:
    result = host.held(who="anna\n\x1b[31m\udcff", purpose="p" * 10000)
    assert result.lease is not None
    assert result.lease["who"] == "anna??[31m?"
    assert len(result.lease["purpose"]) == 200


def test_a_full_disk_changes_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.held("A")

    def no_space(*args: t.Any, **kwargs: t.Any) -> t.NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", no_space)
    result = host.released("A")
    assert outcome(result) == ("refused", True, False)
    assert "No space left on device" in result.reason
    monkeypatch.undo()
    assert host.runs() == ["A"]


class SlowClock(BootClock):
    """The date is asked for between reading and writing: a long gap there lets a race show itself."""

    def wall(self) -> float:
        self.sleep(0.01)
        return super().wall()


def in_processes(number: int, work: t.Callable[[int], t.Any]) -> list[t.Any]:
    """Run work(0..number-1) in processes that start together, and return what each returned."""
    ready, go = os.pipe()
    children = []
    for index in range(number):
        out, into = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(go)
                os.read(ready, 1)
                os.write(into, json.dumps(work(index)).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(into)
        children.append((pid, out))
    os.close(ready)
    os.close(go)
    answers = []
    for pid, out in children:
        with os.fdopen(out, "rb") as pipe:
            answers.append(json.loads(pipe.read() or b"null"))
        os.waitpid(pid, 0)
    return answers


def test_thirty_processes_race_for_one_lease(host: Host) -> None:
    def work(index: int) -> str:
        request = LeaseRequest("held", f"run-{index}", "n1")
        return _lease.lease(request, host.path, BOOT, SlowClock()).verdict

    answers = in_processes(30, work)
    assert sorted(answers) == ["acquired"] + ["busy"] * 29


def test_eight_processes_take_a_gpu_each(host: Host) -> None:
    def work(index: int) -> str:
        request = LeaseRequest("held", f"run-{index}", "n1", (GPUS[index],))
        return _lease.lease(request, host.path, BOOT, SlowClock()).verdict

    assert in_processes(8, work) == ["acquired"] * 8
    document = json.loads(host.file.read_text())
    assert sorted(lease["run_id"] for lease in document["leases"]) == [f"run-{index}" for index in range(8)]


def test_a_holder_that_is_killed_leaves_a_lease_that_runs_out(host: Host) -> None:
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(into, json.dumps(dataclasses.asdict(host.held("A", ttl=60))).encode())
            signal.pause()
        finally:
            os._exit(1)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        assert pipe.read(1), "it holds the lease"
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert host.held("B").verdict == "busy"
    host.clock.now += 60
    assert host.held("B").verdict == "acquired"
