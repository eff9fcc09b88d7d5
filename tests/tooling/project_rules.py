# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules that every file of this project keeps. Each takes a root and file names and returns one sentence per breach."""

from __future__ import annotations

import ast
import fnmatch
import pathlib
import re
import typing as t

import tomllib
import yaml

LICENCE = "SPDX-License-Identifier: GPL-3.0-or-later"
LONGEST = 400
COUNTED = (".py", ".yml", ".yaml", ".j2", ".sh", ".cfg", ".toml")
# Names that say nothing about what is inside.
VAGUE = frozenset({"utils", "util", "helpers", "helper", "common", "manager", "misc"})
# Pages and words that no reader of the project has; written apart so that this file does not contain them.
ABSENT = (
    "shared/" + "facts",
    "shared/" + "fixtures",
    "evidence/" + "h200.md",
    "field-" + "cases.md",
    "facts/" + "facts.md",
    "DESIGN" + ".md",
    "DESIGN " + "section",
    "contract" + ".md",
    "sub" + "agent",
    "helper " + "agent",
    "this " + "session",
    "/." + "pyenv/versions/3",
)
Files = t.Iterable[str]


def _text(root: pathlib.Path, name: str) -> str | None:
    """The file's text, or None for what is not text."""
    path = root / name
    if path.is_symlink():
        return None
    data = path.read_bytes()
    return None if b"\0" in data else data.decode("utf-8", "replace")


def without_licence(root: pathlib.Path, files: Files) -> list[str]:
    """Every file carries the licence line near its top, or REUSE.toml speaks for it."""
    declared: list[str] = []
    for annotation in tomllib.loads((root / "REUSE.toml").read_text(encoding="utf-8")).get("annotations", []):
        paths = annotation["path"]
        declared += [paths] if isinstance(paths, str) else paths
    breaches = []
    for name in files:
        # What a link leads to is looked at where it stands.
        if name.startswith("LICENSES/") or (root / name).is_symlink() or (root / f"{name}.license").exists():
            continue
        if any(fnmatch.fnmatch(name, pattern) for pattern in declared):
            continue
        text = _text(root, name)
        if text is None or LICENCE not in "\n".join(text.splitlines()[:8]):
            breaches.append(f"{name}: the line {LICENCE!r} is not among its first eight.")
    return breaches


def too_long(root: pathlib.Path, files: Files) -> list[str]:
    """A file is about one thing."""
    breaches = []
    for name in files:
        text = _text(root, name)
        if not name.endswith(COUNTED) or name.startswith(("tests/recordings/", "changelogs/")) or text is None:
            continue
        lines = text.count("\n")
        if lines > LONGEST:
            breaches.append(f"{name}: {lines} lines, at most {LONGEST} are allowed.")
    return breaches


def with_absent_words(root: pathlib.Path, files: Files) -> list[str]:
    """The project speaks of itself alone: no path of the machine it was written on, no page that is not in it."""
    words = [*ABSENT, f"{root}/"]
    breaches = []
    for name in files:
        text = _text(root, name)
        for number, line in enumerate((text or "").splitlines(), 1):
            breaches += [f"{name}:{number}: says {word!r}." for word in words if word in line]
    return breaches


def vaguely_named(files: Files) -> list[str]:
    """A name says what a thing is."""
    return [
        f"{name}: the name {part!r} says nothing about what is inside."
        for name in files
        for part in (re.sub(r"^(_+|test_+)+", "", piece.split(".")[0]) for piece in name.split("/"))
        if part in VAGUE
    ]


def sanity_exceptions(files: Files) -> list[str]:
    """ansible-test's findings are cured, not ignored."""
    return [f"{name}: no finding is ignored." for name in files if re.match(r"tests/sanity/ignore-.*\.txt$", name)]


def packages_with_init(files: Files) -> list[str]:
    """Collections are namespace packages; an __init__.py in one is a left-over."""
    return [
        f"{name}: collections need no __init__.py."
        for name in files
        if name.endswith("/__init__.py") and not name.startswith("tests/simulator/")
    ]


def changelog(root: pathlib.Path) -> list[str]:
    """The version that galaxy.yml names is told of: in the changelog, or in a fragment for the next release."""
    version = yaml.safe_load((root / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    recorded = root / "changelogs" / "changelog.yaml"
    releases = yaml.safe_load(recorded.read_text(encoding="utf-8"))["releases"] if recorded.exists() else {}
    breaches = []
    if not (root / "CHANGELOG.md").exists():
        breaches.append("CHANGELOG.md: it does not exist.")
    if str(version) not in (releases or {}) and not list((root / "changelogs" / "fragments").glob("*.yml")):
        breaches.append(f"changelogs: nothing is said about version {version}, and no fragment is there.")
    return breaches + _untold(root, list((releases or {}).values()))


def _untold(root: pathlib.Path, releases: list[dict[str, t.Any]]) -> list[str]:
    """What is recorded and not on the page, and what antsibull-changelog does not find by itself and nobody named."""
    page = root / "CHANGELOG.md"
    words = set(page.read_text(encoding="utf-8").replace("\\", "").split()) if page.exists() else set()
    new = [(kind, entry["name"]) for told in releases for kind, entries in _entries(told) for entry in entries]
    breaches = [
        f"CHANGELOG.md: {name} is in changelog.yaml and not on the page: run antsibull-changelog generate."
        for _kind, name in new
        if f"cleanslate.gpu.{name}" not in words
    ]
    for path in sorted((root / "changelogs" / "fragments").glob("*.yml")):
        fragment = yaml.safe_load(path.read_text(encoding="utf-8"))
        for kind in ("role", "playbook"):
            new += [(kind, entry["name"]) for entry in fragment.get(f"add object.{kind}", [])]
    there = [("role", path.parents[1].name) for path in root.glob("roles/*/meta/main.yml")]
    there += [("playbook", path.stem) for path in root.glob("playbooks/*.yml")]
    breaches += [
        f"changelogs: the {kind} {name} is in no release and no fragment (add object.{kind})."
        for kind, name in sorted(there)
        if (kind, name) not in new
    ]
    return breaches


def _entries(told: dict[str, t.Any]) -> t.Iterator[tuple[str, list[dict[str, t.Any]]]]:
    yield "module", told.get("modules", [])
    for group in ("plugins", "objects"):
        yield from told.get(group, {}).items()


def _options_of(path: pathlib.Path) -> tuple[set[str], set[str], bool]:
    """Names of the options in DOCUMENTATION, the fragments it extends, and whether the file has any DOCUMENTATION."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(x, ast.Name) and x.id == "DOCUMENTATION" for x in node.targets
        ):
            page = yaml.safe_load(ast.literal_eval(node.value))
            fragments = page.get("extends_documentation_fragment", [])
            return set(page.get("options") or {}), {fragments} if isinstance(fragments, str) else set(fragments), True
    return set(), set(), False


def action_group(root: pathlib.Path) -> list[str]:
    """The group in meta/runtime.yml, the modules that take nvidia_smi, and their documentation agree."""
    listed = set(yaml.safe_load((root / "meta" / "runtime.yml").read_text(encoding="utf-8"))["action_groups"]["gpu"])
    breaches = []
    takers = set()
    for path in sorted((root / "plugins" / "modules").glob("*.py")):
        options, fragments, documented = _options_of(path)
        if not documented:
            breaches.append(f"{path.name}: it has no DOCUMENTATION.")
        if "nvidia_smi" in options or any(fragment.split(".")[2:3] == ["smi"] for fragment in fragments):
            takers.add(path.stem)
    breaches += [
        f"meta/runtime.yml: {name} is in the action group but takes no nvidia_smi." for name in listed - takers
    ]
    breaches += [
        f"meta/runtime.yml: {name} takes nvidia_smi but is not in the action group." for name in takers - listed
    ]
    return sorted(breaches)
