# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole relaunch with real GPUs, real SGLang and a real systemd: this checkout's playbooks, run as a user does.

Run as root on a machine with NVIDIA GPUs on which nothing of value runs, with SGLang 0.5.15 importable from
/opt/sglang-site (see real_plays.SITE) beside the PyTorch of the python3 that runs this:

    python3 tests/hardware/launch_cases.py REPORT_FOLDER --debs FOLDER --site FOLDER [--only WORD,WORD]

--debs: Debian packages of systemd and what it links; --site: a folder with ansible-core. The cases build on each
other: each leaves the node as the next finds it. No setting of a GPU is changed and nothing is reset; what is signalled
is the node's own. Writes REPORT_FOLDER/launch_cases.json and .md and small logs; exit code 1 when a case did not end as
it must.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing as t

import launch_report
from real_plays import HOST_SIDE, KEY, MODEL, Play, Player, Stranger
from systemd_node import HERE, Node, NodeError, as_json, health, memory_used, wait_for

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816,
    "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 32000,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
}  # fmt: skip
LOG = "/var/log/sglang/sglang.log"
UNIT = "sglang.service"


def expect(condition: t.Any, sentence: str, seen: t.Any = None) -> None:
    if not condition:
        raise NodeError(f"{sentence}; seen: {as_json(seen)}")


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
        log = self.node.read(LOG)
        return {
            "verdict": ready["verdict"], "reason": ready["reason"], "witnesses": ready["witnesses"],
            "stages_said": ready["stages"], "stages_in_log": launch_report.stages_in_log(log), "unit": state,
            "stop": {key: play.last("Stop sglang").get(key) for key in ("verdict", "stopped_after_s", "msg")},
            "release": release.get("msg"), "signalled": len(release.get("signalled") or []),
            "gate": (release.get("gate") or play.last("Wait for idle GPUs")).get("verdict"),
            "guard": ready.get("guard"), "downtime": play.downtime(),
        }  # fmt: skip


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
    before = bench.node.show(UNIT, "InvocationID")
    seen = bench.serves(bench.play("relaunch", sglang_server_profile="short"), "short")
    expect(seen["unit"]["InvocationID"] != before["InvocationID"], "it is another start", seen["unit"])
    return seen


def host_side(bench: Bench) -> dict[str, t.Any]:
    """The same, with the release and the gate on the GPU host, by the container's number."""
    play = bench.play("relaunch", **HOST_SIDE)
    seen = bench.serves(play, "plain")
    where = {
        step["delegated"] for step in play.steps if step["action"].endswith(("gpu_force_release", "gpu_host_lock"))
    }
    expect("gpuhost" in where, "release and lease were on the GPU host", sorted(map(str, where)))
    return seen


def hung(bench: Bench) -> dict[str, t.Any]:
    """All schedulers stopped. The first look notes it, the second one relaunches."""
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
    evidence = second.last("Keep stacks and logs")
    parts = list(evidence.get("parts") or [])
    return {"first_look": row, "first_look_s": first.seconds, "second_look": last,
            "evidence": evidence.get("msg") or evidence.get("path"), "evidence_parts": parts,
            **bench.serves(second, last["profile"])}  # fmt: skip


def killed_with_left_over(bench: Bench) -> dict[str, t.Any]:
    """The launcher gets SIGKILL while an orphan of nobody's unit holds memory: the guard refuses, a relaunch clears."""
    ready = pathlib.Path(tempfile.mkdtemp(dir=bench.node.work)) / "ready"
    holder = ["/usr/bin/python3", str(bench.node.work / "cuda_holder.py"), str(ready), "5", "--fork", "--orphan"]
    bench.node.run("setsid", "--fork", "sh", "-c", 'exec "$@" >/dev/null 2>&1', "sh", *holder)
    wait_for("the left-over holds memory", ready.exists, 30)
    parent, _child = ready.read_text().split()
    bench.node.run("kill", "-KILL", parent)
    began = time.time()
    os.kill(bench.node.launcher(), signal.SIGKILL)
    state = wait_for("the guard has refused a start", lambda: refused(bench), 60)
    after = round(time.time() - began, 1)
    left = [one._asdict() for one in bench.node.processes() if one.comm.startswith(("python3", "sglang"))]
    play = bench.play("relaunch")
    return {"guard_refused_after_s": after, "guard_said": state, "left": left, **bench.serves(play, "plain")}


def refused(bench: Bench) -> dict[str, t.Any]:
    text = bench.node.read(f"/run/cleanslate-guard/{UNIT}.json")
    try:
        report: dict[str, t.Any] = json.loads(text)
    except ValueError:
        return {}
    return report if report.get("verdict") not in ("start", "waiting") else {}


def launcher_killed(bench: Bench) -> dict[str, t.Any]:
    """Nothing of ours runs: systemd ends the rest, the guard waits for the memory, and it serves again."""
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
    status, stop = bench.play("status"), bench.play("stop")
    expect(stop.code == 0, "stop.yml ends with 0", stop.told() or stop.text[-1500:])
    expect(not any(memory_used()), "0 MiB afterwards", memory_used())
    drift = bench.play("drift")
    expect(drift.result and drift.result[0]["outcome"] is None, "drift leaves a stopped node alone", drift.result)
    return {"status_code": status.code, "stop": stop.last("Stop sglang").get("msg"),
            "status": status.text.partition("What was found")[2][:1500] or status.text[-1500:],
            "release": stop.last("End who holds").get("msg"), "drift": drift.result[0]}  # fmt: skip


CASES: dict[str, t.Callable[[Bench], dict[str, t.Any]]] = {
    "arguments before the launch": arguments,
    "first start on an empty node": first_start,
    "relaunch of a healthy server with another profile": another_profile,
    "hung: schedulers stopped": hung,
    "launcher SIGKILLed, nobody intervenes": launcher_killed,
    "launcher SIGKILLed beside a left-over": killed_with_left_over,
    "relaunch with the release on the GPU host": host_side,
    "crash in load": crash_in_load,
    "a profile that cannot get ready, with rollback": rolled_back,
    "stop, and drift afterwards": stopped,
}


def run_case(bench: Bench, case: t.Callable[[Bench], dict[str, t.Any]]) -> dict[str, t.Any]:
    bench.plays = []
    began, stranger = time.time(), Stranger()
    before = subprocess.check_output(["nvidia-smi"], text=True)
    stranger.start()
    try:
        found: dict[str, t.Any] = {"result": "passed", **case(bench)}
    except Exception as problem:  # noqa: BLE001 - the other cases still say something
        found = {"result": "FAILED", "error": f"{type(problem).__name__}: {problem}"}
    found["seconds"] = round(time.time() - began, 1)
    found["seen_by_a_stranger"] = stranger.end()
    found["nvidia_smi"] = {"before": before, "after": subprocess.check_output(["nvidia-smi"], text=True)}
    found["plays"] = [
        {"playbook": play.name, "code": play.code, "seconds": play.seconds, "steps": play.longest(),
         "told": play.told(), "at": round(play.began - began, 1)}
        for play in bench.plays
    ]  # fmt: skip
    return found


def prepare(work: pathlib.Path) -> None:
    """What the overlay shows of the machine, so before it is made."""
    shutil.copy(HERE / "cuda_holder.py", work)
    pathlib.Path(MODEL).mkdir(parents=True, exist_ok=True)
    pathlib.Path(MODEL, "config.json").write_text(json.dumps(CONFIG))
    work.chmod(0o755)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("--debs", type=pathlib.Path, required=True)
    parser.add_argument("--site", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="", help="words, one of which a case's name must have")
    options = parser.parse_args()
    options.report.mkdir(parents=True, exist_ok=True)
    used = memory_used()
    if any(used):
        print(f"These GPUs are in use ({used} MiB): nothing was touched.", file=sys.stderr)
        return 2
    work = pathlib.Path(tempfile.mkdtemp(prefix="cleanslate-hardware-", dir="/tmp"))
    prepare(work)
    node = Node(work, options.debs.resolve())
    report: dict[str, t.Any] = {"machine": launch_report.describe_machine(options.site), "cases": {}}
    try:
        node.boot()
        report["machine"]["systemd"] = node.say("systemctl", "--version").splitlines()[0]
        bench = Bench(
            node, Player(node, options.site.resolve(), len(used), shutil.which("nvidia-smi") or "nvidia-smi"), len(used)
        )
        words = [word for word in options.only.split(",") if word]
        for name in [name for word in words for name in CASES if word in name] or CASES:
            report["cases"][name] = run_case(bench, CASES[name])
            print(time.strftime("%H:%M:%S"), name, as_json(report["cases"][name], 700), flush=True)
            launch_report.write(report, options.report)
        report["key_found_in"] = launch_report.files_with(KEY, node, work)
        launch_report.write(report, options.report)
    finally:
        launch_report.keep_logs(node, work, options.report)
        node.shut_down()
    results = [case["result"] for case in report["cases"].values()]
    print(f"{results.count('passed')} passed, {results.count('FAILED')} failed", flush=True)
    return 1 if "FAILED" in results or not results else 0


if __name__ == "__main__":
    sys.exit(main())
