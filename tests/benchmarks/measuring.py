# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Figures, each from several runs, and what they are compared with. A timing never fails; a run that did not do its
work raises CouldNotRun."""

from __future__ import annotations

import dataclasses
import datetime
import os
import pathlib
import platform
import shutil
import statistics
import sys
import time
import typing as t

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results"
COLLECTIONS = ROOT / ".ansible" / "collections"


class CouldNotRun(Exception):
    """The thing to be measured did not happen: no figure is better than a wrong one."""


@dataclasses.dataclass(frozen=True)
class Figure:
    """One thing measured in one case, several times."""

    case: str
    subject: str
    runs: tuple[float, ...]
    unit: str = "s"

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    def as_dict(self) -> dict[str, t.Any]:
        return {
            "case": self.case,
            "subject": self.subject,
            "unit": self.unit,
            "median": round(self.median, 4),
            "low": round(min(self.runs), 4),
            "high": round(max(self.runs), 4),
            "runs": [round(run, 4) for run in self.runs],
        }


@dataclasses.dataclass(frozen=True)
class Target:
    """What was asked for, against what was measured. remark: where the time goes, or how it was judged."""

    name: str
    wanted: str
    measured: str
    met: bool
    remark: str = ""


class Report:
    """What one part found."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.figures: list[Figure] = []
        self.targets: list[Target] = []
        self.profiles: dict[str, list[dict[str, t.Any]]] = {}
        self.counts: list[dict[str, t.Any]] = []
        self.began = time.monotonic()

    def add(self, case: str, subject: str, runs: t.Sequence[float], unit: str = "s") -> Figure:
        if not runs:
            raise CouldNotRun(f"{self.part}: nothing was measured for {subject} in the case {case}.")
        figure = Figure(case, subject, tuple(runs), unit)
        self.figures.append(figure)
        shown = " ".join(f"{run:.3f}" for run in runs)
        print(f"  {self.part}: {case}: {subject}: {figure.median:.3f} {unit} ({shown})", flush=True)
        return figure

    def target(self, name: str, wanted: str, measured: str, met: bool, remark: str = "") -> None:
        self.targets.append(Target(name, wanted, measured, met, remark))
        print(f"  {self.part}: {'met' if met else 'NOT MET'}: {name}: wanted {wanted}, measured {measured}", flush=True)

    def of(self, case: str, subject: str) -> Figure:
        for figure in self.figures:
            if (figure.case, figure.subject) == (case, subject):
                return figure
        raise CouldNotRun(f"{self.part}: {subject} was not measured in the case {case}.")

    def as_dict(self, peers: t.Mapping[str, str]) -> dict[str, t.Any]:
        """peers: subject → what it is compared with, in the same case."""
        rows = []
        medians = {(figure.case, figure.subject): figure.median for figure in self.figures}
        for figure in self.figures:
            row = figure.as_dict()
            peer = medians.get((figure.case, peers.get(figure.subject, "")))
            if peer:
                row["ratio"] = {"to": peers[figure.subject], "value": round(figure.median / peer, 3)}
            rows.append(row)
        return {
            "part": self.part,
            "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "took_s": round(time.monotonic() - self.began, 1),
            "machine": machine(),
            "figures": rows,
            "targets": [dataclasses.asdict(target) for target in self.targets],
            "counts": self.counts,
            "profiles": self.profiles,
        }


def machine() -> dict[str, t.Any]:
    """What the figures depend on; nothing that names the machine."""
    with open("/proc/meminfo", encoding="ascii") as handle:
        kib = int(handle.readline().split()[1])
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(kib / 1048576),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "load_at_end": round(os.getloadavg()[0], 2),
    }


def need(*programs: str) -> None:
    """Peers that are not installed make the part fail, with the packages that bring them."""
    packages = {
        "fuser": "psmisc",
        "lsof": "lsof",
        "strace": "strace",
        "sshd": "openssh-server",
        "ssh": "openssh-client",
        "ssh-keygen": "openssh-client",
        "pkill": "procps",
    }
    missing = [program for program in programs if shutil.which(program, path=search_path()) is None]
    if missing:
        names = " ".join(sorted({packages.get(program, program) for program in missing}))
        raise CouldNotRun(f"{', '.join(missing)} not found: apt-get install {names}")


def search_path() -> str:
    return os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


def program(name: str) -> str:
    found = shutil.which(name, path=search_path())
    if found is None:
        raise CouldNotRun(f"{name} is not there.")
    return found


def until(what: str, condition: t.Callable[[], t.Any], timeout: float = 60.0, pause: float = 0.02) -> t.Any:
    """The condition's value once it is true; CouldNotRun after the timeout."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            raise CouldNotRun(f"{what}: not within {timeout:g} s.")
        time.sleep(pause)


def boottime() -> float:
    """The clock that process start times and the simulator use."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def use_collection() -> None:
    """The core and the simulator, importable as they are for modules and tests."""
    for place in (COLLECTIONS, ROOT / "tests" / "simulator", ROOT / "tests" / "integration" / "playbooks"):
        if str(place) not in sys.path:
            sys.path.insert(0, str(place))
