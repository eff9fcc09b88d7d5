# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the figures rest on: counting, comparing, the page, and that what could not be measured is said."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import sys
import threading
import time
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import bench
import controller
import counting
import fleet
import measuring
import page
from loopback import Relay

TRACE = """\
100 execve("/usr/bin/python3", ["p"...], 0x7f /* 9 vars */) = 0
100 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD, child_tidptr=0x7f) = 101
100 clone3({flags=CLONE_VM|CLONE_THREAD, exit_signal=0}, 88) = 102
100 vfork( <unfinished ...>
101 execve("/opt/bin/sh", ["s"...], 0x7f /* 9 vars */) = -1 ENOENT (No such file or directory)
101 execve("/bin/sh", ["s"...], 0x7f /* 9 vars */) = 0
100 <... vfork resumed>) = 103
102 clone3({flags=CLONE_VM|CLONE_THREAD, exit_signal=0}, 88 <unfinished ...>
103 clone(child_stack=NULL, flags=SIGCHLD) = -1 EAGAIN (Resource temporarily unavailable)
102 <... clone3 resumed> => {parent_tid=[104]}, 88) = 104
103 +++ exited with 0 +++
"""


def test_threads_and_failures_are_no_processes() -> None:
    assert counting.count(TRACE) == {"processes": 2, "programs": 2}


def test_a_figure_is_compared_within_its_case_only() -> None:
    report = measuring.Report("scan")
    report.add("few", "ours", [2.0, 1.0, 9.0])
    report.add("few", "theirs", [4.0])
    report.add("many", "ours", [3.0])
    first, dummy, alone = report.as_dict({"ours": "theirs"})["figures"]
    assert (first["median"], first["low"], first["high"]) == (2.0, 1.0, 9.0)
    assert first["ratio"] == {"to": "theirs", "value": 0.5}
    assert "ratio" not in alone


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(measuring.CouldNotRun, match="nothing was measured for ours"):
        measuring.Report("scan").add("few", "ours", [])


def test_a_missing_peer_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "search_path", lambda: "/nowhere")
    with pytest.raises(measuring.CouldNotRun, match=r"fuser, lsof not found: apt-get install lsof psmisc"):
        measuring.need("fuser", "lsof")


def test_a_part_that_could_not_run_fails_and_the_others_run(monkeypatch, tmp_path, capsys) -> None:
    ran = []

    def write(part: str, results: pathlib.Path, *, quick: bool) -> None:
        ran.append(part)
        if part == "release":
            raise measuring.CouldNotRun("no holder was ended")

    monkeypatch.setattr(bench, "write", write)
    monkeypatch.setattr(sys, "argv", ["bench.py", "--results", str(tmp_path), "release", "scan"])
    assert bench.main() == 1
    assert ran == ["release", "scan"]
    assert "release COULD NOT RUN: no holder was ended" in capsys.readouterr().err


def test_what_a_long_part_has_so_far_is_kept(monkeypatch, tmp_path) -> None:
    def run(folder: pathlib.Path, *, quick: bool):
        report = measuring.Report("scan")
        for size in (32, 64):
            report.add(f"{size} nodes", "ping", [1.0])
            yield report
        raise measuring.CouldNotRun("128 nodes did not start")

    monkeypatch.setitem(sys.modules, "long_part", types.SimpleNamespace(run=run, PEERS={}))
    monkeypatch.setitem(bench.PARTS, "scan", ("long_part", "run"))
    with pytest.raises(measuring.CouldNotRun):
        bench.write("scan", tmp_path, quick=True)
    kept = json.loads((tmp_path / "scan.json").read_text())
    assert [figure["case"] for figure in kept["figures"]] == ["32 nodes", "64 nodes"]


def test_what_does_not_fit_into_the_time_is_left_out_and_said() -> None:
    now = [0.0]
    budget = fleet.Budget(100.0, lambda: now[0])
    assert budget.lacks("relaunch", 32) == "", "nothing is known of it yet"
    budget.took("relaunch", 32, 30.0)
    now[0] = 40.0
    assert budget.lacks("relaunch", 64) == ""
    now[0] = 41.0
    assert budget.lacks("relaunch", 64) == "it would have taken 60 s of the 59 s that were left"
    assert budget.lacks("drift", 64) == ""


class PlayedFleet:
    """Takes ten seconds a node for a relaunch, one for anything else."""

    def __init__(self, folder: pathlib.Path, now: list[float]) -> None:
        self.controller = types.SimpleNamespace(folder=folder)
        self.nodes: list[int] = []
        self.now = now

    def grow(self, size: int) -> None:
        self.nodes = list(range(size))

    def play(self, playbook: str | pathlib.Path, environment: object = None, **extra: object) -> controller.Played:
        seconds = (10.0 if playbook == "relaunch" else 1.0) * len(self.nodes)
        self.now[0] += seconds
        return controller.Played(0, "", seconds, (), 100.0 + len(self.nodes))

    def without_guard(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def destroy(self) -> None:
        self.nodes = []


def test_a_fleet_too_large_for_the_time_is_measured_as_far_as_it_goes(monkeypatch, tmp_path) -> None:
    now = [0.0]
    monkeypatch.setattr(fleet, "Fleet", lambda folder: PlayedFleet(folder, now))
    monkeypatch.setattr(fleet, "mitogen", lambda: {"ANSIBLE_STRATEGY_PLUGINS": "/none"})
    monkeypatch.setattr(fleet.time, "monotonic", lambda: now[0])
    cases = [
        [figure.case for figure in report.figures if figure.subject == fleet.OURS]
        for report in fleet.run_sizes("fleet-large", tmp_path, fleet.LARGE, 4, fleet.Budget(2400.0, lambda: now[0]))
    ]
    slope = "each further node, from 32 to 64"
    # What is left of the 2,400 s is too little for 128 relaunches, which would take 1,280 s.
    # Twice for each size: once without its peers.
    assert cases[::2] == cases[1::2] == [["32 nodes"], ["32 nodes", "64 nodes", slope], ["32 nodes", "64 nodes", slope]]
    assert now[0] <= 2400
    *_earlier, report = fleet.run_sizes("fleet", tmp_path, (1, 8), 4, fleet.Budget(10000.0, lambda: now[0]))
    assert {figure.subject for figure in report.figures if figure.case == "8 nodes"} == set(fleet.PEERS) | {
        fleet.PING, f"{fleet.PING}, Mitogen", fleet.PLAYBOOK
    }  # fmt: skip
    assert [target.name for target in report.targets] == ["Relaunch of 1 nodes", "Relaunch of 8 nodes"]
    assert page.page([json.loads(json.dumps(report.as_dict(fleet.PEERS)))], {})


def test_a_size_alone_keeps_what_was_found_of_the_others(monkeypatch, tmp_path) -> None:
    now = [0.0]
    monkeypatch.setattr(fleet, "Fleet", lambda folder: PlayedFleet(folder, now))
    monkeypatch.setattr(fleet, "mitogen", lambda: None)
    monkeypatch.setattr(fleet.time, "monotonic", lambda: now[0])
    bench.write("fleet-large", tmp_path, quick=False, sizes=[32, 64])
    before = json.loads((tmp_path / "fleet-large.json").read_text())
    bench.write("fleet-large", tmp_path, quick=False, sizes=[128], earlier=tmp_path / "fleet-large.json")
    after = json.loads((tmp_path / "fleet-large.json").read_text())
    relaunches = {row["case"]: row["median"] for row in after["figures"] if row["subject"] == fleet.OURS}
    assert {"32 nodes": 320.0, "64 nodes": 640.0, "128 nodes": 1280.0}.items() <= relaunches.items()
    assert relaunches["each further node, from 32 to 128"] == 10.0
    assert [row for row in after["counts"] if "measured" in row] == [
        {"case": "32 nodes", "measured": before["at"]}, {"case": "64 nodes", "measured": before["at"]}
    ]  # fmt: skip
    assert [row["name"] for row in after["targets"]] == [
        "Relaunch of 32 nodes", "Relaunch of 64 nodes", "Relaunch of 128 nodes", "Memory of the controller, 128 nodes"
    ]  # fmt: skip
    assert page.page([after], {})


def test_many_cores_leave_time_for_every_peer_at_every_size(monkeypatch, tmp_path) -> None:
    now = [0.0]
    monkeypatch.setattr(fleet, "Fleet", lambda folder: PlayedFleet(folder, now))
    monkeypatch.setattr(fleet, "mitogen", lambda: {"ANSIBLE_STRATEGY_PLUGINS": "/none"})
    monkeypatch.setattr(fleet.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(fleet.os, "cpu_count", lambda: 32)
    bench.write("fleet-wide", tmp_path, quick=False)
    found = json.loads((tmp_path / "fleet-wide.json").read_text())
    every = {*fleet.PEERS, fleet.PING, f"{fleet.PING}, Mitogen", fleet.PLAYBOOK}
    for size in fleet.WIDE:
        assert {row["subject"] for row in found["figures"] if row["case"] == f"{size} nodes"} == every, size
    # Beside those of few cores on one page.
    assert [row["name"] for row in found["targets"]] == [
        *(f"Relaunch of {size} nodes, 32 cores" for size in fleet.WIDE), "Memory of the controller, 128 nodes, 32 cores"
    ]  # fmt: skip
    assert page.page([found], {})


def test_a_slope_is_that_of_the_sizes_that_were_measured() -> None:
    report = measuring.Report("fleet-large")
    for case, subject, seconds in (("32 nodes", fleet.OURS, 100.0), ("64 nodes", fleet.OURS, 164.0),
                                   ("32 nodes", fleet.DRIFT, 10.0), ("128 nodes", fleet.DRIFT, 58.0),
                                   ("32 nodes", fleet.PLAYBOOK, 10.0)):  # fmt: skip
        report.add(case, subject, [seconds])
        fleet.slopes(report, fleet.LARGE)
    found = {figure.case: (figure.subject, figure.median) for figure in report.figures if "further" in figure.case}
    assert found == {
        "each further node, from 32 to 64": (fleet.OURS, 2.0),
        "each further node, from 32 to 128": (fleet.DRIFT, 0.5),
    }


def test_the_relay_counts_questions_and_bytes() -> None:
    """Two questions and their answers over one connection are two round trips, however often something was written."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        client, dummy = server.accept()
        with client:
            asked = b""
            while data := client.recv(100):
                asked += data
                if len(asked) == 3:
                    client.sendall(asked * 2)
                    asked = b""

    threading.Thread(target=answer, daemon=True).start()
    relay = Relay(server.getsockname()[1])
    with socket.create_connection(("127.0.0.1", relay.port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for dummy in range(2):
            client.sendall(b"a")
            # Two pieces of one question, apart so that they are not read as one.
            time.sleep(0.05)
            client.sendall(b"bc")
            got = b""
            while len(got) < 6:
                got += client.recv(100)
    assert relay.counted() == {"connections": 1, "round trips": 2, "bytes sent": 6, "bytes received": 12}
    relay.close()
    server.close()


def result(*, met: bool) -> dict[str, object]:
    report = measuring.Report("scan")
    report.add("few", "scan", [0.2])
    report.add("few", "fuser", [0.1])
    report.target("Scan, few", "no slower", "2.00", met, "why")
    report.profiles["some run"] = [{"seconds": 1.5, "times": 2, "task": "End them"}]
    return json.loads(json.dumps(report.as_dict({"scan": "fuser"})))


def test_the_page_hides_no_missed_target() -> None:
    text = page.page([result(met=False)], {"scan": ["benchmarks/scan.svg"]})
    assert "| Scan, few | no slower | 2.00 | **not met** | why |" in text
    assert "2.00 of fuser" in text
    assert "| 1.50 | 2 | End them |" in text
    assert "](benchmarks/scan.svg)" in text
    assert "**not met**" not in page.page([result(met=True)], {})


def test_the_page_is_what_the_results_say() -> None:
    """Both are there or neither is; nothing in the page was typed."""
    written = page.DOCS / "benchmarks.md"
    results = sorted((page.HERE / "results").glob("*.json"))
    assert written.exists() == bool(results)
    if results:
        found = page.read(page.HERE / "results")
        plots = {one["part"]: [f"benchmarks/{one['part']}.svg"] for one in found}
        assert written.read_text(encoding="utf-8") == page.page(found, plots)
        assert all((page.DOCS / name).exists() for (name,) in plots.values())


def test_every_part_has_a_title_and_says_what_it_measures() -> None:
    assert set(bench.PARTS) == set(page.TITLES) == set(page.WORDS)


def test_a_crowd_ends_with_its_input() -> None:
    from scanning import crowd, processes

    before = processes()
    with crowd("sleepers", 40):
        assert processes() >= before + 30
        (child,) = [pid for pid in pids() if child_of_us(pid) and b"crowd.py" in command(pid)]
        members = [pid for pid in pids() if parent(pid) == child]
        assert len(members) == 40
    assert not [pid for pid in members if b"crowd.py" in command(pid)]


def pids() -> list[int]:
    return [int(entry.name) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit()]


def parent(pid: int) -> int:
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def child_of_us(pid: int) -> bool:
    return parent(pid) == os.getpid()


def command(pid: int) -> bytes:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
