# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import os
import pathlib
import stat
import time
import types
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _preflight_devices
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_devices import (
    device_access,
    device_kind,
    device_nodes,
    open_read_write,
    service_user,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.preflight_node import (
    UUIDS,
    PreflightNode,
    device,
    result,
)

NODES = ("nvidia0", "nvidia7", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
NOT_ALLOWED = "(Operation not permitted): the device rules of the container lack it"


def no_attributes(path: str) -> t.Sequence[str]:
    return ()


def opens(path: str) -> None:
    """A device that lets itself be opened."""


def refuses(number: int, *names: str) -> t.Callable[[str], None]:
    def opener(path: str) -> None:
        if os.path.basename(path) in names:
            raise OSError(number, os.strerror(number), path)

    return opener


@pytest.fixture
def node(tmp_path: pathlib.Path) -> PreflightNode:
    return PreflightNode(tmp_path)


def test_a_healthy_node(node: PreflightNode) -> None:
    context = node.context()
    assert [
        (check.name, check.ok, check.cure)
        for check in (
            service_user(context),
            device_nodes(context),
            device_kind(context),
            device_access(context, opener=opens, attributes=no_attributes),
        )
    ] == [
        ("service_user", True, ""),
        ("device_nodes", True, ""),
        ("device_kind", True, ""),
        ("device_access", True, ""),
    ]


@pytest.mark.parametrize(
    ("user", "ok", "detail"),
    [
        ("sglang", True, "sglang has the uid 990"),
        ("", None, "no service user was given"),
        ("other", False, "the user other does not exist"),
    ],
)
def test_service_user(node: PreflightNode, user: str, ok: bool | None, detail: str) -> None:
    check = service_user(node.context(service_user=user))
    assert (check.ok, check.detail) == (ok, detail)
    assert ("in the container, not on its host" in check.cure) is (ok is False)


@pytest.mark.parametrize("name", NODES)
def test_a_missing_node_is_named(node: PreflightNode, name: str) -> None:
    del node.paths[f"/dev/{name}"]
    check = device_nodes(node.context())
    assert (check.ok, check.detail) == (False, f"/dev/{name} is missing")
    for words in ("On the host load the uvm module", "nvidia-modprobe -u -c=0", "devN", "start the container again"):
        assert words in check.cure
    assert device_kind(node.context()).ok is True  # one failure is reported once
    assert device_access(node.context(), opener=opens, attributes=no_attributes).ok is True


def test_every_missing_node_is_named(node: PreflightNode) -> None:
    for name in NODES:
        del node.paths[f"/dev/{name}"]
    expected = ", ".join(f"/dev/{name}" for name in NODES)
    assert device_nodes(node.context()).detail == f"{expected} are missing"


def test_fewer_nodes_than_gpus_where_it_cannot_be_told_which(tmp_path: pathlib.Path) -> None:
    node = PreflightNode(tmp_path, gpus=2)
    wanted = Expectation(uuids=UUIDS[:3])
    check = device_nodes(node.context(expectation=wanted))
    assert (check.ok, check.detail) == (False, "2 of at least 3 GPU nodes are there (/dev/nvidia0, /dev/nvidia1)")
    node.driver_has(range(8))
    assert device_nodes(node.context(expectation=wanted)).detail == "/dev/nvidia2 is missing"
    del node.paths["/dev/nvidia0"], node.paths["/dev/nvidia1"], node.paths["/dev/nvidiactl"]
    check = device_nodes(node.context(expectation=Expectation(count=3)))
    assert check.detail == "/dev/nvidiactl is missing; 0 of at least 3 GPU nodes are there (none)"


def test_no_node_at_all(node: PreflightNode) -> None:
    node.paths.clear()
    context = node.context()
    assert device_nodes(context).ok is False
    assert device_kind(context).ok is None
    assert device_access(context, opener=opens).ok is None


def test_wrong_kinds_are_all_named(node: PreflightNode) -> None:
    node.paths["/dev/nvidia-uvm"] = result(stat.S_IFREG, 0o644)
    node.paths["/dev/nvidia-uvm-tools"] = device(510, 1)
    node.paths["/dev/nvidia0"] = result(stat.S_IFREG, 0o644)
    check = device_kind(node.context())
    assert check.ok is False
    assert check.detail == (
        "/dev/nvidia0, /dev/nvidia-uvm: is a plain file: the container was started before the host had the node;"
        " /dev/nvidia-uvm-tools has the stale major 510, but /proc/devices gives nvidia-uvm 509"
    )
    assert device_nodes(node.context()).ok is True


def test_majors_that_cannot_be_told_are_no_pass(node: PreflightNode) -> None:
    os.unlink(node.proc / "devices")
    check = device_kind(node.context())
    assert check.ok is None
    assert check.detail.endswith("what major /dev/nvidia-uvm, /dev/nvidia-uvm-tools must have, cannot be read")
    access = device_access(node.context(), opener=opens, attributes=no_attributes)
    assert access.ok is None
    assert access.detail == "/dev/nvidia-uvm, /dev/nvidia-uvm-tools were not tried, the right number is not known"
    node.paths["/dev/nvidia0"] = device(226, 0)
    assert device_kind(node.context()).ok is False


def test_only_the_nodes_themselves_are_opened(node: PreflightNode, tmp_path: pathlib.Path) -> None:
    node.paths["/dev/nvidia0"] = result(stat.S_IFREG, 0o666)
    node.paths["/dev/nvidia-uvm"] = device(510, 0)
    journal = tmp_path / "opened"

    def opener(path: str) -> None:
        with journal.open("a") as stream:
            stream.write(f"{path}\n")

    device_access(node.context(), opener=opener, attributes=no_attributes)
    numbers = [f"/dev/nvidia{number}" for number in range(1, 8)]
    assert journal.read_text().split() == [*numbers, "/dev/nvidiactl", "/dev/nvidia-uvm-tools"]


@pytest.mark.parametrize(
    ("found", "seen"),
    [
        (device(195, 0, 0o660), "mode 0660 and owner 0:0"),
        (device(195, 0, 0o4601), "mode 4601 and owner 0:0"),
        (device(195, 0, 0o660, 0, 44), None),
        (device(195, 0, 0o640, 0, 44), "mode 0640 and owner 0:44"),
        (device(195, 0, 0o660, 0, 45), "mode 0660 and owner 0:45"),
        (device(195, 0, 0o660, 65534, 65534), "mode 0660 and owner 65534:65534"),
        (device(195, 0, 0o600, 990), None),
    ],
)
def test_what_the_service_user_may(node: PreflightNode, found: os.stat_result, seen: str | None) -> None:
    node.paths["/dev/nvidia0"] = found
    check = device_access(node.context(), opener=opens, attributes=no_attributes)
    assert check.ok is (seen is None)
    if seen is not None:
        assert check.detail == f"/dev/nvidia0 has {seen}, so user sglang cannot open it read-write"
        assert "mode=0666" in check.cure
        assert "gid=" in check.cure
    assert device_access(node.context(service_user="root"), opener=opens, attributes=no_attributes).ok is True
    assert device_access(node.context(service_user=""), opener=opens, attributes=no_attributes).ok is True


def test_a_closed_folder_closes_all(node: PreflightNode) -> None:
    node.paths["/dev"] = result(stat.S_IFDIR, 0o750)
    check = device_access(node.context(expectation=Expectation(count=1)), opener=opens, attributes=no_attributes)
    assert check.detail == (
        "/dev/nvidia0, /dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia-uvm-tools: lies in /dev, which has mode 0750 and"
        " owner 0:0, so user sglang cannot open it read-write"
    )


def test_the_outermost_closed_folder_is_named(node: PreflightNode) -> None:
    node.paths["/"] = result(stat.S_IFDIR, 0o700)
    node.paths["/dev"] = result(stat.S_IFDIR, 0o750)
    check = device_access(node.context(expectation=Expectation(count=1)), opener=opens, attributes=no_attributes)
    assert "lies in /, which has mode 0700" in check.detail


def test_a_folder_that_cannot_be_looked_at_hides_no_closed_node(node: PreflightNode) -> None:
    del node.paths["/"]
    node.paths["/dev/nvidia0"] = device(195, 0, 0o600)
    check = device_access(node.context(), opener=opens, attributes=no_attributes)
    assert (check.ok, check.detail.startswith("/dev/nvidia0 has mode 0600")) == (False, True)


def test_two_nodes_with_access_control_lists(node: PreflightNode) -> None:
    check = device_access(
        node.context(),
        opener=opens,
        attributes=lambda path: ("system.posix_acl_access",) if path in ("/dev/nvidia1", "/dev/nvidia2") else (),
    )
    assert check.ok is None
    assert check.detail.startswith("/dev/nvidia1, /dev/nvidia2 have an access control list")
    assert check.detail.endswith("'test -r /dev/nvidia1 -a -w /dev/nvidia1'")


def test_a_node_is_opened_as_a_server_does_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without becoming its terminal, without waiting for the other end, without passing it on."""
    opened: list[tuple[str, int]] = []
    closed: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", lambda path, flags: opened.append((path, flags)) or 77)
        patched.setattr(os, "close", closed.append)
        open_read_write("/dev/nvidia0")
    assert opened == [("/dev/nvidia0", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)]
    assert closed == [77]


def test_an_access_control_list_is_not_guessed(node: PreflightNode) -> None:
    node.paths["/dev/nvidia0"] = device(195, 0, 0o660)

    def listed(path: str) -> t.Sequence[str]:
        if path == "/dev/nvidiactl":
            raise OSError(errno.ENOTSUP, "not supported")
        return ("system.posix_acl_access",) if path == "/dev/nvidia0" else ("user.other",)

    check = device_access(node.context(), opener=opens, attributes=listed)
    assert check.ok is None
    assert check.detail == (
        "/dev/nvidia0 has an access control list, which only the user itself can try:"
        " sudo -u sglang sh -c 'test -r /dev/nvidia0 -a -w /dev/nvidia0'"
    )
    refused = device_access(node.context(), opener=refuses(errno.EPERM, "nvidia1"), attributes=listed)
    assert refused.ok is False
    assert refused.detail.endswith(check.detail)


def test_a_user_that_does_not_exist_is_said_and_the_devices_are_tried(node: PreflightNode) -> None:
    context = node.context(service_user="other")
    check = device_access(context, opener=opens, attributes=no_attributes)
    assert (check.ok, check.detail) == (
        None,
        "the permissions were not looked at, because the user other does not exist",
    )
    assert device_access(context, opener=refuses(errno.EPERM, "nvidia1"), attributes=no_attributes).ok is False


@pytest.mark.parametrize(
    ("number", "own_uid", "ok", "detail", "cure"),
    [
        (errno.EPERM, 0, False, f"cannot be opened by uid 0 {NOT_ALLOWED}", "lxc.cgroup2.devices.allow"),
        (errno.EPERM, 990, False, f"cannot be opened by uid 990 {NOT_ALLOWED}", "lxc.cgroup2.devices.allow"),
        (errno.EACCES, 0, False, "cannot be opened by uid 0 (Permission denied)", "nodev"),
        (errno.EACCES, 990, False, "cannot be opened by uid 990 (Permission denied)", "mode=0666"),
        (errno.EACCES, 1000, None, "may not be opened by uid 1000; try it as root", ""),
        (errno.EIO, 0, False, "cannot be opened (Input/output error)", "dmesg"),
        (errno.ENXIO, 1000, False, "cannot be opened (No such device or address)", "dmesg"),
    ],
)
def test_what_opening_says(
    node: PreflightNode, number: int, own_uid: int, ok: bool | None, detail: str, cure: str
) -> None:
    context = node.context(own_uid=own_uid)
    check = device_access(context, opener=refuses(number, "nvidia-uvm"), attributes=no_attributes)
    assert (check.ok, check.detail) == (ok, f"/dev/nvidia-uvm {detail}")
    assert cure in check.cure


def test_an_open_that_blocks_ends_at_its_deadline(node: PreflightNode, tmp_path: pathlib.Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def opener(path: str) -> None:
        if path == "/dev/nvidia0":
            os.open(fifo, os.O_RDONLY)  # blocks until somebody writes, which nobody does

    began = time.monotonic()
    context = node.context(timeout=2.0)  # all of them together would have 22 s
    check = device_access(context, opener=opener, attributes=no_attributes)
    assert time.monotonic() - began < 15
    assert check.ok is False
    assert check.detail.startswith("/dev/nvidia0 did not open within 2 s; /dev/nvidia1, /dev/nvidia2, ")
    assert check.detail.endswith(", /dev/nvidia-uvm, /dev/nvidia-uvm-tools were not tried after that")
    assert "dmesg" in check.cure


def test_the_nodes_are_let_go(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "nvidia0"
    path.write_text("")
    before = sorted(os.listdir("/proc/self/fd"))
    open_read_write(str(path))
    assert sorted(os.listdir("/proc/self/fd")) == before
    path.chmod(0)
    with pytest.raises(OSError):
        open_read_write(str(tmp_path / "missing"))


def test_plain_files_of_a_simulated_node(node: PreflightNode, tmp_path: pathlib.Path) -> None:
    for name in (*(f"nvidia{number}" for number in range(8)), "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        (tmp_path / name).write_text("")
    context = node.context(devices=(f"{tmp_path}/nvidia*",), stat=os.stat, service_user="", own_uid=os.geteuid())
    checks = [device_nodes(context), device_kind(context), device_access(context)]
    assert [check.ok for check in checks] == [True, True, True]
    (tmp_path / "nvidia-uvm").unlink()
    assert device_nodes(context).detail == f"{tmp_path}/nvidia-uvm is missing"
    (tmp_path / "nvidia-uvm").mkdir()
    assert device_kind(context).detail.startswith(f"{tmp_path}/nvidia-uvm is a folder")


@pytest.mark.parametrize(
    ("tried", "blocked_at", "ok", "detail"),
    [
        (0, 4711, False, "/dev/nvidia0 did not open within 2 s; /dev/nvidiactl, /dev/nvidia-uvm, "),
        (2, 4711, False, "/dev/nvidia-uvm did not open within 2 s; /dev/nvidia-uvm-tools was not tried after that"),
        (3, 4711, False, "/dev/nvidia-uvm-tools did not open within 2 s"),
        (2, None, None, "/dev/nvidia-uvm, /dev/nvidia-uvm-tools could not be tried: no more processes"),
    ],
)
def test_what_was_not_tried_is_told(
    node: PreflightNode,
    monkeypatch: pytest.MonkeyPatch,
    tried: int,
    blocked_at: int | None,
    ok: bool | None,
    detail: str,
) -> None:
    asked: list[tuple[float, float]] = []

    def collect(attempt: t.Any, *, deadline: float, stall: float, clock: Clock) -> t.Any:
        asked.append((deadline - clock.monotonic(), stall))
        items = tuple((index, 0) for index in range(tried))
        error = "" if blocked_at else "no more processes"
        return types.SimpleNamespace(items=items, finished=False, blocked_at=blocked_at, error=error)

    monkeypatch.setattr(_preflight_devices, "collect", collect)
    context = node.context(expectation=Expectation(count=1), timeout=2.0)
    check = device_access(context, opener=opens, attributes=no_attributes)
    assert check.ok is ok
    assert check.detail.startswith(detail)
    if tried == 3:
        assert check.detail == detail
    assert asked == [(pytest.approx(8.0, abs=1.0), 2.0)]


@pytest.fixture
def consoles(tmp_path: pathlib.Path) -> pathlib.Path:
    """Real character devices: virtual consoles that nobody uses."""
    folder = tmp_path / "dev"
    folder.mkdir()
    try:
        for minor, name in enumerate(("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"), 20):
            os.mknod(folder / name, stat.S_IFCHR | 0o660, os.makedev(4, minor))
            (folder / name).chmod(0o660)
        open_read_write(str(folder / "nvidia0"))
    except OSError as error:
        pytest.skip(f"needs root and devices that may be made and opened here ({error})")
    return folder


def test_real_devices(node: PreflightNode, consoles: pathlib.Path) -> None:
    for step in (consoles, *consoles.parents):
        node.paths[str(step)] = result(stat.S_IFDIR, 0o755)
    for path in consoles.iterdir():
        node.paths[str(path)] = path.stat()
    context = node.context(
        devices=(f"{consoles}/nvidia*",), majors=(4,), expectation=Expectation(count=1), service_user=""
    )
    assert [check.ok for check in (device_nodes(context), device_kind(context), device_access(context))] == [True] * 3
    stale = node.context(devices=context.devices, majors=(5,), expectation=context.expectation)
    assert device_kind(stale).ok is False
    assert device_access(stale).ok is None
    owned = node.context(devices=context.devices, majors=(4,), expectation=context.expectation)
    assert "has mode 0660 and owner 0:0" in device_access(owned).detail
