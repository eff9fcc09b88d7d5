# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import MOST_OUTPUT, CommandResult, CommandRunner
from ansible_collections.cleanslate.gpu.plugins.module_utils._service_account import find_account

LONG = 60.0  # a deadline that is never reached, however loaded the machine is
SHORT = 2.0  # a deadline that must be reached, but not before a shell could say its pid


@pytest.fixture
def memory(tmp_path):
    return str(tmp_path / "memory")


@pytest.fixture
def runner(memory):
    return CommandRunner(SystemClock(), memory=memory)


def python(code):
    return (sys.executable, "-c", code)


def is_alive(pid):
    """Also true for a zombie of ours until it is reaped, so the state is looked at."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as handle:
            return handle.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def wait_until(condition):
    deadline = time.monotonic() + LONG
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


@pytest.mark.parametrize(
    ("code", "exit_code", "stdout", "stderr"),
    [
        ("print('a')", 0, "a\n", ""),
        ("import sys; print('a'); print('b', file=sys.stderr); sys.exit(18)", 18, "a\n", "b\n"),
        ("import os; os.kill(os.getpid(), 9)", -9, "", ""),
        ("import os; os.write(1, bytes([0xff, 0x41]))", 0, "\ufffdA", ""),
        ("import os; print(os.environ['LC_ALL'], os.getsid(0) == os.getpid())", 0, "C True\n", ""),
    ],
)
def test_what_a_command_says_comes_back(runner, code, exit_code, stdout, stderr):
    result = runner(python(code), LONG)
    assert (result.exit_code, result.stdout, result.stderr) == (exit_code, stdout, stderr)
    assert (result.timed_out, result.hung_pid, result.error) == (False, None, None)
    assert result.argv == python(code)
    assert result.seconds > 0


def test_the_environment_is_added_to_that_of_this_process(memory, monkeypatch):
    monkeypatch.setenv("FROM_HERE", "here")
    runner = CommandRunner(SystemClock(), environment={"FROM_OPTION": "option"}, memory=memory)
    result = runner(python("import os; print(os.environ['FROM_HERE'], os.environ['FROM_OPTION'])"), LONG)
    assert result.stdout == "here option\n"


def test_the_input_of_this_process_is_not_read(runner):
    reading, writing = os.pipe()
    os.write(writing, b"input")
    os.close(writing)
    ours = os.dup(0)
    os.dup2(reading, 0)
    try:
        result = runner(python("import sys; print(repr(sys.stdin.read()))"), LONG)
    finally:
        os.dup2(ours, 0)
        os.close(ours)
        os.close(reading)
    assert result.stdout == "''\n"


def test_a_megabyte_on_both_streams_does_not_block(runner):
    code = (
        "import sys\n"
        "for number in range(1024):\n"
        "    sys.stdout.write('o' * 1024); sys.stdout.flush()\n"
        "    sys.stderr.write('e' * 1024); sys.stderr.flush()\n"
    )
    result = runner(python(code), LONG)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "o" * 1048576, "e" * 1048576)


@pytest.mark.parametrize("more", [0, 200_000])
def test_a_flood_is_no_answer(runner, more):
    """A tool gone wrong must not fill our memory, nor keep us reading lines for minutes."""
    size = MOST_OUTPUT + more
    result = runner(python(f"import sys; sys.stdout.write('x' * {size})"), LONG)
    assert result.exit_code == 0
    assert (len(result.stdout), result.error) == ((0, "it printed more than 8 MiB") if more else (size, None))


def test_a_child_that_ignores_term_is_killed_at_the_deadline(runner):
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True)\n"
        "time.sleep(600)\n"
    )
    result = runner(python(code), 5.0)
    assert (result.timed_out, result.exit_code, result.hung_pid, result.error) == (True, None, None, None)
    assert not is_alive(int(result.stdout)), "what had been flushed before the deadline is kept, and the child is gone"
    assert result.seconds < LONG


def test_the_whole_group_is_killed_at_the_deadline(runner):
    """nvidia-smi may be a wrapper script: killing only the shell would leave the real one running."""
    result = runner(("sh", "-c", "sleep 600 & echo $!; wait"), SHORT)
    assert (result.timed_out, result.hung_pid) == (True, None)
    assert not is_alive(int(result.stdout))


def test_a_grandchild_that_holds_the_streams_open_does_not_keep_us(runner):
    result = runner(("sh", "-c", "sleep 600 & echo $!"), LONG)
    grandchild = int(result.stdout)
    try:
        assert (result.exit_code, result.timed_out) == (0, False)
        assert result.seconds < LONG / 2
        assert is_alive(grandchild), "the command ended by itself, so what it started is not ours to kill"
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_a_command_that_cannot_be_started(runner, tmp_path):
    not_executable = tmp_path / "not-executable"
    not_executable.write_text("#!/bin/sh\n", encoding="utf-8")
    below_a_file = str(not_executable / "nvidia-smi")
    no_interpreter = tmp_path / "no-interpreter"
    no_interpreter.write_text("#!/there/is/no/such/interpreter\n", encoding="utf-8")
    no_interpreter.chmod(0o755)
    no_program = tmp_path / "no-program"
    no_program.write_text("what is this\n", encoding="utf-8")
    no_program.chmod(0o755)

    errors = [
        runner((argv0,), LONG)
        for argv0 in ("there-is-no-such-tool", str(tmp_path / "absent"), below_a_file, str(not_executable))
    ]
    assert [error.error for error in errors] == ["not_found", "not_found", "not_found", "not_permitted"]
    assert "No such file" in (runner((str(no_interpreter),), LONG).error or "")
    assert "format" in (runner((str(no_program),), LONG).error or "")
    assert all((error.exit_code, error.timed_out, error.stdout) == (None, False, "") for error in errors)


def test_an_error_here_does_not_leave_the_child_behind(memory, tmp_path):
    class Impatient(SystemClock):
        looks = 0

        def monotonic(self):
            self.looks += 1
            if self.looks > 20:
                raise KeyboardInterrupt
            return super().monotonic()

    pid_file = tmp_path / "pid"
    with pytest.raises(KeyboardInterrupt):
        CommandRunner(Impatient(), memory=memory)(("sh", "-c", f"echo $$ > {pid_file}; exec sleep 600"), LONG)
    # The shell may have been killed before it could write its pid: then there is nothing to look for.
    if pid_file.exists() and pid_file.read_text(encoding="utf-8").strip():
        wait_until(lambda: not is_alive(int(pid_file.read_text(encoding="utf-8"))))


# A child that cannot be killed is played by a kill that does nothing.

HANGING_TOOL = "#!/bin/sh\necho $$ >> {starts}\nexec sleep 600\n"

ONE_EXECUTION = """
import dataclasses, json, sys
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner
runner = CommandRunner(SystemClock(), memory=sys.argv[1], kill_group=lambda group, number: None)
print(json.dumps([dataclasses.asdict(runner((sys.argv[2],), 1.0)) for _ in range(int(sys.argv[3]))]))
"""


class HangingTool:
    def __init__(self, folder, memory):
        self.path = str(folder / "nvidia-smi")
        self.memory = memory
        self._starts = folder / "starts"
        with open(self.path, "w", encoding="utf-8") as handle:
            handle.write(HANGING_TOOL.format(starts=self._starts))
        os.chmod(self.path, 0o755)

    def starts(self):
        return [int(line) for line in self._starts.read_text(encoding="utf-8").split()]

    def execute(self, times=1):
        """A module execution: a process of its own."""
        done = subprocess.run(
            [sys.executable, "-c", ONE_EXECUTION, self.memory, self.path, str(times)],
            stdout=subprocess.PIPE,
            check=True,
            timeout=LONG,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        return [CommandResult(**{**result, "argv": tuple(result["argv"])}) for result in json.loads(done.stdout)]

    def end(self):
        for pid in self.starts():
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            wait_until(lambda pid=pid: not is_alive(pid))


@pytest.fixture
def hanging(tmp_path, memory):
    tool = HangingTool(tmp_path, memory)
    yield tool
    tool.end()


def records(memory):
    return [os.path.join(memory, name) for name in os.listdir(memory)] if os.path.isdir(memory) else []


def test_a_child_that_cannot_be_killed_is_left_behind_and_no_second_one_is_started(hanging):
    (first,) = hanging.execute()
    assert (first.timed_out, first.exit_code) == (True, None)
    assert [first.hung_pid] == hanging.starts(), "the pid of what is left behind is reported"
    assert is_alive(first.hung_pid)
    assert first.seconds >= 2.0, "one second for the command, and at most one for dying"

    (second,) = hanging.execute()
    assert (second.timed_out, second.hung_pid, second.exit_code) == (True, first.hung_pid, None)
    assert second.seconds == 0.0
    assert len(hanging.starts()) == 1, "the second execution must not start another one"

    hanging.end()
    (third,) = hanging.execute()
    assert third.hung_pid != first.hung_pid
    assert len(hanging.starts()) == 2, "once it is gone, the tool is started again"


def test_the_same_process_does_not_start_a_second_one_either(hanging):
    first, second, third = hanging.execute(times=3)
    assert first.hung_pid == second.hung_pid == third.hung_pid
    assert len(hanging.starts()) == 1


def test_another_tool_is_not_held_up(hanging):
    hanging.execute()
    result = CommandRunner(SystemClock(), memory=hanging.memory)(("sh", "-c", "echo here"), LONG)
    assert (result.exit_code, result.stdout) == (0, "here\n")


def test_another_name_of_the_same_tool_is_the_same_tool(hanging, tmp_path):
    (first,) = hanging.execute()
    link = tmp_path / "link-to-nvidia-smi"
    link.symlink_to(hanging.path)
    result = CommandRunner(SystemClock(), memory=hanging.memory)((str(link),), SHORT)
    assert result.hung_pid == first.hung_pid
    assert len(hanging.starts()) == 1


def test_a_stuck_grandchild_is_what_is_left_behind(memory, tmp_path):
    """A wrapper script dies by the signal, the nvidia-smi that it started does not."""
    left = []

    def kill_only_the_leader(group, number):
        os.kill(group, number)

    runner = CommandRunner(SystemClock(), memory=memory, kill_group=kill_only_the_leader)
    wrapper = tmp_path / "nvidia-smi"
    wrapper.write_text("#!/bin/sh\nsleep 600 &\necho $!\nwait\n", encoding="utf-8")
    wrapper.chmod(0o755)
    try:
        first = runner((str(wrapper),), SHORT)
        left.append(int(first.stdout))
        assert first.hung_pid == left[0]
        second = runner((str(wrapper),), SHORT)
        assert (second.hung_pid, second.stdout) == (left[0], "")
    finally:
        for pid in left:
            os.kill(pid, signal.SIGKILL)


def test_nothing_is_remembered_of_what_could_be_killed(runner, memory):
    runner(("sleep", "600"), SHORT)
    assert records(memory) == []


def test_an_environment_of_its_own(memory, monkeypatch):
    monkeypatch.setenv("FROM_PARENT", "parent")
    runner = CommandRunner(SystemClock(), environment={"FROM_OPTION": "option"}, inherit=False, memory=memory)
    result = runner(["/usr/bin/env"], 20.0)
    assert sorted(result.stdout.split()) == ["FROM_OPTION=option", "LC_ALL=C"]


def test_root_can_run_it_as_another_user(memory):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    nobody = find_account("nobody")
    runner = CommandRunner(SystemClock(), account=nobody, memory=memory)
    result = runner(["sh", "-c", "id -u; id -g; id -G; pwd"], 20.0)
    uid, gid, groups, folder = result.stdout.splitlines()
    assert (int(uid), int(gid), folder) == (nobody.uid, nobody.gid, "/")
    assert {int(group) for group in groups.split()} == set(nobody.gids), "none of root's groups is left"
