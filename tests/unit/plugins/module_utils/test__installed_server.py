# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is installed compared with a profile: files on disk, systemd's view, the running process."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._installed_server import (
    Comparison,
    Installed,
    look_at_installed,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd

STARTED = 10_000.0  # seconds since the epoch; the boot was at 9,000
LAUNCH = ("flock", "x", "python", "-m", "sglang.launch_server", "--config", "c.yaml")


class Clock:
    def monotonic(self) -> float:
        return 1_500.0

    def wall(self) -> float:
        return 10_500.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing is waited for")


class Node:
    """A unit that is as wanted, until a test changes something."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.unit, self.config = folder / "sglang.service", folder / "sglang.yaml"
        self.unit.write_text("[Service]\nExecStart=x\n")
        self.config.write_text("tp-size: 8\n")
        for path in (self.unit, self.config):
            os.utime(path, (STARTED - 60, STARTED - 60))
        self.proc = folder / "proc"
        (self.proc / "77").mkdir(parents=True)
        (self.proc / "77" / "cmdline").write_bytes(b"python\0-m\0sglang.launch_server\0--config\0c.yaml\0")
        self.says: dict[str, str] | None = {
            "LoadState": "loaded",
            "ActiveState": "active",
            "SubState": "running",
            "Result": "success",
            "NRestarts": "0",
            "MainPID": "77",
            "ExecMainStartTimestampMonotonic": str(int(1_000e6)),
            "FragmentPath": str(self.unit),
            "DropInPaths": "",
            "NeedDaemonReload": "no",
            "UnitFileState": "enabled",
            "FreezerState": "running",
        }

    def look(self, cgroup_root: str = "/nowhere") -> tuple[Comparison, dict[str, t.Any] | None]:
        def answer(argv: t.Sequence[str], timeout: float) -> CommandResult:
            if self.says is None:
                return CommandResult(tuple(argv), 1, "", "Failed to connect to bus", 0.1)
            return CommandResult(tuple(argv), 0, "".join(f"{k}={v}\n" for k, v in self.says.items()), "", 0.1)

        wanted = Installed(
            unit="sglang.service",
            unit_path=str(self.unit),
            unit_text="[Service]\nExecStart=x\n",
            config_path=str(self.config),
            config_text="tp-size: 8\n",
            launch=LAUNCH,
        )
        return look_at_installed(wanted, Systemd(answer), Clock(), proc_root=str(self.proc), cgroup_root=cgroup_root)

    def told(self) -> list[tuple[str, str | None]]:
        comparison, _service = self.look()
        assert comparison.not_compared == ()
        return [(one.item, one.found) for one in comparison.differences]


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_as_wanted(node: Node) -> None:
    comparison, service = node.look()
    assert comparison.as_dict() == {"verdict": "same", "differences": [], "not_compared": []}
    assert service is not None
    assert (service["active_state"], service["frozen"]) == ("active", False)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("NeedDaemonReload", "yes", ("daemon-reload", "needed: systemd knows older files")),
        ("DropInPaths", "/etc/s.service.d/x.conf", ("drop-ins", "/etc/s.service.d/x.conf")),
        ("FragmentPath", "/run/systemd/system/sglang.service", ("file", "/run/systemd/system/sglang.service")),
        ("UnitFileState", "disabled", ("at boot", "disabled")),
    ],
)  # fmt: skip
def test_what_systemd_knows_otherwise(node: Node, name: str, value: str, told: tuple[str, str]) -> None:
    assert node.says is not None
    node.says[name] = value
    assert node.told() == [told]


def test_an_edited_file_is_told_as_what_differs_and_as_what_does_not_run(node: Node) -> None:
    node.config.write_text("tp-size: 4\n")
    os.utime(node.config, (STARTED + 100, STARTED + 100))
    assert node.told() == [("tp-size", "4"), (str(node.config), "as it was 100 s earlier")]


def test_a_date_alone_is_no_drift_where_the_wanted_text_is_the_one_that_was_proved(node: Node) -> None:
    """A backup that was put back, or a clock that had been ahead; the next relaunch would not change the date."""
    os.utime(node.config, (STARTED + 1e6, STARTED + 1e6))
    assert [item for item, _found in node.told()] == [str(node.config)], "it may have been started with another text"
    proved = pathlib.Path(f"{node.config}.proved")
    proved.write_text(node.config.read_text())
    assert node.told() == []
    node.config.write_text("tp-size: 4\n")
    proved.write_text("tp-size: 4\n")
    os.utime(node.config, (STARTED + 100, STARTED + 100))
    assert node.told() == [("tp-size", "4"), (str(node.config), "as it was 100 s earlier")]


def test_files_that_are_gone(node: Node) -> None:
    node.unit.unlink()
    node.config.unlink()
    assert node.told() == [("file", None), ("file", None)]


def test_another_command_line_runs(node: Node) -> None:
    (node.proc / "77" / "cmdline").write_bytes(b"python\0-m\0sglang.launch_server\0--tp\0004\0")
    assert [item for item, _found in node.told()] == ["command line"]


def test_nothing_runs(node: Node) -> None:
    assert node.says is not None
    node.says.update(MainPID="0", ActiveState="inactive")
    assert node.told() == []


def test_what_cannot_be_looked_at_is_unknown_and_said(node: Node) -> None:
    node.says = None
    comparison, service = node.look()
    assert service is None
    assert comparison.verdict == "unknown"
    assert "systemd could not be asked about sglang.service" in comparison.not_compared
    node.config.write_text("a:\n  - b\n")
    assert any("not compared by value" in said for said in node.look()[0].not_compared)


def test_a_process_that_has_just_gone(node: Node) -> None:
    (node.proc / "77" / "cmdline").unlink()
    comparison, _service = node.look()
    assert comparison.verdict == "unknown"
    assert "process 77" in comparison.not_compared[0]


@pytest.mark.parametrize(("state", "frozen"), [("running", False), ("frozen", True), ("freezing", True)])
def test_a_frozen_unit(node: Node, state: str, frozen: bool | None) -> None:
    assert node.says is not None
    node.says["FreezerState"] = state
    service = node.look()[1]
    assert service is not None
    assert service["frozen"] is frozen


@pytest.mark.parametrize(
    ("path", "text", "frozen"),
    [
        ("x/cgroup.events", "populated 1\nfrozen 0\n", False),
        ("x/cgroup.events", "populated 1\nfrozen 1\n", True),
        ("freezer/x/freezer.state", "THAWED\n", False),
        ("freezer/x/freezer.state", "FROZEN\n", True),
        ("elsewhere", "", None),
    ],
)
def test_where_systemd_is_too_old_to_tell_the_kernel_is_asked(
    node: Node, tmp_path: pathlib.Path, path: str, text: str, frozen: bool | None
) -> None:
    assert node.says is not None
    node.says.update(FreezerState="", ControlGroup="/x")
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text)
    service = node.look(cgroup_root=str(tmp_path))[1]
    assert service is not None
    assert service["frozen"] is frozen


def test_what_has_no_group_is_not_frozen(node: Node) -> None:
    assert node.says is not None
    node.says.update(FreezerState="", ControlGroup="")
    service = node.look()[1]
    assert service is not None
    assert service["frozen"] is False


@pytest.mark.parametrize("name", ["unit", "config"])
def test_a_file_that_was_made_as_long_as_the_disk_is_not_compared(name: str, node: Node) -> None:
    path: pathlib.Path = getattr(node, name)
    os.truncate(path, 1 << 40)
    os.utime(path, (STARTED - 60, STARTED - 60))
    comparison, _unit = node.look()
    assert comparison.verdict == "unknown"
    assert any(f"{path} could not be read: it is longer than" in why for why in comparison.not_compared)
