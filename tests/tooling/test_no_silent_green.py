# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No silent green: what ran nothing, was cut off or skipped a promised Python does not pass."""

from __future__ import annotations

import json
import pathlib
import sys
import threading
import time

import pytest
import results
import run_sessions
from results import Count

CASE = "<testcase name='a'>{}</testcase>"


def junit(folder: pathlib.Path, name: str, *inner: str) -> pathlib.Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    cases = "".join(CASE.format(text) for text in inner)
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", encoding="utf-8")
    return path


def test_counting(tmp_path: pathlib.Path) -> None:
    junit(tmp_path, "a.xml", "", "<failure/>", "<skipped/>", "<system-out>x</system-out>")
    junit(tmp_path / "deeper", "b.xml", "", "<error/>")
    assert results.count(tmp_path) == Count(passed=3, failed=2, skipped=1)


@pytest.mark.parametrize("text", ["", "<testsuites><testsuite><testcase"])
def test_a_report_that_was_cut_off_is_a_failure(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "a.xml").write_text(text, encoding="utf-8")
    assert results.count(tmp_path).failed == 1


def test_no_report_counts_nothing(tmp_path: pathlib.Path) -> None:
    assert results.count(tmp_path) == Count()
    assert results.count_file(tmp_path / "absent.xml") == Count(failed=1)


def sanity(folder: pathlib.Path, ran: dict[str, list[str]], skipped: str = "3.14") -> None:
    for name, versions in ran.items():
        for version in versions:
            junit(folder, f"ansible-test-sanity-{name}-python-{version}.xml", "")
        junit(folder, f"ansible-test-sanity-{name}-python-{skipped}.xml", "<skipped/>")
    junit(folder, "ansible-test-sanity-validate-modules.xml", "")


@pytest.mark.parametrize(
    ("ran", "promised", "words"),
    [
        ({"compile": ["3.9", "3.13"], "import": ["3.9", "3.13"]}, ["3.9", "3.13"], []),
        ({"compile": ["3.9", "3.13"], "import": ["3.13"]}, ["3.9", "3.13"], ["import did not run with Python 3.9"]),
        ({"compile": ["3.13"], "import": ["3.13"]}, ["3.14", "3.13"], ["compile did not", "import did not"]),
        ({}, ["3.13"], ["compile ran with no Python", "import ran with no Python"]),
    ],
)
def test_promised_pythons(
    tmp_path: pathlib.Path, ran: dict[str, list[str]], promised: list[str], words: list[str]
) -> None:
    sanity(tmp_path, ran)
    complaints = results.missing_pythons(tmp_path, promised)
    assert len(complaints) == len(words)
    assert all(word in complaint for word, complaint in zip(words, complaints))


@pytest.mark.parametrize(
    ("name", "code", "status", "count", "verdict"),
    [
        ("unit", 0, "success", Count(passed=3), "passed"),
        ("unit", 0, "success", Count(), "failed"),
        ("unit", 0, "success", Count(skipped=4), "failed"),
        ("unit", 0, "success", Count(passed=3, failed=1), "failed"),
        ("unit", 1, "failed", Count(passed=3), "failed"),
        ("unit-oldest", 0, "skipped", Count(), "skipped"),
        ("lint", 0, "success", Count(), "passed"),
        ("lint", 1, "failed", Count(), "failed"),
    ],
)
def test_judging_a_session(name: str, code: int, status: str, count: Count, verdict: str) -> None:
    assert run_sessions.judge(name, code, status, count)[0] == verdict


def outcome(name: str, result: run_sessions.Result, count: Count) -> run_sessions.Outcome:
    return run_sessions.Outcome(name, 1.0, result, count)


@pytest.mark.parametrize(
    ("outcomes", "last", "code", "code_in_ci"),
    [
        ([outcome("unit", "passed", Count(5))], "5 passed, 0 failed", 0, 0),
        ([outcome("unit", "passed", Count(5, 0, 2))], "5 passed, 0 failed, 2 skipped", 0, 0),
        ([outcome("unit", "failed", Count(5, 2))], "5 passed, 2 failed", 1, 1),
        ([outcome("unit", "passed", Count(5)), outcome("lint", "failed", Count())], "5 passed, 1 failed", 1, 1),
        (
            [outcome("unit", "passed", Count(5)), outcome("sanity", "skipped", Count())],
            "5 passed, 0 failed, 1 skipped",
            0,
            1,
        ),
        ([outcome("sanity", "skipped", Count())], "0 passed, 0 failed, 1 skipped", 1, 1),
        ([], "0 passed, 0 failed", 1, 1),
    ],
)
def test_the_end(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[run_sessions.Outcome], last: str, code: int, code_in_ci: int
) -> None:
    assert run_sessions.summary(outcomes).splitlines()[-1] == last
    monkeypatch.delenv("CI", raising=False)
    assert run_sessions.exit_code(outcomes) == code
    monkeypatch.setenv("CI", "true")
    assert run_sessions.exit_code(outcomes) == code_in_ci


def test_no_session_named_is_refused() -> None:
    assert run_sessions.main([]) == 2


@pytest.fixture
def fake_nox(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A module `nox` that writes the report, a junit file with FAKE_TESTS tests, and exits as FAKE_CODE says."""
    (tmp_path / "fake" / "nox").mkdir(parents=True)
    (tmp_path / "fake" / "nox" / "__init__.py").touch()
    (tmp_path / "fake" / "nox" / "__main__.py").write_text(
        "import json, os, pathlib, sys, time\n"
        "report = pathlib.Path(sys.argv[sys.argv.index('--report') + 1])\n"
        "report.write_text(json.dumps({'sessions': [{'result': 'success'}]}))\n"
        "tests = '<testcase/>' * int(os.environ['FAKE_TESTS'])\n"
        "(report.parent / 'pytest.xml').write_text('<testsuites>' + tests + '</testsuites>')\n"
        "print('ran', sys.argv[-1])\n"
        "time.sleep(float(os.environ.get('FAKE_SECONDS', '0')))\n"
        "sys.exit(int(os.environ['FAKE_CODE']))\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))
    monkeypatch.setattr(run_sessions, "ROOT", tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("tests", "code", "expected", "last"),
    [("2", "0", 0, "4 passed, 0 failed"), ("0", "0", 1, "0 passed, 2 failed"), ("2", "1", 1, "4 passed, 2 failed")],
)
def test_running_sessions_as_processes(
    fake_nox: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tests: str,
    code: str,
    expected: int,
    last: str,
) -> None:
    monkeypatch.setenv("FAKE_TESTS", tests)
    monkeypatch.setenv("FAKE_CODE", code)
    assert run_sessions.main(["unit", "sanity"]) == expected
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == last
    assert "ran unit" in printed
    assert (fake_nox / ".nox" / "logs" / "sanity.log").read_text(encoding="utf-8") == "ran sanity\n"


def test_a_report_of_an_earlier_run_does_not_count(fake_nox: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    junit(fake_nox / ".nox" / "reports" / "unit", "old.xml", "", "")
    monkeypatch.setenv("FAKE_TESTS", "0")
    monkeypatch.setenv("FAKE_CODE", "0")
    assert run_sessions.main(["unit"]) == 1


def test_stopping_ends_what_runs(fake_nox: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FAKE_TESTS", "1"), ("FAKE_CODE", "0"), ("FAKE_SECONDS", "300")):
        monkeypatch.setenv(name, value)
    runner = run_sessions.Runner(fake_nox)
    thread = threading.Thread(target=runner.run, args=("unit",))
    thread.start()
    report = fake_nox / ".nox" / "reports" / "unit" / "pytest.xml"
    deadline = time.monotonic() + 60
    while not report.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    runner.stop()
    thread.join(timeout=60)
    assert report.exists(), "the session did not start within 60 s"
    assert not thread.is_alive()
    assert runner.running == set()


def test_status_of_a_session(tmp_path: pathlib.Path) -> None:
    report = tmp_path / "nox.json"
    assert run_sessions.session_status(report) == "unknown"
    report.write_text(json.dumps({"sessions": [{"result": "skipped"}]}), encoding="utf-8")
    assert run_sessions.session_status(report) == "skipped"


def test_the_runner_is_started_with_this_python() -> None:
    assert pathlib.Path(sys.executable).exists()
