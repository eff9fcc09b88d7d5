# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A small disk in a private mount namespace, and what is asked for on it. `disk_plays.py FOLDER DISK ASK` is the part
that runs in the namespace: real modules as programs where there is one, else the core."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import typing as t

if t.TYPE_CHECKING:
    from run_row import RunFault

FILLER = "filler"
BLOCKS, INODES = "64k", "40"


def private() -> list[str]:
    """The words that start a program in a mount namespace of its own."""
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *own, "--mount", "--propagation", "private", "--"]


def on_disk(row: RunFault, folder: pathlib.Path) -> None:
    words = [sys.executable, __file__, str(folder), row.options["disk"], row.options["ask"]]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [*private(), *words], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    for piece in row.says:
        assert piece in seen["said"], seen["said"]
    assert str(folder) in seen["said"], seen["said"]
    assert seen["refused"] is seen["expected"], seen
    assert seen["after"] == seen["before"], "an older file changed, or something is left"


@dataclasses.dataclass(frozen=True)
class Answer:
    """refused: what the module or the guard said no to; expected: whether it had to."""

    said: str
    refused: bool
    expected: bool


def tree(folder: pathlib.Path) -> dict[str, str]:
    """Every file but locks, which are empty."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.endswith(".lock")]
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if FILLER not in path.name
    }


def _mount(folder: pathlib.Path) -> None:
    options = f"size={BLOCKS},nr_inodes={INODES},mode=0755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)


def _spoil(folder: pathlib.Path, disk: str) -> None:
    if disk == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    elif disk == "full":
        with open(folder / FILLER, "wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                pass
    else:
        for number in range(int(INODES)):
            try:
                (folder / f"{FILLER}{number}").touch()
            except OSError:
                return


class Asks:
    """What is asked for on the disk: begin() while it is well, then ask()."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self.disk, self.name = folder, name
        self.beside = folder.with_name("beside")  # another disk, which is well
        self.beside.mkdir()

    # ---- modules

    def _module(self, module: str, **options: t.Any) -> dict[str, t.Any]:
        from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import run_module

        return run_module(module, self.beside, **options)[0]

    def _files(self) -> list[dict[str, str]]:
        """Unit and configuration, one of them on a disk that is well."""
        other = "sglang.yaml" if self.name == "stage_unit" else "sglang.service"
        return [
            {"path": str((self.beside if name == other else self.disk) / name), "content": f"new {name}\n" * 300}
            for name in ("sglang.service", "sglang.yaml")
        ]

    def _unit_files(self, state: str) -> dict[str, t.Any]:
        files = self._files()
        if state != "staged":
            files = [{"path": file["path"]} for file in files]
        return self._module("sglang_unit_files", state=state, files=files)

    def begin_stage_unit(self) -> None:
        for file in self._files():
            pathlib.Path(file["path"]).write_text("old\n")

    begin_stage_config = begin_stage_unit

    def _beside(self) -> dict[str, str]:
        # What was staged may be gone after a swap that was undone; the next run stages anew.
        gone = (".json", ".staged") if self.name == "swap" else (".json",)
        return {name: text for name, text in tree(self.beside).items() if not name.endswith(gone)}

    def ask_stage_unit(self) -> Answer:
        return self._of_both("staged")

    def _of_both(self, state: str) -> Answer:
        """The file on the disk that is well stays as it is too."""
        before = self._beside()
        result = self._unit_files(state)
        assert self._beside() == before
        return Answer(result["msg"], bool(result.get("failed")), True)

    ask_stage_config = ask_stage_unit

    def begin_swap(self) -> None:
        self.begin_stage_unit()
        assert not self._unit_files("staged").get("failed")

    def ask_swap(self) -> Answer:
        return self._of_both("installed")

    def _run_record(self, **options: t.Any) -> dict[str, t.Any]:
        return self._module(
            "run_record", event="begun", run_id="r1", playbook="relaunch.yml", node="n1", who="ana",
            unit="sglang.service", **{"dir": str(self.disk / "record"), **options},
        )  # fmt: skip

    def begin_record(self) -> None:
        assert not self._run_record().get("failed")
        # The next line needs a block of its own.
        with open(self.disk / "record" / "runs.jsonl", "ab") as file:
            file.write(b" " * (4095 - file.tell()) + b"\n")

    def ask_record(self) -> Answer:
        result = self._run_record()
        return Answer(result["msg"], bool(result.get("failed")), True)

    def begin_metrics(self) -> None:
        (self.disk / "metrics").mkdir()
        (self.disk / "metrics" / "other.prom").write_text("something 1\n")

    def ask_metrics(self) -> Answer:
        result = self._run_record(dir=str(self.beside / "record"), metrics_dir=str(self.disk / "metrics"))
        assert result["verdict"] == "not_counted"
        assert (self.beside / "record" / "runs.jsonl").read_bytes().count(b"\n") == 1
        return Answer(result["msg"], bool(result.get("failed")), True)

    def _wanted(self, profile: str) -> dict[str, t.Any]:
        path = str(self.disk / "state" / "wanted.json")
        return self._module("sglang_wanted", state="serving", unit="sglang.service", profile=profile, path=path,
                            outcome="failed", who="ana", by="relaunch.yml", run_id="r1")  # fmt: skip

    def begin_wanted(self) -> None:
        assert not self._wanted("base").get("failed")

    def ask_wanted(self) -> Answer:
        result = self._wanted("trial")
        return Answer(result["msg"], bool(result.get("failed")), True)

    def _memory(self, state: str, **options: t.Any) -> dict[str, t.Any]:
        path = str(self.disk / "state" / "drift.json")
        return self._module("sglang_drift_memory", state=state, unit="sglang.service", path=path, **options)

    def begin_memory(self) -> None:
        assert not self._memory("noted", key="hung", revision=0).get("failed")

    def ask_memory(self) -> Answer:
        result = self._memory("begun", run_id="r1", action="relaunch", revision=1)
        return Answer(result["msg"], bool(result.get("failed")), True)

    def _lease(self, state: str, run_id: str) -> dict[str, t.Any]:
        return self._module("gpu_host_lock", state=state, run_id=run_id, node="n1", path=str(self.disk / "leases"))

    def begin_lease(self) -> None:
        assert not self._lease("held", "r0").get("failed")
        assert not self._lease("released", "r0").get("failed")

    def ask_lease(self) -> Answer:
        result = self._lease("held", "r1")
        return Answer(result["msg"], bool(result.get("failed")), True)

    # ---- the core, where no module asks for this alone

    def begin_starts(self) -> None:
        self._remember(60.0)

    def _remember(self, seconds: float) -> str:
        from ansible_collections.cleanslate.gpu.plugins.module_utils import _start_times

        return _start_times.remember(str(self.disk / "starts.json"), "base", {"load_weights": seconds}, 1.8e9)

    def ask_starts(self) -> Answer:
        complaint = self._remember(61.0)
        return Answer(complaint, bool(complaint), True)

    def _guard(self, held: bool = False, **options: t.Any) -> tuple[str, str]:
        """A whole start on a made-up node, whose guard writes on the disk: its verdict, and all that it said."""
        from ansible_collections.cleanslate.gpu.plugins.module_utils import _start_guard_program
        from ansible_collections.cleanslate.gpu.plugins.module_utils._start_guard_record import GuardFolder
        from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils import test__start_guard as worlds
        from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.gate_world import (
            Node,
            holder,
            ok,
            scan,
        )

        folder = GuardFolder(str(self.disk / "guard"), "sglang.service")
        folder.prepare()
        node = Node([ok(5000, 0)], scan(holder(4711))) if held else Node([ok(0, 0)])
        world = worlds.World(node)
        world.write, world.write_environment = folder.write, folder.write_environment  # type: ignore[method-assign]
        verdict = _start_guard_program._run(worlds.guard(world, **options), 60)
        told = [text for text in world.words if "cannot be written" in text]
        assert len(told) <= 1, "said once"
        return verdict, "\n".join(world.words)

    def begin_guard_report(self) -> None:
        assert self._guard()[0] == "start"

    begin_guard_refuses = begin_guard_numbers = begin_guard_locks = begin_guard_report

    def ask_guard_report(self) -> Answer:
        verdict, said = self._guard()
        return Answer(said, verdict != "start", False)

    def ask_guard_refuses(self) -> Answer:
        verdict, said = self._guard(held=True)
        return Answer(said, verdict == "refused", True)

    def ask_guard_numbers(self) -> Answer:
        from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation
        from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.gate_world import UUIDS

        verdict, said = self._guard(expectation=Expectation(uuids=tuple(UUIDS[:2])))
        return Answer(said, verdict == "error", True)

    def ask_guard_locks(self) -> Answer:
        from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_locks import gpu_locks

        verdict, said = self._guard(locks=gpu_locks(str(self.disk / "gpus"), ()))
        return Answer(said, verdict == "error", True)


def main(place: str, disk: str, name: str) -> None:
    folder = pathlib.Path(place) / "disk"
    folder.mkdir()
    _mount(folder)
    asks = Asks(folder, name)
    if name == "guard_locks":
        (folder / "gpus").mkdir()
    getattr(asks, f"begin_{name}")()
    _spoil(folder, disk)
    before = tree(folder)
    answer = getattr(asks, f"ask_{name}")()
    print(json.dumps({**dataclasses.asdict(answer), "before": before, "after": tree(folder)}))


PLAYS = {"on_disk": on_disk}

if __name__ == "__main__":
    main(*sys.argv[1:])
