# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A file that another user may write to is read to an end, whatever that user made of it."""

from __future__ import annotations

import errno
import os
import pathlib
import signal
import stat

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _unit_files
from ansible_collections.cleanslate.gpu.plugins.module_utils._small_file import MOST_BYTES, read_small


@pytest.mark.parametrize("length", [0, 1, MOST_BYTES])
def test_text_and_owner(length: int, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "sglang.yaml"
    path.write_bytes(b"x" * length)
    path.chmod(0o640)
    data, info = read_small(str(path))
    assert data == b"x" * length
    assert (stat.S_IMODE(info.st_mode), info.st_uid) == (0o640, os.geteuid())


@pytest.mark.parametrize("length", [MOST_BYTES + 1, 1 << 40])
def test_a_longer_one_is_not_kept_in_memory(length: int, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "sglang.yaml"
    path.touch()
    os.truncate(path, length)
    with pytest.raises(OSError, match=f"longer than {MOST_BYTES} bytes") as caught:
        read_small(str(path))
    assert caught.value.errno == errno.EFBIG


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    def waited(dummy_number: int, dummy_frame: object) -> None:
        raise AssertionError("it waits")

    os.mkfifo(tmp_path / "pipe")
    before = signal.signal(signal.SIGALRM, waited)
    signal.setitimer(signal.ITIMER_REAL, 5)
    try:
        with pytest.raises(OSError, match="no regular file"):
            read_small(str(tmp_path / "pipe"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_folder_is_no_file(tmp_path: pathlib.Path) -> None:
    with pytest.raises(OSError):
        read_small(str(tmp_path))


def test_a_link_is_followed_where_that_is_meant(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    assert read_small(str(tmp_path / "link"))[0] == b"x"
    with pytest.raises(OSError) as caught:
        read_small(str(tmp_path / "link"), follow=False)
    assert caught.value.errno == errno.ELOOP


def test_what_would_not_be_read_is_not_written(tmp_path: pathlib.Path) -> None:
    wanted = _unit_files.UnitFile(str(tmp_path / "sglang.yaml"), b"x" * (MOST_BYTES + 1))
    with pytest.raises(_unit_files.UnitFileError, match=f"would have {MOST_BYTES + 1} bytes"):
        _unit_files.stage([wanted])
    assert not list(tmp_path.iterdir())
