# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Count what really ran, from the junit files that pytest and ansible-test leave."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t
import xml.etree.ElementTree as ET

SANITY_FILE = re.compile(r"ansible-test-sanity-(?P<name>[a-z-]+?)(?:-python-(?P<python>3\.\d+))?\.xml\Z")
# The sanity tests that run once with every Python; the others run with the controller's only.
PER_PYTHON = ("compile", "import")


@dataclasses.dataclass(frozen=True)
class Count:
    """How many tests passed, failed (errors included) and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


def count_file(path: pathlib.Path) -> Count:
    """The tests in one junit file. One that cannot be read counts as a failure: it was cut off while being written."""
    try:
        cases = list(ET.parse(path).iter("testcase"))
    except (ET.ParseError, OSError):
        return Count(failed=1)
    failed = sum(1 for case in cases if case.find("failure") is not None or case.find("error") is not None)
    skipped = sum(1 for case in cases if case.find("skipped") is not None)
    return Count(len(cases) - failed - skipped, failed, skipped)


def count(folder: pathlib.Path) -> Count:
    """The tests in every junit file below the folder."""
    return sum((count_file(path) for path in sorted(folder.rglob("*.xml"))), Count())


def pythons_of_sanity(folder: pathlib.Path) -> dict[str, set[str]]:
    """For each sanity test that runs per Python: the versions with which it ran and was not skipped."""
    ran: dict[str, set[str]] = {name: set() for name in PER_PYTHON}
    for path in folder.glob("*.xml"):
        match = SANITY_FILE.match(path.name)
        if match and match["name"] in ran and match["python"] and count_file(path).skipped == 0:
            ran[match["name"]].add(match["python"])
    return ran


def missing_pythons(folder: pathlib.Path, promised: t.Iterable[str]) -> list[str]:
    """A sentence for each sanity test that did not run with a promised Python, or with none at all."""
    wanted = set(promised)
    complaints = []
    for name, versions in pythons_of_sanity(folder).items():
        if not versions:
            complaints.append(f"The sanity test {name} ran with no Python at all.")
        elif wanted - versions:
            absent = ", ".join(sorted(wanted - versions, key=lambda version: int(version.partition(".")[2])))
            complaints.append(f"The sanity test {name} did not run with Python {absent}, which is on this machine.")
    return complaints
