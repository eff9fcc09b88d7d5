# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The start guard, the locks and the unit's quoting on a real systemd, with nobody but systemctl to start the unit."""

from __future__ import annotations

import json
import os
import signal
import time
import typing as t

import commands
import layout
import pytest
import serving
from inside import Inside
from playing import HALVES, Play, play

UNIT = "sglang.service"
SECOND = "test-second.service"
UNITS = "/etc/systemd/system"
REPORT = "/run/cleanslate-guard/{}.json"
# What shells, systemd, YAML and JSON read in their own way.
ODD = """50% $HOME ${HOME} {"a": "b c"} /a path/x back\\slash "quoted" it's größe"""
VALUES = ["50%", "$HOME", '{"a": "b c"}', "/with a/space", "back\\slash", 'a "quote"', "it's", "größe"]
# LD_BIND_NOW: what the loader obeys is for the server alone, and reaches it.
ENVIRONMENT = {**{f"ODD_{number}": value for number, value in enumerate(VALUES)}, "LD_BIND_NOW": "1"}
ENVIRONMENT_FILE = "/etc/sglang.env"
NO_LIBRARY = "/var/lib/sglang/preload.so"
HOST: dict[str, t.Any] = {
    **HALVES["ct101"],
    "sglang_server_restart_delay": 1,
    "sglang_server_guard_timeout": 90,
    "sglang_server_environment_files": [ENVIRONMENT_FILE],
    "sglang_server_profile": "odd",
    "sglang_server_profiles": [
        {
            "name": "odd",
            "args": {
                "model-path": "/models/demo-397b",
                "served-model-name": "demo-397b",
                "tp-size": 4,
                "port": layout.PORT,
                "json-model-override-args": ODD,
                "cuda-graph-backend-prefill": ODD,
            },
            "env": ENVIRONMENT,
        }
    ],
}


def show(inside: Inside, unit: str, *names: str) -> dict[str, str]:
    lines = inside.pct("systemctl", "show", f"--property={','.join(names)}", unit).splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def state(inside: Inside, unit: str = UNIT) -> str:
    return show(inside, unit, "ActiveState")["ActiveState"]


def report(inside: Inside, unit: str = UNIT) -> dict[str, t.Any]:
    text = inside.pct("cat", REPORT.format(unit), check=False)
    return dict(json.loads(text)) if text else {"verdict": None, "refused_count": 0, "reason": ""}


def journal(inside: Inside, unit: str = UNIT) -> list[str]:
    said = inside.pct("journalctl", "--no-pager", "--output=cat", "-t", "cleanslate-guard", "-u", unit)
    return said.splitlines()


def script(inside: Inside, *faults: dict[str, t.Any]) -> None:
    """What nvidia-smi says in this container from now on; times count from here."""
    text = json.dumps({"server": serving.QUICK, "faults": list(faults)})
    inside.put(os.path.join(layout.NODE, "scenario.json"), text, "666")


def down(inside: Inside) -> None:
    inside.pct("systemctl", "stop", UNIT, SECOND, check=False)
    inside.pct("systemctl", "reset-failed")
    script(inside)


@pytest.fixture(scope="module")
def installed(scene: tuple[Inside, Inside]) -> t.Iterator[tuple[Inside, Play]]:
    """start.yml in 101 installs the unit with its guard, and starts it."""
    inside = scene[0]
    script(inside)
    inside.pct(
        "sh", "-c", f"rm -rf /etc/sglang {UNITS}/{UNIT}*; systemctl daemon-reload; rm -f /var/log/sglang/sglang.log"
    )
    inside.put(ENVIRONMENT_FILE, f"FROM_FILE=kept\nLD_PRELOAD={NO_LIBRARY}\n", "600")
    played = play("start.yml", "ct101", hosts={"ct101": HOST})
    yield inside, played
    down(inside)
    inside.pct("sh", "-c", f"rm -rf {UNITS}/{SECOND}*; systemctl daemon-reload")


@pytest.fixture
def unit(installed: tuple[Inside, Play]) -> t.Iterator[Inside]:
    """Installed, and stopped."""
    inside, played = installed
    assert played.code == 0, played.why()
    down(inside)
    yield inside
    down(inside)


def test_odd_values_reach_argv_environment_and_config_unchanged(installed: tuple[Inside, Play]) -> None:
    inside, played = installed
    assert played.code == 0, played.why()
    pid = int(show(inside, UNIT, "MainPID")["MainPID"])
    argv = inside.pct("cat", f"/proc/{pid}/cmdline").split("\0")
    assert argv[argv.index("--cuda-graph-backend-prefill") + 1] == ODD
    environment = dict(line.split("=", 1) for line in inside.pct("cat", f"/proc/{pid}/environ").split("\0") if line)
    assert {name: environment.get(name) for name in ENVIRONMENT} == ENVIRONMENT
    # As the server itself has read its file.
    assert f"json_model_override_args={ODD!r}" in inside.pct("cat", "/var/log/sglang/sglang.log")


def test_no_file_of_variables_leads_roots_guard_to_a_library(installed: tuple[Inside, Play]) -> None:
    """The loader names one that it does not find, on whatever the process calls its standard error."""
    inside, _played = installed
    pid = int(show(inside, UNIT, "MainPID")["MainPID"])
    environment = inside.pct("cat", f"/proc/{pid}/environ").split("\0")
    assert "FROM_FILE=kept" in environment
    assert not [one for one in environment if one.startswith("LD_PRELOAD=")]
    assert NO_LIBRARY not in inside.pct("cat", "/var/log/sglang/sglang.log")


def test_the_server_has_the_numbers_that_the_guard_wrote(installed: tuple[Inside, Play]) -> None:
    """systemd reads EnvironmentFile= after ExecStartPre= has ended, though it did not exist before."""
    inside, _played = installed
    pid = int(show(inside, UNIT, "MainPID")["MainPID"])
    environment = inside.pct("cat", f"/proc/{pid}/environ").split("\0")
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3" in environment
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in environment
    assert inside.pct("stat", "-c", "%a %U", REPORT.format(UNIT)).split() == ["644", "root"]


def test_the_verdict_is_that_of_this_start(installed: tuple[Inside, Play]) -> None:
    inside, _played = installed
    said = report(inside)
    assert said["verdict"] == "start"
    assert said["invocation_id"] == show(inside, UNIT, "InvocationID")["InvocationID"]


def test_an_ordered_start_is_not_one_of_too_many(unit: Inside) -> None:
    """systemd counts what a person starts too: without forgetting that, the fourth relaunch within hours is refused."""
    unit.pct("systemctl", "start", UNIT)
    for dummy in range(int(show(unit, UNIT, "StartLimitBurst")["StartLimitBurst"]) - 1):
        unit.pct("systemctl", "stop", UNIT)
        unit.pct("systemctl", "start", UNIT)
    unit.pct("systemctl", "stop", UNIT)
    assert state(unit) == "inactive", "nothing but the starts themselves stands against the next one"
    played = play("start.yml", "ct101", hosts={"ct101": HOST})
    assert played.code == 0, played.why()
    assert not played.last("Start the server").result["reloaded"], "a systemd that reads its files anew forgets too"
    assert state(unit) == "active"


def test_dirty_at_boot_then_clean(unit: Inside) -> None:
    """Two GPUs that come late. One start, which waits; nothing of it counts as a restart."""
    script(unit, {"effect": "hidden", "gpus": [0, 1], "until_s": 8})
    began = time.monotonic()
    unit.pct("systemctl", "start", UNIT, timeout=120)
    assert time.monotonic() - began > 5
    commands.wait_for("the server answers", lambda: serving.answers(unit), 60)
    said = report(unit)
    assert said["verdict"] == "start"
    assert said["waited_s"] > 5
    assert show(unit, UNIT, "NRestarts", "Result") == {"NRestarts": "0", "Result": "success"}
    assert [line for line in journal(unit) if line.startswith("waiting, ")]


def test_refused_ten_times_then_clean(unit: Inside) -> None:
    """More refusals than the start limit has starts, and the server runs by itself once the holder is gone."""
    assert int(show(unit, UNIT, "StartLimitBurst")["StartLimitBurst"]) < 10
    holder = unit.hold(1, 5000)
    done = commands.run([layout.PCT, "exec", "101", "--", "systemctl", "start", UNIT], check=False, timeout=60)
    assert done.returncode != 0, "a person hears it at once"
    commands.wait_for("ten refusals", lambda: report(unit)["refused_count"] >= 10, 180, 1)
    assert show(unit, UNIT, "Result")["Result"] != "start-limit-hit"
    said = [line for line in journal(unit) if line.startswith("refuses to start")]
    assert len(said) >= 10
    assert "GPU 1 holds 5000 MiB" in said[-1]
    os.kill(holder, signal.SIGKILL)
    commands.wait_for("the server answers", lambda: serving.answers(unit), 90, 1)
    assert (report(unit)["verdict"], report(unit)["refused_count"]) == ("start", 0)


def test_a_stop_ends_a_guard_that_waits(unit: Inside) -> None:
    script(unit, {"effect": "hidden", "gpus": [0]})
    unit.pct("systemctl", "start", "--no-block", UNIT)
    commands.wait_for("it waits", lambda: report(unit)["verdict"] == "waiting" and report(unit)["gate"], 30)
    unit.pct("systemctl", "stop", UNIT, timeout=20)
    assert state(unit) in ("inactive", "failed")
    assert report(unit)["verdict"] == "interrupted"


# -- two at once -------------------------------------------------------------------------------------------------------


def second(inside: Inside, *, guarded: bool) -> None:
    """The same unit again, on the same GPUs, on another port and with no second try."""
    port = layout.PORT + 1
    guard = "" if guarded else "/^ExecStartPre=/d; "
    inside.pct(
        "sh",
        "-c",
        f"sed 's/^port: .*/port: {port}/' /etc/sglang/sglang.yaml >/etc/sglang/second.yaml;"
        f" chown sglang: /etc/sglang/second.yaml; chmod 600 /etc/sglang/second.yaml;"
        f" sed '{guard}s/--unit=sglang.service/--unit={SECOND}/; s/--port={layout.PORT}/--port={port}/;"
        f" s,/etc/sglang/sglang.yaml,/etc/sglang/second.yaml,; s/^Restart=.*/Restart=no/'"
        f" {UNITS}/{UNIT} >{UNITS}/{SECOND};"
        " systemctl daemon-reload",
    )


def test_a_second_server_on_the_same_gpus_exits_75(unit: Inside) -> None:
    second(unit, guarded=False)
    unit.pct("systemctl", "start", UNIT)
    commands.wait_for("the server answers", lambda: serving.answers(unit), 60)
    unit.pct("systemctl", "start", SECOND, check=False)
    commands.wait_for("the second has ended", lambda: state(unit, SECOND) == "failed", 30)
    assert show(unit, SECOND, "ExecMainStatus", "ExecMainCode") == {"ExecMainStatus": "75", "ExecMainCode": "1"}
    assert serving.answers(unit)


def test_of_two_that_start_at_once_one_serves(unit: Inside) -> None:
    """Both guards wait for the same GPU, so both find idle GPUs in the same moment."""
    second(unit, guarded=True)
    script(unit, {"effect": "hidden", "gpus": [0], "until_s": 6})
    unit.pct("systemctl", "start", "--no-block", UNIT, SECOND)

    def settled() -> bool:
        """The second is not tried again; the first goes on trying where it lost."""
        return state(unit, SECOND) != "activating" and "active" in (state(unit), state(unit, SECOND))

    commands.wait_for("one of them serves", settled, 60)
    time.sleep(3)  # what lost the race by a moment has ended by now; what only seems to have won it too
    mains = [int(show(unit, name, "MainPID")["MainPID"]) for name in (UNIT, SECOND)]
    assert len([pid for pid in mains if pid]) == 1, mains
    loser = UNIT if mains[1] else SECOND
    status = show(unit, loser, "ExecMainStatus")["ExecMainStatus"]
    said = report(unit, loser)
    assert status == "75" or (said["verdict"] in ("refused", "waiting") and said["reason"]), (status, said)


def test_a_killed_server_leaves_no_lock(unit: Inside) -> None:
    unit.pct("systemctl", "start", UNIT)
    commands.wait_for("the server answers", lambda: serving.answers(unit), 60)
    unit.pct("systemctl", "kill", "--kill-whom=all", "--signal=KILL", UNIT)
    commands.wait_for("it does not answer", lambda: not serving.answers(unit), 20)
    commands.wait_for("systemd has started it again", lambda: serving.answers(unit), 60)
    assert report(unit)["verdict"] == "start"
