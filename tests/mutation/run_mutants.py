# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Break the core on purpose, one place at a time, and see whether a test notices: `nox -s mutation`.

Works on a copy of the project. What is known of a file is kept until the file changes, so that a run may be cut off
and taken up again; survivors are tried again when the tests have changed. docs/mutation.md is written at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import sys
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "tooling"), str(ROOT / "tests" / "mutation")]

import coverage_map  # noqa: E402
import judging  # noqa: E402
import mutants  # noqa: E402
import report  # noqa: E402
import stage  # noqa: E402
import targets  # noqa: E402

KEPT = ROOT / ".nox" / "mutation"


def _hash(paths: t.Iterable[pathlib.Path]) -> str:
    whole = hashlib.sha256()
    for path in paths:
        whole.update(path.read_bytes())
    return whole.hexdigest()


def _worlds(place: pathlib.Path) -> list[pathlib.Path]:
    """What tests build on."""
    return sorted(path for path in (place / targets.TESTS).glob("*.py") if not path.name.startswith("test_"))


class Target:
    """One file of the core in the copy, and what is known of its mutants."""

    def __init__(self, place: pathlib.Path, name: str) -> None:
        self.place = place
        self.name = name
        self.path = place / targets.CORE / f"{name}.py"
        self.source = self.path.read_text(encoding="utf-8")
        self.tests = targets.tests(place, name)
        self._kept = KEPT / f"{name}.json"
        self._state = {
            "source": _hash([self.path]),
            "tests": _hash([*(place / one for one in self.tests), *_worlds(place)]),
            "method": _hash(pathlib.Path(one.__file__) for one in (mutants, judging, coverage_map)),
        }
        self.outcomes: dict[str, str] = {}
        if self._kept.exists():
            known = json.loads(self._kept.read_text(encoding="utf-8"))
            if all(known[what] == self._state[what] for what in ("source", "method")):
                self.outcomes = known["outcomes"]
                if known["tests"] != self._state["tests"]:
                    self.outcomes = {key: one for key, one in self.outcomes.items() if one != "survived"}

    def _keep(self, key: str, outcome: str) -> None:
        self.outcomes[key] = outcome
        fresh = self._kept.with_suffix(".new")
        fresh.write_text(json.dumps({**self._state, "outcomes": self.outcomes}), encoding="utf-8")
        fresh.replace(self._kept)

    def judge(self, until: float) -> bool:
        """Whether every mutant has an outcome."""
        if not self.tests:  # pytest would run all that there are
            print(f"{self.name}: no quick test of it is named in targets.py", flush=True)
            return False
        all_of_them = mutants.mutants(self.source)
        open_ones = {one.key: (one.line, one.source) for one in all_of_them if one.key not in self.outcomes}
        if open_ones:
            began = time.monotonic()
            work = judging.Work(self.place, self.tests, self.path, self.source, open_ones, until)
            found, printed = judging.judge(work, self._keep)
            if not found and time.monotonic() < until:
                print(f"{self.name}: its own tests do not pass without a mutant:\n{printed[-3000:]}", flush=True)
                return False
            survived = sum(one == "survived" for one in self.outcomes.values())
            print(
                f"{self.name}: {found} of {len(open_ones)} mutants in {time.monotonic() - began:.0f} s,"
                f" {survived} of {len(all_of_them)} not noticed so far",
                flush=True,
            )
        if len(self.outcomes) < len(all_of_them):
            return False
        report.remember(ROOT, self.name, all_of_them, self.outcomes)
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="files of the core, such as _kinship; all of them without")
    parser.add_argument("--minutes", type=float, default=600, help="stop after this time; the next run goes on")
    given = parser.parse_args()
    if not judging.in_own_namespace():
        judging.enter_namespace([__file__, *sys.argv[1:]])
    KEPT.mkdir(parents=True, exist_ok=True)
    place = stage.copy(ROOT, ROOT / ".nox" / "stage" / "mutation")
    unfinished: list[str] = []
    until = time.monotonic() + 60 * given.minutes
    for name in given.names or targets.core(ROOT):
        if time.monotonic() > until:
            print("The time is over; the next run goes on from here.", flush=True)
            break
        if not Target(place, name).judge(until):
            unfinished.append(name)
    report.forget_changed(ROOT)
    report.write(ROOT)
    unargued = report.unargued(ROOT)
    for line in unargued:
        print(line)
    if unargued or unfinished:
        raise SystemExit(
            f"{len(unargued)} survivors in safety rules are not argued in tests/mutation/equivalents.yml."
            f" Not judged to the end: {', '.join(unfinished) or 'none'}."
        )


if __name__ == "__main__":
    main()
