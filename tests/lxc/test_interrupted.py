# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`up` that is cut off at some moment: `down` leaves nothing, and a second `up` works."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import layout
import pytest
import teardown
from inside import HARNESS, harness


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*HARNESS, "up", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def until(process: subprocess.Popen[str], word: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if word in line:
            return
    raise AssertionError(f"up ended before it said {word!r}")


@pytest.fixture(autouse=True)
def nothing_is_up():
    if layout.read_marker() is not None:
        pytest.skip("the played host is up (harness.py down takes it down), and these tests need it down")
    assert teardown.remains() == []
    yield
    harness("down")


def test_down_where_nothing_is():
    done = harness("down")
    assert done.returncode == 0
    assert "nothing to take down" in done.stderr


# "root file system" with an empty cache is the middle of mmdebstrap; the rest: half a host, half-started containers.
@pytest.mark.parametrize(
    ("said", "later", "fresh"), [("root file system", 8.0, True), ("GPUs", 0.3, False), ("containers", 0.1, False),
                                 ("containers", 0.6, False)],
)  # fmt: skip
def test_kill_9_in_the_middle_of_up(said, later, fresh, tmp_path):
    process = start(*(["--cache", str(tmp_path)] if fresh else []))
    until(process, said)
    time.sleep(later)
    assert process.poll() is None
    process.kill()
    process.wait()
    assert teardown.remains() != []
    done = harness("down")
    assert done.returncode == 0, done.stderr
    assert teardown.remains() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_takes_down_what_was_made(number):
    process = start()
    until(process, "containers")
    process.send_signal(number)
    assert process.wait(120) == 128 + number
    assert teardown.remains() == []


def test_what_others_made_is_left_alone():
    os.makedirs(layout.STATE)
    try:
        stranger = os.path.join(layout.STATE, "somebody's file")
        with open(stranger, "w", encoding="ascii"):
            pass
        done = harness("up")
        assert done.returncode == 1
        assert "not made by this harness" in done.stderr
        assert harness("down").returncode == 1, "it is still there, and down says so"
        assert os.path.exists(stranger)
    finally:
        os.unlink(stranger)
        os.rmdir(layout.STATE)


def test_a_second_up_works_after_a_killed_one():
    process = start()
    until(process, "containers")
    process.kill()
    process.wait()
    again = harness("up")
    assert again.returncode == 0, again.stderr
    assert harness("status").returncode == 0
    assert harness("down").returncode == 0
    assert teardown.remains() == []
