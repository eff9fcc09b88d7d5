# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Container
from ansible_collections.cleanslate.gpu.plugins.module_utils._ownership import (
    Ownership,
    as_asked,
    hierarchies,
    owner_of,
    parse_path,
)

HEX = "0123456789abcdef" * 4
NODE = "0::/init.scope"
SESSION = "0::/user.slice/user-0.slice/session-3.scope"


def shape(owner: Ownership) -> dict[str, t.Any]:
    """What differs from a process of the node without a unit."""
    plain = Ownership()
    return {name: value for name, value in vars(owner).items() if name != "path" and value != getattr(plain, name)}


def unit(name: str, **more: t.Any) -> dict[str, t.Any]:
    return {"unit": name, "node_unit": name, **more}


def inside(kind: str, name: str, **more: t.Any) -> dict[str, t.Any]:
    return {"container": Container(kind, name), **more}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        # this node
        ("/", {}),
        ("/init.scope", {}),
        ("/system.slice", {}),
        ("/system.slice/sglang.service", unit("sglang.service")),
        ("/system.slice/sglang.service/worker/3", unit("sglang.service")),
        ("/system.slice/sglang.service (deleted)", unit("sglang.service")),
        ("/system.slice/system-sglang.slice/sglang@a.service", unit("sglang@a.service")),
        ("/gpu.slice/sglang.service", unit("sglang.service")),
        ("/system.slice/slurmstepd.scope/job_7/step_0", unit("slurmstepd.scope")),
        ("/user.slice/user-1000.slice/session-4.scope", {"session": True}),
        ("/user.slice/user-1000.slice/user@1000.service", {"session": True}),
        ("/user.slice/user-1000.slice/user@1000.service/init.scope", {"session": True}),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/app-tmux.scope", {"session": True}),
        ("/user.slice/user-1000.slice/user@1000.service/tmux-spawn-1.scope", {"session": True}),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service",
            unit("vllm.service", user_service=True, user_uid=1000),
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/vllm.service",
            unit("vllm.service", user_service=True, user_uid=1000),
        ),
        # what somebody starts below a scope of his own is no unit of his systemd
        ("/user.slice/user-1000.slice/user@1000.service/app-tmux.scope/vllm.service", {"session": True}),
        (
            f"/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service/libpod-payload-{HEX}",
            inside("podman", HEX, **unit("vllm.service", user_service=True, user_uid=1000)),
        ),
        ("/.lxc", {}),
        ("/system.slice/.lxc", {}),
        ("/.lxc/system.slice/x.service", inside("unknown", "/.lxc/system.slice/x.service")),
        ("/.lxc-7", {}),
        # Proxmox and LXC, seen from the host
        ("/lxc/101/ns/system.slice/x.service", inside("lxc", "101", unit="x.service")),
        ("/lxc/101/ns/x.service", inside("lxc", "101", unit="x.service")),
        ("/lxc/101/x.service", inside("lxc", "101", unit="x.service")),
        ("/lxc/101/ns/lxc/200/ns/x.service", inside("lxc", "101", nested=Container("lxc", "200"))),
        (f"/system.slice/docker-{HEX}.scope/lxc/200", inside("docker", HEX, nested=Container("lxc", "200"))),
        ("/lxc/101/ns/x.service/lxc/200", inside("lxc", "101", unit="x.service")),
        ("/lxc/101/ns/init.scope", inside("lxc", "101")),
        ("/lxc/101/ns", inside("lxc", "101")),
        ("/lxc/101", inside("lxc", "101")),
        ("/lxc/101/ns/.lxc", inside("lxc", "101")),
        ("/lxc/101/ns/.lxc-3", inside("lxc", "101")),
        ("/lxc/101/.lxc", inside("lxc", "101")),
        ("/lxc/101/ns/user.slice/user-0.slice/session-9.scope", inside("lxc", "101")),
        (
            f"/lxc/101/ns/system.slice/docker-{HEX}.scope",
            inside("lxc", "101", nested=Container("docker", HEX)),
        ),
        (f"/lxc/101/ns/docker/{HEX}", inside("lxc", "101", nested=Container("docker", HEX))),
        ("/lxc.monitor/101", {"lxc_monitor": True}),
        ("/lxc.monitor.web", {"lxc_monitor": True}),
        ("/lxc/web/system.slice/x.service", inside("plain-lxc", "web", unit="x.service")),
        ("/lxc.payload.web/system.slice/x.service", inside("plain-lxc", "web", unit="x.service")),
        ("/lxc.payload/web/init.scope", inside("plain-lxc", "web")),
        ("/lxc.payload.proj_c1/.lxc", inside("plain-lxc", "proj_c1")),
        ("/../../lxc/102/ns/x", inside("lxc", "102")),
        # engines
        (f"/system.slice/docker-{HEX}.scope", inside("docker", HEX)),
        (f"/docker/{HEX}", inside("docker", HEX)),
        (f"/docker/{HEX}/init.scope", inside("docker", HEX)),
        ("/docker/buildkit/abc", inside("docker", "abc")),
        (f"/machine.slice/libpod-{HEX}.scope/container", inside("podman", HEX)),
        (f"/machine.slice/libpod-conmon-{HEX}.scope", inside("podman", HEX)),
        (
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{HEX}.scope/container",
            inside("podman", HEX),
        ),
        (
            f"/system.slice/sglang.service/libpod-payload-{HEX}",
            inside("podman", HEX, unit="sglang.service", node_unit="sglang.service"),
        ),
        (
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/cri-containerd-{HEX}.scope",
            inside("kubernetes", HEX),
        ),
        (f"/kubepods/burstable/pod12/{HEX}", inside("kubernetes", HEX)),
        ("/kubepods/burstable", inside("kubernetes", "/kubepods/burstable")),
        (f"/system.slice/crio-{HEX}.scope", inside("crio", HEX)),
        (f"/system.slice/nerdctl-{HEX}.scope", inside("containerd", HEX)),
        (
            "/machine.slice/systemd-nspawn@web.service/payload/system.slice/x.service",
            inside("nspawn", "web", unit="x.service"),
        ),
        ("/machine.slice/web.scope", inside("machine", "web")),
        ("/qemu.slice/104.scope", inside("vm", "104")),
        ("/system.slice/apptainer-77.scope", inside("apptainer", "77")),
        # not understood: somebody else's
        ("/strange", inside("unknown", "/strange")),
        ("/garden/abc", inside("unknown", "/garden/abc")),
        (f"/custom/{HEX}", inside("unknown", f"/custom/{HEX}")),
        ("/system.slice/oddity/x.service", inside("unknown", "/system.slice/oddity/x.service")),
        ("/../x", inside("unknown", "/../x")),
        ("/lxc", inside("unknown", "/lxc")),
        ("/lxcfs/101", inside("unknown", "/lxcfs/101")),
    ],
)
def test_a_path_below_the_root_of_the_node(path: str, expected: dict[str, t.Any]) -> None:
    assert shape(owner_of(f"0::{path}", NODE, SESSION)) == expected


@pytest.mark.parametrize(
    ("init", "path", "expected"),
    [
        # inside a Proxmox container that has no cgroup namespace of its own
        ("/lxc/101/ns/init.scope", "/lxc/101/ns/system.slice/sglang.service", unit("sglang.service")),
        ("/lxc/101/ns/init.scope", "/lxc/101/ns/.lxc", {}),
        ("/lxc/101/ns/init.scope", "/lxc/101/ns/.lxc-2", {}),
        ("/lxc/101/ns/init.scope", "/lxc/102/ns/system.slice/x.service", inside("lxc", "102", unit="x.service")),
        ("/lxc/101/ns/init.scope", "/lxc/1012/ns", inside("lxc", "1012")),
        ("/lxc/101/ns/init.scope", f"/lxc/101/ns/docker/{HEX}", inside("docker", HEX)),
        ("/lxc/101/ns/init.scope", "/system.slice/x.service", inside("unknown", "/system.slice/x.service")),
        # inside a docker container
        (f"/docker/{HEX}", f"/docker/{HEX}", {}),
        (f"/docker/{HEX}", f"/docker/{HEX}/x", inside("unknown", "/x")),
    ],
)
def test_seen_from_inside_a_container(init: str, path: str, expected: dict[str, t.Any]) -> None:
    assert shape(owner_of(f"0::{path}", f"0::{init}", "0::" + init)) == expected


def test_the_group_of_the_module_is_the_node_whatever_it_is_called() -> None:
    assert shape(owner_of("0::/ci/job/7", "0::/", "0::/ci/job/7")) == {"own_group": True}
    assert shape(owner_of(f"0::/docker/{HEX}", "0::/", f"0::/docker/{HEX}")) == {"own_group": True}
    assert shape(owner_of("0::/system.slice/ssh.service", NODE, "0::/system.slice/ssh.service")) == unit(
        "ssh.service", own_group=True
    )
    # In a container without a cgroup namespace of its own, below PID 1's group and outside of it.
    init, own = "0::/lxc/101/ns/init.scope", "0::/lxc/101/ns/system.slice/ssh.service"
    assert shape(owner_of(own, init, own)) == unit("ssh.service", own_group=True)
    outside = "0::/system.slice/ssh.service"
    assert shape(owner_of(outside, init, outside)) == unit("ssh.service", own_group=True)
    assert owner_of("0::/ci/job/7/sub", "0::/", "0::/ci/job/7").container == Container("unknown", "/ci/job/7/sub")


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ("5:devices:/docker/abc\n1:name=systemd:/system.slice/x.service\n0::/", unit("x.service")),
        ("9:name=systemd:/\n4:memory:/process_api/1\n0::/", {}),
        ("1:name=systemd:/\n0::/system.slice/x.service", unit("x.service")),
        ("1:name=systemd:/system.slice/x.service\n0::/system.slice/y.service", unit("x.service")),
        (f"1:name=systemd:/docker/{HEX}\n0::/", inside("docker", HEX)),
        (f"1:name=systemd:/docker/{HEX}\n0::/system.slice/containerd.service", inside("docker", HEX)),
        (f"1:name=systemd:/system.slice/containerd.service\n0::/docker/{HEX}", inside("docker", HEX)),
        ("1:name=systemd:/lxc/101/ns/init.scope\n0::/lxc/101/ns/init.scope", inside("lxc", "101")),
        ("4:memory:/docker/abc", {}),
        ("", {}),
    ],
)
def test_only_the_hierarchies_of_systemd_count(cgroup: str, expected: dict[str, t.Any]) -> None:
    init = "9:name=systemd:/init.scope\n4:memory:/\n0::/init.scope"
    assert shape(owner_of(cgroup, init, init)) == expected


def test_a_group_that_cannot_be_read_is_a_container() -> None:
    owner = owner_of(None, NODE, SESSION)
    assert owner.container is not None
    assert owner.container.kind == "unknown"


def test_hierarchies() -> None:
    assert hierarchies("9:name=systemd:/a:b\n0::/c (deleted)\n1:cpu,cpuacct:/d") == ("/a:b", "/c")
    assert hierarchies("nonsense\n") == (None, None)


USER = "/user.slice/user-1000.slice/user@1000.service/app.slice/"


@pytest.mark.parametrize(
    ("path", "scope", "uid", "expected"),
    [
        ("/system.slice/sglang.service", "system", 0, "sglang.service"),
        ("/system.slice/sglang.service", "user", 1000, None),
        (USER + "sglang.service", "system", 0, None),
        (USER + "sglang.service", "user", 1000, "sglang.service"),
        (USER + "sglang.service", "user", 1001, None),
        (USER + "sglang.service", "user", 0, None),
    ],
)
def test_a_unit_belongs_to_the_systemd_that_has_it(path: str, scope: t.Any, uid: int, expected: str | None) -> None:
    owner = as_asked(owner_of(f"0::{path}", NODE, SESSION), scope, uid)
    assert (owner.unit, owner.node_unit) == ("sglang.service", expected)


@pytest.mark.parametrize("name", ["ss?.service", "*.service", "a b.service", "[s]sh.service", "ssh.service\n"])
@pytest.mark.parametrize("folder", ["/system.slice/", USER])
def test_a_group_that_systemctl_would_take_for_a_pattern_is_nobodys_unit(folder: str, name: str) -> None:
    owner = parse_path(folder + name)
    assert (owner.unit, owner.node_unit) == (None, None)
