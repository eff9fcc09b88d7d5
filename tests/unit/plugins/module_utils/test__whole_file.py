# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A small file is read as a whole or not at all, and replaced so that nobody sees half of it."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _whole_file
from ansible_collections.cleanslate.gpu.plugins.module_utils._whole_file import Unreadable, read_document, replace

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "state.json"
    path.write_text('{"a": 1}')
    return path


def why(path: t.Any) -> str:
    with pytest.raises(Unreadable) as caught:
        read_document(str(path))
    return str(caught.value)


def test_a_document_or_none_where_there_is_no_file(file: pathlib.Path) -> None:
    assert read_document(str(file)) == {"a": 1}
    assert read_document(str(file.with_name("none"))) is None
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        assert read_document(file.name, folder) == {"a": 1}
    finally:
        os.close(folder)


def test_what_is_in_the_way_is_told(file: pathlib.Path) -> None:
    link, fifo = file.with_name("link"), file.with_name("fifo")
    link.symlink_to(file)
    os.mkfifo(fifo)
    assert why(link) == "it is a symbolic link"
    assert why(fifo) == "it is no regular file; look at what it is and remove it"
    assert why(file.parent) == "it is no regular file; look at what it is and remove it"
    assert why(file / "below") == "Not a directory"
    assert why("/none/cut\0off").startswith("there can be no such path: ")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"null", "it says null"),
        (b"{", "it is not the JSON that was written here ("),
        (b"", "it is not the JSON that was written here ("),
        (b"\xff", "it is not the JSON that was written here ("),
        (b"[" * 100_000, "it is not the JSON that was written here ("),
    ],
)
def test_what_is_no_document_is_told(file: pathlib.Path, data: bytes, words: str) -> None:
    file.write_bytes(data)
    assert why(file).startswith(words)


def test_a_mib_is_the_most(file: pathlib.Path) -> None:
    file.write_bytes(b"1" + b" " * ((1 << 20) - 1))
    assert read_document(str(file)) == 1
    file.write_bytes(b"1" + b" " * (1 << 20))
    assert why(file) == "it is longer than 1048576 bytes"


@root_only
def test_whose_file_it_must_be(file: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns it can change it at any time."""
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert read_document(str(file)) == {"a": 1}, "root's"
    os.chown(file, 4711, 0)
    assert read_document(str(file)) == {"a": 1}, "his own"
    os.chown(file, 4712, 0)
    assert why(file).startswith("it belongs to user id 4712, who could change it; ")


def test_a_disk_that_does_not_answer_is_told(file: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fdopen

    class Broken:
        def __init__(self, handle: int) -> None:
            self.file = real(handle, "rb")

        def __enter__(self) -> t.Any:
            return self

        def __exit__(self, *args: object) -> None:
            self.file.close()

        def read(self, most: int) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(_whole_file.os, "fdopen", lambda handle, mode: Broken(handle))
    assert why(file) == "Input/output error"


class TestReplace:
    """replace() under the descriptor of the folder"""

    @pytest.fixture
    def folder(self, file: pathlib.Path) -> t.Iterator[int]:
        handle = os.open(file.parent, os.O_RDONLY)
        yield handle
        os.close(handle)

    def test_the_new_data_with_its_mode_whatever_the_umask_is(self, file: pathlib.Path, folder: int) -> None:
        file.with_name(f".{file.name}.new").write_text("of a process that was killed")
        before = os.umask(0o077)
        try:
            replace(folder, file.name, b"new", 0o644)
        finally:
            os.umask(before)
        assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o644)
        assert os.listdir(folder) == [file.name]

    def test_what_could_not_be_written_leaves_the_old_and_nothing_beside_it(
        self, file: pathlib.Path, folder: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(handle: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(_whole_file.os, "fsync", full)
        with pytest.raises(OSError, match="df -h"):
            replace(folder, file.name, b"new", 0o644)
        assert (file.read_text(), os.listdir(folder)) == ('{"a": 1}', [file.name])

    def test_a_link_that_somebody_left_is_not_written_through(self, file: pathlib.Path, folder: int) -> None:
        precious = file.with_name("precious")
        precious.write_text("precious")
        file.with_name(f".{file.name}.new").symlink_to(precious)
        replace(folder, file.name, b"new", 0o644)
        assert (file.read_bytes(), precious.read_text()) == (b"new", "precious")
