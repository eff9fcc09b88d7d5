# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of the fake nvidia-smi on a script: the list "faults" of NODE/scenario.json, read at each call.

Which calls: "query" (gpu, apps, list; any without), "from_call" and "to_call" (counted for each kind from 1, anew each
time scenario.json is written), "times" (at most so often), "after_s" and "until_s" (since scenario.json was written).
What happens: "effect", see EFFECTS; several faults that match apply in order. A list as "value" or "mib" gives one
entry to each call, the last from then on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import typing as t

Fault = dict[str, t.Any]
Row = dict[str, t.Any]
WHEN = {"effect", "query", "from_call", "to_call", "times", "after_s", "until_s"}
EFFECTS: dict[str, set[str]] = {
    "replay": {"file"},  # a recording, with its streams, exit code and hang
    "hang": {"rows"},  # SIGTERM is ignored; rows: so many rows came out before
    "slow": {"seconds"},
    "exit": {"code", "stdout", "stderr"},
    "lost": {"gpus"},  # row missing, others keep their index, a line on stderr (570 and later)
    "lost_fields": {"gpus"},  # identity from the cache, the rest [GPU is lost]
    "hidden": {"gpus"},  # row missing, others renumbered, count too (580)
    "not_available": {"gpus", "fields"},  # [N/A] in these fields (default: the memory fields and utilization)
    "mig": {"gpus", "mib"},
    "recovery_action": {"gpus", "value"},
    "fabric_state": {"gpus", "value"},
    "used": {"gpus", "mib"},  # memory.used reads mib, whatever is held: a lie, or a floor
    "set": {"gpus", "fields"},  # fields: {name: text}
    "pid_namespace": set(),  # compute-apps is empty
}


def check(fault: Fault) -> None:
    effect = fault.get("effect")
    if effect not in EFFECTS:
        raise ValueError("unknown effect {!r}; known: {}".format(effect, ", ".join(sorted(EFFECTS))))
    odd = set(fault) - WHEN - EFFECTS[effect]
    if odd:
        raise ValueError("effect {} does not take {}".format(effect, ", ".join(sorted(odd))))
    if fault.get("query", "any") not in ("gpu", "apps", "list", "any"):
        raise ValueError("unknown query {!r}; known: gpu, apps, list, any".format(fault["query"]))
    if effect == "replay":
        recording(fault["file"])


def count(node: str, name: str) -> int:
    """The number of this call: one more byte in a file, atomically."""
    fd = os.open(os.path.join(node, "counters", name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        os.write(fd, b".")
        return os.lseek(fd, 0, os.SEEK_CUR)
    finally:
        os.close(fd)


def matching(node: str, faults: t.Sequence[Fault], kind: str) -> list[Fault]:
    written = os.stat(os.path.join(node, "scenario.json"))
    call = count(node, f"{kind}-{written.st_mtime_ns}")
    age = time.time() - written.st_mtime
    found = []
    for place, fault in enumerate(faults):
        check(fault)
        if (
            fault.get("query", "any") in (kind, "any")
            and fault.get("from_call", 1) <= call <= fault.get("to_call", call)
            and fault.get("after_s", 0) <= age < fault.get("until_s", age + 1)
            and ("times" not in fault or count(node, f"f{place}-{written.st_mtime_ns}") <= fault["times"])
        ):
            found.append({key: in_turn(node, value, f"v{place}{key}-{written.st_mtime_ns}")
                          if key in ("value", "mib") else value for key, value in fault.items()})  # fmt: skip
    return found


def in_turn(node: str, value: t.Any, name: str) -> t.Any:
    """One entry of a list for each call, the last one from then on."""
    return value[min(count(node, name), len(value)) - 1] if isinstance(value, list) else value


def recordings_folder() -> str:
    here = os.path.dirname(os.path.realpath(__file__))
    return os.environ.get("CLEANSLATE_RECORDINGS") or os.path.join(os.path.dirname(here), "recordings", "nvidia-smi")


def recording(name: str) -> tuple[dict[str, t.Any], list[str], bytes]:
    folder = os.path.dirname(name) or recordings_folder()
    try:
        with open(os.path.join(folder, "index.json"), encoding="utf-8") as handle:
            index = json.load(handle)
    except FileNotFoundError:
        raise ValueError(f"no recordings in {folder} (CLEANSLATE_RECORDINGS names another folder)") from None
    for entry in index["fixtures"]:
        if entry["file"] == os.path.basename(name):
            with open(os.path.join(folder, entry["file"]), "rb") as handle:
                return entry, index["queries"][entry["query"]].get("fields", []), handle.read()
    raise ValueError(f"no recording {name} in {folder}")


def project(data: bytes, recorded: list[str], wanted: list[str]) -> bytes:
    out = []
    for line in data.split(b"\n"):
        end = b"\r" if line.endswith(b"\r") else b""
        cells = line[: len(line) - len(end)].split(b", ")
        fits = len(cells) == len(recorded)
        out.append(b", ".join(cells[recorded.index(f)] for f in wanted) + end if fits else line)
    return b"\n".join(out)


def play(node: str, name: str, wanted: list[str]) -> t.NoReturn:
    entry, recorded, data = recording(name)
    if entry.get("timed_out"):
        note_hanging(node)
    missing = [field for field in wanted if field not in recorded]
    if entry.get("exit_code") == 0 and missing:
        finish(b'Field "%s" is not a valid field to query.\n\n' % missing[0].encode(), "", 2)
    if wanted != recorded and not missing:
        data = project(data, recorded, wanted)
    finish(data, entry.get("stderr") or "", entry.get("exit_code") or 0, bool(entry.get("timed_out")))


def finish(stdout: bytes, stderr: str, code: int, hang: bool = False) -> t.NoReturn:
    sys.stdout.buffer.write(stdout)
    sys.stdout.flush()
    sys.stderr.write(stderr)
    sys.stderr.flush()
    while hang:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def before(node: str, fault: Fault, request: t.Mapping[str, t.Any]) -> None:
    """The effects that need no row."""
    effect = fault["effect"]
    if effect == "slow":
        time.sleep(fault["seconds"])
    elif effect == "exit":
        finish(fault.get("stdout", "").encode(), fault.get("stderr", ""), fault.get("code", 255))
    elif effect == "replay":
        play(node, fault["file"], request["fields"])
    elif effect == "hang" and not fault.get("rows"):
        hang(node, b"")


def note_hanging(node: str) -> None:
    import processes  # so that stop finds us, whoever started us

    processes.register(node, "hanging nvidia-smi")


def hang(node: str, rows: bytes) -> t.NoReturn:
    import smi

    smi.open_nodes(node, range(16))  # a hanging one is seen by a scan: as a monitor
    note_hanging(node)
    finish(rows, "", 0, hang=True)


def bend(rows: list[Row], fault: Fault, said: str) -> tuple[list[Row], str]:
    """The effects on rows: the rows as this fault leaves them, and what stands on stderr."""
    effect = fault["effect"]
    hit = [row for row in rows if "gpus" not in fault or row["minor"] in fault["gpus"]]
    if effect == "lost":
        for row in hit:
            bus = row["pci.bus_id"][4:]
            said += f"Unable to determine the device handle for GPU{row['minor']}: {bus}: Unknown Error\n"
        rows = [row for row in rows if row not in hit]
    elif effect == "hidden":
        rows = [row for row in rows if row not in hit]
        for index, row in enumerate(rows):
            row.update(index=index, count=len(rows))
    for row in hit:
        if effect == "lost_fields":
            row.update(
                (field, "[GPU is lost]") for field in row if field.startswith(("memory.", "utilization", "mig."))
            )
            row.update((field, "[GPU is lost]") for field in ("compute_mode", "persistence_mode"))
        elif effect == "not_available":
            fields = fault.get("fields") or [f for f in row if f.startswith(("memory.", "utilization"))]
            row.update((field, "[N/A]") for field in fields)
        elif effect == "mig":
            row.update({"mig.mode.current": "Enabled", "utilization.gpu": "[N/A]"})
            row["memory.used"] = max(row["memory.used"], fault.get("mib", 38))
        elif effect == "recovery_action":
            row["gpu_recovery_action"] = fault["value"]
        elif effect == "fabric_state":
            row["fabric.state"] = fault["value"]
        elif effect == "used":
            row["memory.free"] += row["memory.used"] - fault["mib"]
            row["memory.used"] = fault["mib"]
        elif effect == "set":
            row.update(fault["fields"])
    return rows, said
