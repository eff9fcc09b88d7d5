# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence where commands fail, are slow, or print a lot: what is kept of it, how long it may take, what is said."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _evidence_parts
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._evidence import Found
from ansible_collections.cleanslate.gpu.plugins.module_utils._evidence_parts import (
    LOG_BYTES,
    ServerEvidence,
    Sources,
    free_space,
    read_end,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest
from ansible_collections.cleanslate.gpu.plugins.module_utils._service_account import Account
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import SteppedClock
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import FakeProc, make_nodes

UNIT = "0::/system.slice/sglang.service"


@dataclasses.dataclass
class Slow:
    """Commands that answer by their first words after some seconds, or are cut off; the longest words win."""

    clock: SteppedClock
    answers: dict[str, CommandResult]
    takes: float = 0.0
    asked: list[tuple[str, float]] = dataclasses.field(default_factory=list)
    accounts: list[Account | None] = dataclasses.field(default_factory=list)

    def __call__(self, argv: t.Sequence[str], timeout: float) -> CommandResult:
        line = " ".join(argv)
        self.asked.append((line, timeout))
        self.clock.sleep(min(self.takes, timeout))
        if self.takes > timeout:
            return CommandResult(tuple(argv), None, "", "", timeout, timed_out=True)
        fitting = [words for words in self.answers if line.startswith(words)]
        if not fitting:
            return CommandResult(tuple(argv), None, "", "", 0.0, error="not_found")
        return dataclasses.replace(self.answers[max(fitting, key=len)], argv=tuple(argv))

    def run_as(self, account: Account | None) -> Slow:
        self.accounts.append(account)
        return self

    def times(self, words: str) -> list[float]:
        return [timeout for line, timeout in self.asked if line.startswith(words)]


def said(stdout: str = "", code: int = 0, stderr: str = "") -> CommandResult:
    return CommandResult((), code, stdout, stderr, 0.1)


class Server:
    """A server of some processes, and who is asked about it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.proc = FakeProc(folder / "proc")
        self.clock = SteppedClock()
        self.commands = Slow(self.clock, {})
        self.scan = ScanRequest(Scope("own"), proc_root=self.proc.root, devices=(make_nodes(folder / "dev"),))
        self.sources = Sources("sglang.service", self.scan, folder=str(folder))

    def workers(self, count: int, **fields: t.Any) -> None:
        for pid in range(50, 50 + count):
            self.proc.add(pid, cgroup=UNIT, argv=("sglang::scheduler",), **fields)

    def evidence(self, **fields: t.Any) -> ServerEvidence:
        sources = dataclasses.replace(self.sources, **fields)
        return ServerEvidence(sources, self.commands, self.clock, self.commands.run_as)

    def take(self, name: str, seconds: float = 20.0, **fields: t.Any) -> Found:
        return next(part for part in self.evidence(**fields).parts() if part.name == name).take(seconds)

    def tool(self) -> str:
        path = self.folder / "py-spy"
        path.write_text("")
        return str(path)


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Server:
    return Server(tmp_path)


def test_what_takes_a_second_comes_before_what_may_hang_and_nothing_may_take_long(server: Server) -> None:
    """A server that hangs is ended after this, so each part's time is time that nobody is served."""
    found = [(part.name, part.seconds) for part in server.evidence(smi_timeout=7.0).parts()]
    assert found == [
        ("unit", 5.0),
        ("memory", 5.0),
        ("kernel", 5.0),
        ("log", 5.0),
        ("journal", 10.0),
        ("processes", 30.0),
        ("py_spy", 60.0),
        ("gpus", 14.0),  # it may be asked twice
        ("holders", server.scan.timeout + 5),
        ("nvidia_smi", 7.0),
        ("space", 5.0),
    ]


def test_what_is_not_given_is_called_that(server: Server) -> None:
    what = {part.name: part.what for part in server.evidence().parts()}
    assert (what["py_spy"], what["log"]) == (
        "Python stacks with py-spy (not given)",
        "the end of its log file (not given)",
    )
    what = {part.name: part.what for part in server.evidence(py_spy="/opt/py-spy", log_file="/var/log/x").parts()}
    assert (what["py_spy"], what["log"]) == ("Python stacks with /opt/py-spy", "the end of /var/log/x")
    assert server.take("py_spy").skipped == "py-spy is not installed"
    assert server.take("py_spy", py_spy="/opt/nowhere").skipped == "/opt/nowhere is not installed"


@pytest.mark.parametrize(("seconds", "most"), [(8.0, 4.0), (20.0, 10.0), (30.0, 10.0)])
@pytest.mark.parametrize("part", ["processes", "py_spy"])
def test_a_silent_systemd_leaves_time_for_the_processes(
    server: Server, part: str, seconds: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.workers(2)
    server.commands.takes = 1000.0
    left: list[float] = []
    monkeypatch.setattr(
        _evidence_parts, "read_processes", lambda pids, seconds, *more: (left.append(seconds), ("", ""))[1]
    )
    server.take(part, seconds, py_spy=server.tool())
    assert server.commands.times("systemctl") == [most]
    assert left == ([seconds - most] if part == "processes" else [])


def test_only_python_is_spied_on_and_no_more_than_the_first_ones(server: Server) -> None:
    server.workers(40)
    server.proc.add(49, cgroup=UNIT, argv=("sh",), exe="/bin/sh")
    server.commands.answers = {"/": said("Thread\n")}
    found = server.take("py_spy", 60.0, py_spy=server.tool())
    assert [piece.file for piece in found.pieces] == [f"py-spy-{pid}.txt" for pid in range(50, 82)]
    assert set(server.commands.times(server.tool())) == {10.0}


def test_without_python_it_is_said(server: Server) -> None:
    server.proc.add(49, cgroup=UNIT, argv=("sh",), exe="/bin/sh")
    assert server.take("py_spy", py_spy=server.tool()).error == "no Python process of sglang.service is there"


def test_a_slow_py_spy_keeps_to_the_time_of_its_part(server: Server) -> None:
    server.workers(4)
    tool = server.tool()
    server.commands.answers = {tool: said("Thread\n"), "systemctl": said()}
    server.commands.takes = 4.0
    found = server.take("py_spy", 12.0, py_spy=tool)  # systemctl took 4 s of it
    assert [piece.file for piece in found.pieces] == ["py-spy-50.txt", "py-spy-51.txt"]
    assert found.error == "no time was left for process 52 and later ones"
    assert server.commands.times(tool) == [8.0, 4.0]


@pytest.mark.skipif(os.geteuid() != 0, reason="files of root are needed")
@pytest.mark.parametrize(
    ("uid", "mode", "account"),
    [(0, 0o755, None), (0, 0o777, 1234), (1000, 0o755, None), (1000, 0o777, None)],
)
def test_as_whom_py_spy_runs(
    server: Server, uid: int, mode: int, account: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root only what nobody but root can have written; a plain user can become nobody else."""
    server.workers(1, uid=1234)
    tool = server.tool()
    os.chmod(tool, mode)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    server.commands.answers = {tool: said("Thread\n")}
    assert server.take("py_spy", py_spy=tool).pieces
    (found,) = server.commands.accounts
    assert (found.uid if found else None) == account


@pytest.mark.skipif(os.geteuid() != 0, reason="files of root are needed")
@pytest.mark.parametrize("status", [None, "Uid:\tx\n", "Name:\tpython3\n"])
def test_whose_user_cannot_be_told_is_not_spied_on_and_hides_nobody(
    server: Server, status: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.workers(2, uid=1234)
    tool = server.tool()
    os.chmod(tool, 0o777)
    if status is None:
        (server.proc.path / "50/status").unlink()
    else:
        server.proc.write("50/status", status)
    server.commands.answers = {tool: said("Thread\n")}
    found = server.take("py_spy", py_spy=tool)
    assert [piece.file for piece in found.pieces] == ["py-spy-51.txt"]
    assert found.error == "process 50: its user could not be told"


def test_py_spy_gets_nothing_of_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold keys of the connection, and the process that is looked at may own what runs."""
    monkeypatch.setenv("CONNECTION_KEY", "sk-0123456789")
    server.workers(1)
    tool = pathlib.Path(server.tool())
    tool.write_text("#!/bin/sh\nenv\n")
    tool.chmod(0o755)
    server.folder.chmod(0o755)
    evidence = ServerEvidence(
        dataclasses.replace(server.sources, py_spy=str(tool)), server.commands, SystemClock(), runner_as=None
    )
    monkeypatch.setattr(_evidence_parts, "weak_part", lambda path: None)
    (piece,) = next(part for part in evidence.parts() if part.name == "py_spy").take(20.0).pieces
    assert "PATH=" in piece.text
    assert "CONNECTION_KEY" not in piece.text


@pytest.mark.parametrize(("given", "allowed", "asked"), [(60.0, 20.0, 20.0), (5.0, 20.0, 5.0)])
def test_the_report_has_the_shorter_of_both_times(server: Server, given: float, allowed: float, asked: float) -> None:
    server.take("nvidia_smi", allowed, smi_timeout=given)
    assert server.commands.times("nvidia-smi") == [asked]


@pytest.mark.parametrize(("code", "error"), [(0, ""), (9, "nvidia-smi -q -x: exit code 9, half"), (1, "nvidia-smi")])
def test_half_a_report_is_kept_and_told(server: Server, code: int, error: str) -> None:
    server.commands.answers = {"nvidia-smi": said("half", code)}
    found = server.take("nvidia_smi")
    assert [piece.text for piece in found.pieces] == ["half"]
    assert found.error[: len(error) or 1] == error


def test_nothing_printed_makes_no_file(server: Server) -> None:
    server.commands.answers = {"nvidia-smi": said()}
    assert server.take("nvidia_smi") == Found()


def test_a_unit_that_cannot_be_shown_is_told_without_the_list_of_properties(server: Server) -> None:
    server.commands.answers = {"systemctl": said(code=1, stderr="Failed to connect to bus")}
    assert server.take("unit").error == (
        "systemctl show --no-pager -- sglang.service: exit code 1, Failed to connect to bus"
    )


@pytest.mark.parametrize(
    ("scope", "option"), [("system", "--unit=sglang.service"), ("user", "--user-unit=sglang.service")]
)
def test_whose_journal_is_read(server: Server, scope: t.Any, option: str) -> None:
    server.commands.answers = {"journalctl": said("a line\n")}
    (piece,) = server.take("journal", scan=dataclasses.replace(server.scan, systemd_scope=scope)).pieces
    (line,) = [line for line, dummy in server.commands.asked]
    assert line.endswith(f"-n 2000 {option}")
    assert (piece.file, piece.tail) == ("journal.txt", True), "what is cut of a journal is its beginning"


def test_what_systemd_says_is_cut_at_its_end(server: Server) -> None:
    server.commands.answers = {"systemctl": said("Id=sglang.service\n")}
    assert [piece.tail for piece in server.take("unit").pieces] == [False]


def test_a_journal_that_failed_half_way_is_kept_and_told(server: Server) -> None:
    for code in (1, -1):
        server.commands.answers = {"journalctl": said("a line\n", code)}
        found = server.take("journal")
        assert ([piece.text for piece in found.pieces], bool(found.error)) == (["a line\n"], True)


def test_an_old_dmesg_is_asked_without_its_option(server: Server) -> None:
    for code in (1, -1, 64):
        server.commands = Slow(
            server.clock, {"dmesg --time": said(code=code, stderr="unrecognized"), "dmesg": said("[1] NVRM: Xid\n")}
        )
        (piece,) = server.take("kernel", 10.0).pieces
        assert piece.text.splitlines() == ["1 of 1 kernel lines; the last 500 at most:", "[1] NVRM: Xid"]
        assert [timeout for dummy, timeout in server.commands.asked] == [5.0, 5.0]


def test_a_dmesg_that_answers_or_hangs_is_asked_once(server: Server) -> None:
    server.commands.answers = {"dmesg --time": said("NVRM: Xid\n")}
    assert server.take("kernel", 10.0).pieces
    server.commands.takes = 1000.0
    assert "no end after 5 s" in server.take("kernel", 10.0).error
    assert [line for line, dummy in server.commands.asked] == ["dmesg --time-format=iso"] * 2


def test_of_many_kernel_lines_the_last_are_kept(server: Server) -> None:
    server.commands.answers = {"dmesg": said("".join(f"NVRM: {number}\n" for number in range(700)))}
    (piece,) = server.take("kernel").pieces
    lines = piece.text.splitlines()
    assert (lines[0].partition(" kernel")[0], lines[1], lines[-1], len(lines)) == (
        "700 of 700",
        "NVRM: 200",
        "NVRM: 699",
        501,
    )
    assert piece.tail


def test_only_memory_itself_must_be_there(server: Server) -> None:
    """Pressure is not counted by every kernel."""
    server.proc.write("meminfo", "MemFree: 1 kB\n")
    assert server.take("memory").error == ""
    (server.proc.path / "meminfo").unlink()
    server.proc.write("pressure/memory", "some avg10=0.00\n")
    found = server.take("memory")
    assert found.error == "meminfo: No such file or directory"
    assert found.pieces[0].text == "--- pressure/memory\nsome avg10=0.00\n"


def test_free_space_is_told_of_every_folder_that_fills(server: Server) -> None:
    server.clock = t.cast(t.Any, SystemClock())
    logs = server.folder / "logs"
    logs.mkdir()
    text = server.take("space", log_file=str(logs / "sglang.log")).pieces[0].text
    assert [line.partition(":")[0] for line in text.splitlines()] == ["/dev/shm", "/tmp", str(server.folder), str(logs)]
    assert [line.partition(":")[0] for line in server.take("space").pieces[0].text.splitlines()][-1] == str(
        server.folder
    )


def test_space_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"f_blocks": 1 << 20, "f_bavail": 1 << 18, "f_frsize": 4096, "f_favail": 7, "f_files": 9}
    monkeypatch.setattr(os, "statvfs", lambda folder: type("Found", (), counts))
    assert free_space("/x") == "/x: 1024 of 4096 MiB free, 7 of 9 inodes free"


def test_a_folder_that_is_not_there_is_told() -> None:
    assert free_space("/no/such/folder") == "/no/such/folder: No such file or directory"


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_where_a_log_is_cut_half_a_line_is_left_out(tmp_path: pathlib.Path, more: int) -> None:
    """It may hold half a key, which nothing would recognise; and of a log that fits every line is kept."""
    path = tmp_path / "log"
    first = b"first line\n"
    path.write_bytes(first + b"x" * (LOG_BYTES - len(first) + more - 1) + b"\n")
    text, error = read_end(str(path))
    assert error == ""
    assert text.startswith("first line" if more <= 0 else "x")
    assert len(text) == LOG_BYTES + more - (len(first) if more > 0 else 0)


def test_what_is_kept_of_logs_fits_a_folder_of_evidence() -> None:
    assert LOG_BYTES == 1024 * 1024


def test_a_log_on_a_file_system_that_does_not_answer_is_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.clock = t.cast(t.Any, SystemClock())
    pipe = server.folder / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setattr(_evidence_parts, "read_end", lambda path: pipe.open())
    assert server.take("log", 0.3, log_file="/mnt/gone/sglang.log").error == "/mnt/gone/sglang.log did not answer"


def test_a_log_that_could_not_be_read_says_why(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.clock = t.cast(t.Any, SystemClock())

    def broken(path: str) -> t.Any:
        raise MemoryError("no room")

    monkeypatch.setattr(_evidence_parts, "read_end", broken)
    assert "no room" in server.take("log", 5.0, log_file="/var/log/sglang.log").error


def test_a_folder_that_does_not_answer_is_named(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.clock = t.cast(t.Any, SystemClock())
    pipe = server.folder / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setattr(
        _evidence_parts, "free_space", lambda folder: pipe.open() if folder == "/tmp" else f"{folder}: fine"
    )
    found = server.take("space", 0.3)
    assert found.error == "/tmp did not answer"
    assert found.pieces[0].text == "/dev/shm: fine\n"


def test_documents_are_laid_out_for_people(server: Server) -> None:
    server.commands.answers = {}
    text = server.take("gpus").pieces[0].text
    assert text.startswith('{\n "')
    assert json.loads(text)["state"] == "no_tool"


def test_a_user_without_a_name_has_an_account() -> None:
    """Some container images run a uid that nobody has named."""
    account = _evidence_parts._account(4_000_000_001)
    assert (account.uid, account.gid, account.gids) == (4_000_000_001, 4_000_000_001, frozenset({4_000_000_001}))
