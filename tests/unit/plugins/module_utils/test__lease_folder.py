# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import fcntl
import os
import pathlib
import signal

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _lease, _lease_folder
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease import LeaseRequest, LeaseResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._whole_file import FolderRefused

BOOT = "7d1f6c1e-0000-4000-8000-000000000001"
TEMPORARY = f".leases-{BOOT}.json.new"


class FakeClock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1.8e9

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def ask(path: pathlib.Path | str, state: str = "held", run_id: str = "A", **options: str) -> LeaseResult:
    return _lease.lease(LeaseRequest(state, run_id, "n1", **options), str(path), BOOT, FakeClock())  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "cleanslate"
    path.mkdir(mode=0o700)
    return path


@pytest.mark.parametrize("end", ["", "/", "/."])
@pytest.mark.parametrize("state", ["held", "released", "shown"])
def test_a_symbolic_link_is_refused(folder: pathlib.Path, state: str, end: str) -> None:
    link = folder.with_name("link")
    link.symlink_to(folder)
    result = ask(f"{link}{end}", state)
    assert (result.verdict, result.failed) == ("refused", True)
    assert "symbolic link" in result.reason
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_may_write_in_is_refused(folder: pathlib.Path, mode: int) -> None:
    folder.chmod(mode)
    result = ask(folder)
    assert (result.verdict, result.failed) == ("refused", True)
    assert f"mode {mode:04o}" in result.reason
    assert f"chmod 0700 {folder}" in result.reason
    assert list(folder.iterdir()) == []


def test_a_folder_that_others_may_read_is_fine(folder: pathlib.Path) -> None:
    folder.chmod(0o755)
    assert ask(folder).verdict == "acquired"


def test_a_folder_of_somebody_else_is_refused(folder: pathlib.Path) -> None:
    message = f"belongs to user id {os.geteuid()}, not to 4242"
    with pytest.raises(FolderRefused, match=message), _lease_folder.opened(str(folder), BOOT, create=True, uid=4242):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_root_refuses_a_folder_of_a_plain_user(folder: pathlib.Path) -> None:
    os.chown(folder, 4242, 4242)
    result = ask(folder)
    assert (result.verdict, result.failed) == ("refused", True)
    assert "belongs to user id 4242, not to 0" in result.reason


def test_a_file_in_its_place_and_a_missing_parent_are_refused(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert "it is no folder" in ask(file).reason
    missing = ask(tmp_path / "no" / "cleanslate")
    assert (missing.verdict, missing.failed) == ("refused", True)
    assert "cannot make the folder" in missing.reason
    assert ask("cleanslate").reason.startswith("path is 'cleanslate', which is not an absolute path")


def test_no_folder_means_no_lease_for_who_only_looks(tmp_path: pathlib.Path) -> None:
    result = ask(tmp_path / "cleanslate", "shown")
    assert (result.verdict, result.failed) == ("not_held", False)
    assert list(tmp_path.iterdir()) == []


def test_the_files_are_for_the_owner_only_whatever_the_umask(folder: pathlib.Path) -> None:
    before = os.umask(0)
    try:
        ask(folder)
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "leases.lock": 0o600,
        f"leases-{BOOT}.json": 0o600,
    }


@pytest.mark.parametrize("what", ["link", "dangling", "fifo", "folder"])
def test_something_odd_in_place_of_the_file_is_not_free(folder: pathlib.Path, what: str) -> None:
    place, target = folder / f"leases-{BOOT}.json", folder.with_name("target")
    if what == "link":
        target.write_text('{"version": 1, "leases": [], "starting": []}')
    if what in ("link", "dangling"):
        place.symlink_to(target)
    elif what == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()
    result = ask(folder)
    assert (result.verdict, result.failed, result.unreadable) == ("busy", True, True)
    if what != "folder":
        assert ask(folder, takeover="corrupt").verdict == "acquired"
        assert what != "link" or target.read_text() == '{"version": 1, "leases": [], "starting": []}'


@pytest.mark.parametrize("name", ["leases.lock", TEMPORARY])
def test_links_in_place_of_the_other_files_are_not_followed(folder: pathlib.Path, name: str) -> None:
    target = folder.with_name("target")
    (folder / name).symlink_to(target)
    result = ask(folder)
    assert result.verdict == ("refused" if name == "leases.lock" else "acquired")
    assert not target.exists()


def test_what_a_killed_writer_left_does_not_matter(folder: pathlib.Path) -> None:
    (folder / TEMPORARY).write_text('{"version": 1, "lea')
    assert ask(folder).verdict == "acquired"
    assert not (folder / TEMPORARY).exists()


def test_the_momentary_lock_is_waited_for_five_seconds(folder: pathlib.Path) -> None:
    with open(folder / "leases.lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = ask(folder)
        assert (result.verdict, result.failed) == ("busy", True)
        assert "locked for 5 s" in result.reason
        assert ask(folder, "shown").verdict == "not_held", "who only looks needs no lock"
    assert ask(folder).verdict == "acquired"


def test_the_momentary_lock_ends_with_its_process(folder: pathlib.Path) -> None:
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with _lease_folder.opened(str(folder), BOOT, create=True) as opened:
                assert opened is not None
                with opened.locked(FakeClock()):
                    os.write(into, b"x")
                    signal.pause()
        finally:
            os._exit(1)
    os.close(into)
    assert os.read(out, 1) == b"x"
    os.close(out)
    assert ask(folder).verdict == "busy"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert ask(folder).verdict == "acquired"
