# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SECURITY.md's table of files is what is really made, under any umask, and nobody can lead a write elsewhere."""

from __future__ import annotations

import os
import pathlib
import re
import stat
import typing as t

import pytest
import yaml

from ansible_collections.cleanslate.gpu.tests.unit.plugins.bad_input.written_files import WRITERS, make_root

ROOT = pathlib.Path(__file__).resolve().parents[4]
NOBODY = 65534
_ROW = re.compile(r"\| `([^`]+)` \| ([^|]+) \| ([0-7]{4}) \| ([^|]*)\|")
# By roles: (role, task file, what stands beside the mode) for each file of the table that no core function writes.
BY_ROLES = {
    "/etc/systemd/system/UNIT": ("sglang_server", "stage", "__sglang_server_unit_file"),
    "/etc/sglang/NAME.yaml": ("sglang_server", "stage", "__sglang_server_config_file"),
    "/usr/local/lib/cleanslate/NAME.pyz": ("sglang_server", "stage", "__sglang_server_guard_file"),
    "/etc/systemd/system/cleanslate-drift.service": ("drift_schedule", "present", "drift_schedule_unit_dir"),
    "/etc/systemd/system/cleanslate-drift.timer": ("drift_schedule", "present", "drift_schedule_unit_dir"),
    "/usr/local/lib/cleanslate/report_run.py": ("drift_schedule", "present", "__drift_schedule_program"),
    "drift_schedule_log_file": ("drift_schedule", "present", "drift_schedule_log_file"),
    "/etc/cleanslate/cleanslate-drift.webhook": ("drift_schedule", "present", "__drift_schedule_secret"),
}
LOG_FOLDER = "/var/log/sglang/"


def documented() -> dict[str, tuple[str, str]]:
    """File to owner and mode."""
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    table = page.partition("<!-- files")[2].partition("<!-- end of files -->")[0]
    return {path: (owner.strip(), mode) for path, owner, mode, _what in _ROW.findall(table)}


def modes_in(role: str, tasks: str) -> list[tuple[str, str, str]]:
    """(path, mode, owner) of whatever in a task file has a mode."""
    found: list[tuple[str, str, str]] = []

    def walk(node: t.Any) -> None:
        if isinstance(node, dict):
            where = node.get("path") or node.get("dest")
            if where and "mode" in node:
                found.append((str(where), str(node["mode"]), str(node.get("owner", "-"))))
            for inner in node.values():
                walk(inner)
        elif isinstance(node, list):
            for inner in node:
                walk(inner)

    walk(yaml.safe_load((ROOT / "roles" / role / "tasks" / f"{tasks}.yml").read_text(encoding="utf-8")))
    return found


@pytest.mark.parametrize("path", sorted(BY_ROLES))
def test_what_roles_install(path: str) -> None:
    role, tasks, name = BY_ROLES[path]
    owner, mode = documented()[path]
    entries = [entry for entry in modes_in(role, tasks) if name in entry[0]]
    assert {entry[1] for entry in entries} == {mode}
    for _where, _mode, given in entries:
        if owner == "root":
            assert "root" in given
        elif owner == "service":
            assert "__sglang_server_account.user" in given


def test_every_mode_in_a_role_is_in_the_table() -> None:
    known = {name for _role, _tasks, name in BY_ROLES.values()} | {"item.path", "drift_schedule_program_dir"}
    known |= {"drift_schedule_secret_dir"}  # folders, 0755
    for path in sorted(ROOT.glob("roles/*/tasks/*.yml")):
        for where, mode, _owner in modes_in(path.parents[1].name, path.stem):
            assert any(name in where for name in known) or mode == "0755", f"{path.name}: {where} ({mode})"


def test_the_folder_of_the_log_is_closed() -> None:
    owner, mode = documented()[LOG_FOLDER]
    stage = (ROOT / "roles" / "sglang_server" / "tasks" / "stage.yml").read_text(encoding="utf-8")
    assert f"'owner': 'root', 'group': __sglang_server_account.group, 'mode': '{mode}'" in stage
    assert owner == "root, group of service"
    assert "'log': sglang_server_log_file | basename" in stage


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], ids=lambda umask: f"{umask:03o}")
def test_what_the_core_writes(tmp_path: pathlib.Path, umask: int) -> None:
    root = make_root(tmp_path)
    before = os.umask(umask)
    try:
        said = {name: write(root) for name, write in WRITERS.items()}
    finally:
        os.umask(before)
    table = documented()
    made = {
        "/" + str(path.relative_to(root))
        for path in root.rglob("*")
        if "cleanslate" in path.name or path.is_file() or path.name == "sglang"
    }
    for path in sorted(made):
        documented_as = (
            path.replace("leases-boot", "leases-BOOT")
            .replace("sglang.service", "UNIT")
            .replace("/metrics/", "METRICS/")
        )
        documented_as = re.sub(r"/evidence/[^/]+/", "/evidence/RUN/", documented_as)
        documented_as = re.sub(r"RUN/\w+\.(txt|json)", "RUN/log.txt", documented_as)
        documented_as = re.sub(r"/\.\w+\.json\.lock", "/.wanted.json.lock", documented_as)
        full = root / path[1:]
        documented_as += "/" if full.is_dir() else ""
        assert documented_as in table, f"{path} is not in the table of SECURITY.md"
        if path.endswith("/all.lock") and os.geteuid() != 0:
            continue  # what somebody else than root makes has his group already, as one that is shared
        assert f"{stat.S_IMODE(full.stat().st_mode):04o}" == table[documented_as][1], path
    written = set(table) - set(BY_ROLES) - {LOG_FOLDER}
    assert len(made) >= len(written), said


def test_no_secret_is_for_everybody() -> None:
    for path in (
        "/etc/sglang/NAME.yaml",
        "/var/log/sglang/NAME.log",
        "drift_schedule_log_file",
        "/etc/cleanslate/cleanslate-drift.webhook",
    ):
        assert documented()[path][1] == "0600"


# Attacks by another user of the machine

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be attacked by another user here")
SECRET = "not yours"
TARGETS = (
    ("leases", "run/cleanslate/leases-boot.json"),
    ("leases", "run/cleanslate/leases.lock"),
    ("leases", "run/cleanslate/.leases-boot.json.new"),
    ("wanted", "var/lib/cleanslate/wanted.json"),
    ("wanted", "var/lib/cleanslate/.wanted.json.lock"),
    ("wanted", "var/lib/cleanslate/.wanted.json.new"),
    ("drift", "var/lib/cleanslate/drift.json"),
    ("starts", "var/lib/cleanslate/starts.json"),
    ("record", "var/log/cleanslate/runs.jsonl"),
    ("record", "var/log/cleanslate/runs.lock"),
    ("record", "var/log/cleanslate/metrics.json"),
    ("record", "metrics/cleanslate.prom"),
    ("evidence", "var/log/cleanslate/evidence"),
    ("guard", "run/cleanslate-guard/sglang.service.json"),
    ("guard", "run/cleanslate-guard/sglang.service.env"),
    ("locks", "run/cleanslate-gpus/all.lock"),
)


@pytest.mark.parametrize("kind", ["link", "hard link", "dangling", "fifo"])
@pytest.mark.parametrize(("writer", "target"), TARGETS)
def test_a_planted_file_leads_no_write_elsewhere(tmp_path: pathlib.Path, writer: str, target: str, kind: str) -> None:
    """Planted in a folder that was open once. Whoever planted it owns it."""
    root = make_root(tmp_path / "machine")
    victim = tmp_path / "victim"
    victim.write_text(SECRET, encoding="utf-8")
    victim.chmod(0o600)
    planted = root / target
    planted.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        planted.symlink_to(victim)
    elif kind == "dangling":
        planted.symlink_to(tmp_path / "made")
    elif kind == "fifo":
        os.mkfifo(planted)
    else:
        os.link(victim, planted)
    if os.geteuid() == 0 and kind != "hard link":
        os.chown(planted, NOBODY, NOBODY, follow_symlinks=False)
    said = WRITERS[writer](root)
    assert victim.read_text(encoding="utf-8").startswith(SECRET)
    assert victim.stat().st_size == len(SECRET) or kind == "hard link"
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600 or kind == "hard link"
    assert not (tmp_path / "made").exists(), "a link was followed"
    assert SECRET not in said, "the content of somebody else's file is told"


@root_only
@pytest.mark.parametrize("how", ["of another user", "for everybody", "a link"])
@pytest.mark.parametrize(
    ("writer", "folder"),
    [
        ("leases", "run/cleanslate"),
        ("wanted", "var/lib/cleanslate"),
        ("drift", "var/lib/cleanslate"),
        ("record", "var/log/cleanslate"),
        ("evidence", "var/log/cleanslate"),
        ("guard", "run/cleanslate-guard"),
        ("locks", "run/cleanslate-gpus"),
    ],
)
def test_a_folder_in_which_others_may_write_is_refused(
    tmp_path: pathlib.Path, writer: str, folder: str, how: str
) -> None:
    if writer == "locks" and how == "of another user":
        # To an unprivileged container the folder of its GPU host belongs to nobody; it opens what is there, no more.
        return
    root = make_root(tmp_path / "machine")
    place = root / folder
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if how == "a link":
        os.chown(elsewhere, NOBODY, NOBODY)
        place.symlink_to(elsewhere)
    else:
        place.mkdir()
        os.chmod(place, 0o755 if how == "of another user" else 0o777)
        os.chown(place, NOBODY if how == "of another user" else 0, 0)
    said = WRITERS[writer](root)
    assert f"{place}" in said, said
    assert list(place.iterdir()) == []
    assert list(elsewhere.iterdir()) == []
