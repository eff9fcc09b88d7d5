# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files that cannot be read, options that cannot be, and hostile text."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _lease
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease import LeaseRequest
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.lease_world import GPUS, Host, outcome


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


def altered(change: t.Callable[[dict[str, t.Any]], None]) -> t.Callable[[str], str]:
    def alter(text: str) -> str:
        document = json.loads(text)
        change(document)
        return json.dumps(document)

    return alter


CORRUPT: dict[str, t.Callable[[str], str]] = {
    "empty": lambda text: "",
    "cut short": lambda text: text[: len(text) // 2],
    "no JSON": lambda text: "held by anna\n",
    "a list": lambda text: "[]",
    "null": lambda text: "null",
    "deep": lambda text: "[" * 100000,
    "NaN": lambda text: text.replace('"expires": 1900.0', '"expires": NaN'),
    "endless": lambda text: text.replace('"expires": 1900.0', '"expires": 1e999'),
    "enormous": lambda text: text + " " * (1 << 20),
    "another version": altered(lambda document: document.update(version=2)),
    "no owner": altered(lambda document: document["leases"][0].pop("run_id")),
    "hostile owner": altered(lambda document: document["leases"][0].update(run_id="a\nb")),
    "time is text": altered(lambda document: document["leases"][0].update(expires="1900")),
    "GPU is a number": altered(lambda document: document["leases"][0].update(gpus=[0])),
    "lease is a number": altered(lambda document: document.update(leases=[1])),
}


@pytest.mark.parametrize("how", CORRUPT)
def test_a_corrupt_file_is_never_free(host: Host, how: str) -> None:
    host.held("A", ttl=900)
    before = host.file.read_text()
    text = CORRUPT[how](before)
    assert text != before
    host.file.write_text(text)
    for result in (host.held("B", wait=60), host.held("A"), host.released("A"), host.held("B", check=True)):
        assert outcome(result) == ("busy", True, False)
        assert result.unreadable
        assert "unreadable lease" in result.reason
        assert "unlock_run_id=corrupt" in result.reason
    assert host.shown().unreadable
    assert not host.shown().failed
    assert host.file.read_text() == text
    taken = host.held("B", takeover="corrupt")
    assert outcome(taken) == ("acquired", False, True)
    assert "thrown away" in taken.reason
    assert host.runs() == ["B"]


def test_a_corrupt_file_can_be_given_back(host: Host) -> None:
    host.held("A")
    assert host.released("me", takeover="corrupt").verdict == "not_held", "it can be read"
    host.file.write_text("?")
    assert host.released("me", takeover="corrupt", check=True).changed
    assert host.file.read_text() == "?"
    assert outcome(host.released("me", takeover="corrupt")) == ("released", False, True)
    assert host.runs() == []


def test_a_corrupt_file_of_an_earlier_boot_does_not_matter(host: Host) -> None:
    host.held("A")
    host.file.write_text("?")
    host.boot = "7d1f6c1e-0000-4000-8000-000000000002"
    assert host.held("B").verdict == "acquired"


HOSTILE = ["a\nb", "a\n", "../etc", "a b", "x" * 129, "x" * 10000, "ä", "\x1b[31m", "a\0"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((option, value) for option in ("run_id", "node", "takeover") for value in HOSTILE),
        ("run_id", ""),
        ("node", ""),
    ],
)
def test_hostile_names_are_refused(host: Host, option: str, value: str) -> None:
    options = {"run_id": "A", "node": "n1", option: value}
    result = host.held(**options)
    assert outcome(result) == ("refused", True, False)
    assert result.reason.startswith(f"{option} is ")
    assert len(result.reason) < 300
    assert result.reason.isprintable()
    assert not os.path.exists(host.path)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"ttl": 0.0}, "ttl is 0.0 seconds; it must be between 1 and 86400"),
        ({"ttl": float("nan")}, "ttl is nan"),
        ({"wait": -1.0}, "wait is -1.0"),
        ({"wait": float("inf")}, "wait is inf"),
        ({"marker_ttl": 1e6}, "marker_ttl is 1000000.0"),
        ({"gpus": ("0",)}, "gpus has '0', which is no UUID"),
        ({"gpus": (GPUS[0][:12],)}, "which is no UUID"),
        ({"run_id": "corrupt"}, "run_id is 'corrupt'"),
    ],
)
def test_impossible_options_are_refused(host: Host, options: dict[str, t.Any], part: str) -> None:
    result = host.held(**options)
    assert outcome(result) == ("refused", True, False)
    assert part in result.reason


@pytest.mark.parametrize("boot", [None, "", "../x", "a b"])
def test_without_a_boot_id_nothing_is_done(host: Host, boot: str | None) -> None:
    result = _lease.lease(LeaseRequest("held", "A", "n1"), host.path, boot, host.clock)
    assert (result.verdict, result.failed) == ("refused", True)
    assert "which boot" in result.reason


def test_free_text_is_one_harmless_line(host: Host) -> None:
    result = host.held(who="anna\n\x1b[31m\udcff", purpose="p" * 10000)
    assert result.lease is not None
    assert result.lease["who"] == "anna??[31m?"
    assert len(result.lease["purpose"]) == 200


def test_a_full_disk_changes_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.held("A")

    def no_space(*args: t.Any, **kwargs: t.Any) -> t.NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", no_space)
    result = host.released("A")
    assert outcome(result) == ("refused", True, False)
    assert "No space left on device" in result.reason
    monkeypatch.undo()
    assert host.runs() == ["A"]
