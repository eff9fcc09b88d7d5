# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run nox sessions, two at a time, and end with a table and one line that counts the tests.

    python tests/tooling/run_sessions.py lint unit sanity
    python tests/tooling/run_sessions.py --one-by-one test-playbooks test-lxc

Each session's output goes to .nox/logs/SESSION.log and is printed when the session ends, so that two do not mix.
The counts come from the junit files below .nox/reports/SESSION. A session of tests that ran none has failed.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
import typing as t

import results

ROOT = pathlib.Path(__file__).resolve().parents[2]
AT_ONCE = 2
# Sessions whose result is a number of tests; the others are checks that pass or fail as a whole.
TESTS = frozenset(
    {"unit", "unit-oldest", "sanity", "molecule", "molecule-slow", "test-playbooks", "test-faults", "test-lxc"}
    | {"test-lxc-launch", "test-fleet", "simulator"}
)
SHOWN_LINES = 25
Result = t.Literal["passed", "failed", "skipped"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How one session ended."""

    name: str
    seconds: float
    result: Result
    count: results.Count
    why: str = ""


def judge(name: str, exit_code: int, status: str, count: results.Count) -> tuple[Result, str]:
    """Passed only if nox says so and, where tests are the point, at least one test passed and none failed."""
    if exit_code != 0:
        return "failed", f"exit code {exit_code}"
    if count.failed:
        return "failed", f"{count.failed} failed"
    if status == "skipped":
        return "skipped", "see its output"
    if name in TESTS and count.passed == 0:
        return "failed", "no test ran"
    return "passed", ""


class Runner:
    """Starts sessions as processes of their own, and ends them all if it is interrupted."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.stopping = False
        self.running: set[subprocess.Popen[bytes]] = set()
        self.guard = threading.Lock()

    def run(self, name: str) -> Outcome:
        folder = self.root / ".nox" / "reports" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        log = self.root / ".nox" / "logs" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        status = folder / "nox.json"
        command = [sys.executable, "-m", "nox", "--no-color", "--report", str(status), "--session", name]
        say(f"{name}: started")
        began = time.monotonic()
        with log.open("wb") as output:
            with self.guard:
                if self.stopping:
                    raise KeyboardInterrupt
                process = subprocess.Popen(
                    command,
                    cwd=self.root,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
                self.running.add(process)
            exit_code = process.wait()
            with self.guard:
                self.running.discard(process)
        seconds = time.monotonic() - began
        count = results.count(folder)
        result, why = judge(name, exit_code, session_status(status), count)
        outcome = Outcome(name, seconds, result, count, why)
        show(log, outcome)
        return outcome

    def stop(self) -> None:
        with self.guard:
            self.stopping = True
            for process in self.running:
                try:
                    # What Ctrl-C would do: pytest and molecule then take down what they set up.
                    os.killpg(process.pid, signal.SIGINT)
                except ProcessLookupError:
                    continue


def session_status(report: pathlib.Path) -> str:
    try:
        sessions = json.loads(report.read_text(encoding="utf-8"))["sessions"]
        return str(sessions[0]["result"])
    except (OSError, ValueError, LookupError):
        return "unknown"


PRINTING = threading.Lock()


def say(text: str) -> None:
    with PRINTING:
        print(text, flush=True)


def show(log: pathlib.Path, outcome: Outcome) -> None:
    """The whole output of a session that did not pass, the end of one that did."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if outcome.result == "passed":
        lines = lines[-SHOWN_LINES:]
    with PRINTING:
        print(f"\n===== {outcome.name}: {outcome.result} after {outcome.seconds:.0f} s (all of it: {log}) =====")
        print("\n".join(lines), flush=True)


def summary(outcomes: t.Sequence[Outcome]) -> str:
    """The table, and as the last line what a machine reads: how many passed, failed and were skipped."""
    lines = [f"{'session':<16}{'seconds':>8}  {'result':<9}tests"]
    total = results.Count()
    for outcome in outcomes:
        tests = f"{outcome.count.passed} passed" if outcome.name in TESTS else ""
        if outcome.count.skipped:
            tests += f", {outcome.count.skipped} skipped"
        why = f"  ({outcome.why})" if outcome.why else ""
        lines.append(f"{outcome.name:<16}{outcome.seconds:>8.0f}  {outcome.result:<9}{tests}{why}")
        total += outcome.count
        if outcome.result == "failed" and outcome.count.failed == 0:
            # A session that failed without a failing test (no test ran, a linter complained) is a failure too.
            total += results.Count(failed=1)
        if outcome.result == "skipped":
            total += results.Count(skipped=1)
    skipped = f", {total.skipped} skipped" if total.skipped else ""
    lines += ["", f"{total.passed} passed, {total.failed} failed{skipped}"]
    return "\n".join(lines)


def exit_code(outcomes: t.Sequence[Outcome]) -> int:
    """A skipped session is told to a person, and is a failure where nobody watches (CI)."""
    bad = {"failed", "skipped"} if os.environ.get("CI") else {"failed"}
    nothing = not any(outcome.result == "passed" for outcome in outcomes)
    return 1 if nothing or any(outcome.result in bad for outcome in outcomes) else 0


def main(names: t.Sequence[str]) -> int:
    # What plays a whole machine, or measures how soon something is noticed, cannot have company.
    at_once = 1 if "--one-by-one" in names else AT_ONCE
    names = [name for name in names if name != "--one-by-one"]
    if not names:
        print("Name at least one session; `nox --list` shows them.", file=sys.stderr)
        return 2
    runner = Runner(ROOT)

    def interrupted(number: int, frame: object) -> t.NoReturn:
        runner.stop()
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGINT, interrupted)
    try:
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            outcomes = list(pool.map(runner.run, names))
    except KeyboardInterrupt:
        print("Interrupted; every session was told to end.", file=sys.stderr)
        return 130
    print("\n" + summary(outcomes), flush=True)
    return exit_code(outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
