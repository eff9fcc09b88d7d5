# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The played host is what it says: each claim of README.md that the scenarios rely on."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request

import commands
import consoles
import containers
import layout
import pytest
from inside import host_smi, memory

GPU_QUERY = "--query-gpu=index,memory.used"
APPS_QUERY = "--query-compute-apps=pid,process_name,used_memory"


def cgroup(pid: int) -> dict[str, str]:
    """Hierarchy ("" is the unified one) → path."""
    with open(f"/proc/{pid}/cgroup", encoding="utf-8") as handle:
        return {line.split(":", 2)[1]: line.rstrip("\n").split(":", 2)[2] for line in handle}


def test_both_containers_run_real_systemd(ct101, ct102):
    for inside in (ct101, ct102):
        assert containers.about(inside.about)["systemd"] == "running"
        assert inside.ssh("cat /proc/1/comm; hostname").split() == ["systemd", inside.about.name]
        with open(f"/proc/{inside.init()}/comm", encoding="ascii") as handle:
            assert handle.read() == "systemd\n"


def test_a_unit_has_proxmox_cgroup_path_on_the_host_and_its_own_inside(ct101, ct102):
    for inside in (ct101, ct102):
        inside.run_unit("test-x", "sleep", "600")
        pid = inside.main_pid("test-x.service")
        expected = f"/lxc/{inside.about.vmid}/ns/system.slice/test-x.service"
        seen = cgroup(pid)
        assert seen[""] == expected
        assert seen.get("name=systemd", expected) == expected
        inner = inside.pct("sh", "-c", "cat /proc/$(systemctl show --value -p MainPID test-x.service)/cgroup")
        assert "0::/system.slice/test-x.service" in inner.splitlines()


def test_pct_exec_lands_in_a_leaf_outside_every_unit(ct101, ct102):
    for inside in (ct101, ct102):
        pid = inside.hold(0, 100)
        assert cgroup(pid)[""] == f"/lxc/{inside.about.vmid}/ns/.lxc"


def test_an_ssh_session_is_a_session_scope(ct101):
    assert "0::/user.slice/user-0.slice/session-" in ct101.ssh("cat /proc/self/cgroup")


def test_the_monitor_is_outside_the_container(ct101):
    with open(f"/proc/{ct101.init()}/stat", "rb") as handle:
        monitor = int(handle.read().rpartition(b")")[2].split()[1])
    assert cgroup(monitor)[""] == "/lxc.monitor/101"


def test_the_pid_namespace_proves_which_container_it_is(ct101, ct102):
    told = {inside.about.vmid: inside.ssh("readlink /proc/1/ns/pid").strip() for inside in (ct101, ct102)}
    seen = {inside.about.vmid: os.readlink(f"/proc/{inside.init()}/ns/pid") for inside in (ct101, ct102)}
    assert told == seen
    assert len({*told.values(), os.readlink("/proc/self/ns/pid")}) == 3


def test_nodes_have_one_number_and_the_inode_of_their_style(ct101, ct102):
    for name, minor in layout.CONSOLES.items():
        host = os.stat(os.path.join(layout.NODE, "dev", name))
        assert host.st_rdev == os.makedev(layout.TTY_MAJOR, minor)
        for inside, same in ((ct101, True), (ct102, False)):
            node = os.stat(f"/proc/{inside.init()}/root/dev/{name}")
            assert node.st_rdev == host.st_rdev
            assert ((node.st_dev, node.st_ino) == (host.st_dev, host.st_ino)) is same


def test_the_device_cgroup_allows_the_gpus_and_no_other_console(ct101, ct102):
    for inside in (ct101, ct102):
        told = inside.pct("sh", "-c", "mknod /root/c c 4 40; (: <>/root/c) 2>&1; (: <>/dev/nvidia0) 2>&1; rm /root/c")
        assert "Operation not permitted" in told
        assert "nvidia0" not in told


def test_fuser_and_lsof_on_the_host_miss_the_devn_holder(ct101, ct102):
    bound, made = ct101.hold(1, 100), ct102.hold(1, 100)
    node = os.path.join(layout.NODE, "dev", "nvidia1")
    for tool in (["fuser"], ["lsof", "-t"]):
        seen = {int(word) for word in commands.run([*tool, node], check=False).stdout.split()}
        assert bound in seen, tool
        assert made not in seen, tool
    by_number = {int(who.split()[0]) for who in consoles.holders()[layout.CONSOLES["nvidia1"]]}
    assert {bound, made} <= by_number


def test_memory_is_the_whole_gpus_and_processes_are_those_of_the_namespace(ct101, ct102):
    first, second = ct101.hold(1, 3000), ct102.hold(1, 500)
    other = ct102.hold(5, 700)
    expected = [[str(n), str({1: 3500, 5: 700}.get(n, 0))] for n in range(layout.GPUS)]
    assert host_smi(GPU_QUERY) == ct101.smi(GPU_QUERY) == ct102.smi(GPU_QUERY) == expected
    assert sorted(int(row[0]) for row in host_smi(APPS_QUERY)) == sorted((first, second, other))
    assert {row[1] for row in host_smi(APPS_QUERY)} == {layout.PYTHON}
    assert [ct101.host_pid(int(row[0])) for row in ct101.smi(APPS_QUERY)] == [first]
    assert sorted(ct102.host_pid(int(row[0])) for row in ct102.smi(APPS_QUERY)) == sorted((second, other))


def test_memory_that_a_dead_parents_fork_holds_is_listed_on_the_host_only(ct102):
    orphan = ct102.hold(3, 900, ', "shape": ["child"]')
    (row,) = host_smi(APPS_QUERY)
    assert row[1] == "[Not Found]"
    assert int(row[0]) != orphan
    assert ct102.smi(APPS_QUERY) == []
    assert host_smi("--query-gpu=memory.used")[3] == ct102.smi("--query-gpu=memory.used")[3] == ["900"]


def test_pct(played):
    def pct(*words: str) -> subprocess.CompletedProcess[str]:
        return commands.run([layout.PCT, *words], check=False)

    assert pct("status", "101").stdout == "status: running\n"
    assert [line.split() for line in pct("list").stdout.splitlines()] == [
        ["VMID", "Status", "Lock", "Name"], ["101", "running", "ct101"], ["102", "running", "ct102"],
    ]  # fmt: skip
    assert "lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none" in pct("config", "101").stdout
    assert "dev0: /dev/nvidia0,mode=0666" in pct("config", "102").stdout
    assert pct("exec", "101", "--", "sh", "-c", "exit 7").returncode == 7
    assert pct("status", "103").returncode == 2


def test_ansible_reaches_all_three_and_only_with_the_key(played):
    adhoc = [
        sys.executable,
        "-m",
        "ansible",
        "adhoc",
        "-i",
        layout.INVENTORY,
        "all",
        "-m",
        "ansible.builtin.ping",
        "-o",
    ]
    environment = dict(os.environ, ANSIBLE_CONFIG=os.path.join(layout.ROOT, "ansible.cfg"))
    done = subprocess.run(adhoc, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(line.split()[0] for line in done.stdout.splitlines() if "SUCCESS" in line) == [
        "ct101",
        "ct102",
        "pve",
    ]
    without = [word for word in containers.ssh_command(layout.CONTAINERS[0]) if not word.endswith("/key")]
    without.remove("-i")
    refused = commands.run([*without, "true"], check=False)
    assert refused.returncode == 255
    assert "Permission denied (publickey)" in refused.stderr


UNIT = """[Service]
Type=exec
User=sglang
ExecStart=/opt/sglang/bin/python -m sglang.launch_server --config /etc/test-sglang.yaml
KillMode=mixed
StandardError=append:/run/test-sglang.log
"""
CONFIG = "model-path: /models/x\nserved-model-name: x\ntp-size: %s\nhost: 0.0.0.0\nport: %s\n"


@pytest.mark.parametrize(("vmid", "visible"), [(101, ""), (102, "4,5,6,7")])
def test_the_fake_sglang_serves_as_a_real_unit(played, request, vmid, visible):
    inside = request.getfixturevalue(f"ct{vmid}")
    gpus = [int(n) for n in visible.split(",")] if visible else list(range(layout.GPUS))
    inside.put("/etc/test-sglang.yaml", CONFIG % (len(gpus), layout.PORT))
    inside.put("/run/systemd/system/test-sglang.service", UNIT + "Environment=SIM_LOAD_S=1\n"
               + (f"Environment=CUDA_VISIBLE_DEVICES={visible}\n" if visible else ""))  # fmt: skip
    inside.pct("systemctl", "daemon-reload")
    inside.pct("systemctl", "start", "test-sglang.service")

    def healthy() -> bool:
        url = f"http://{inside.about.address}:{layout.PORT}/health"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    commands.wait_for("the server answers", healthy, 60)
    assert memory() == [76115 if n in gpus else 0 for n in range(layout.GPUS)]
    listed = host_smi(APPS_QUERY)
    assert [row[1] for row in listed] == [f"sglang::scheduler_TP{n}" for n in range(len(gpus))]
    for row in listed:
        assert cgroup(int(row[0]))[""] == f"/lxc/{vmid}/ns/system.slice/test-sglang.service"
    owner = os.stat(f"/proc/{listed[0][0]}").st_uid
    assert owner == int(inside.pct("id", "-u", "sglang"))
    assert owner != 0
    inside.pct("systemctl", "stop", "test-sglang.service")
    commands.wait_for("memory is given back", lambda: host_smi(APPS_QUERY) == [], 30)
