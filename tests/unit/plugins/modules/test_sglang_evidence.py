# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as a real process, with commands that play a machine."""

from __future__ import annotations

import os
import pathlib
import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.tests.unit.plugins import module_process

KEYS = {"changed", "verdict", "reason", "path", "parts", "pruned"}
# Ansible adds these wherever a module returns a path that exists.
ADDED = {"uid", "gid", "owner", "group", "mode", "state", "size", "secontext"}
PARTS = [
    "unit", "memory", "kernel", "log", "journal", "processes", "py_spy", "gpus", "holders", "nvidia_smi", "space",
]  # fmt: skip
KEY = "sk-0123456789abcdefghij"


class Host:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.dir = folder / "log"
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.log = folder / "sglang.log"
        self.log.write_text(f"server_args=ServerArgs(api_key='{KEY}')\nfired up\n")
        for name in ("systemctl", "journalctl", "dmesg"):
            self.command(name, f"echo {name} TOKEN={KEY}")
        self.command("nvidia-smi", "exit 9")

    def command(self, name: str, line: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{line}\n")
        (self.bin / name).chmod(0o755)

    def run(self, **options: t.Any) -> dict[str, t.Any]:
        options = {"run_id": "r1", "unit": "sglang.service", "dir": str(self.dir), "log_file": str(self.log), **options}
        path = f"{self.bin}:{os.environ['PATH']}"
        answer = module_process.run("sglang_evidence", self.folder, options, PATH=path)
        assert set(answer) - ADDED - {"msg", "failed", "invocation"} == KEYS
        return answer


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


def test_a_folder_is_taken_without_a_secret_in_it(host: Host) -> None:
    would = host.run(_ansible_check_mode=True)
    assert (would["verdict"], would["changed"], host.dir.exists()) == ("would_take", True, False)
    assert [part["part"] for part in would["parts"]] == PARTS

    taken = host.run()
    assert (taken["verdict"], taken["changed"]) == ("partial", True)
    folder = pathlib.Path(taken["path"])
    assert [part["part"] for part in taken["parts"]] == PARTS
    files = {file for part in taken["parts"] for file in part["files"]}
    assert files == {path.name for path in folder.iterdir()} - {"index.json"}
    assert {"unit.txt", "journal.txt", "log.txt", "kernel.txt", "memory.txt"} <= files
    everything = "".join(path.read_text() for path in folder.iterdir())
    assert KEY not in everything
    assert "fired up" in everything


def test_what_hangs_does_not_hold_it_up(host: Host) -> None:
    host.command("journalctl", "exec sleep 600")
    host.command("systemctl", "exec sleep 600")
    began = time.monotonic()
    taken = host.run(timeout=6)
    assert time.monotonic() - began < 30
    state = {part["part"]: part["ok"] for part in taken["parts"]}
    assert taken["verdict"] == "partial"
    assert (state["processes"], state["journal"]) == (False, False)


@pytest.mark.parametrize(
    ("options", "verdict", "part"),
    [
        ({"run_id": "a/b"}, "refused", "run_id is 'a/b'"),
        ({"smi_timeout": 0}, "refused", "smi_timeout is 0"),
        ({"scope": "lxc"}, "refused", "lxc is empty"),
        ({"dir": "/proc/cleanslate"}, "not_taken", "cannot make the folder /proc/cleanslate"),
    ],
)
def test_refusals_return_the_same_keys(host: Host, options: dict[str, t.Any], verdict: str, part: str) -> None:
    answer = host.run(**options)
    assert (answer["failed"], answer["verdict"], answer["changed"], answer["path"]) == (True, verdict, False, None)
    assert part in answer["msg"]
