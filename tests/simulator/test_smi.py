# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import time

import faults
import pytest
from driving import CSV, STD, until

RECORDINGS = pathlib.Path(faults.recordings_folder())
INDEX = json.loads((RECORDINGS / "index.json").read_text(encoding="utf-8"))


def recorded(name):
    return (RECORDINGS / name).read_bytes()


def as_recorded(text, node, name):
    """The simulated answer with the recording's UUIDs in place of its own."""
    lines = recorded(name).decode().splitlines()
    column = INDEX["queries"][entry_of(name)["query"]]["fields"].index("uuid")
    for gpu, line in zip(node.about["gpus"], lines):
        text = text.replace(gpu["uuid"].encode(), line.split(", ")[column].encode())
    return text


def entry_of(name):
    return next(entry for entry in INDEX["fixtures"] if entry["file"] == name)


@pytest.fixture
def h200(make_node):
    return make_node("h200", name="NVIDIA H200", memory_mib=143771)


def test_an_idle_answer_is_the_recorded_one_byte_for_byte(h200):
    done = h200.smi("--query-gpu=" + STD, CSV)
    assert as_recorded(done.stdout, h200, "idle-8.csv") == recorded("idle-8.csv")
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_busy_answer_is_the_recorded_one_byte_for_byte(h200):
    h200.hold(2, 42103)
    h200.script(faults=[{"effect": "set", "gpus": [2], "fields": {"utilization.gpu": 37}}])
    done = h200.smi("--query-gpu=" + STD, CSV)
    assert as_recorded(done.stdout, h200, "busy-one.csv") == recorded("busy-one.csv")


def test_a_hidden_node_gives_the_recorded_answers(h200):
    os.unlink(h200.path + "/dev/nvidia3")
    rows = h200.query("count,index,uuid,memory.used")
    assert [row[:2] for row in rows] == [["7", str(index)] for index in range(7)]
    assert [row[2] for row in rows] == [gpu["uuid"] for gpu in h200.about["gpus"] if gpu["minor"] != 3]
    for minor in (0, 1, 2, 4, 5, 6, 7):
        os.unlink(h200.path + f"/dev/nvidia{minor}")
    done = h200.smi("--query-gpu=uuid", CSV)
    assert (done.stdout, done.returncode) == (recorded("no-devices.txt"), entry_of("no-devices.txt")["exit_code"])
    os.unlink(h200.path + "/dev/nvidiactl")
    done = h200.smi("--query-gpu=uuid", CSV)
    assert done.stdout == recorded("h200-control-node-hidden.txt")
    assert done.returncode == entry_of("h200-control-node-hidden.txt")["exit_code"]


@pytest.mark.parametrize("entry", [e for e in INDEX["fixtures"] if not e.get("timed_out")], ids=lambda e: e["file"])
def test_every_recording_is_replayed_exactly(shared_node, entry):
    query = entry["query"]
    fields = ",".join(INDEX["queries"][query].get("fields", []))
    argv = (
        ["-L"]
        if query == "list"
        else ["--query-{}={}".format("compute-apps" if query == "apps" else "gpu", fields), CSV]
    )
    shared_node.script(faults=[{"effect": "replay", "file": entry["file"]}])
    done = shared_node.smi(*argv)
    assert (done.stdout, done.stderr.decode(), done.returncode) == (
        recorded(entry["file"]), entry.get("stderr") or "", entry["exit_code"]
    )  # fmt: skip


def test_a_replay_is_projected_and_refuses_fields_that_it_lacks(shared_node):
    shared_node.script(faults=[{"effect": "replay", "file": "busy-one.csv"}])
    assert shared_node.used() == [0, 0, 42103, 0, 0, 0, 0, 0]
    done = shared_node.smi("--query-gpu=uuid,gpu_recovery_action", CSV)
    assert (done.returncode, done.stdout) == (2, b'Field "gpu_recovery_action" is not a valid field to query.\n\n')


@pytest.mark.parametrize(("fault", "rows"), [
    ({"effect": "hang"}, 0),
    ({"effect": "hang", "rows": 3}, 3),
    ({"effect": "replay", "file": "hang-partial.csv"}, None),
])  # fmt: skip
def test_a_hang_ignores_term_and_shows_what_had_come_out(node, fault, rows):
    node.script(faults=[dict(fault, to_call=1)])
    argv = [node.path + "/bin/nvidia-smi", "--query-gpu=" + STD, CSV]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        (hanging,) = until(lambda: node.processes().get("hanging nvidia-smi"))
        assert fault["effect"] == "replay" or "dev/nvidia7" in hanging.fds, "as a monitor"
        assert (hanging.comm, hanging.maps) == ("nvidia-smi", frozenset())
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        assert process.poll() is None
        assert len(node.used()) == 8, "the second call is not the first"
        node.stop()
        out = process.communicate()[0]
    assert process.returncode == -signal.SIGKILL
    assert out == recorded("hang-partial.csv") if rows is None else out.count(b"\n") == rows


ROWS = 8


@pytest.mark.parametrize(("fault", "fields", "at_1", "at_2"), [
    ({"effect": "lost_fields", "gpus": [1]}, "memory.used,utilization.gpu,compute_mode", ["[GPU is lost]"] * 3,
     ["0", "0", "Default"]),
    ({"effect": "not_available", "gpus": [1]}, "memory.used,memory.free,utilization.gpu", ["[N/A]"] * 3, None),
    ({"effect": "not_available", "gpus": [1], "fields": ["memory.reserved"]}, "memory.used,memory.reserved",
     ["0", "[N/A]"], None),
    ({"effect": "mig", "gpus": [1], "mib": 44}, "memory.used,utilization.gpu,mig.mode.current",
     ["44", "[N/A]", "Enabled"], ["0", "0", "Disabled"]),
    ({"effect": "recovery_action", "gpus": [1], "value": "GPU Reset"}, "gpu_recovery_action", ["GPU Reset"], ["None"]),
    ({"effect": "fabric_state", "gpus": [1], "value": "In Progress"}, "fabric.state", ["In Progress"], ["[N/A]"]),
    ({"effect": "used", "gpus": [1], "mib": 5}, "memory.used", ["5"], ["0"]),
    ({"effect": "set", "gpus": [1], "fields": {"memory.used": "[Unknown Error]"}}, "memory.used",
     ["[Unknown Error]"], ["0"]),
])  # fmt: skip
def test_faults_of_one_gpu(shared_node, fault, fields, at_1, at_2):
    shared_node.script(faults=[fault])
    rows = shared_node.query(fields)
    assert (len(rows), rows[1]) == (ROWS, at_1)
    if at_2:
        assert rows[2] == at_2


def test_a_lost_gpu_has_no_row_and_a_line_on_stderr_as_recorded(h200):
    h200.script(faults=[{"effect": "lost", "gpus": [3]}])
    done = h200.smi("--query-gpu=" + STD, CSV)
    assert (done.returncode, done.stderr.decode()) == (0, entry_of("gpu-lost-middle.csv")["stderr"])
    kept = [gpu for gpu in h200.about["gpus"] if gpu["minor"] != 3]
    text = done.stdout
    for gpu, line in zip(kept, recorded("gpu-lost-middle.csv").decode().splitlines()):
        text = text.replace(gpu["uuid"].encode(), line.split(", ")[1].encode())
    assert text == recorded("gpu-lost-middle.csv")


def test_a_hidden_gpu_is_renumbered_without_a_word(shared_node):
    shared_node.script(faults=[{"effect": "hidden", "gpus": [1]}])
    assert shared_node.query("count,index,uuid") == [
        ["7", str(place), shared_node.about["gpus"][minor]["uuid"]] for place, minor in enumerate((0, 2, 3, 4, 5, 6, 7))
    ]


def test_when_a_fault_applies(shared_node):
    shared_node.script(faults=[
        {"effect": "used", "gpus": [0], "mib": 11, "query": "gpu", "from_call": 2, "to_call": 3},
        {"effect": "used", "gpus": [1], "mib": 7, "times": 1},
        {"effect": "fabric_state", "value": ["In Progress", "In Progress", "Completed"]},
        {"effect": "used", "gpus": [2], "mib": 99, "after_s": 3600},
    ])  # fmt: skip
    assert shared_node.apps() == []  # counted for itself
    seen = [
        [row[0] for row in rows[:3]] + [rows[0][1]] for rows in (shared_node.query("memory.used,fabric.state"),) * 1
    ]
    seen += [
        [r[0] for r in rows[:3]] + [rows[0][1]]
        for rows in (shared_node.query("memory.used,fabric.state") for dummy in "123")
    ]
    assert seen == [
        ["0", "0", "0", "In Progress"], ["11", "0", "0", "Completed"], ["11", "0", "0", "Completed"],
        ["0", "0", "0", "Completed"],
    ]  # fmt: skip
    shared_node.script(faults=[{"effect": "used", "gpus": [0], "mib": 11, "to_call": 1}])
    assert [shared_node.used()[0] for dummy in "12"] == [11, 0], "a new script counts anew"


def test_slow_and_exit(shared_node):
    shared_node.script(
        faults=[
            {"effect": "slow", "seconds": 0.4, "to_call": 1},
            {"effect": "exit", "code": 18, "stdout": "Failed\n", "stderr": "why\n", "from_call": 2},
        ]
    )
    begin = time.monotonic()
    assert len(shared_node.used()) == 8
    assert time.monotonic() - begin >= 0.4
    done = shared_node.smi("--query-gpu=uuid", CSV)
    assert (done.returncode, done.stdout, done.stderr) == (18, b"Failed\n", b"why\n")
    shared_node.script(faults=[{"effect": "exit", "code": -9}])
    assert shared_node.smi("--query-gpu=uuid", CSV).returncode == -9


def test_pid_namespace_hides_the_processes_only(node):
    node.hold(1, 5000)
    assert len(node.apps()) == 1
    node.script(faults=[{"effect": "pid_namespace"}])
    assert (node.apps(), node.used()[1]) == ([], 5000)


def test_a_script_with_a_mistake_is_refused(shared_node):
    for scenario, words in [
        ({"faults": [{"effect": "hnag"}]}, "hnag"),
        ({"faults": [{"effect": "slow", "second": 1}]}, "second"),
        ({"faults": [{"effect": "replay", "file": "nosuch.csv"}]}, "nosuch.csv"),
        ({"fault": []}, "fault"),
        ({"server": {"hang_at": "nowhere"}}, "nowhere"),
        ({"server": {"hangs": 1}}, "hangs"),
    ]:
        with pytest.raises(Exception, match=words):
            shared_node.script(**scenario)


def test_what_is_asked_for(shared_node):
    shared_node.script()
    uuid = shared_node.about["gpus"][4]["uuid"]
    listing = shared_node.smi("-L").stdout.decode().splitlines()
    assert listing[4] == "GPU 4: {} (UUID: {})".format(shared_node.about["name"], uuid)
    assert shared_node.smi("-i", "4", "--query-gpu=uuid", CSV).stdout.decode() == uuid + "\n"
    assert shared_node.smi("--id=" + uuid, "--query-gpu=index", CSV).stdout == b"4\n"
    done = shared_node.smi("-i", "9", "--query-gpu=uuid", CSV)
    assert (done.returncode, done.stdout) == (6, b"No devices were found\n")
    done = shared_node.smi("--query-gpu=index,bogus", CSV)
    assert (done.returncode, done.stdout) == (2, b'Field "bogus" is not a valid field to query.\n\n')
    with_header = shared_node.smi("--query-gpu=index,memory.total,utilization.gpu", "--format=csv").stdout.decode()
    assert with_header.splitlines()[:2] == ["index, memory.total [MiB], utilization.gpu [%]", "0, 97887 MiB, 0 %"]
    for argv in ([], ["-q", "-x"], ["-r"], ["-pm", "1"]):
        done = shared_node.smi(*argv)
        assert done.returncode == 2
        assert b"not imitated" in done.stderr


def test_calls_are_logged_whole_and_numbered_once_however_many_run(node):
    node.script(faults=[{"effect": "used", "gpus": [0], "mib": list(range(1, 13))}])
    argv = [node.path + "/bin/nvidia-smi", "--query-gpu=memory.used", CSV]
    running = [subprocess.Popen(argv, stdout=subprocess.PIPE) for dummy in range(12)]
    values = sorted(int(process.communicate()[0].split()[0]) for process in running)
    assert values == list(range(1, 13))
    calls = node.calls("nvidia-smi")
    assert [call["argv"] for call in calls] == [argv[1:]] * 12
    assert len({call["pid"] for call in calls}) == 12
