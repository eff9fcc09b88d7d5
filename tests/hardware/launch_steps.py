# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cases of launch_cases.py: what is done to a real server, and what must be seen then."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import typing as t

import launch_report
from real_gpus import Machine, expect, release
from real_plays import HOST_SIDE, KEY, SITE, Play, Player, profiles
from release_shapes import KILL_ONLY, sglang_killall, typed_recipe
from systemd_node import Node, health, memory_used, wait_for

LOG = "/var/log/sglang/sglang.log"
UNIT = "sglang.service"


class Bench:
    def __init__(self, node: Node, player: Player, gpus: int) -> None:
        self.node, self.player, self.gpus = node, player, gpus
        self.plays: list[Play] = []

    def play(self, playbook: str, **extra: t.Any) -> Play:
        done = self.player.play(playbook, **extra)
        self.plays.append(done)
        return done

    def serves(self, play: Play, profile: str) -> dict[str, t.Any]:
        """What must hold after a relaunch that came through, by the playbook's word and by a stranger's."""
        ready = play.last("Wait until the server serves")
        expect(play.code == 0, f"{play.name}.yml ends with 0", play.told() or play.text[-1500:])
        expect(ready.get("verdict") == "ready", "the wait says ready", ready.get("reason"))
        expect(health() == "200", "/health answers 200", health())
        expect(health("/v1/models") in ("401", "403"), "a question without the key is refused", health("/v1/models"))
        expect(health("/v1/models", KEY) == "200", "one with the key is answered", health("/v1/models", KEY))
        state = self.node.show(UNIT, "ActiveState", "NRestarts", "InvocationID", "MainPID", "Description")
        expect(state["ActiveState"] == "active", "the unit is active", state)
        expect(profile in state["Description"], f"the unit's profile is {profile}", state)
        expect(len(self.node.schedulers()) == self.gpus, "one scheduler a GPU", self.node.schedulers())
        release = play.last("End who holds")
        stop = release.get("stop") or play.last("Stop sglang")
        log = self.node.read(LOG)
        return {
            "verdict": ready["verdict"], "reason": ready["reason"], "witnesses": ready["witnesses"],
            "seconds_per_step": play.longest(0.2),
            "stages_said": ready["stages"], "stages_in_log": launch_report.stages_in_log(log), "unit": state,
            "stop": {key: stop.get(key) for key in ("verdict", "stopped_after_s", "reason")},
            "release": release.get("msg"), "signalled": len(release.get("signalled") or []),
            "gate": (release.get("gate") or play.last("Wait for idle GPUs")).get("verdict"),
            "guard": ready.get("guard"), "downtime": play.downtime(),
        }  # fmt: skip

    def serve(self, profile: str = "plain") -> None:
        """Brings the node there, if it is not: so a case can be run alone."""
        state = self.node.show(UNIT, "Description", "ActiveState")
        if health() != "200" or profile not in state["Description"]:
            self.serves(self.play("relaunch", sglang_server_profile=profile), profile)


def arguments(bench: Bench) -> dict[str, t.Any]:
    """The real parser's word, before anything is stopped."""
    good, bad = bench.play("preflight"), bench.play("preflight", sglang_server_profile="misspelt")
    found = {}
    for name, play in (("good", good), ("bad", bad)):
        checks = {check["name"]: check for check in play.last("Check what can be known").get("checks") or []}
        expect("arguments" in checks, "the arguments were checked", play.told() or play.text[-1500:])
        found[name] = checks
    expect(found["good"]["arguments"]["ok"] is True, "a good profile passes", found["good"]["arguments"])
    expect(good.code == 0, "the preflight passes", good.told())
    wrong = found["bad"]["arguments"]
    expect(wrong["ok"] is False and "contxt-length" in wrong["detail"], "the misspelt option is named", wrong)
    expect(bad.code != 0, "and refused", bad.code)
    untold = {name: check["detail"] for name, check in found["good"].items() if check["ok"] is None}
    return {"good": found["good"]["arguments"], "bad": wrong, "not_checked": untold,
            "checked": [name for name, check in found["good"].items() if check["ok"]]}  # fmt: skip


def first_start(bench: Bench) -> dict[str, t.Any]:
    """Nothing installed, no kernel compiled yet."""
    return bench.serves(bench.play("relaunch"), "plain")


def another_profile(bench: Bench) -> dict[str, t.Any]:
    bench.serve()
    before = bench.node.show(UNIT, "InvocationID")
    seen = bench.serves(bench.play("relaunch", sglang_server_profile="short"), "short")
    expect(seen["unit"]["InvocationID"] != before["InvocationID"], "it is another start", seen["unit"])
    return seen


def host_side(bench: Bench) -> dict[str, t.Any]:
    """The same, with the release and the gate on the GPU host, by the container's number."""
    bench.serve("short")
    play = bench.play("relaunch", **HOST_SIDE)
    seen = bench.serves(play, "plain")
    where = {
        step["delegated"] for step in play.steps if step["action"].endswith(("gpu_force_release", "gpu_host_lock"))
    }
    expect("gpuhost" in where, "release and lease were on the GPU host", sorted(map(str, where)))
    return seen


def hung(bench: Bench) -> dict[str, t.Any]:
    """All schedulers stopped. The first look notes it, the second one relaunches."""
    bench.serve("short")
    stopped = bench.node.schedulers()
    for one in stopped:
        os.kill(one.pid, signal.SIGSTOP)
    first = bench.play("drift")
    expect(first.result, "a result file", first.told() or first.text[-1500:])
    row = first.result[0]
    expect(row["server"] == "hung", "the first look says hung", row)
    expect(row["outcome"] is None, "one look alone mends nothing", row)
    again = bench.node.schedulers()
    expect([one.pid for one in again] == [one.pid for one in stopped], "nobody was touched", again)
    time.sleep(max(0.0, first.began + first.seconds + 16 - time.time()))
    second = bench.play("drift")
    expect(second.result, "a result file", second.told() or second.text[-1500:])
    last = second.result[0]
    expect(last["action"] == "relaunch" and last["outcome"] == "ready", "the second look relaunches", last)
    evidence = second.last("Keep what the server looks like")
    parts = list(evidence.get("parts") or [])
    return {"first_look": row, "first_look_s": first.seconds, "second_look": last,
            "evidence": evidence.get("msg") or evidence.get("path"), "evidence_parts": parts,
            **bench.serves(second, last["profile"])}  # fmt: skip


def killed_with_left_over(bench: Bench) -> dict[str, t.Any]:
    """The launcher gets SIGKILL while somebody's orphan holds the last GPU: the guard refuses, a relaunch clears."""
    bench.serve()
    ready = pathlib.Path(tempfile.mkdtemp(dir=bench.node.work)) / "ready"
    holder = ["/usr/bin/python3", str(bench.node.work / "cuda_holder.py"), str(ready), "5", "--fork=1", "--orphan",
              f"--gpus={bench.gpus - 1}"]  # fmt: skip
    bench.node.run("setsid", "--fork", "sh", "-c", 'exec "$@" >/dev/null 2>&1', "sh", *holder)
    wait_for("the left-over holds memory", ready.exists, 30)
    parent, _child = ready.read_text().split()
    bench.node.run("kill", "-KILL", parent)
    began = time.time()
    os.kill(bench.node.launcher(), signal.SIGKILL)
    state = wait_for("the guard has refused a start", lambda: refused(bench), 60)
    after, held = round(time.time() - began, 1), memory_used()
    left = [one._asdict() for one in bench.node.processes() if one.comm.startswith(("python3", "sglang"))]
    play = bench.play("relaunch")
    return {
        "guard_refused_after_s": after,
        "guard_said": state,
        "left": left,
        "mib": held,
        **bench.serves(play, "plain"),
    }


def refused(bench: Bench) -> dict[str, t.Any]:
    text = bench.node.read(f"/run/cleanslate-guard/{UNIT}.json")
    try:
        report: dict[str, t.Any] = json.loads(text)
    except ValueError:
        return {}
    return report if report.get("verdict") not in ("start", "waiting") else {}


def launcher_killed(bench: Bench) -> dict[str, t.Any]:
    """Nothing of ours runs: systemd ends the rest, the guard waits for the memory, and it serves again."""
    bench.serve()
    began, killed = time.time(), bench.node.launcher()
    os.kill(killed, signal.SIGKILL)
    wait_for("/health fails", lambda: health() != "200", 20)
    gone = round(time.time() - began, 2)
    wait_for("another launcher", lambda: bench.node.show(UNIT, "NRestarts")["NRestarts"] != "0", 60)
    wait_for("/health answers 200 again", lambda: health() == "200", 240, every=0.5)
    again = round(time.time() - began, 1)
    state = bench.node.show(UNIT, "ActiveState", "NRestarts", "Result")
    look = bench.play("drift")
    expect(look.result and look.result[0]["action"] == "nothing", "drift finds it well", look.result or look.told())
    guard = bench.node.read(f"/run/cleanslate-guard/{UNIT}.json")
    return {"health_lost_after_s": gone, "serves_again_after_s": again, "unit": state,
            "guard": json.loads(guard) if guard else None, "drift": look.result[0]}  # fmt: skip


def crash_in_load(bench: Bench) -> dict[str, t.Any]:
    play = bench.play("relaunch", sglang_server_profile="hungry")
    ready = play.last("Wait until the server serves")
    expect(ready, "it came as far as the wait", play.told() or play.text[-1500:])
    expect(play.code != 0, "the relaunch fails", play.code)
    expect(ready["verdict"] in ("failed", "crash_looping"), "the wait says that it failed", ready["reason"])
    expect(ready["waited_s"] < 200, "long before its budget of 420 s", ready["waited_s"])
    expect("KV cache" in (ready["guess"] or {}).get("cause", ""), "the guess names the cause", ready["guess"])
    return {**{key: ready.get(key) for key in ("verdict", "reason", "stage", "stages", "guess", "waited_s")},
            "log_tail": (ready.get("log_tail") or [])[-12:], "told": play.told()[:1500], "downtime": play.downtime(),
            "unit": bench.node.show(UNIT, "ActiveState", "SubState", "NRestarts", "Result")}  # fmt: skip


def rolled_back(bench: Bench) -> dict[str, t.Any]:
    """From the crash loop that the case before left; back to the profile that last served."""
    play = bench.play("relaunch", sglang_server_profile="hungry", sglang_server_rollback=True)
    rows = play.result
    expect(rows and rows[0].get("verdict") == "rolled_back", "the verdict is rolled_back", rows or play.told())
    expect(health() == "200", "the former profile serves", health())
    return {"row": rows[0], "told": play.told()[:1500], "unit": bench.node.show(UNIT, "Description", "ActiveState")}


def stopped(bench: Bench) -> dict[str, t.Any]:
    bench.serve()
    status, stop = bench.play("status"), bench.play("stop")
    expect(stop.code == 0, "stop.yml ends with 0", stop.told() or stop.text[-1500:])
    expect(not any(memory_used()), "0 MiB afterwards", memory_used())
    drift = bench.play("drift")
    expect(drift.result and drift.result[0]["outcome"] is None, "drift leaves a stopped node alone", drift.result)
    return {"status_code": status.code, "stop": stop.last("Stop sglang").get("reason"),
            "status": status.text.partition("What was found")[2][:1500] or status.text[-1500:],
            "drift": drift.result[0]}  # fmt: skip


def three_ways(bench: Bench) -> dict[str, t.Any]:
    """A real server that no unit keeps, started by hand three times: our release, the recipe, SGLang's killall."""
    bench.play("stop")
    machine = Machine(bench.node.work / "three-ways", bench.player.site)
    try:
        return {"ours": by_hand(machine, _ours), "typed": by_hand(machine, typed_recipe),
                "killall": by_hand(machine, sglang_killall)}  # fmt: skip
    finally:
        machine.end_all()


def by_hand(machine: Machine, clean: t.Callable[[Machine], dict[str, t.Any]]) -> dict[str, t.Any]:
    arguments = profiles(machine.gpus)[0]["args"]
    words = [[f"--{name}"] if value is True else [f"--{name}", str(value)] for name, value in arguments.items()]
    command = [sys.executable, "-m", "sglang.launch_server", *(part for word in words for part in word)]
    with open(machine.work / "server.log", "wb") as log:
        child = subprocess.Popen(
            ["sh", "-c", '"$@" &', "sh", *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={**os.environ, "PYTHONPATH": SITE, "HF_HUB_OFFLINE": "1"}, start_new_session=True,
        )  # fmt: skip
    machine.children.append(child)
    wait_for("the server answers /health with 200", lambda: health() == "200", 240, every=0.5)
    held = memory_used()
    return {"held_mib": held, **clean(machine)}


def _ours(machine: Machine) -> dict[str, t.Any]:
    return release(machine, ladder=KILL_ONLY)


CASES: dict[str, t.Callable[[Bench], dict[str, t.Any]]] = {
    "arguments before the launch": arguments,
    "first start on an empty node": first_start,
    "relaunch of a healthy server with another profile": another_profile,
    "hung: schedulers stopped": hung,
    "launcher SIGKILLed beside a left-over on the last GPU": killed_with_left_over,
    "launcher SIGKILLed, nobody intervenes": launcher_killed,
    "relaunch with the release on the GPU host": host_side,
    "crash in load": crash_in_load,
    "a profile that cannot get ready, with rollback": rolled_back,
    "stop, and drift afterwards": stopped,
    "a server by hand, cleaned in three ways": three_ways,
}
