# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One row: plant it, ask the module, and look by other means what has happened and what has not."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import pathlib
import shutil
import threading
import time
import typing as t

import write_decisions
from driving import Node
from modules import GUARD, Answer, Modules
from plants import PLANTS
from release_row import PASSING, ReleaseFault
from scene import UNIT, Actor, Scene, until

MODULE = {
    "release": "gpu_force_release", "check": "gpu_force_release", "gate": "gpu_wait_idle",
    "rehearsal": "gpu_wait_idle", "facts": "nvidia_gpu_facts", "holders": "gpu_holders_info", "guard": GUARD,
}  # fmt: skip
# The test is the living parent of what it starts, which would be watched; the tests are not to wait for a person.
RELEASE = {"scope": "own", "respawn_watch": 0, "ladder": [{"signal": "TERM", "wait": 2}, {"signal": "KILL", "wait": 8}]}
# Where the gate is to open it gets the time that a busy machine may need.
GATE = {"interval": 0.01, "timeout": 0.3}
LONG_GATE = {"interval": 0.01, "timeout": 15.0}
# The guard takes a start that it refuses out of the start limit.
OF_GUARD = (f"systemctl --user reset-failed -- {UNIT}",)
QUESTIONS = ("show", "is-active", "list-units", "inspect", "ps", "status", "list")
# What a look writes by itself: the simulator's own books.
BOOKS = ("calls.jsonl", "counters", "pycache", "processes", "contexts", "holders.log", "sglang.log", "scenario.json")


def tree(node: Node) -> dict[str, tuple[int, int, int]]:
    """Every file of the node but the simulator's books: mode, size, time of its last change."""
    found = {}
    for folder, _folders, names in os.walk(node.path):
        inside = os.path.relpath(folder, node.path)
        if inside.partition("/")[0] in BOOKS:
            continue
        for name in names:
            about = os.lstat(os.path.join(folder, name))
            if not (inside == "." and name in BOOKS):
                found[f"{inside}/{name}"] = (about.st_mode, about.st_size, about.st_mtime_ns)
    return found


class Played:
    """What came of a row, for those who look closer."""

    def __init__(self, scene: Scene, answer: Answer, calls: list[dict[str, t.Any]]) -> None:
        self.scene, self.answer, self.calls = scene, answer, calls


def _request(row: ReleaseFault, scene: Scene) -> dict[str, t.Any]:
    folder, node = scene.folder, scene.node
    params: dict[str, t.Any] = {
        "nvidia_smi": f"{node.path}/bin/nvidia-smi", "_ansible_remote_tmp": str(folder),
        "_ansible_check_mode": row.ask in ("check", "rehearsal"),
    }  # fmt: skip
    if row.ask != "facts":
        params["devices"] = [scene.devices]
    if row.ask in ("release", "check"):
        params.update(RELEASE)
    if row.ask in ("gate", "rehearsal", "guard"):
        params.update(LONG_GATE if {"idle", "start"} & set(row.verdicts) else GATE)
    if row.ask in ("gate", "rehearsal", "guard", "facts"):
        params["expected_count"] = row.gpus
    params.update({**scene.params, **row.options})
    if params.get("expected_uuids"):
        params["expected_count"] = None
    if row.ask == "facts":
        params.pop("majors", None)
    params = {name: value for name, value in params.items() if value is not None}
    environment = {
        "PATH": f"{folder}/tools:/usr/bin:/bin", "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder),
        "LC_ALL": "C.UTF-8",
    }  # fmt: skip
    request = {"module": MODULE[row.ask], "params": params, "environment": environment, **scene.request}
    if row.ask == "guard":
        request["argv"] = _guard_words(params, folder)
    return request


def _guard_words(params: t.Mapping[str, t.Any], folder: pathlib.Path) -> list[str]:
    words = [
        f"--unit={UNIT}", f"--state-dir={folder}/guard", f"--lock-dir={folder}/locks", "--systemd-scope=user",
    ]  # fmt: skip
    for name, value in params.items():
        if not name.startswith("_"):
            option = f"--{name.replace('_', '-')}"
            words.extend(f"{option}={one}" for one in (value if isinstance(value, list) else [value]))
    return words


def decide(row: ReleaseFault) -> None:
    """What drift makes of this server, whatever else it sees: its table, as it is printed in the docs."""
    table = write_decisions.table
    columns = [(row.options[name],) if name in row.options else values for name, (_m, values) in table.COLUMNS.items()]
    words = itertools.product(*columns)
    found = {table.decide(table.Situation(**dict(zip(table.COLUMNS, word)))).action for word in words}
    assert found <= set(row.verdicts), f"{row.name}: drift may decide {sorted(found)}"


def play(row: ReleaseFault, modules: Modules, node: Node, folder: pathlib.Path) -> Played:
    """AssertionError says what is wrong with it."""
    with device_numbers(row):
        return _alone(row, modules, node, folder)


@contextlib.contextmanager
def device_numbers(row: ReleaseFault) -> t.Iterator[None]:
    """Real device nodes have numbers that the rows share, also with rows in another process: one after the other."""
    if "root" not in row.needs:
        yield
        return
    with open(pathlib.Path(__file__), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _alone(row: ReleaseFault, modules: Modules, node: Node, folder: pathlib.Path) -> Played:
    scene = Scene(folder, node)
    try:
        return _play(row, modules, scene)
    finally:
        scene.close()
        shutil.rmtree(folder, ignore_errors=True)


def _play(row: ReleaseFault, modules: Modules, scene: Scene) -> Played:
    node = scene.node
    scene.faults(*row.faults, **row.scenario)
    bystander = scene.play("bystander", comm="train.py")
    PLANTS[row.plant](scene)
    del scene.cast["bystander"]
    before, called = tree(node), len(node.calls("nvidia-smi"))
    request = _request(row, scene)
    helper = _pauses(scene, request)
    answer = modules.call(request, scene.folder, seconds=row.within, meanwhile=scene.reap)
    if helper is not None:
        helper.join(30)
        assert not helper.is_alive(), f"{row.name}: never came to where it was to pause"
    calls = node.calls("nvidia-smi")[called:]
    played = Played(scene, answer, calls)
    _judge(row, played)
    _nothing_else(row, played, bystander)
    after = tree(node)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert not changed, f"{row.name}: files were changed: {sorted(changed)}"
    return played


def _pauses(scene: Scene, request: dict[str, t.Any]) -> threading.Thread | None:
    """Where the case does something in the midst of the module's work, a thread waits for the module to get there."""
    if not scene.pauses:
        return None
    said, go = scene.folder / "said", scene.folder / "go"
    for pipe in (said, go):
        os.mkfifo(pipe)
        pipe.chmod(0o666)
    request.update(pauses=[pause[:3] for pause in scene.pauses], said=str(said), go=str(go))

    def body() -> None:
        for *_where, act in scene.pauses:
            said.read_text()
            try:
                act()
            finally:
                go.write_text("go")

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread


def verdict_of(row: ReleaseFault, answer: Answer) -> str:
    result = answer.result
    if row.ask == "facts":
        result = result.get("ansible_facts", {}).get("nvidia_gpu", {})
    word = str(result.get("verdict", "options" if answer.rc else "?"))
    unasked = word == "refused" and result.get("smi_state") == "not_asked" and not result.get("holders")
    return "options" if unasked and row.verdict == "options" else word


def _judge(row: ReleaseFault, played: Played) -> None:
    answer = played.answer
    result = answer.result
    text = json.dumps(result, ensure_ascii=False) + answer.said
    found = verdict_of(row, answer)
    assert found in row.verdicts, f"{row.name}: verdict {found}, not {row.verdict}: {text}"
    assert row.says in text, f"{row.name}: does not say {row.says!r}: {text}"
    if row.ask == "guard":
        assert (answer.rc == 0) is (found == "start"), f"{row.name}: exit {answer.rc} with {found}"
    elif row.ask in PASSING:
        passes = found in PASSING[row.ask] and not (result.get("gate") and result["gate"]["verdict"] != "idle")
        assert bool(result.get("failed")) is not passes or found == "settled", f"{row.name}: {found}, {text}"
    for path, wanted in row.expects.items():
        value: t.Any = result
        for step in path.split("."):
            value = value[int(step)] if isinstance(value, list) else value[step]
        assert value == wanted, f"{row.name}: {path} is {value!r}, not {wanted!r}"


def _nothing_else(row: ReleaseFault, played: Played, bystander: Actor) -> None:
    """By the process table, what the processes wrote down, and the logs of the tools."""
    scene = played.scene
    assert set(scene.cast) == {*row.dies, *row.lives}, f"{row.name}: the case has {sorted(scene.cast)}"
    for name in row.dies:
        actor = scene.cast[name]
        end = time.monotonic() + 10
        while actor.alive() and time.monotonic() < end:
            scene.reap()
            time.sleep(0.01)
        assert not actor.alive(), f"{row.name}: {name} (PID {actor.pid}) must be dead: {played.answer.result}"
    for actor in (*(scene.cast[name] for name in row.lives), bystander):
        assert actor.alive(), f"{row.name}: {actor.name} (PID {actor.pid}) must live: {played.answer.result}"
        assert not actor.heard(), f"{row.name}: {actor.name} must not be signalled, got {actor.heard()}"
    for log in scene.unharmed:
        assert not log.read_bytes(), f"{row.name}: a process of another PID namespace got {log.read_text()}"
    signalled = [one["signal"] for one in played.answer.result.get("signalled", ())]
    for signal_name in set(signalled) if row.sent is not None else ():
        most = (row.sent or {}).get(signal_name, 0)
        assert signalled.count(signal_name) <= most, f"{row.name}: sent {signalled}"
    asked = [call for call in played.calls if call["argv"][:1] and call["argv"][0].startswith("--query-")]
    assert asked == played.calls, f"{row.name}: nvidia-smi was told to do something: {played.calls}"
    gpus = [call for call in asked if call["argv"][0].startswith("--query-gpu")]
    assert row.asked is None or len(gpus) <= row.asked, f"{row.name}: nvidia-smi was asked {len(gpus)} times"
    commands = (scene.folder / "commands").read_text().splitlines()
    orders = [line for line in commands if not set(line.split()) & set(QUESTIONS)]
    strange = [line for line in orders if line not in (*row.commands, *(OF_GUARD if row.ask == "guard" else ()))]
    assert not strange, f"{row.name}: managers were told to do something: {strange}"
    until("the questions to nvidia-smi are over", lambda: not _asking(scene.node))


def _asking(node: Node) -> bool:
    """Whether a nvidia-smi that was started has been left running."""
    return any(role == "hanging nvidia-smi" for role in node.processes())
