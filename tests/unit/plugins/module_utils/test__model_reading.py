# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import pwd
import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._model_files import ModelReading
from ansible_collections.cleanslate.gpu.plugins.module_utils._model_reading import ModelReader, become
from ansible_collections.cleanslate.gpu.plugins.module_utils._service_account import Account, find_account
from ansible_collections.cleanslate.gpu.tests.simulator import model_folder

Steps = t.Generator[str, None, ModelReading]


def reader(account: Account | None = None, **changes: t.Any) -> ModelReader:
    return ModelReader(SystemClock(), account=account, **{"timeout": 20.0, "stall": 10.0, **changes})


def test_it_brings_back_what_was_read(tmp_path: pathlib.Path) -> None:
    model_folder.make(str(tmp_path))
    found = reader()(str(tmp_path), "auto")
    assert found.whole
    assert found.config["vocab_size"] == 151936


def test_a_mount_that_does_not_answer_is_named(tmp_path: pathlib.Path) -> None:
    def hangs(path: str, load_format: str) -> Steps:
        yield path
        yield f"{path}/config.json"
        time.sleep(60)
        return ModelReading(path)

    began = time.monotonic()
    found = reader(stall=0.5, inspector=hangs)("/mnt/models/x", "auto")
    assert found.blocked == "/mnt/models/x/config.json did not answer within 0.5 s"
    assert not found.whole
    assert time.monotonic() - began < 20


def test_slow_but_steady_has_an_end_too() -> None:
    def steady(path: str, load_format: str) -> Steps:
        for number in range(10_000):
            yield f"{path}/{number}"
            time.sleep(0.05)
        return ModelReading(path)

    found = reader(timeout=1.0, stall=0.9, inspector=steady)("/m", "auto")
    assert found.blocked.endswith("did not answer within 1 s for the whole folder")


def test_a_reader_that_fails_says_so() -> None:
    def fails(path: str, load_format: str) -> Steps:
        yield path
        raise MemoryError("no room")

    found = reader(inspector=fails)("/m", "auto")
    assert [flaw.kind for flaw in found.flaws] == ["broken"]
    assert "MemoryError: no room" in found.flaws[0].what


def test_a_folder_is_read_once_for_each_format(tmp_path: pathlib.Path) -> None:
    model_folder.make(str(tmp_path))
    look = reader()
    first = look(str(tmp_path), "auto")
    assert look(str(tmp_path), "auto") is first
    assert look(str(tmp_path), "dummy").weights == ()


@pytest.mark.parametrize(
    ("who", "account", "done"),
    [
        (0, Account("sglang", 1, frozenset({7, 2}), 2), [("groups", [2, 7]), ("gid", 2), ("uid", 1)]),
        (0, Account("root", 0, frozenset({0}), 0), []),
        (0, None, []),
        (1000, Account("sglang", 1, frozenset({2}), 2), []),
    ],
)
def test_root_becomes_the_service_user_groups_first_and_nobody_else_tries(
    monkeypatch: pytest.MonkeyPatch, who: int, account: Account | None, done: list[t.Any]
) -> None:
    calls: list[t.Any] = []
    monkeypatch.setattr(os, "geteuid", lambda: who)
    monkeypatch.setattr(os, "setgroups", lambda groups: calls.append(("groups", groups)))
    monkeypatch.setattr(os, "setgid", lambda gid: calls.append(("gid", gid)))
    monkeypatch.setattr(os, "setuid", lambda uid: calls.append(("uid", uid)))
    become(account)
    assert calls == done


def test_it_sees_what_the_service_user_sees(tmp_path: pathlib.Path) -> None:
    model_folder.make(str(tmp_path / "m"))
    (tmp_path / "m").chmod(0)
    try:
        # Root is told what the server's user may; anybody else only what it may itself.
        account = find_account("nobody") if os.geteuid() == 0 else find_account(pwd.getpwuid(os.geteuid()).pw_name)
        found = reader(account)(str(tmp_path / "m"), "auto")
    finally:
        (tmp_path / "m").chmod(0o755)
    assert [flaw.kind for flaw in found.flaws] == ["closed"]
