# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import contexts
import node as nodes
import processes
import pytest
import stories
from driving import until

SIMULATE = str(pathlib.Path(nodes.HERE, "simulate.py"))


def command(*words, **more):
    return subprocess.run([sys.executable, SIMULATE, *words], capture_output=True, text=True, timeout=60, check=False,
                          **more)  # fmt: skip


def state(pid):
    return (contexts.process_stat(pid) or "?")[0]


def gone(pid):
    """Ended, whether or not somebody has collected it."""
    return state(pid) in "?ZX"


# ---- who holds memory


def test_memory_is_there_as_long_as_its_holder(node):
    pid = node.hold(1, 5000)
    assert node.used() == [0, 5000, 0, 0, 0, 0, 0, 0]
    uuid = node.about["gpus"][1]["uuid"]
    assert node.apps() == [[uuid, str(pid), sys.executable, "4988"]]
    held = node.processes()["holder"][0]
    assert len([name for name in held.fds if name.startswith("dev/nvidia")]) == 8 + 3 + 2
    assert {n for n in held.maps if n.startswith("dev/")} == {"dev/nvidia1", "dev/nvidiactl", "dev/nvidia-uvm"}
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: node.used() == [0] * 8)
    assert node.apps() == []


def test_a_monitor_holds_descriptors_and_no_memory(node):
    node.hold(1, 5000, no_map=True)
    held = node.processes()["holder"][0]
    assert "dev/nvidia1" in held.fds
    assert not held.maps
    assert (node.used(), node.apps()) == ([0] * 8, [])


def test_a_context_without_an_allocation_is_4_mib_and_not_listed(node):
    node.hold(1, contexts.CONTEXT_ONLY_MIB)
    assert (node.used()[1], node.apps()) == (4, [])


def test_a_mapping_without_a_descriptor_holds_on(node):
    pid = node.hold(2, 700, map_only=True)
    held = node.processes()["holder"][0]
    assert "dev/nvidia2" in held.maps
    assert not held.fds
    assert node.used()[2] == 700
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: node.used()[2] == 0)


def test_a_fork_keeps_the_context_of_its_dead_parent(node):
    pid = node.hold(1, 10859, shape=["child"])
    apps = node.apps()
    assert node.used()[1] == 10859
    assert [row[2] for row in apps] == ["[Not Found]"]
    named = int(apps[0][1])
    assert (named != pid, gone(named)) == (True, True), "the dead parent's pid is named, not the child's"
    held = node.processes()["inheritor"][0]
    assert (held.pid, "dev/nvidia1" in held.fds) == (pid, True)
    assert {n for n in held.maps if n.startswith("dev/")} == {"dev/nvidia1", "dev/nvidiactl"}, "uvm is not inherited"
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: node.used()[1] == 0)


def test_an_executed_child_inherits_nothing(node):
    """Device descriptors are close-on-exec, so only forks matter."""
    code = (
        f"import os, subprocess, sys; sys.path.insert(0, {nodes.HERE!r}); import contexts, hold, kernel\n"
        f"fds = hold.open_all({node.path!r}); hold.map_gpu(fds, 1)\n"
        f"a = contexts.Allocation({node.path!r}, 1, 900, {{}})\n"
        "child = subprocess.Popen(['sleep', '60'], close_fds=False, stdout=subprocess.DEVNULL,\n"
        " stderr=subprocess.DEVNULL); print(child.pid)\n"
    )
    environment = dict(os.environ, CLEANSLATE_SIMULATED_NODE=node.path)
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert state(int(done.stdout)) in ("S", "R")
    assert until(lambda: node.used()[1] == 0)


def test_a_zombie_leader_holds_on_through_its_thread(node):
    pid = node.hold(3, 800, shape=["zombie"], name="sglang::scheduler_TP3")
    assert state(pid) == "Z"
    assert len(os.listdir(f"/proc/{pid}/task")) == 2
    try:
        assert os.listdir(f"/proc/{pid}/fd") == []
    except PermissionError:  # a corpse's folder, seen by a plain user
        assert os.geteuid() != 0
    assert pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="ascii") == "sglang::schedul\n"
    held = node.processes()["holder"][0]
    assert (held.pid, "dev/nvidia3" in held.fds) == (pid, True), "through the living thread"
    assert (node.used()[3], node.apps()[0][1:3]) == (800, [str(pid), "[Not Found]"])
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: node.used()[3] == 0)


def test_a_dying_holder_is_z_without_files_and_its_memory_is_still_up(node):
    pid = node.hold(1, 900, shape=["unreaped"], release_delay=1.5)
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: state(pid) == "Z")
    assert node.used()[1] == 900
    assert "ShdPnd:\t0000000000000100" in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    assert "holder" not in node.processes()
    assert until(lambda: node.used()[1] == 0)
    assert until(lambda: gone(pid))


def test_a_holder_that_ignores_term_and_one_with_a_title(node):
    pid = node.hold(1, 900, ignore_term=True, name="nvidia-persistenced")
    os.kill(pid, signal.SIGTERM)
    time.sleep(0.1)
    assert state(pid) == "S"
    assert pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0") == b"nvidia-persistenced"
    assert pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="ascii") == "nvidia-persiste\n"


def test_a_second_node_of_the_same_device(node, tmp_path):
    second = tmp_path / "other-nvidia1"
    os.link(node.path + "/dev/nvidia1", str(second))
    node.hold(1, 900, second_node=str(second))
    assert "dev/nvidia1" not in node.processes()["holder"][0].fds
    assert node.used()[1] == 900


# ---- how memory comes back


def test_the_release_curve_as_measured():
    scenario = {"release_curve": [[4843, 1], [4712, 7]], "release_tail": [4, 1]}
    seen = [(age, contexts.still_used(freed(-age, 4843), scenario, 0)) for age in (0, 0.9, 1.1, 7.9, 8.1, 8.9, 9.1)]
    assert seen == [(0, 4843), (0.9, 4843), (1.1, 4712), (7.9, 4712), (8.1, 4), (8.9, 4), (9.1, 0)]


def freed(moment, mib, **release):
    return contexts.Context("x.ctx", 1, mib, 1, 1, False, moment, release)


@pytest.mark.parametrize(("context", "scenario", "expected"), [
    (freed(-0.2, 500, delay_s=0.25), {}, 500),
    (freed(-0.3, 500, delay_s=0.25), {}, 0),
    (freed(-0.3, 500, delay_s=0.25), {"release_delay_s": 1}, 500),
    (freed(-0.3, 500, delay_s=0.25, tail=[4, 1]), {}, 4),
    (freed(-1.3, 500, delay_s=0.25, tail=[4, 1]), {}, 0),
    (freed(-0.1, 4, delay_s=5), {}, 0),
    (freed(-9999, 500), {"never_clears": [1]}, 500),
    (freed(-9999, 500), {"never_clears": [0]}, 0),
    (freed(-1, 500)._replace(held=True, freed_at=None), {}, 500),
])  # fmt: skip
def test_what_is_still_used(context, scenario, expected):
    assert contexts.still_used(context, scenario, 0) == expected


def test_the_delay_counts_from_the_death_also_if_nobody_looks(node):
    pid = node.hold(1, 900, release_delay=0.3)
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)
    assert until(lambda: not list(pathlib.Path(node.path, "contexts").glob("*.ctx"))), "the driver drops it by itself"
    assert node.used()[1] == 0
    assert until(lambda: node.processes() == {}), "and ends by itself"


def test_memory_that_never_clears(node):
    node.script(never_clears=[1])
    for gpu in (0, 1):
        os.kill(node.hold(gpu, 900), signal.SIGKILL)
    assert until(lambda: node.used() == [0, 900, 0, 0, 0, 0, 0, 0])
    assert until(lambda: node.processes() == {})
    assert node.used()[1] == 900
    node.script(never_clears={"6": 76115})
    assert node.used() == [0, 0, 0, 0, 0, 0, 76115, 0]


# ---- the folder, its processes, and their end


def test_create_again_completes_and_keeps(node, tmp_path):
    os.unlink(node.path + "/dev/nvidia5")
    os.unlink(node.path + "/bin/nvidia-smi")
    assert command("create", node.path).returncode == 0
    assert nodes.read(node.path)["gpus"] == node.about["gpus"]
    assert nodes.read(node.path)["port"] == node.port
    assert len(node.used()) == 8


def test_only_what_create_made_is_stopped_or_removed(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("x", encoding="ascii")
    for words in (["create"], ["stop"], ["destroy"], ["status"]):
        done = command(*words, str(tmp_path / "mine"))
        assert done.returncode == 1
        assert "simulat" in done.stderr
    with pytest.raises(nodes.NodeError, match="left alone"):
        nodes.destroy(str(tmp_path / "mine"))
    assert (tmp_path / "mine" / "file").exists()
    for words in (["stop"], ["destroy"]):
        assert command(*words, str(tmp_path / "nothing-here")).returncode == 0


def test_a_half_made_node_can_be_completed_and_removed(tmp_path):
    half = tmp_path / "half"
    half.mkdir()
    (half / ".simulated-node").write_text("x", encoding="ascii")
    assert command("stop", str(half)).returncode == 0
    assert command("create", str(half), "--gpus", "2").returncode == 0
    assert len(nodes.read(str(half))["gpus"]) == 2
    assert command("destroy", str(half)).returncode == 0
    assert not half.exists()
    assert command("destroy", str(half)).returncode == 0


def test_stop_ends_every_kind_of_process_and_nobody_else(node):
    pids = [node.hold(0, 900), node.hold(1, 900, shape=["zombie"]), node.hold(2, 900, shape=["child"]),
            node.hold(3, 900, map_only=True, ignore_term=True), node.hold(4, 900, shape=["unreaped"])]  # fmt: skip
    environment = dict(os.environ, CLEANSLATE_SIMULATED_NODE=node.path + "-of-another")
    assert [one.why for one in node.processes()["driver"]] == ["environment"]
    argv = [sys.executable, "-c", "import time; time.sleep(60)", node.path]
    with subprocess.Popen(argv, env=environment) as stranger:
        done = command("stop", node.path)
        assert (done.returncode, done.stderr) == (0, "")
        assert all(gone(pid) for pid in pids)
        assert node.processes() == {}
        assert stranger.poll() is None
        stranger.kill()
    assert node.used() == [0] * 8


def test_the_processes_of_a_node_end_with_whoever_it_was_made_for(tmp_path):
    """A run that was killed leaves no server behind, whatever its node's folder still holds."""
    folder = str(tmp_path / "kept")
    keeper = subprocess.Popen(["sleep", "600"])
    try:
        made = command("create", folder, env={**os.environ, "CLEANSLATE_SIMULATED_KEEPER": str(keeper.pid)})
        assert made.returncode == 0, made.stderr
        holder = int(command("hold", folder, "--gpu", "1", "--ignore-term").stdout)
        launcher = int(command("start-server", folder, "--wait", "loaded").stdout)
        everyone = {process.pid for process in processes.belonging(folder)}
        assert {holder, launcher} < everyone
        assert processes.is_wanted(folder)
        keeper.kill()
        keeper.wait()
        assert not processes.is_wanted(folder)
        assert until(lambda: all(gone(pid) for pid in everyone)), processes.belonging(folder)
        assert os.path.exists(os.path.join(folder, "node.json")), "what was seen can still be read"
        # Made anew for nobody in particular, it stays.
        assert command("create", folder).returncode == 0
        assert processes.is_wanted(folder)
    finally:
        keeper.kill()
        command("destroy", folder)


def test_stop_finds_a_holder_that_nothing_but_its_hold_gives_away(node):
    code = "import sys, time; handle = open(sys.argv[1], 'r+b'); print('open', flush=True); time.sleep(60)"
    argv = [sys.executable, "-c", code, node.path + "/dev/nvidia0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as stranger:
        stranger.stdout.readline()
        node.stop()
        assert stranger.wait(10) == -signal.SIGKILL


def test_stop_never_ends_its_own_ancestors(node):
    with open(node.path + "/dev/nvidia0", "rb"):
        assert command("stop", node.path).returncode == 0


def test_an_interrupted_story_leaves_nothing_after_stop(node):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CLEANSLATE")}
    with subprocess.Popen([sys.executable, SIMULATE, "story", node.path, "stuck_gpu"], env=environment,
                          stdout=subprocess.DEVNULL) as story:  # fmt: skip
        assert until(lambda: "scheduler_TP5" in node.processes())
        story.kill()
    node.stop()
    assert node.processes() == {}


def test_whoever_is_left_when_the_folder_is_removed_ends_by_himself(node):
    pids = [node.hold(1, 900, shape=["child"]), node.hold(2, 900, shape=["zombie"])]
    stories.tell(node.path, "serving", gpu=1, mib=900, ignore_term=True)
    pids += [found[0].pid for role, found in node.processes().items() if role.startswith(("scheduler", "launcher"))]
    assert len(pids) == 2 + 8 + 1
    nodes.destroy(node.path)
    assert until(lambda: all(gone(pid) for pid in pids))


def test_two_nodes_at_once(make_node):
    one, other = make_node("one"), make_node("other", gpus=2)
    assert one.port != other.port
    pid = one.hold(1, 900)
    other.hold(1, 70)
    assert (one.used()[:2], other.used()) == ([0, 900], [0, 70])
    other.stop()
    assert (state(pid), one.used()[1], other.used()) == ("S", 900, [0, 0])
    assert [p.pid for p in processes.belonging(other.path)] == []


def test_the_command_line(tmp_path):
    path = str(tmp_path / "node")
    assert "4 GPUs, server port 23456" in command("create", path, "--gpus", "4", "--port", "23456").stdout
    pid = int(command("hold", path, "--gpu", "1", "--mib", "321", "--as", "python3 train.py").stdout)
    shown = command("status", path).stdout
    assert "GPU 1     321 MiB" in shown
    assert f"pid {pid} " in shown
    assert "maps nvidia-uvm, nvidia1, nvidiactl" in shown
    assert '"used_mib": 321' in command("status", path, "--json").stdout
    done = command("hold", path, "--gpu", "4")
    assert done.returncode == 1
    assert "GPUs 0 to 3" in done.stderr
    assert command("script", path, '{"faults": [{"effect": "bogus"}]}').returncode == 1
    assert command("destroy", path).returncode == 0
    assert gone(pid)
    assert not os.path.exists(path)


def test_nodes_side_by_side_have_ports_of_their_own_before_a_server_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(nodes.random, "randrange", lambda low, high: low)
    about = {"gpus": 1, "memory_mib": 1000, "name": "NVIDIA H200", "python": sys.executable, "port": None}
    made = [nodes.create(str(tmp_path / name), **about) for name in ("one", "two", "three")]
    assert len({one["port"] for one in made}) == 3
