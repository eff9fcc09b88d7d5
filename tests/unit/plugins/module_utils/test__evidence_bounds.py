# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How much evidence is kept, how long it may take, and what the index says of each part."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _evidence
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._evidence import (
    Evidence,
    Found,
    Part,
    Piece,
    Request,
    take_evidence,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.gate_world import Clock

SMALLEST = 1 << 16


def request(folder: pathlib.Path, **changes: t.Any) -> Request:
    given: dict[str, t.Any] = {"keep": 3, "max_bytes": 1 << 20, "timeout": 60.0, **changes}
    return Request("r1", "sglang.service", str(folder), **given)


def take(folder: pathlib.Path, *parts: Part, clock: Clock | None = None, **changes: t.Any) -> Evidence:
    return take_evidence(request(folder, **changes), parts, clock or Clock())


def part(name: str, *pieces: Piece, **fields: t.Any) -> Part:
    return Part(name, f"the {name}", 10, lambda dummy: Found(pieces, **fields))


def index(evidence: Evidence) -> dict[str, t.Any]:
    found: dict[str, t.Any] = json.loads((pathlib.Path(evidence.path or "") / "index.json").read_text())
    return found


@pytest.mark.parametrize(
    ("name", "least", "most", "below", "above"),
    [
        ("keep", 1, 1000, 0, 1001),
        ("max_bytes", SMALLEST, 1 << 40, SMALLEST - 1, (1 << 40) + 1),
        ("timeout", 0.001, 3600.0, 0.0, 3600.5),
    ],
)
def test_the_bounds_themselves_can_be_meant(
    tmp_path: pathlib.Path, name: str, least: t.Any, most: t.Any, below: t.Any, above: t.Any
) -> None:
    assert [request(tmp_path, **{name: one}).refusal() for one in (least, most)] == [None, None]
    for one in (below, above):
        said = request(tmp_path, **{name: one}).refusal()
        assert said is not None
        assert said.startswith(f"{name} is ")


def test_the_index_says_what_was_taken_how_long_it_took_and_how_much_it_is(tmp_path: pathlib.Path) -> None:
    clock = Clock()

    def slow(dummy: float) -> Found:
        clock.sleep(1.23449)
        return Found((Piece("a.txt", "four"), Piece("b.txt", "seven..")))

    def missing(dummy: float) -> Found:
        clock.sleep(0.5)
        return Found(skipped="not installed")

    done = take(tmp_path / "log", Part("log", "", 10, slow), Part("tool", "", 10, missing), clock=clock)
    found = index(done)
    assert (found["version"], found["run_id"], found["unit"]) == (1, "r1", "sglang.service")
    log, tool = found["parts"]
    assert (log["seconds"], log["bytes"], log["cut"], log["files"]) == (1.234, 11, False, ["a.txt", "b.txt"])
    assert (tool["ok"], tool["seconds"], tool["bytes"], tool["cut"]) == (None, 0.5, 0, False)
    assert done.reason.endswith(": 1 of 2 parts in 1.7 s.")


@pytest.mark.parametrize("error", [OSError(5, "no answer"), ValueError("no answer"), KeyError("no answer")])
def test_a_part_that_fails_does_not_end_the_others(tmp_path: pathlib.Path, error: Exception) -> None:
    def broken(dummy: float) -> Found:
        raise error

    done = take(tmp_path / "log", Part("kernel", "", 5, broken), part("memory", Piece("m.txt", "x")))
    assert [entry.ok for entry in done.parts] == [False, True]
    assert "no answer" in done.reason


@pytest.mark.parametrize(("length", "end"), [(200, ")."), (201, "…).")])
def test_a_long_error_is_whole_in_the_index_and_short_in_the_sentence(
    tmp_path: pathlib.Path, length: int, end: str
) -> None:
    done = take(tmp_path / "log", part("kernel", error="x " * 100 + "y" * (length - 200)))
    assert done.reason.endswith(end)
    assert len(index(done)["parts"][0]["error"]) == length


def test_the_sentence_of_the_last_second_is_still_taken(tmp_path: pathlib.Path) -> None:
    clock = Clock()

    def slow(dummy: float) -> Found:
        clock.sleep(59.5)
        return Found()

    done = take(tmp_path / "log", Part("slow", "", 60, slow), part("last", Piece("l.txt", "x")), clock=clock)
    assert [entry.ok for entry in done.parts] == [True, True]


class TestTheLimit:
    """max_bytes, of which a quarter of the smallest is the index's"""

    ROOM = SMALLEST - (SMALLEST >> 2)

    def written(self, folder: pathlib.Path, *pieces: Piece) -> Evidence:
        return take(folder / "log", part("log", *pieces), max_bytes=SMALLEST)

    def test_what_just_fits_is_whole(self, tmp_path: pathlib.Path) -> None:
        (entry,) = self.written(tmp_path, Piece("a.txt", "a " * (self.ROOM // 2))).parts
        assert (entry.ok, entry.cut, entry.bytes) == (True, False, self.ROOM)

    def test_of_what_does_not_the_beginning_or_the_end_is_kept(self, tmp_path: pathlib.Path) -> None:
        text = "first " + "- " * self.ROOM + " last"
        for number, (tail, has, lacks) in enumerate([(False, "first ", " last"), (True, " last", "first ")]):
            place = tmp_path / str(number)
            place.mkdir()
            done = self.written(place, Piece("a.txt", text, tail=tail))
            (entry,) = done.parts
            kept = (pathlib.Path(done.path or "") / "a.txt").read_text()
            assert (entry.cut, entry.bytes, len(kept)) == (True, self.ROOM, self.ROOM)
            assert has in kept
            assert lacks not in kept
            assert "cut here: the limit" in kept

    def test_what_has_no_room_at_all_is_told(self, tmp_path: pathlib.Path) -> None:
        first = Piece("a.txt", "a " * (self.ROOM // 2))
        (entry,) = self.written(tmp_path, first, Piece("b.txt", "b " * 100)).parts
        assert (entry.ok, entry.error) == (False, "no room was left for b.txt (max_bytes)")
        assert (entry.bytes, entry.cut, entry.files) == (self.ROOM, False, ("a.txt",))


class TestFolders:
    """Which are made, and which go"""

    def test_so_many_of_one_run_and_no_more(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_evidence, "_MOST_OF_ONE_RUN", 3)
        names = [pathlib.Path(take(tmp_path / "log").path or "").name for dummy in range(3)]
        assert names == ["r1-sglang.service", "r1-sglang.service.2", "r1-sglang.service.3"]
        done = take(tmp_path / "log")
        assert done.verdict == "not_taken"
        assert "there are 3 folders" in done.reason

    def test_a_folder_that_cannot_be_made_is_told(
        self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        take(tmp_path / "log")
        real = os.mkdir

        def full(path: t.Any, *given: t.Any, **named: t.Any) -> None:
            if str(path).startswith("r1-"):
                raise OSError(28, "No space left on device")
            real(path, *given, **named)

        monkeypatch.setattr(_evidence.os, "mkdir", full)
        done = take(tmp_path / "log")
        assert done.verdict == "not_taken"
        assert "No space left on device" in done.reason

    @pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
    @pytest.mark.parametrize(("owner", "mode", "taken"), [(0, 0o700, True), (1, 0o700, False), (0, 0o701, False)])
    def test_whose_the_folder_must_be(self, tmp_path: pathlib.Path, owner: int, mode: int, taken: bool) -> None:
        (tmp_path / "log/evidence").mkdir(parents=True)
        (tmp_path / "log").chmod(0o755)
        os.chown(tmp_path / "log/evidence", owner, 0)
        (tmp_path / "log/evidence").chmod(mode)
        assert (take(tmp_path / "log").verdict == "taken") is taken

    def old(self, tmp_path: pathlib.Path, *names: str) -> pathlib.Path:
        base = tmp_path / "log/evidence"
        for age, name in enumerate(names):
            (base / name).mkdir(parents=True)
            os.utime(base / name, (1e9 + age, 1e9 + age))
        (tmp_path / "log").chmod(0o755)
        base.chmod(0o700)
        return base

    def test_the_oldest_go_and_what_is_no_folder_hides_none(self, tmp_path: pathlib.Path) -> None:
        base = self.old(tmp_path, "a", "b", "c")
        for name in ("0-file", "aa-file", "z-file"):
            (base / name).write_text("x")
        done = take(tmp_path / "log", keep=2)
        assert done.pruned == ("a", "b")
        assert sorted(os.listdir(base)) == ["0-file", "aa-file", "c", "r1-sglang.service", "z-file"]

    def test_one_that_cannot_be_removed_does_not_keep_the_next(
        self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        base, real = self.old(tmp_path, "a", "b", "c"), shutil.rmtree

        def stubborn(path: str) -> None:
            if path.endswith("/a"):
                raise OSError(16, "Device or resource busy")
            real(path)

        monkeypatch.setattr(_evidence.shutil, "rmtree", stubborn)
        assert take(tmp_path / "log", keep=1).pruned == ("b", "c")
        assert "a" in os.listdir(base)


def test_what_takes_too_long_to_mask_is_left_out_and_said(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(text: str) -> str:
        if "slow" in text:
            time.sleep(5)
        return text.replace("secret", "masked")

    monkeypatch.setattr(_evidence, "redact", slow)
    monkeypatch.setattr(_evidence, "_MASKING", 0.3)
    fill = "x" * (1 << 17)
    pieces = (Piece("a.txt", f"secret {fill}"), Piece("b.txt", f"slow secret {fill}"), Piece("c.txt", "secret"))
    began = time.monotonic()
    parts = [Part("log", "the log", 0.2, lambda dummy: Found(pieces)), part("next", Piece("d.txt", "secret"))]
    found = take_evidence(request(tmp_path), parts, SystemClock())
    assert time.monotonic() - began < 3
    log, following = found.parts
    assert log.error == "; ".join(
        f"{name} was left out: its secrets were not masked within 0.3 s, and unmasked it is not kept"
        for name in ("b.txt", "c.txt")
    )
    assert (log.ok, log.files, following.ok) == (False, ("a.txt",), True)
    folder = pathlib.Path(found.path or "")
    assert sorted(file.name for file in folder.iterdir()) == ["a.txt", "d.txt", "index.json"]
    assert "secret" not in "".join((folder / name).read_text() for name in ("a.txt", "d.txt"))


def test_what_a_part_brought_is_masked_even_when_its_time_is_used_up(tmp_path: pathlib.Path) -> None:
    clock = Clock()
    text = "api_key=hidden\n" + "x\n" * (1 << 16)

    def last_moment(seconds: float) -> Found:
        clock.sleep(seconds)
        return Found((Piece("a.txt", text),))

    found = take(tmp_path, Part("log", "the log", 10, last_moment), clock=clock)
    assert found.parts[0].ok, found.parts
    kept = (pathlib.Path(found.path or "") / "a.txt").read_text()
    assert "hidden" not in kept
    assert len(kept) > len(text) - 20
