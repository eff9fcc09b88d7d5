# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the owner of a GPU host allows at most cannot be widened by an inventory."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _allow_list
from ansible_collections.cleanslate.gpu.plugins.module_utils._allow_list import Allowed, AllowListError
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Scope


def written(path: pathlib.Path, data: t.Any, mode: int = 0o644) -> str:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    path.chmod(mode)
    return str(path)


def read(path: str) -> Allowed:
    return _allow_list.read_allowed(path, owner=os.getuid())


def test_no_list_allows_everything(tmp_path: pathlib.Path) -> None:
    assert read(str(tmp_path / "none")) == Allowed()
    assert _allow_list.refusal(Scope("lxc", lxc=("101",)), Allowed()) is None


@pytest.mark.parametrize(
    ("data", "scope", "words"),
    [
        ({"lxc": [101]}, Scope("lxc", lxc=("101",)), None),
        ({"lxc": ["101", 102]}, Scope("lxc", lxc=("101", "102")), None),
        ({"lxc": [101]}, Scope("lxc", lxc=("101", "102")), "Container 102 may not be touched"),
        ({"lxc": []}, Scope("lxc", lxc=("101",)), "allows none"),
        ({"lxc": [101]}, Scope("all"), "scope all is not allowed"),
        ({"lxc": [101]}, Scope("own", units=("sglang.service",)), "nothing of the host itself"),
        ({"lxc": [101]}, Scope("unit", units=("sglang.service",)), "nothing of the host itself"),
        ({"gpus": ["GPU-a"]}, Scope("unit", gpus=("GPU-a",)), None),
        ({"gpus": ["GPU-a"]}, Scope("lxc", lxc=("101",)), "named GPUs only"),
        ({"gpus": ["GPU-a"]}, Scope("lxc", lxc=("101",), gpus=("GPU-a", "GPU-b")), "GPU GPU-b may not be released"),
        ({"gpus": ["GPU-a"]}, Scope("lxc", lxc=("101",), gpus=("GPU-a",)), None),
    ],
)
def test_what_is_allowed(tmp_path: pathlib.Path, data: t.Any, scope: Scope, words: str | None) -> None:
    sentence = _allow_list.refusal(scope, read(written(tmp_path / "allowed.json", data)))
    assert sentence is None if words is None else words in (sentence or "")


@pytest.mark.parametrize(
    ("data", "mode", "words"),
    [
        ("{", 0o644, "is no JSON"),
        ("[" * 100_000, 0o644, "is no JSON"),
        ([], 0o644, "must look like"),
        ({"lxc": 101}, 0o644, "must look like"),
        ({"vmid": [101]}, 0o644, "must look like"),
        ({"lxc": [101]}, 0o664, "writable by root only"),
        ({"lxc": [101]}, 0o646, "writable by root only"),
    ],
)
def test_a_list_that_cannot_be_trusted_allows_nothing(
    tmp_path: pathlib.Path, data: t.Any, mode: int, words: str
) -> None:
    with pytest.raises(AllowListError, match=words):
        read(written(tmp_path / "allowed.json", data, mode))


def test_somebody_elses_list_and_a_link_are_not_trusted(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path / "allowed.json", {})
    with pytest.raises(AllowListError, match="must belong to root"):
        _allow_list.read_allowed(path, owner=os.getuid() + 1)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(AllowListError, match="cannot be read"):
        read(str(tmp_path / "link"))


def test_unless_said_otherwise_the_list_is_root_s(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path / "allowed.json", {"lxc": [101]})
    if os.getuid() == 0:
        assert _allow_list.read_allowed(path).lxc == {"101"}
    else:
        with pytest.raises(AllowListError, match="must belong to root"):
            _allow_list.read_allowed(path)


def test_a_list_of_one_mebibyte_is_read_whole_and_a_longer_one_not_at_all(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path / "allowed.json", '{"lxc": [101]}'.rjust(1 << 20))
    assert read(path).lxc == {"101"}
    written(tmp_path / "allowed.json", '{"lxc": [101]}'.rjust((1 << 20) + 1))
    with pytest.raises(AllowListError, match="longer than 1048576 bytes"):
        read(path)


def test_a_disk_that_fails_allows_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "allowed.json", {"lxc": [101]})

    def read_error(handle: int, most: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(_allow_list.os, "read", read_error)
    with pytest.raises(AllowListError, match=r"cannot be read: .*Input/output error"):
        read(path)
