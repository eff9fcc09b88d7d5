# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is taken about a server, on a made-up /proc and with made-up commands; py-spy's place as a real process."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _evidence_processes
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._evidence import Found
from ansible_collections.cleanslate.gpu.plugins.module_utils._evidence_parts import (
    LOG_BYTES,
    ServerEvidence,
    Sources,
    read_end,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._evidence_processes import read_processes
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest
from ansible_collections.cleanslate.gpu.plugins.module_utils._root_only import weak_part
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import FakeProc, make_nodes

KEY = "sk-0123456789abcdefghij"
OWN = Scope("own")
UNIT = "0::/system.slice/sglang.service"


class Commands:
    """Answers by the first words of a command; what is not scripted is not there."""

    def __init__(self, **answers: CommandResult | str) -> None:
        self.answers = answers
        self.asked: list[tuple[str, ...]] = []
        self.accounts: list[t.Any] = []

    def __call__(self, argv: t.Sequence[str], timeout: float) -> CommandResult:
        command = tuple(argv)
        self.asked.append(command)
        answer = self.answers.get(os.path.basename(command[0]).replace("-", "_"))
        if answer is None:
            return CommandResult(command, None, "", "", 0.0, error="not_found")
        return answer if isinstance(answer, CommandResult) else CommandResult(command, 0, answer, "", 0.1)

    def run_as(self, account: t.Any) -> Commands:
        self.accounts.append(account)
        return self


def failed(*argv: str, code: int | None = 1, stderr: str = "", **fields: t.Any) -> CommandResult:
    return CommandResult(argv, code, "", stderr, 0.1, **fields)


@pytest.fixture
def proc(tmp_path: pathlib.Path) -> FakeProc:
    proc = FakeProc(tmp_path / "proc")
    proc.add(50, comm="python3", cgroup=UNIT, argv=("python3", "-m", "sglang", "--api-key", KEY))
    proc.add(51, comm="python3", cgroup=UNIT, ppid=50, argv=("sglang::scheduler_TP0",), state="D")
    proc.add(60, comm="python3", cgroup="0::/system.slice/sglang.service.d-copy.service", argv=("other",))
    proc.write("meminfo", "MemFree: 1 kB\n")
    return proc


def server(proc: FakeProc, commands: Commands, scope: Scope = OWN, **fields: t.Any) -> ServerEvidence:
    scan = ScanRequest(scope, proc_root=proc.root, devices=(make_nodes(proc.path.parent / "dev"),))
    return ServerEvidence(Sources("sglang.service", scan, **fields), commands, SystemClock(), commands.run_as)


def take(proc: FakeProc, name: str, commands: Commands | None = None, **fields: t.Any) -> Found:
    evidence = server(proc, commands or Commands(), **fields)
    return next(part for part in evidence.parts() if part.name == name).take(20.0)


def test_its_processes_are_found_by_their_control_group_where_systemd_is_silent(proc: FakeProc) -> None:
    found = take(proc, "processes")
    (piece,) = found.pieces
    assert piece.text.count("=====") == 4
    assert "===== process 50 =====" in piece.text
    assert "===== process 51 =====" in piece.text
    assert "state D" in piece.text
    assert KEY not in piece.text
    assert "python3 -m sglang --api-key ********" in piece.text
    assert found.error == ""


def test_seen_from_the_host_only_the_container_counts(proc: FakeProc) -> None:
    """Another container, and the host itself, may have a unit of the same name."""
    proc.add(90, cgroup="0::/lxc/101/ns/system.slice/sglang.service", argv=("in 101",))
    proc.add(91, cgroup="0::/lxc/102/ns/system.slice/sglang.service", argv=("in 102",))
    commands = Commands(systemctl="MainPID=50\n")
    parts = {part.name: part for part in server(proc, commands, Scope("lxc", lxc=("101",))).parts()}
    (piece,) = parts["processes"].take(20.0).pieces
    assert "in 101" in piece.text
    assert piece.text.count("===== process") == 1
    assert not {"unit", "journal", "log"} & set(parts)
    assert not commands.asked


def test_no_process_is_said(proc: FakeProc) -> None:
    for pid in (50, 51):
        proc.write(f"{pid}/cgroup", "0::/init.scope\n")
    assert take(proc, "processes").error == "no process of sglang.service is there"


def test_a_read_that_blocks_costs_one_section_and_not_the_next_process(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_evidence_processes, "STALL", 0.5)
    proc.block(50, "cmdline")
    began = time.monotonic()
    text, missing = read_processes((50, 51), 20, SystemClock(), proc.root)
    assert time.monotonic() - began < 10
    assert missing == "command line of process 50 did not answer"
    assert "python3, state S" in text, "what came before is kept"
    assert "sglang::scheduler_TP0" in text


def test_the_time_is_kept_where_everything_blocks(proc: FakeProc) -> None:
    for pid in (50, 51):
        (proc.path / str(pid) / "stat").unlink()
        os.mkfifo(proc.path / str(pid) / "stat")
    began = time.monotonic()
    _text, missing = read_processes((50, 51), 1.0, SystemClock(), proc.root)
    assert time.monotonic() - began < 3
    assert "state of process 50 did not answer" in missing


def test_threads_and_files_are_counted(proc: FakeProc, tmp_path: pathlib.Path) -> None:
    tasks = {tid: {"state": "D" if tid == 52 else "S"} for tid in range(51, 55)}
    opens = ["socket:[1]", "socket:[2]", "/dev/nvidia0", "/dev/shm/psm_1", "/dev/shm/psm_2"]
    proc.add(70, cgroup=UNIT, tasks=tasks, opens=opens)
    proc.write("70/task/52/wchan", "nvidia_close")
    proc.write("70/task/52/stack", "[<0>] nv_wait+0x1\n")
    text, _missing = read_processes((70,), 20, SystemClock(), proc.root)
    for line in ("4 threads", "    3 x S -", "    1 x D nvidia_close", "thread 52 (nvidia_close):", "[<0>] nv_wait"):
        assert line in text
    for line in ("5 open files", "    2 x socket", "    1 x /dev/nvidia0", "    2 x /dev/shm/*"):
        assert line in text


def test_py_spy_never_pauses_and_runs_as_the_servers_user_unless_root_alone_wrote_it(
    proc: FakeProc, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin" / "py-spy"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    for pid in (50, 51):
        proc.write(f"{pid}/status", "Uid:\t0\t65534\t0\t0\n")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    tool.parent.chmod(0o777)
    commands = Commands(py_spy="Thread 50 (idle)\n")
    found = take(proc, "py_spy", commands, py_spy=str(tool))
    assert [piece.file for piece in found.pieces] == ["py-spy-50.txt", "py-spy-51.txt"]
    spied = [argv for argv in commands.asked if argv[0] == str(tool)]
    assert spied == [(str(tool), "dump", "--nonblocking", "--pid", pid) for pid in ("50", "51")]
    assert [account.uid for account in commands.accounts] == [65534, 65534]


@pytest.mark.skipif(os.geteuid() != 0, reason="files of root are needed")
def test_who_can_write_a_program_decides_as_whom_it_runs(tmp_path: pathlib.Path) -> None:
    assert weak_part("/bin/sh") is None
    tool = tmp_path / "py-spy"
    tool.write_text("")
    assert weak_part(str(tool)) is None
    for spoil, mend in (
        (lambda: os.chown(tool, 65534, 0), lambda: os.chown(tool, 0, 0)),
        (lambda: tool.chmod(0o775), lambda: tool.chmod(0o755)),
        (lambda: os.chown(tmp_path, 65534, 0), lambda: os.chown(tmp_path, 0, 0)),
    ):
        spoil()
        assert weak_part(str(tool))
        mend()
        assert weak_part(str(tool)) is None
    assert weak_part(str(tmp_path / "nothing"))


def test_py_spy_that_is_not_there_is_skipped_and_one_that_fails_is_told(proc: FakeProc, tmp_path: pathlib.Path) -> None:
    assert "is not installed" in take(proc, "py_spy", py_spy="/no/py-spy").skipped
    assert take(proc, "py_spy").skipped
    tool = tmp_path / "py-spy"
    tool.write_text("")
    refused = Commands(py_spy=failed("py-spy", "dump", stderr="Permission denied"))
    assert "Permission denied" in take(proc, "py_spy", refused, py_spy=str(tool)).error


def test_a_py_spy_that_cannot_be_ended_is_not_started_again(proc: FakeProc, tmp_path: pathlib.Path) -> None:
    tool = tmp_path / "py-spy"
    tool.write_text("")
    commands = Commands(py_spy=failed("py-spy", code=None, timed_out=True, hung_pid=7))
    take(proc, "py_spy", commands, py_spy=str(tool))
    assert len([argv for argv in commands.asked if argv[0] == str(tool)]) == 1


def test_a_hung_nvidia_smi_is_asked_once(proc: FakeProc) -> None:
    commands = Commands(nvidia_smi=failed("nvidia-smi", code=None, timed_out=True, hung_pid=7))
    evidence = server(proc, commands)
    found = {part.name: part.take(20.0) for part in evidence.parts() if part.name in ("gpus", "nvidia_smi")}
    assert "hung" in found["gpus"].error
    assert json.loads(found["gpus"].pieces[0].text)["state"] == "hung"
    assert found["nvidia_smi"].error == "nvidia-smi was not asked again: hung"
    assert len(commands.asked) == 1


def test_the_report_is_kept(proc: FakeProc) -> None:
    (piece,) = take(proc, "nvidia_smi", Commands(nvidia_smi="<nvidia_smi_log/>")).pieces
    assert (piece.file, piece.text) == ("nvidia-smi.xml", "<nvidia_smi_log/>")


def test_holders_are_listed_and_an_incomplete_look_is_told(proc: FakeProc, tmp_path: pathlib.Path) -> None:
    nodes = make_nodes(tmp_path / "dev").replace("*", "0")
    proc.add(80, comm="python3", opens=(nodes,), cgroup=UNIT)
    found = take(proc, "holders")
    document = json.loads(found.pieces[0].text)
    assert [holder["pid"] for holder in document["holders"]] == [80]
    assert document["complete"] == (found.error == "")


def test_the_unit_is_asked_without_its_environment(proc: FakeProc) -> None:
    commands = Commands(systemctl="Id=sglang.service\n")
    assert take(proc, "unit", commands).pieces[0].text == "Id=sglang.service\n"
    (argv,) = commands.asked
    assert "Environment" not in " ".join(argv)
    assert "ExecStart" not in " ".join(argv).replace("ExecMainStart", "")
    silent = take(proc, "unit", Commands(systemctl=failed(*argv, stderr="Failed to connect to bus")))
    assert silent.error == "systemctl show --no-pager -- sglang.service: exit code 1, Failed to connect to bus"


def test_of_the_kernel_what_is_about_gpus_and_memory_is_kept(proc: FakeProc) -> None:
    lines = "usb 1-1: new device\nNVRM: Xid (PCI:0000:01:00): 79\nOut of memory: Killed process 7\n"
    (piece,) = take(proc, "kernel", Commands(dmesg=lines)).pieces
    assert piece.text.splitlines()[0].startswith("2 of 3 kernel lines")
    assert "Xid" in piece.text
    assert "usb" not in piece.text
    assert "not permitted" in take(proc, "kernel", Commands(dmesg=failed("dmesg", stderr="not permitted"))).error


def test_memory_and_space(proc: FakeProc) -> None:
    assert "MemFree" in take(proc, "memory").pieces[0].text
    space = take(proc, "space")
    assert "MiB free" in space.pieces[0].text
    assert space.error == ""


def test_the_end_of_the_log_begins_with_a_whole_line(tmp_path: pathlib.Path, proc: FakeProc) -> None:
    log = tmp_path / "sglang.log"
    line = "x" * 99 + "\n"
    log.write_text(f"--api-key {KEY}\n" + line * (LOG_BYTES // 100 + 10))
    (piece,) = take(proc, "log", log_file=str(log)).pieces
    assert piece.text.startswith("x" * 99)
    assert piece.tail
    assert len(piece.text) <= LOG_BYTES
    assert take(proc, "log").skipped


def test_a_log_that_leads_elsewhere_is_not_read(tmp_path: pathlib.Path, proc: FakeProc) -> None:
    log = tmp_path / "sglang.log"
    log.symlink_to("/etc/passwd")
    assert read_end(str(log))[0] == ""
    assert "could not be read" in take(proc, "log", log_file=str(log)).error
    log.unlink()
    os.mkfifo(log)
    assert "no regular file" in take(proc, "log", log_file=str(log)).error


def test_what_takes_a_second_and_tells_most_is_taken_before_what_can_hang(proc: FakeProc) -> None:
    """A stuck driver uses up all of the time, and the reboot that cures it loses the kernel's lines."""
    parts = server(proc, Commands(), log_file="/var/log/sglang.log").parts()
    cheap = [part.name for part in parts[:5]]
    assert sorted(cheap) == ["journal", "kernel", "log", "memory", "unit"]
    assert sum(part.seconds for part in parts[:5]) <= 30, "most of the 120 s are left for stacks and GPUs"
    assert [part.name for part in parts[5:7]] == ["processes", "py_spy"]


def test_no_part_signals_or_changes_anything(proc: FakeProc) -> None:
    """Every command is one that only looks; a real process stays as it is."""
    commands = Commands(systemctl="", dmesg="", journalctl="", nvidia_smi="")
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        for part in server(proc, commands).parts():
            part.take(5.0)
        text, _missing = read_processes((process.pid,), 10, SystemClock())
        assert f"process {process.pid}" in text
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    assert {argv[0] for argv in commands.asked} == {"systemctl", "dmesg", "journalctl", "nvidia-smi"}
    assert {argv[1] for argv in commands.asked if argv[0] == "systemctl"} == {"show"}
