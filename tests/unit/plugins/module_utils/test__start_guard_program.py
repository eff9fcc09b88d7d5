# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ends the guard from outside, and what it reads from its options."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _start_guard_program
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_locks import LockRefused
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import make_nodes

COLLECTION_ROOT = pathlib.Path(_start_guard_program.__file__).parents[5]
START = (
    "import sys; from ansible_collections.cleanslate.gpu.plugins.module_utils._start_guard_program import main;"
    " sys.exit(main())"
)


def until(what: t.Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=["TERM", "INT", "HUP"])
def test_a_signal_ends_it_and_what_it_waits_for(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    """With an exit status: a death by one of these is a good end for systemd, which would start the server."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/asked.new; mv {tmp_path}/asked.new {tmp_path}/asked\nexec sleep 600\n"
    )
    tool.chmod(0o755)
    guard = subprocess.Popen(
        [
            *(sys.executable, "-c", START, "--unit=x.service", "--expected-count=2", f"--nvidia-smi={tool}"),
            *(
                f"--devices={make_nodes(tmp_path / 'dev')}",
                f"--state-dir={tmp_path}/state",
                f"--lock-dir={tmp_path}/gpus",
            ),
        ],
        env={**os.environ, "PYTHONPATH": str(COLLECTION_ROOT), "XDG_RUNTIME_DIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until((tmp_path / "asked").exists)
        asked = int((tmp_path / "asked").read_text())
        guard.send_signal(number)
        dummy, said = guard.communicate(timeout=60)
    finally:
        guard.kill()
    assert guard.returncode == 5
    assert "ended by a signal" in said
    assert json.loads((tmp_path / "state" / "x.service.json").read_text())["verdict"] == "interrupted"
    until(lambda: not os.path.exists(f"/proc/{asked}") or "\nState:\tZ" in status(asked))


def test_nothing_that_the_unit_sets_decides_what_root_runs(tmp_path: pathlib.Path) -> None:
    """The unit's PATH is the service user's to fill; so is whatever else its environment says."""
    planted, tool = tmp_path / "planted" / "systemctl", tmp_path / "nvidia-smi"
    planted.parent.mkdir()
    planted.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran-as-root\n")
    tool.write_text(f"#!/bin/sh\nenv > {tmp_path}/environment\nexit 1\n")
    for program in (planted, tool):
        program.chmod(0o755)
    options = [
        *("--unit=x.service", "--expected-count=2", f"--nvidia-smi={tool}", "--timeout=1"),
        f"--devices={make_nodes(tmp_path / 'dev')}",
        *(f"--state-dir={tmp_path}/state", f"--lock-dir={tmp_path}/gpus"),
    ]
    path = f"{planted.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", START, *options],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(COLLECTION_ROOT), "PLANTED": "yes"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (3, 4), done.stderr
    told = (tmp_path / "environment").read_text().splitlines()
    assert f"PATH={_start_guard_program.ROOT_PATH}" in told
    assert "PLANTED=yes" not in told
    assert not (tmp_path / "ran-as-root").exists()


def status(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "\nState:\tZ"


class Scripted:
    """A guard whose run does what the test wants."""

    def __init__(self, run: t.Callable[[], t.Any]) -> None:
        self.run = run
        self.failures: list[str] = []

    def give_up(self) -> str:
        return "gave_up"

    def interrupted(self) -> str:
        return "interrupted"

    def failed(self, what: str) -> str:
        self.failures.append(what)
        return "error"


@pytest.fixture(autouse=True)
def _handlers() -> t.Iterator[None]:
    before = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGALRM)]
    yield
    for number, handler in before:
        signal.signal(number, handler)


def ended(run: t.Callable[[], t.Any], most: float = 30.0) -> tuple[str, list[str]]:
    guard = Scripted(run)
    return _start_guard_program._run(t.cast(t.Any, guard), most), guard.failures


def test_a_look_that_does_not_come_back_ends_as_giving_up() -> None:
    began = time.monotonic()
    assert ended(lambda: time.sleep(30), most=0.1) == ("gave_up", [])
    assert time.monotonic() - began < 10


def test_the_alarm_is_off_afterwards() -> None:
    ended(lambda: "start")
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def raising(error: Exception) -> t.Callable[[], t.Any]:
    def run() -> None:
        raise error

    return run


def test_whatever_goes_wrong_starts_nothing() -> None:
    verdict, failures = ended(raising(RuntimeError("surprise")))
    assert verdict == "error"
    assert failures[0].startswith("RuntimeError: surprise (test__start_guard_program.py:")
    assert ended(raising(LockRefused("cannot make the lock file"))) == ("error", ["cannot make the lock file"])


def test_the_exit_codes_are_those_that_are_documented() -> None:
    assert _start_guard_program.EXIT_CODES == {"start": 0, "error": 1, "refused": 3, "gave_up": 4, "interrupted": 5}


def test_a_list_is_as_given_and_else_as_for_the_modules() -> None:
    parse = _start_guard_program.parser().parse_args
    given = parse(["--unit=x", "--devices=/dev/a*", "--devices=/dev/b*", "--majors=4"])
    assert (given.devices, given.majors) == (["/dev/a*", "/dev/b*"], [4])
    spec = _start_guard_program._SHARED["devices"]
    assert _start_guard_program._value(parse(["--unit=x"]).devices, spec) == ["/dev/nvidia*"]


def test_the_server_and_the_guard_look_for_caches_in_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    class Account:
        pw_dir, pw_uid = "/home/sglang", 1001

    monkeypatch.setattr(_start_guard_program.pwd, "getpwnam", lambda name: Account)
    search = _start_guard_program._search
    assert search("sglang", {}).caches == (
        "/home/sglang/.cache/torch_extensions",
        "/home/sglang/.aiter",
        "/home/sglang/.cache/flashinfer",
    )
    assert search("sglang", {"XDG_CACHE_HOME": "/fast"}).caches[0] == "/fast/torch_extensions"
    elsewhere = {
        "TORCH_EXTENSIONS_DIR": "/fast/ext",
        "AITER_JIT_DIR": "relative",
        "FLASHINFER_WORKSPACE_BASE": "/fast",
        "SGLANG_CACHE_DIR": "/fast/sglang",
    }
    assert search("sglang", elsewhere).caches == ("/fast/ext", "/fast/.cache/flashinfer", "/fast/sglang")
    assert search("sglang", {}).uid == 1001


@pytest.mark.parametrize(("started_by", "mode"), [({"INVOCATION_ID": "a" * 32}, 0o600), ({}, 0o644)])
def test_a_log_that_systemd_has_just_made_is_closed_before_the_server_writes_its_keys(
    tmp_path: pathlib.Path, started_by: dict[str, str], mode: int
) -> None:
    log = tmp_path / "sglang.log"
    environment = {name: value for name, value in os.environ.items() if name != "INVOCATION_ID"}
    with log.open("ab") as output:
        log.chmod(0o644)
        done = subprocess.run(
            [sys.executable, "-c", START, "--unit=x.service", "--expected-count=0"],
            env={**environment, "PYTHONPATH": str(COLLECTION_ROOT), **started_by},
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
    assert (done.returncode, log.stat().st_mode & 0o777) == (2, mode)
    assert "wrong options" in log.read_text()
