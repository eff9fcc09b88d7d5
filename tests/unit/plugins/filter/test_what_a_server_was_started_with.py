# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""With what a server was started: by its files, its command line, what was proved, and where nothing tells."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.filter.sglang_config import sglang_config
from ansible_collections.cleanslate.gpu.plugins.filter.sglang_installed_profile import sglang_installed_profile
from ansible_collections.cleanslate.gpu.plugins.filter.sglang_profile import sglang_profile
from ansible_collections.cleanslate.gpu.plugins.filter.sglang_split_args import sglang_split_args
from ansible_collections.cleanslate.gpu.plugins.filter.systemd_argument import systemd_argument
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._started_with import (
    Asked,
    Files,
    StartedWith,
    read_files,
    started_with,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd

BOOT, STARTED, NOW = 9_000.0, 10_000.0, 10_500.0  # seconds since the epoch
KEY, OTHER_KEY = "sk-0123456789abcdef", "sk-fedcba9876543210"
GIVEN = Asked("127.0.0.1", 30001, 8, "/var/log/sglang/sglang.log", OTHER_KEY)
KIMI = {"name": "kimi", "args": {"model-path": "/m", "tp-size": 4, "port": 30000}, "api_key": KEY}
UNIT = """# Written by cleanslate.gpu.sglang_server for profile {name}; changes are lost at the next relaunch.
[Service]
ExecStart={command}
StandardOutput=append:/var/log/sglang/sglang.log
"""


class Clock:
    def monotonic(self) -> float:
        return NOW - BOOT

    def wall(self) -> float:
        return NOW

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing is waited for")


class Node:
    """A server that runs with what is installed and proved, until a test writes another file."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.unit, self.config = folder, folder / "sglang.service", folder / "sglang.yaml"
        self.pid = "77"
        ticks = int((STARTED - BOOT) * os.sysconf("SC_CLK_TCK"))
        (folder / "proc" / "77").mkdir(parents=True)
        fields = ["S", "1", *["0"] * 17, str(ticks), *["0"] * 30]
        (folder / "proc" / "77" / "stat").write_text(f"77 (python) {' '.join(fields)}\n")
        self.runs("python")
        for suffix in ("", ".proved"):
            self.install(KIMI, suffix=suffix)

    def command(self, *more: str) -> list[str]:
        return ["flock", "-n", "python", "-m", "sglang.launch_server", "--config", str(self.config), *more]

    def install(self, profile: t.Mapping[str, t.Any], at: float = STARTED - 60, suffix: str = "") -> dict[str, t.Any]:
        """As the role renders it."""
        resolved = sglang_profile([profile], profile["name"], 1)
        split = sglang_split_args(resolved["args"])
        keys = {"api-key": resolved["api_key"], "admin-api-key": resolved["admin_api_key"]}
        command = " ".join(systemd_argument(word) for word in self.command(*split["argv"]))
        self.write(self.unit, UNIT.format(name=profile["name"], command=command), at, suffix)
        config = sglang_config({**split["config"], **{name: key for name, key in keys.items() if key}})
        self.write(self.config, "# a comment\n" + config, at, suffix)
        return resolved

    def write(self, file: pathlib.Path, text: str, at: float = STARTED - 60, suffix: str = "") -> None:
        path = pathlib.Path(f"{file}{suffix}")
        path.write_text(text)
        os.utime(path, (at, at))

    def runs(self, *argv: str) -> None:
        (self.folder / "proc" / "77" / "cmdline").write_bytes("\0".join(argv).encode() + b"\0")

    @property
    def files(self) -> Files:
        return Files("sglang.service", str(self.unit), str(self.config))

    def told(self, given: Asked = GIVEN, check: t.Callable[[Asked], object] = lambda dummy: None) -> StartedWith:
        def answer(argv: t.Sequence[str], timeout: float) -> CommandResult:
            return CommandResult(tuple(argv), 0, f"MainPID={self.pid}\n", "", 0.1)

        def uptime() -> float:
            return NOW - BOOT

        proc = str(self.folder / "proc")
        return started_with(self.files, given, check, Systemd(answer), Clock(), proc_root=proc, boot_clock=uptime)


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_what_is_installed_counts_and_not_what_an_inventory_has_come_to_say(node: Node) -> None:
    found = node.told()
    assert (found.source, found.told, found.installed) == ("installed", True, True)
    assert (found.profile, found.why) == ("kimi", "")
    assert found.asked == Asked("127.0.0.1", 30000, 4, "/var/log/sglang/sglang.log", KEY)
    assert KEY not in str(found) + str(found.as_dict())


@pytest.mark.parametrize(
    "profile",
    [
        {"name": "k2-5", "args": {"model-path": "/m/K 2.5", "port": 31000, "host": "::1"}, "api_key": "k~1+/="},
        {"name": "a", "args": {"model-path": "/m", "served-model-name": "x", "tp-size": 4, "pp-size": 2}},
        {"name": "dp", "args": {"model-path": "/m", "tp-size": 8, "dp-size": 8, "enable-dp-attention": True}},
        {"name": "dp2", "args": {"model-path": "/m", "tp-size": 4, "dp-size": 2}, "api_key": "a", "admin_api_key": "b"},
        {"name": "two", "args": {"model-path": "/m", "tp-size": 16, "nnodes": 2}},
    ],
    ids=lambda profile: str(profile["name"]),
)  # fmt: skip
def test_it_reads_what_the_controller_reads(node: Node, profile: dict[str, t.Any]) -> None:
    node.install(profile)
    name, asked = read_files(node.files, GIVEN)
    theirs = sglang_installed_profile(node.unit.read_text(), node.config.read_text())
    assert (name, asked.host, asked.port) == (theirs["name"], theirs["host"], theirs["port"])
    assert (asked.workers, asked.api_key) == (theirs["workers"], theirs["api_key"] or None)


def test_a_wildcard_address_is_asked_on_loopback(node: Node) -> None:
    node.install({**KIMI, "args": {**KIMI["args"], "host": "0.0.0.0"}})
    assert node.told().asked.host == "127.0.0.1"


def test_the_command_line_is_stronger_than_the_configuration(node: Node) -> None:
    node.runs(*node.command("--tp", "2", "--port=31000", "--host", "10.0.0.9"))
    found = node.told().asked
    assert (found.host, found.port, found.workers) == ("10.0.0.9", 31000, 2)
    node.runs(*node.command("--dp-size", "2", "--enable-dp-attention"))
    assert node.told().asked.workers == 4


def test_the_log_is_where_the_unit_writes_it(node: Node) -> None:
    text = node.unit.read_text()
    node.write(node.unit, text.replace("append:/var/log/sglang/sglang.log", "append:/old/50%%.log"))
    node.runs("python")
    os.unlink(f"{node.unit}.proved")
    assert node.told().asked.log_file == "/old/50%.log"
    node.write(node.unit, text.replace("append:/var/log/sglang/sglang.log", "journal"))
    assert node.told().asked.log_file is None
    node.write(node.unit, text.replace("StandardOutput", "StandardInput"))
    assert node.told().asked.log_file == GIVEN.log_file


class TestWrittenSinceItStarted:
    """What is installed is then what the next start takes, and not what runs."""

    EDITED: t.ClassVar[dict[str, t.Any]] = {**KIMI, "args": {**KIMI["args"], "tp-size": 8, "port": 30001}}

    def test_what_was_proved_is_asked_and_no_number_is_expected(self, node: Node) -> None:
        node.install(self.EDITED, STARTED + 100)
        found = node.told()
        assert (found.source, found.told, found.installed) == ("proved", False, True)
        assert (found.asked.port, found.asked.workers, found.asked.api_key) == (30000, None, KEY)
        assert f"{node.config} was written to after the server had started" in found.why

    def test_where_nothing_was_proved_the_inventory_is_asked(self, node: Node) -> None:
        node.install(self.EDITED, STARTED + 100)
        for path in (node.unit, node.config):
            os.unlink(f"{path}.proved")
        found = node.told()
        assert (found.source, found.told, found.asked.port, found.asked.workers) == ("given", False, 30001, None)

    def test_an_edit_that_changes_nothing_of_this_is_none(self, node: Node) -> None:
        node.install({**KIMI, "args": {**KIMI["args"], "context-length": 4096}}, STARTED + 100)
        found = node.told()
        assert (found.told, found.asked.port, found.asked.workers) == (True, 30000, 4)

    def test_the_text_that_was_proved_may_have_any_date(self, node: Node) -> None:
        node.install(KIMI, NOW + 9e6)
        assert (node.told().source, node.told().told) == ("installed", True)

    def test_where_nothing_runs_they_are_what_is_started(self, node: Node) -> None:
        node.install(self.EDITED, STARTED + 100)
        node.pid = "0"
        found = node.told()
        assert (found.source, found.told, found.asked.port, found.asked.workers) == ("installed", True, 30001, 8)


@pytest.mark.parametrize(
    ("text", "of_unit", "said"),
    [
        ("[Service]\nExecStart=python", True, "was not written by this collection"),
        (UNIT.format(name="kimi", command="sglang serve --config /other.yaml"), True, "is not the configuration that"),
        (UNIT.format(name="kimi", command='sglang "serve'), True, "could not be read"),
        (f"api-key:\n  - {KEY}\n", False, "line 2"),
        (f"api-key: {KEY}\nport: {KEY}\n", False, "its port is no whole number"),
        (f"api-key: {KEY}\ntp-size: true\n", False, "its tp-size is no whole number"),
        ("tp-size: 3\nnnodes: 2\n", False, "cannot be spread evenly"),
        (None, False, "No such file"),
    ],
)
def test_what_cannot_be_read_is_said_and_the_inventory_is_asked(
    node: Node, text: str | None, of_unit: bool, said: str
) -> None:
    path = node.unit if of_unit else node.config
    path.unlink() if text is None else node.write(path, text)
    found = node.told()
    assert (found.source, found.told, found.installed) == ("given", False, False)
    assert (found.asked.port, found.asked.workers, found.asked.api_key) == (30001, None, OTHER_KEY)
    assert said in found.why
    assert KEY not in found.why


def test_a_server_that_cannot_be_asked_like_that(node: Node) -> None:
    def refuse(asked: Asked) -> None:
        raise ValueError("port is 70000: it must be a number from 1 to 65535.")

    found = node.told(check=refuse)
    assert (found.source, found.told) == ("given", False)
    assert "(port is 70000: it must be a number from 1 to 65535)" in found.why
