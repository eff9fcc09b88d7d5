# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.
"""Holding one look against what is expected: idle, busy or unknown, and a reason that says why.

busy outranks unknown: one believed row above the tolerance is enough, whatever else is wrong. idle needs everything:
nvidia-smi ended with 0, every expected GPU has a row, no row has a problem, and nothing was printed that is not
understood. Everything else is unknown, and unknown is never treated as 0.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import (
    Expectation,
    Gpu,
    GpuLook,
    Judgement,
    ProcessesVerdict,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import shown

# Idle GPUs were seen to report up to 287 MiB; a CUDA context that holds nothing takes 621 MiB of an H200.
MOST_IDLE_MIB = 512
MOST_NAMED = 8  # of GPUs, processes and problems in one reason
_XID = "look for Xid lines in the kernel log (`dmesg | grep -i xid`)"
_XID_OR_NODE = _XID + "; in a container check that the device nodes were handed in"

_STATE_REASONS = {
    "no_tool": "nvidia-smi was not found{said}. Without it nothing is known about the GPUs: install it (it comes with"
    " the NVIDIA driver), hand it into the container, or set nvidia_smi to its path.",
    "no_driver": "The NVIDIA driver cannot be reached{said}. Look at `lsmod | grep nvidia` and `dmesg`, load it with"
    " `modprobe nvidia`; where only the library libnvidia-ml is missing, install it in the version of the driver.",
    "no_devices": "nvidia-smi sees no GPU{said}. No GPU is not an idle GPU: look at `lspci -d 10de:`, {xid}.",
    "library_mismatch": "The NVIDIA driver in the kernel and its library differ{said}: the driver was upgraded under a"
    " running kernel. Reboot, or end everything that uses the GPUs and reload the nvidia modules; in a container"
    " install the version that the host runs.",
    "blocked": "nvidia-smi may not use the GPUs{said}. Run with become; a container that lost its devices"
    " (`systemctl daemon-reload` on the host can do that) must be restarted.",
}
_ADVICE = (
    ("requires reset", "Reset it (`nvidia-smi --gpu-reset`, with nothing using it) or reboot."),
    ("gpu_recovery_action", "The driver asks for this recovery: do it before the GPU is used again."),
    ("is lost", f"It fell off the bus: {_XID}, then reboot."),
    ("insufficient permissions", "Run with become; where MIG is on, the container needs the right to monitor it."),
    ("mib, but nvidia-smi lists", "A process may be starting or ending: look again; gpu_holders_info shows who it is."),
    ("not report its memory", "It can never be shown to be idle in this way: judge it by its processes."),
)


def kernel_gpu_count(proc_root: str = "/proc") -> int | None:
    """How many GPUs the kernel module has bound. None where that cannot be read: no driver, or masked."""
    try:
        return len(os.listdir(os.path.join(proc_root, "driver/nvidia/gpus")))
    except OSError:
        return None


def check_idle_mib(name: str, value: int) -> int:
    """MiB that a GPU may hold and still be called idle. ValueError with a sentence where somebody's work fits in."""
    if not 0 <= value <= MOST_IDLE_MIB:
        raise ValueError(
            f"{name} is {shown(value)}: the MiB that a GPU may hold and still be idle must be between 0 and"
            f" {MOST_IDLE_MIB}, since with more a GPU on which something computes could pass for an idle one."
        )
    return value


def judge(look: GpuLook, expectation: Expectation, max_used_mib: int = 0) -> Judgement:
    """Judge one look. With uuids only those GPUs count, and what is wrong with others does not matter."""
    expected, missing, doubts = _expected(look, expectation)
    busy: tuple[Gpu, ...] = ()
    if look.state != "hung":  # the rows of a query that was cut off prove nothing
        busy = tuple(gpu for gpu in expected if gpu.used_mib is not None and gpu.used_mib > max_used_mib)
    listed = {process.gpu_uuid: process.pid for process in look.processes}
    unreadable = tuple(
        gpu for gpu in expected if gpu.problems or gpu.used_mib is None or (gpu not in busy and gpu.uuid in listed)
    )
    doubts = [*_state_doubts(look), *doubts, *_gpu_doubts(unreadable, listed)]
    doubts.extend(_problem_doubts(look, expectation, missing))
    if busy:
        held = _busy_reason(look, busy, max_used_mib)
        beside = _list(doubts, " ")
        # A release ends who holds memory, and brings no GPU back: that comes first, or nobody reads as far.
        first, second = (beside, held) if missing else (held, beside)
        reason = f"{first} Besides: {second}" if doubts else held
        return Judgement("busy", reason, expected, busy, missing, unreadable)
    if doubts:
        return Judgement("unknown", _list(doubts, " "), expected, busy, missing, unreadable)
    if not expected or look.state != "ok" or missing or unreadable:
        raise AssertionError(f"Contract violation: no word against idle, yet it is not: {look!r}, {expectation!r}")
    return Judgement("idle", _idle_reason(expected, expectation, max_used_mib), expected)


def processes_verdict(look: GpuLook, max_used_mib: int = 0) -> ProcessesVerdict:
    """An empty list proves nothing while memory is held: nvidia-smi does not list who is in another PID namespace."""
    held = any(gpu.used_mib is None or gpu.used_mib > max_used_mib for gpu in look.gpus)
    return "unknown" if look.processes_verdict == "none" and held else look.processes_verdict


def _expected(look: GpuLook, expectation: Expectation) -> tuple[tuple[Gpu, ...], tuple[str, ...], list[str]]:
    """The rows that matter, what is missing, and what that says against idle.

    Where nvidia-smi failed as a whole, its state is the reason, and not every GPU that it therefore did not list.
    """
    answered = look.state == "ok"
    if expectation.uuids:
        wanted = {uuid.lower() for uuid in expectation.uuids}
        rows = tuple(gpu for gpu in look.gpus if gpu.uuid.lower() in wanted)
        seen = {gpu.uuid.lower() for gpu in rows}
        missing = tuple(uuid for uuid in expectation.uuids if uuid.lower() not in seen)
        doubt = f"nvidia-smi lists {_number(len(look.gpus))}, but not {_list(missing)}. To do: {_XID_OR_NODE}."
        return rows, missing, [doubt] if missing and answered else []
    if expectation.count is None or expectation.count < 1:
        why = "cannot be read" if expectation.count is None else "is empty"
        doubt = f"How many GPUs there should be is not known: /proc/driver/nvidia/gpus {why}."
        return look.gpus, (), [f"{doubt} Pass expected_count or expected_uuids."] if answered else []
    lacking = expectation.count - len(look.gpus)
    if lacking > 0:
        missing = _missing_names(look, lacking)
        doubt = f"{len(look.gpus)} of {_number(expectation.count)} answer, missing: {_list(missing)}."
        return look.gpus, missing, [f"{doubt} To do: {_XID_OR_NODE}."] if answered else []
    if lacking < 0 and answered:
        doubt = f"nvidia-smi lists {_number(len(look.gpus))}, but {expectation.count} are expected."
        return look.gpus, (), [f"{doubt} Where only some of them matter, name them with expected_uuids."]
    return look.gpus, (), []


def _missing_names(look: GpuLook, lacking: int) -> tuple[str, ...]:
    """Only a gap, the driver's own count or a message tells which one: otherwise the rest may have been renumbered."""
    seen = {gpu.index for gpu in look.gpus}
    known = [one for one in look.faulty if isinstance(one, int) and one not in seen]
    names = [f"GPU {index}" for index in known][:lacking]
    if lacking > len(names):
        names.append(f"{_number(lacking - len(names))} of which nothing says which")
    return tuple(names)


def _state_doubts(look: GpuLook) -> list[str]:
    if look.state == "ok":
        return []
    said = f' ("{look.first_line}")' if look.first_line else ""
    if look.state == "blocked" and look.exit_code is None:
        return [f"This user may not start nvidia-smi{said}. Run with become, or set nvidia_smi to the right path."]
    if look.state == "hung" and look.hung_pid is not None:
        doubt = f"nvidia-smi hangs: pid {look.hung_pid} was killed but cannot end (state D: stuck in the driver)."
        doubt += " It is left behind, and no other one is started while it is there."
        return [f"{doubt} To do: {_XID}; usually only a reboot helps."]
    if look.state == "hung":
        doubt = f"nvidia-smi did not answer within {look.query_seconds:.0f} s and was killed. With persistence off it"
        doubt += " may take seconds for each GPU: start nvidia-persistenced or raise smi_timeout"
        return [f"{doubt}; otherwise {_XID}."]
    if look.state != "error":
        return [_STATE_REASONS[look.state].format(said=said, xid=_XID_OR_NODE)]
    if look.exit_code is None:
        what = f"nvidia-smi could not be started{said}"
    elif look.exit_code < 0:
        what = f"nvidia-smi was ended by signal {-look.exit_code}{said}"
    elif look.exit_code == 0:
        what = f"nvidia-smi ended with 0 but printed no row of a GPU{said}"
    else:
        what = f"nvidia-smi ended with {look.exit_code}{said}"
    if "determine the device handle" in look.first_line:
        return [f"{what}. Up to driver 560 one lost GPU hides all the others: {_XID}, then reset that GPU or reboot."]
    return [f"{what}. Run it by hand to see more, and {_XID}."]


def _gpu_doubts(unreadable: t.Sequence[Gpu], listed: t.Mapping[str, int]) -> list[str]:
    """One sentence for all GPUs that have the same problem, with what to do about it."""
    same: dict[tuple[str, ...], list[int]] = {}
    for gpu in unreadable:
        problems = gpu.problems
        if not problems and gpu.used_mib is None:
            problems = ("memory.used was not read",)
        elif not problems:
            problems = (f"{gpu.used_mib} MiB, but nvidia-smi lists process {listed[gpu.uuid]}",)
        same.setdefault(problems, []).append(gpu.index)
    by_advice: dict[str, list[str]] = {}
    for problems, indexes in same.items():
        text = f"{_gpus(indexes)} cannot be trusted: {_list(problems, '; ')}."
        advice = next((advice for mark, advice in _ADVICE if mark in text.lower()), f"To do: {_XID}.")
        by_advice.setdefault(advice, []).append(text)
    return [f"{_list(texts, ' ')} {advice}" for advice, texts in by_advice.items()]


def _problem_doubts(look: GpuLook, expectation: Expectation, missing: t.Sequence[str]) -> list[str]:
    """What was wrong with the output as a whole, as far as it has not been said already."""
    doubts = []
    for problem in look.problems if look.state != "hung" else ():
        if expectation.uuids and problem in look.elsewhere:
            continue
        if any(problem.startswith(f"{name} has no row") for name in missing):
            continue
        if look.first_line and look.first_line in problem:
            continue
        doubts.append(f"{problem}.")
    return [*doubts[:3], f"({len(doubts) - 3} more such lines.)"] if len(doubts) > 4 else doubts


def _busy_reason(look: GpuLook, busy: t.Sequence[Gpu], max_used_mib: int) -> str:
    amounts: dict[int, list[int]] = {}
    for gpu in busy:
        amounts.setdefault(gpu.used_mib or 0, []).append(gpu.index)
    holding = [
        f"{_gpus(indexes)} {'hold' if len(indexes) > 1 else 'holds'} {mib} MiB{' each' if len(indexes) > 1 else ''}"
        for mib, indexes in amounts.items()
    ]
    reason = f"{_list(holding)} (allowed: {max_used_mib} MiB)."
    uuids = {gpu.uuid: gpu.index for gpu in busy}
    users = [
        f"pid {process.pid} ({process.name or 'name not known'}) on GPU {uuids[process.gpu_uuid]}"
        for process in look.processes
        if process.gpu_uuid in uuids
    ]
    if users:
        reason += f" nvidia-smi lists {_list(users)}."
    if any(gpu.mig for gpu in busy):
        reason += " MIG is on, and a GPU with MIG instances never reads 0 MiB."
    elif not users and len(busy) == len(look.gpus) > 1 and len(amounts) == 1:
        reason += (
            " The same on every GPU and no process listed: this may be what the driver keeps for itself"
            " (an nvidia-smi older than the driver counts it as used)."
        )
    return f"{reason} gpu_holders_info shows who has the devices open."


def _idle_reason(expected: t.Sequence[Gpu], expectation: Expectation, max_used_mib: int) -> str:
    kind = "named" if expectation.uuids else "expected"
    who = f"The {kind} GPU reports" if len(expected) == 1 else f"All {len(expected)} {kind} GPUs report"
    most = max(gpu.used_mib or 0 for gpu in expected)
    return f"{who} at most {most} MiB (allowed: {max_used_mib} MiB)." if most else f"{who} 0 MiB."


def _gpus(indexes: t.Sequence[int]) -> str:
    """GPU 3; GPUs 0-3, 5."""
    spans: list[list[int]] = []
    for index in sorted(indexes):
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"GPU {text}" if len(indexes) == 1 else f"GPUs {text}"


def _number(gpus: int) -> str:
    return f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"


def _list(items: t.Sequence[str], separator: str = ", ") -> str:
    shown = separator.join(items[:MOST_NAMED])
    return shown if len(items) <= MOST_NAMED else f"{shown}{separator}and {len(items) - MOST_NAMED} more"
