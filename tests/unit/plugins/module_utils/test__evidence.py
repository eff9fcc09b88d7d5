# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folder of evidence: who can look into it, how large it becomes, and what is left when a part fails."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import stat
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _evidence
from ansible_collections.cleanslate.gpu.plugins.module_utils._evidence import (
    Evidence,
    Found,
    Part,
    Piece,
    Request,
    take_evidence,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.gate_world import Clock

KEY = "sk-0123456789abcdefghij"
REQUEST = Request("r1", "sglang.service", "", keep=3, max_bytes=1 << 20, timeout=60)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "cleanslate"


def part(name: str, *pieces: Piece, seconds: float = 10, **fields: t.Any) -> Part:
    return Part(name, f"the {name}", seconds, lambda dummy: Found(pieces, **fields))


def take(folder: pathlib.Path, *parts: Part, clock: Clock | None = None, check: bool = False, **f: t.Any) -> Evidence:
    request = dataclasses.replace(REQUEST, folder=str(folder), **f)
    return take_evidence(request, parts, clock or Clock(), check=check)


def index(evidence: Evidence) -> dict[str, t.Any]:
    assert evidence.path is not None
    found: dict[str, t.Any] = json.loads((pathlib.Path(evidence.path) / "index.json").read_text())
    return found


def mode(path: pathlib.Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_can_look_into_it_and_no_secret_stands_in_it(folder: pathlib.Path) -> None:
    before = os.umask(0)
    try:
        done = take(folder, part("log", Piece("log.txt", f"--api-key {KEY}\n")), part("unit", error=f"token={KEY}"))
    finally:
        os.umask(before)
    path = folder / "evidence" / "r1-sglang.service"
    assert (done.verdict, done.path) == ("partial", str(path))
    assert [mode(one) for one in (folder, path.parent, path, path / "log.txt", path / "index.json")] == [
        0o755, 0o700, 0o700, 0o600, 0o600,
    ]  # fmt: skip
    assert (path / "log.txt").read_text() == "--api-key ********\n"
    assert KEY not in (path / "index.json").read_text() + done.reason


def test_a_part_that_fails_is_an_entry_and_the_rest_is_taken(folder: pathlib.Path) -> None:
    def broken(dummy: float) -> Found:
        raise OSError(5, "Input/output error")

    done = take(
        folder,
        Part("kernel", "kernel lines", 5, broken),
        part("py_spy", skipped="py-spy is not installed"),
        part("unit", Piece("unit.txt", "Id=x\n"), error="half of it"),
        part("memory", Piece("memory.txt", "MemFree: 1 kB\n")),
    )
    assert done.verdict == "partial"
    assert "2 of 4" not in done.reason
    assert "1 of 4 parts" in done.reason
    assert "kernel ([Errno 5] Input/output error)" in done.reason
    found = {entry["part"]: (entry["ok"], entry["error"], entry["files"]) for entry in index(done)["parts"]}
    assert found == {
        "kernel": (False, "[Errno 5] Input/output error", []),
        "py_spy": (None, "py-spy is not installed", []),
        "unit": (False, "half of it", ["unit.txt"]),
        "memory": (True, None, ["memory.txt"]),
    }
    assert [entry.as_dict() for entry in done.parts] == index(done)["parts"]


def test_what_does_not_apply_is_no_failure(folder: pathlib.Path) -> None:
    assert take(folder, part("py_spy", skipped="not installed"), part("m", Piece("m", "x"))).verdict == "taken"


def test_each_part_gets_its_own_seconds_and_all_of_them_the_timeout(folder: pathlib.Path) -> None:
    clock, given = Clock(), []

    def slow(seconds: float) -> Found:
        given.append(seconds)
        clock.sleep(seconds)
        return Found()

    parts = [Part(f"p{number}", "", 25, slow) for number in range(4)]
    done = take(folder, *parts, clock=clock)
    assert given == [25, 25, 10]
    assert [entry.ok for entry in done.parts] == [True, True, True, False]
    assert "no time was left" in done.parts[3].error


def test_an_interrupted_collection_leaves_what_it_has(folder: pathlib.Path) -> None:
    def killed(dummy: float) -> Found:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(folder, part("memory", Piece("m.txt", "x")), Part("log", "", 5, killed))
    path = folder / "evidence" / "r1-sglang.service"
    assert [entry["part"] for entry in json.loads((path / "index.json").read_text())["parts"]] == ["memory"]


def test_it_never_becomes_larger_than_allowed(folder: pathlib.Path) -> None:
    long = "".join(f"{number:07d}\n" for number in range(30000))  # 240 kB
    done = take(
        folder,
        part("processes", Piece("p.txt", "a" * 1000)),
        part("log", Piece("log.txt", long, tail=True)),
        part("late", Piece("late.txt", "b" * 1000)),
        max_bytes=1 << 17,
    )
    path = folder / "evidence" / "r1-sglang.service"
    assert sum(one.stat().st_size for one in path.iterdir()) <= 1 << 17
    assert (path / "log.txt").read_text().endswith("0029999\n"), "of a log the end counts"
    assert "cut here" in (path / "log.txt").read_text()
    assert [(entry.ok, entry.cut) for entry in done.parts] == [(True, False), (True, True), (False, False)]
    assert "no room was left for late.txt" in done.parts[2].error
    head = take(folder, part("p", Piece("p.txt", long)), max_bytes=1 << 17, run_id="r2")
    assert pathlib.Path(str(head.path), "p.txt").read_text().startswith("0000000\n")


def test_the_same_run_may_take_it_again(folder: pathlib.Path) -> None:
    names = [os.path.basename(str(take(folder).path)) for dummy in range(3)]
    assert names == ["r1-sglang.service", "r1-sglang.service.2", "r1-sglang.service.3"]


def test_old_folders_go_and_what_is_not_ours_stays(folder: pathlib.Path) -> None:
    for number in range(5):
        done = take(folder, part("m", Piece("m.txt", "x")), run_id=f"r{number}", keep=10)
        os.utime(str(done.path), (1000 + number, 1000 + number))
    base = folder / "evidence"
    (base / "notes").mkdir()
    (base / "notes" / "mine.txt").write_text("a person's")
    (base / "link").symlink_to(base / "r4-sglang.service")
    done = take(folder, run_id="r9", keep=3)
    assert done.pruned == ("r0-sglang.service", "r1-sglang.service", "r2-sglang.service")
    assert sorted(one.name for one in base.iterdir()) == [
        "link", "notes", "r3-sglang.service", "r4-sglang.service", "r9-sglang.service",
    ]  # fmt: skip


def test_check_mode_looks_at_nothing(folder: pathlib.Path) -> None:
    def never(dummy: float) -> Found:
        raise AssertionError("it looked")

    done = take(folder, Part("log", "the end of /var/log/x", 5, never), check=True)
    assert (done.verdict, done.path) == ("would_take", str(folder / "evidence" / "r1-sglang.service"))
    assert "the end of /var/log/x" in done.reason
    assert not folder.exists()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"run_id": "../etc"}, "run_id is '../etc'"),
        ({"run_id": ".hidden"}, "run_id is '.hidden'"),
        ({"unit": "a/b"}, "unit is 'a/b'"),
        ({"unit": ""}, "unit is ''"),
        ({"keep": 0}, "keep is 0"),
        ({"max_bytes": 5}, "max_bytes is 5"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": float("nan")}, "timeout is nan"),
    ],
)
def test_what_cannot_be_meant_is_refused(folder: pathlib.Path, fields: dict[str, t.Any], text: str) -> None:
    done = take(folder, **fields)
    assert (done.verdict, done.failed) == ("refused", True)
    assert text in done.reason
    assert not folder.exists()


def test_a_folder_that_others_can_look_into_is_refused(folder: pathlib.Path) -> None:
    (folder / "evidence").mkdir(parents=True)
    (folder / "evidence").chmod(0o755)
    done = take(folder)
    assert done.verdict == "not_taken"
    assert "has the mode 0755" in done.reason
    (folder / "evidence").rmdir()
    (folder / "evidence").symlink_to("/tmp")
    assert take(folder).verdict == "not_taken"


def test_a_full_disk_is_told(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fdopen = os.fdopen

    class Full:
        def write(self, dummy: bytes) -> None:
            raise OSError(28, "No space left on device")

    @contextlib.contextmanager
    def full(handle: int, how: str) -> t.Iterator[Full]:
        with fdopen(handle, how):
            yield Full()

    monkeypatch.setattr(_evidence.os, "fdopen", full)
    done = take(folder, part("m", Piece("m.txt", "x")))
    assert (done.verdict, done.failed) == ("not_taken", True)
    assert "df -h" in done.reason
    assert not list((folder / "evidence" / "r1-sglang.service").iterdir()), "no half files"
