# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An error of a file says what to do about it, once."""

from __future__ import annotations

import errno
import os

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._file_errors import told, with_cure


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOSPC, "df -h"),
        (errno.EROFS, "mounted read-only"),
        (errno.EACCES, "needs become (root)"),
        (errno.EPERM, "needs become (root)"),
        (errno.ELOOP, "symbolic link"),
        (errno.ENOENT, "the folder above it does not exist"),
        (errno.EISDIR, "it is a folder"),
    ],
)
def test_the_kernels_words_come_first_and_then_the_cure(number: int, cure: str) -> None:
    said = told(OSError(number, os.strerror(number)))
    assert said.startswith(f"{os.strerror(number)} (")
    assert cure in said


def test_an_error_that_nothing_is_known_about_is_only_told() -> None:
    assert told(OSError(errno.EXDEV, "Invalid cross-device link")) == "Invalid cross-device link"
    assert told(OSError("the stream has ended")) == "the stream has ended"


@pytest.mark.parametrize("path", ["", "/var/lib/x.json"])
def test_the_path_is_said_where_the_caller_does_not_and_the_cure_only_once(path: str) -> None:
    with pytest.raises(OSError, match="df -h") as caught, with_cure(path), with_cure():
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.errno == errno.ENOSPC
    said = str(caught.value.strerror)
    assert said.startswith(f"{path}: No space left on device (" if path else "No space left on device (")
    assert said.count("df -h") == 1


def test_an_error_without_a_number_stays_what_it_is() -> None:
    error = OSError("the stream has ended")
    with pytest.raises(OSError, match="the stream has ended") as caught, with_cure("/var/lib/x.json"):
        raise error
    assert caught.value is error


def test_what_goes_well_goes_on() -> None:
    with with_cure("/var/lib/x.json"):
        done = True
    assert done
