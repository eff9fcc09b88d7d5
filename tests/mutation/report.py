# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/mutation.md: how many mutants of each file were noticed, and what is said about the others."""

from __future__ import annotations

import hashlib
import json
import pathlib
import typing as t

import targets
import yaml

if t.TYPE_CHECKING:
    import mutants

RESULTS = pathlib.Path("tests", "recordings", "mutation", "results.json")
EQUIVALENTS = pathlib.Path("tests", "mutation", "equivalents.yml")
PAGE = pathlib.Path("docs", "mutation.md")
INTRODUCTION = """# Mutation check

A test that passes says little until it was seen to fail. `.venv/bin/nox -s mutation` breaks the core (the files
`plugins/module_utils/_*.py`) in one place at a time, a comparison turned round, a bound moved by one, a loop that never
runs, an exception that is not caught, and runs the tests of that file. A mutant that makes one of them fail, or run
without end, is noticed. One that none of them notices is either a gap, and gets a test, or changes nothing that
matters, and then the reason stands below.

The mutants are those of [cosmic-ray](https://cosmic-ray.readthedocs.io/), `in` turned into `not in`, and one exception
of a handler no longer caught. Annotations and `frozen` are left alone. Each file is judged by its own quick tests alone
(`tests/mutation/targets.py`), and of these by the tests that come by the broken statement; what slower suites would
notice besides does not count. A deadline is of processor time, so that a busy machine makes no mutant look endless. It
runs in a PID namespace of its own, since a mutant may signal anybody, on a copy of the project, and may take an hour;
`nox -s mutation -- --minutes 5` does a part, and the next run goes on from there. Names of files restrict it:
`nox -s mutation -- _kinship`. It is no part of CI.

The score of a file is what was noticed of the mutants that are not argued.

"""

Line = dict[str, str]


def remember(root: pathlib.Path, name: str, all_of_them: list[mutants.Mutant], outcomes: dict[str, str]) -> None:
    """The result of one file, kept in the project."""
    results = _results(root)
    judged = results.setdefault("judged", {})
    survivors = [one for one in all_of_them if outcomes[one.key] == "survived"]
    judged[name] = {
        "mutants": len(all_of_them),
        "source": _source(root, name),
        "survivors": [{"was": one.was, "becomes": one.becomes} for one in survivors],
    }
    _keep(root, results)


def forget_changed(root: pathlib.Path) -> None:
    """What has changed since it was judged is not judged."""
    judged = {name: one for name, one in _judged(root).items() if one["source"] == _source(root, name)}
    left = [name for name in targets.core(root) if name not in judged]
    _keep(root, {"judged": judged, "left": left, "with_modules": targets.of_modules_only(root)})


def _keep(root: pathlib.Path, results: dict[str, t.Any]) -> None:
    text = json.dumps(results, indent=1, sort_keys=True)
    (root / RESULTS).parent.mkdir(parents=True, exist_ok=True)
    (root / RESULTS).write_text(f"{text}\n", encoding="utf-8")


def write(root: pathlib.Path) -> None:
    (root / PAGE).write_text(page(root), encoding="utf-8")


def page(root: pathlib.Path) -> str:
    left, results, argued = _left(root), _judged(root), arguments(root)
    text = [INTRODUCTION]
    for title, safety in (("Rules of safety", True), ("The rest of the core", False)):
        names = [name for name in sorted(results) if (name in targets.SAFETY) == safety]
        text.append(f"## {title}\n\n| file | mutants | noticed | argued | open | score |\n|---|---|---|---|---|---|\n")
        sums = [0, 0, 0]
        for name in names:
            counts = [results[name]["mutants"], *_counts(results[name]["survivors"], argued.get(name, []))]
            sums = [one + more for one, more in zip(sums, counts)]
            text.append(_row(f"`{name}`", *counts))
        text.append(f"{_row('together', *sums)}\n")
    names = ", ".join(f"`{name}`" for name in left)
    text.append(f"Not judged yet, or changed since: {names}.\n\n" if left else "")
    apart = ", ".join(f"`{name}`" for name in _results(root).get("with_modules", []))
    text.append(f"Tested with their modules only, each in a process of its own, and not judged: {apart}.\n\n")
    text.append(_arguments(results, argued))
    return "".join(text).rstrip("\n") + "\n"


def unargued(root: pathlib.Path) -> list[str]:
    """The survivors in safety rules that nobody has argued."""
    results, argued = _judged(root), arguments(root)
    return [
        f"{name}: {one['was']}  ->  {one['becomes']}"
        for name in targets.SAFETY
        if name in results
        for one in _open(results, argued, name)
    ]


def idle(root: pathlib.Path) -> list[str]:
    """Arguments about mutants that are no survivors (any more), of files that were judged."""
    results = _judged(root)
    return [
        f"{name}: {one['was']}  ->  {one['becomes']}"
        for name, said in arguments(root).items()
        for one in said
        if name in results and {"was": one["was"], "becomes": one["becomes"]} not in results[name]["survivors"]
    ]


def arguments(root: pathlib.Path) -> dict[str, list[Line]]:
    return yaml.safe_load((root / EQUIVALENTS).read_text(encoding="utf-8")) or {}


def _results(root: pathlib.Path) -> dict[str, t.Any]:
    path = root / RESULTS
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _source(root: pathlib.Path, name: str) -> str:
    path = root / targets.CORE / f"{name}.py"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def _judged(root: pathlib.Path) -> dict[str, t.Any]:
    return dict(_results(root).get("judged", {}))


def _left(root: pathlib.Path) -> list[str]:
    return list(_results(root).get("left", []))


def _argument(survivor: Line, arguments: list[Line]) -> str | None:
    return next(
        (one["why"] for one in arguments if (one["was"], one["becomes"]) == (survivor["was"], survivor["becomes"])),
        None,
    )


def _counts(survivors: list[Line], arguments: list[Line]) -> tuple[int, int]:
    argued = sum(_argument(one, arguments) is not None for one in survivors)
    return argued, len(survivors) - argued


def _open(results: dict[str, t.Any], argued: dict[str, list[Line]], name: str) -> list[Line]:
    return [one for one in results[name]["survivors"] if _argument(one, argued.get(name, [])) is None]


def _row(name: str, mutants_made: int, argued: int, open_ones: int) -> str:
    noticed = mutants_made - argued - open_ones
    score = f"{100 * noticed / (mutants_made - argued):.1f} %" if mutants_made > argued else ""
    return f"| {name} | {mutants_made} | {noticed} | {argued} | {open_ones} | {score} |\n"


def _arguments(results: dict[str, t.Any], argued: dict[str, list[Line]]) -> str:
    text = ["## Survivors, and why they change nothing that matters\n\n"]
    for name in sorted(results):
        known = [(one, _argument(one, argued.get(name, []))) for one in results[name]["survivors"]]
        if any(why for dummy, why in known):
            text.append(f"### `{name}`\n\n")
            text += [f"- `{one['was']}` → `{one['becomes']}`: {why}\n" for one, why in known if why]
            text.append("\n")
    left = [
        f"- `{name}`: `{one['was']}` → `{one['becomes']}`\n"
        for name in sorted(results)
        for one in _open(results, argued, name)
    ]
    return "".join([*text, *(["## Survivors that nobody has argued or killed yet\n\n", *left] if left else [])])
