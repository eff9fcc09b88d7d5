# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Holders of real character devices, in real cgroups. Needs root, mknod and a hierarchy of systemd's to make groups in.

The nodes are unused virtual consoles (4:20 to 4:63): they open, and nobody else has them. Never take the numbers of a
device that others hold, because holders are matched by number. Consoles cannot be mapped, so who computes is what a
made-up list of compute processes says.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import GpuProcess
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Container, Holder, HolderScan, Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest, hold_again, look_for_holders

UUID = "GPU-061bfd71-05da-2c88-8018-a460eaf5d6e7"
HEX = "0123456789abcdef" * 4
HIERARCHIES = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")
TAG = f"cleanslate-test-{os.getpid()}"
VMID = str(900_000_000 + os.getpid())  # no container of this machine
HOLD = """
import os, sys, time
os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
print("ready", flush=True)
time.sleep(300)
"""


def why_not() -> str:
    """Why these tests cannot run here, empty where they can."""
    if os.geteuid() != 0:
        return "needs root to make device nodes and control groups"
    probe = pathlib.Path("/tmp") / f"{TAG}-probe"
    try:
        os.mknod(probe, stat.S_IFCHR | 0o600, os.makedev(4, 20))
        os.close(os.open(probe, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError as error:
        return f"mknod c 4 20 or opening it is not possible here: {error.strerror}"
    finally:
        probe.unlink(missing_ok=True)
    if hierarchy() is None:
        return f"no control group can be made in any of {', '.join(HIERARCHIES)}"
    return ""


def hierarchy() -> str | None:
    """A hierarchy that the scan reads and in which a group can be made."""
    own = pathlib.Path("/proc/self/cgroup").read_text()
    for root in HIERARCHIES:
        wanted = "name=systemd" if root.endswith("systemd") else "0::"
        probe = pathlib.Path(root) / f"{TAG}-probe"
        if not os.path.exists(f"{root}/cgroup.procs") or wanted not in own:
            continue
        try:
            probe.mkdir()
            probe.rmdir()
        except OSError:
            continue
        return root
    return None


_REASON = why_not()
pytestmark = pytest.mark.skipif(bool(_REASON), reason=_REASON or "can run here")


def free_minors(count: int) -> list[int]:
    """Consoles that nobody has open, so that two runs at the same time do not see each other's holders."""
    held = set()
    for path in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            held.add(path.stat().st_rdev)
    free = [minor for minor in range(20, 64) if os.makedev(4, minor) not in held]
    start = os.getpid() % max(len(free) - count, 1)
    return free[start : start + count]


class Machine:
    """Nodes, groups and holders of one test; everything is taken away again."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []
        self.groups: list[pathlib.Path] = []
        self.active: dict[str, bool | None] = {}
        self.gpu, self.second_gpu, self.control, self.other = free_minors(4)
        for name, minor in (("nvidia0", self.gpu), ("nvidia1", self.second_gpu), ("nvidiactl", self.control)):
            self.mknod(f"dev/{name}", minor)

    def mknod(self, name: str, minor: int) -> pathlib.Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(4, minor))
        return path

    def group(self, name: str) -> pathlib.Path:
        path = pathlib.Path(str(hierarchy())) / name.lstrip("/")
        for place in [*reversed(path.parents), path]:
            if not place.exists():
                place.mkdir()
                self.groups.append(place)
        return path

    def hold(self, node: str = "dev/nvidia0", group: str | None = None, program: str = sys.executable) -> int:
        process = subprocess.Popen(
            [program, "-c", HOLD, str(self.folder / node)], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if group is not None:
            (self.group(group) / "cgroup.procs").write_text(str(process.pid))
        return process.pid

    def request(self, scope: Scope, **more: t.Any) -> ScanRequest:
        return ScanRequest(scope, devices=(str(self.folder / "dev/nvidia*"),), majors=(4,), timeout=60, **more)

    def scan(self, scope: Scope, computing: t.Sequence[int] = ()) -> HolderScan:
        scan = look_for_holders(
            self.request(scope),
            [GpuProcess(UUID, pid, "python3", 100) for pid in computing],
            unit_states=lambda units: {unit: self.active.get(unit) for unit in units},
            clock=SystemClock(),
        )
        assert scan.complete, scan.incomplete_reason
        return scan

    def look(self, scope: Scope, computing: t.Sequence[int] = ()) -> dict[int, Holder]:
        return {holder.pid: holder for holder in self.scan(scope, computing).holders}

    def clean(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        for group in reversed(self.groups):
            for _attempt in range(100):
                try:
                    group.rmdir()
                    break
                except OSError:
                    time.sleep(0.05)


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> t.Iterator[Machine]:
    made = Machine(tmp_path)
    try:
        yield made
    finally:
        made.clean()


OWN = Scope("own", units=("sglang-test.service",))


def test_a_second_node_of_the_same_number(machine: Machine) -> None:
    machine.mknod("elsewhere/nvidia7", machine.gpu)
    machine.mknod("elsewhere/other", machine.other)
    pid = machine.hold("elsewhere/nvidia7")
    machine.hold("elsewhere/other")
    found = machine.look(OWN, [pid])
    assert set(found) == {pid}
    assert found[pid].devices == (str(machine.folder / "dev/nvidia0"),)
    assert found[pid].disposition == "target"
    assert found[pid].gpus == (UUID,)


@pytest.mark.skipif(shutil.which("fuser") is None, reason="fuser is not installed")
def test_fuser_does_not_see_that_one(machine: Machine) -> None:
    machine.mknod("elsewhere/nvidia7", machine.gpu)
    pid = machine.hold("elsewhere/nvidia7")
    seen = subprocess.run(["fuser", str(machine.folder / "dev/nvidia0")], capture_output=True, text=True, check=False)
    assert str(pid) not in seen.stdout.split()
    assert pid in machine.look(OWN)


def test_a_node_of_another_major_is_stale(machine: Machine) -> None:
    os.mknod(machine.folder / "dev/nvidia-uvm", stat.S_IFCHR | 0o666, os.makedev(61, 7))
    (machine.folder / "dev/nvidia9").write_text("")
    scan = machine.scan(OWN)
    assert [os.path.basename(node.path) for node in scan.stale_nodes] == ["nvidia-uvm"]
    request = ScanRequest(OWN, devices=(str(machine.folder / "dev/nvidia*"), "/dev/none*"), majors=(4,), timeout=60)
    scan = look_for_holders(request, unit_states=lambda units: {}, clock=SystemClock())
    assert {os.path.basename(node.path) for node in scan.stale_nodes} == {"nvidia-uvm", "nvidia9"}


def test_everybody_in_their_groups(machine: Machine) -> None:
    groups = {
        "unit": "system.slice/sglang-test.service",
        "other": "system.slice/other-test.service",
        "ended": "system.slice/ended-test.service",
        "user": f"user.slice/user-4242.slice/user@4242.service/app.slice/{TAG}.service",
        "session": f"user.slice/user-4242.slice/session-{os.getpid()}.scope",
        "lxc": f"lxc/{VMID}/ns/system.slice/x.service",
        "payload": f"lxc.payload.{TAG}/system.slice/sglang-test.service",
        "monitor": f"lxc.monitor/{VMID}",
        "docker": f"system.slice/docker-{HEX}.scope",
        "nested": f"lxc/{VMID}/ns/docker/{HEX}",
        "attached": f"lxc/{VMID}/ns/.lxc",
        "unknown": f"{TAG}-strange/x",
    }
    pids = {name: machine.hold(group=group) for name, group in groups.items()}
    pids["bare"] = machine.hold()
    machine.active = {"other-test.service": True, "ended-test.service": False}
    everybody = list(pids.values())

    def found(scope: Scope, computing: t.Sequence[int] | None = None) -> dict[str, str]:
        seen = machine.look(scope, everybody if computing is None else computing)
        assert set(seen) == set(everybody)
        return {name: seen[pid].disposition for name, pid in pids.items()}

    foreign = dict.fromkeys(pids, "foreign") | {"monitor": "never"}
    own = {"unit": "target", "ended": "target", "session": "target", "bare": "target"}
    assert found(OWN) == foreign | own
    assert found(Scope("unit", units=("sglang-test.service",))) == foreign | {"unit": "target"}
    assert found(Scope("lxc", lxc=(VMID,))) == foreign | dict.fromkeys(("lxc", "nested", "attached"), "target")
    assert found(Scope("own", containers=(HEX[:12],))) == foreign | own | {"unit": "foreign", "docker": "target"}
    assert found(Scope("all")) == dict.fromkeys(pids, "target") | {"monitor": "never"}
    # none of them computes: only what belongs to the unit is more than a monitor
    assert found(OWN, []) == dict.fromkeys(pids, "monitor") | {"monitor": "never", "unit": "target"}

    seen = machine.look(OWN)
    assert seen[pids["lxc"]].container == Container("lxc", VMID)
    assert seen[pids["lxc"]].unit == "x.service"
    assert seen[pids["attached"]].unit is None
    assert seen[pids["payload"]].container == Container("plain-lxc", TAG)
    assert seen[pids["docker"]].container == Container("docker", HEX)
    assert seen[pids["unit"]].unit == "sglang-test.service"
    unknown = seen[pids["unknown"]].container
    assert unknown is not None
    assert unknown.kind == "unknown"


def test_a_protected_daemon_by_its_executable_and_not_by_its_name(machine: Machine) -> None:
    daemon = machine.folder / "nv-hostengine"
    shutil.copy2("/bin/sleep", daemon)
    handle = os.open(machine.folder / "dev/nvidia0", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        for argv, executable in ((["python3", "300"], str(daemon)), (["nv-hostengine", "300"], "/bin/sleep")):
            machine.processes.append(
                subprocess.Popen(argv, executable=executable, pass_fds=[handle], text=True, start_new_session=True)
            )
    finally:
        os.close(handle)
    real, pretender = (process.pid for process in machine.processes)
    found = machine.look(OWN, [real, pretender])
    assert found[real].disposition == "protected"
    assert found[pretender].disposition == "target"


def test_the_shell_that_started_the_module_is_spared(machine: Machine) -> None:
    """A shell that has a node open runs the module, with every right to end everything."""
    arguments = machine.folder / "arguments.json"
    params = {
        "devices": [str(machine.folder / "dev/nvidia*")],
        "majors": [4],
        "scope": "all",
        "allow_foreign": True,
        "processes": False,
    }
    arguments.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": params}))
    other = machine.hold()
    module = "ansible_collections.cleanslate.gpu.plugins.modules.gpu_holders_info"
    script = f'exec 9<"$1"; "{sys.executable}" -m {module} "$2"; true'
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run(
        ["sh", "-c", script, "sh", str(machine.folder / "dev/nvidia0"), str(arguments)],
        capture_output=True, text=True, check=True, env=environment, timeout=300,
    )  # fmt: skip
    holders = json.loads(done.stdout)["holders"]
    found = {holder["pid"]: holder["disposition"] for holder in holders}
    assert found.pop(other) == "monitor"
    assert list(found.values()) == ["self", "self"]  # the shell, and the module that inherited the node from it
    assert "sh" in {holder["comm"] for holder in holders}


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_a_child_pid_namespace_is_a_container_of_unknown_kind(machine: Machine) -> None:
    node = machine.folder / "dev/nvidia0"
    process = subprocess.Popen(
        ["unshare", "-pf", "sh", "-c", f'"{sys.executable}" -c "$1" "$2" & wait', "sh", HOLD, str(node)],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    machine.processes.append(process)
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        pytest.skip("no PID namespace can be made here")
    try:
        seen = machine.look(OWN)
        (pid,) = seen
        found = machine.look(Scope("own"), [pid])[pid]
        assert found.disposition == "foreign"
        assert found.container is not None
        assert found.container.kind == "unknown"
        assert found.ns_pid != pid
    finally:
        for victim in machine.look(OWN):
            os.kill(victim, signal.SIGKILL)


def test_hold_again(machine: Machine) -> None:
    pid = machine.hold()
    holder = machine.look(OWN, [pid])[pid]
    assert hold_again([holder], machine.request(OWN)) != (None,)
    os.kill(pid, signal.SIGKILL)
    machine.processes[-1].wait()
    assert hold_again([holder], machine.request(OWN)) == (None,)


def test_nothing_is_left(machine: Machine) -> None:
    group = machine.group(f"system.slice/{TAG}.service")
    machine.hold(group=f"system.slice/{TAG}.service")
    machine.clean()
    assert not group.exists()
