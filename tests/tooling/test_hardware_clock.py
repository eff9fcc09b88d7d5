# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What releases on real GPUs are measured against: the driver's own time, to the end of what it held back."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
import types
import typing as t

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "hardware"))

import real_gpus

BLOCKED_S = 0.3


@pytest.fixture
def sleeper() -> t.Iterator[int]:
    with subprocess.Popen(["sleep", "60"]) as child:
        yield child.pid
        child.kill()


def machine() -> t.Any:
    return types.SimpleNamespace(alive=lambda pid: real_gpus.Machine.alive(t.cast("t.Any", None), pid))


def test_what_the_driver_holds_back_is_its_time(sleeper: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers NVML only once it has unpinned: the answer is as old as its end, not as its question."""

    class Unpinning:
        def used(self) -> list[int]:
            time.sleep(BLOCKED_S)
            return [0]

        def close(self) -> None:
            pass

    monkeypatch.setattr(real_gpus, "Nvml", Unpinning)
    empty, ended = real_gpus.drivers_own_time(machine(), [sleeper])
    assert BLOCKED_S <= empty <= ended


def test_a_thread_that_ends_meanwhile_says_nothing_about_the_others(
    sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "listdir", lambda path: ["999999999", str(sleeper)])
    assert machine().alive(sleeper)
