# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the guard leaves for others: verdict, numbers, words."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import socket
import stat
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _start_guard_record
from ansible_collections.cleanslate.gpu.plugins.module_utils._start_guard_record import (
    FolderRefused,
    GuardFolder,
    GuardRecord,
    Voice,
)

RECORD = GuardRecord(
    unit="sglang.service",
    verdict="refused",
    reason="Somebody computes.",
    boot_id="boot-1",
    invocation_id="abc",
    pid=7,
    started_at=1.5,
    updated_at=2.5,
    refused_count=3,
)
KEYS = {
    "unit", "verdict", "reason", "boot_id", "invocation_id", "pid", "started_at", "updated_at", "gate", "waited_s",
    "refused_count", "gpus", "holders", "leftovers",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> GuardFolder:
    made = GuardFolder(str(tmp_path / "guard"), "sglang.service")
    made.prepare()
    return made


def mode(path: str | pathlib.Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_everybody_can_read_it_and_only_its_owner_write_whatever_the_umask(tmp_path: pathlib.Path) -> None:
    before = os.umask(0o077)
    try:
        folder = GuardFolder(str(tmp_path / "guard"), "sglang.service")
        folder.prepare()
        folder.write(RECORD)
        folder.write_environment("2,3")
    finally:
        os.umask(before)
    assert mode(tmp_path / "guard") == 0o755
    assert mode(folder.verdict_path) == 0o644
    assert mode(folder.environment_path) == 0o644
    assert sorted(os.listdir(tmp_path / "guard")) == ["sglang.service.env", "sglang.service.json"], "nothing half done"


def test_the_verdict_has_the_same_keys_always(folder: GuardFolder) -> None:
    folder.write(RECORD)
    with open(folder.verdict_path, encoding="utf-8") as file:
        assert set(json.load(file)) == KEYS


def test_a_name_that_is_no_text_is_written_all_the_same(folder: GuardFolder) -> None:
    folder.write(dataclasses.replace(RECORD, reason="pid 5 (\udcff)"))
    with open(folder.verdict_path, encoding="utf-8") as file:
        assert "pid 5" in json.load(file)["reason"]


def test_refusals_are_counted_within_one_boot(folder: GuardFolder) -> None:
    assert folder.refusals("boot-1") == 0
    folder.write(RECORD)
    assert folder.refusals("boot-1") == 3
    assert folder.refusals("boot-2") == 0
    assert folder.refusals("") == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"boot_id": "boot-1"}',
        '{"boot_id": "boot-1", "refused_count": "9"}',
        '{"boot_id": "boot-1", "refused_count": -2}',
        '{"boot_id": "boot-1", "refused_count": true}',
    ],
)
def test_a_record_that_cannot_be_understood_counts_as_none(folder: GuardFolder, text: str) -> None:
    pathlib.Path(folder.verdict_path).write_text(text)
    assert folder.refusals("boot-1") == 0


def test_no_numbers_leave_no_file_of_an_earlier_start(folder: GuardFolder) -> None:
    folder.write_environment("0,1")
    assert (
        pathlib.Path(folder.environment_path).read_text() == "CUDA_DEVICE_ORDER=PCI_BUS_ID\nCUDA_VISIBLE_DEVICES=0,1\n"
    )
    folder.write_environment(None)
    assert not os.path.exists(folder.environment_path)
    folder.write_environment(None)


def test_a_folder_that_others_can_write_in_is_refused(tmp_path: pathlib.Path) -> None:
    """The server would get its environment from it."""
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard").chmod(0o777)
    with pytest.raises(FolderRefused, match="mode 0777"):
        GuardFolder(str(tmp_path / "guard"), "sglang.service").prepare()


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "guard").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FolderRefused):
        GuardFolder(str(tmp_path / "guard"), "sglang.service").prepare()


@pytest.mark.parametrize(("count", "counted"), [(0, 0), (1, 1), (2, 2), (None, 0)])
def test_what_counts_as_a_refusal(folder: GuardFolder, count: t.Any, counted: int) -> None:
    folder.write(dataclasses.replace(RECORD, refused_count=count))
    assert folder.refusals("boot-1") == counted
    assert folder.refusals("boot-2") == 0


def test_a_link_in_place_of_the_record_is_not_followed(folder: GuardFolder, tmp_path: pathlib.Path) -> None:
    folder.write(RECORD)
    os.rename(folder.verdict_path, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", folder.verdict_path)
    assert folder.refusals("boot-1") == 0


def test_the_same_record_is_the_same_text(folder: GuardFolder) -> None:
    folder.write(RECORD)
    lines = pathlib.Path(folder.verdict_path).read_text().splitlines()
    assert lines[1:-1] == sorted(lines[1:-1])
    assert lines[1].startswith(' "')
    assert dataclasses.replace(RECORD).waited_s == 0.0


def test_a_fresh_record_has_neither_waited_nor_refused() -> None:
    made = GuardRecord("x", "waiting", "", "b", "i", 7, 1.0, 2.0)
    assert (made.waited_s, made.refused_count) == (0.0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize(("owner", "mode"), [(65534, 0o755), (0, 0o775), (0, 0o757)])
def test_a_folder_that_is_not_ours_alone_is_refused(tmp_path: pathlib.Path, owner: int, mode: int) -> None:
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard").chmod(mode)
    os.chown(tmp_path / "guard", owner, 0)
    with pytest.raises(FolderRefused, match=f"it belongs to {owner}, mode {mode:04o}"):
        GuardFolder(str(tmp_path / "guard"), "sglang.service").prepare()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderRefused, match="cannot make the folder"):
        GuardFolder(str(tmp_path / "file" / "guard"), "sglang.service").prepare()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_record_that_could_not_be_written_leaves_the_old_one_and_nothing_else(
    folder: GuardFolder, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write(RECORD)

    def fail(handle: int, mode: int) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(os, "fchmod", fail)
        with pytest.raises(type(error)):
            folder.write(dataclasses.replace(RECORD, refused_count=9))
    assert folder.refusals("boot-1") == 3
    assert os.listdir(os.path.dirname(folder.verdict_path)) == ["sglang.service.json"]


# -- words -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path: pathlib.Path) -> t.Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.bind(str(tmp_path / "journal"))
        there.settimeout(5)
        yield there


def test_under_systemd_it_speaks_to_the_journal_and_not_to_the_servers_log(
    journal: socket.socket, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    voice = Voice("sglang.service", {"INVOCATION_ID": "abc"}, str(tmp_path / "journal"))
    voice.say("refuses:\nMESSAGE=forged", warning=True)
    assert journal.recv(4096).decode().splitlines() == [
        "MESSAGE=refuses: MESSAGE=forged",
        "PRIORITY=4",
        "SYSLOG_IDENTIFIER=cleanslate-guard",
        "OBJECT_SYSTEMD_UNIT=sglang.service",
    ]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "environment", [{}, {"INVOCATION_ID": "abc", "JOURNAL_STREAM": "8:1"}], ids=["no systemd", "stderr is the journal"]
)
def test_elsewhere_it_speaks_on_standard_error(
    journal: socket.socket, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], environment: dict[str, str]
) -> None:
    Voice("sglang.service", environment, str(tmp_path / "journal")).say("waits")
    assert capsys.readouterr().err == "start guard of sglang.service: waits\n"


def test_a_journal_that_does_not_listen_loses_no_word(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "journal").touch()
    Voice("sglang.service", {"INVOCATION_ID": "abc"}, str(tmp_path / "journal")).say("waits")
    assert "waits" in capsys.readouterr().err


def test_the_journals_socket_is_systemds() -> None:
    assert _start_guard_record._JOURNAL == "/run/systemd/journal/socket"


def test_what_is_no_warning_is_information(journal: socket.socket, tmp_path: pathlib.Path) -> None:
    Voice("sglang.service", {"INVOCATION_ID": "abc"}, str(tmp_path / "journal")).say("waits")
    assert "PRIORITY=6" in journal.recv(4096).decode().splitlines()


def test_a_journal_that_does_not_read_on_keeps_no_server_down(
    journal: socket.socket, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    voice = Voice("sglang.service", {"INVOCATION_ID": "abc"}, str(tmp_path / "journal"))
    for dummy in range(2000):  # until its socket is full
        voice.say("x" * 1000)
        if capsys.readouterr().err:
            break
    else:
        raise AssertionError("the socket never filled")
