# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a killed server leaves behind: only what nobody wants any more goes, and the rest is named with the reason."""

from __future__ import annotations

import errno
import os
import pathlib
import socket
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _leftovers
from ansible_collections.cleanslate.gpu.plugins.module_utils._leftovers import Search, Swept, find, sweep
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.leftovers_world import LONG_AGO, Node

HOLD = pathlib.Path(__file__).with_name("hold_node.py")


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def hold() -> t.Iterator[t.Callable[[str, pathlib.Path], int]]:
    """Starts a process that has a file open, mapped, … and tells its PID."""
    started: list[subprocess.Popen[str]] = []

    def start(way: str, path: pathlib.Path) -> int:
        process = subprocess.Popen([sys.executable, str(HOLD), way, str(path)], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return int(process.stdout.readline().split()[1])

    yield start
    for process in started:
        process.kill()
        process.communicate()


def reasons(swept: Swept) -> dict[str, str]:
    return {os.path.basename(item.path): item.reason for item in swept.kept}


def gone(swept: Swept) -> list[str]:
    return sorted(os.path.basename(item.path) for item in swept.removed)


def test_known_names_that_nobody_holds_go(node: Node) -> None:
    known = (
        "cuda.shm.0.1", "multi_tokenizer_args_4711", "nccl-AAA", "psm_0a1b2c3d", "sem.loky-1-x",
        "sgl_shm_mm_4711_0", "sgl_shm_mq_4711", "sgl_shm_nodecheck_4711_x", "sglang_loads_0a.shm",
    )  # fmt: skip
    others = ("other-CCC", "sgl_shm_new", "sglang_loads_0a", "xnccl-AAA", "multi_tokenizer_args_x")
    for name in (*known, *others):
        node.file(node.shm / name)
    node.file(node.tmp / "sglang_temp_file_1.sh")
    node.file(node.tmp / "tmpabcdefgh")
    swept = node.sweep()
    assert gone(swept) == sorted([*known, "sglang_temp_file_1.sh"])
    assert sorted(os.listdir(node.shm)) == sorted(others)
    assert os.listdir(node.tmp) == ["tmpabcdefgh"]
    assert swept.as_dict()["removed_bytes"] == 4096 * 10
    assert swept.message.startswith("Removed 10 leftovers of an earlier server: ")


@pytest.mark.parametrize(
    ("way", "how"), [("open", "open"), ("map", "mapped"), ("zombie-leader", "open"), ("mapping-zombie-leader", "open")]
)
def test_what_a_process_holds_stays(node: Node, hold: t.Callable[[str, pathlib.Path], int], way: str, how: str) -> None:
    held, free = node.file(node.shm / "nccl-BBB"), node.file(node.shm / "nccl-AAA")
    pid = hold(way, held)
    swept = node.sweep()
    assert gone(swept) == ["nccl-AAA"]
    assert f"pid {pid} " in reasons(swept)["nccl-BBB"]
    assert how in reasons(swept)["nccl-BBB"]
    assert held.exists()
    assert not free.exists()


@pytest.mark.parametrize("way", ["open", "map"])
def test_a_holder_that_proc_does_not_show_is_told_by_the_kernel(
    node: Node, hold: t.Callable[[str, pathlib.Path], int], way: str
) -> None:
    held = node.file(node.shm / "nccl-BBB")
    with held.open("rb") as file:
        if _leftovers._lease(file.fileno()):
            pytest.skip(f"the file system of {held} grants no leases")
    hold(way, held)
    assert "cannot be seen from here" in reasons(node.sweep_faked())["nccl-BBB"]
    assert held.exists()


def test_only_files_of_that_user_and_only_files(node: Node, tmp_path: pathlib.Path) -> None:
    precious = node.file(tmp_path / "precious")
    (node.shm / "nccl-link").symlink_to(precious)
    (node.shm / "nccl-folder").mkdir()
    node.file(node.shm / "nccl-AAA")
    stranger = Search(os.getuid() + 1, str(node.shm), str(node.tmp), (str(node.cache),))
    assert sweep(stranger).items == ()
    swept = node.sweep()
    assert (gone(swept), swept.kept) == (["nccl-AAA"], ())
    assert sorted(os.listdir(node.shm)) == ["nccl-folder", "nccl-link"]
    assert precious.exists()


def test_a_file_that_took_the_place_of_another_stays(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    path = node.file(node.shm / "nccl-AAA")
    look = _leftovers.who_holds

    def replaced(*given: t.Any, **named: t.Any) -> t.Any:
        found = look(*given, **named)
        (node.shm / "new").write_bytes(b"of a server that starts now")
        (node.shm / "new").rename(path)
        return found

    monkeypatch.setattr(_leftovers, "who_holds", replaced)
    assert "another file" in reasons(node.sweep())["nccl-AAA"]
    assert path.read_bytes().startswith(b"of a server")


def test_what_a_living_server_of_the_user_may_have_made_stays(node: Node) -> None:
    """Kept open by nobody for a moment, and still wanted: handed from one process of the server to another."""
    node.fake.add(50, argv=["python", "-m", "sglang.launch_server"], start=1, uid=os.getuid())
    ours = (node.shm / "sgl_shm_mm_50_1", node.tmp / "sglang_temp_file_1.sh", node.cache / "x/lock")
    for path in ours:
        node.file(path, size=0, made=2_000_000_000)
    node.file(node.shm / "nccl-AAA", made=2_000_000_000)
    swept = node.sweep_faked()
    assert gone(swept) == ["nccl-AAA"], "its maker would have it mapped"
    assert {path.name for path in ours} == set(reasons(swept))
    assert all("pid 50 " in reason for reason in reasons(swept).values())


@pytest.mark.parametrize("other", [{"start": 10**12}, {"uid": 4711}, {"argv": ["tail", "-f", "x"], "comm": "tail"}])
def test_a_process_that_cannot_have_made_it_does_not_keep_it(node: Node, other: dict[str, t.Any]) -> None:
    about = {"argv": ["python", "-m", "sglang.launch_server"], "start": 1, "uid": os.getuid(), **other}
    node.fake.add(50, **about)
    node.file(node.cache / "x/lock", size=0, made=1_900_000_000)
    assert gone(node.sweep_faked()) == ["lock"]


def test_lock_files_of_a_build(node: Node, tmp_path: pathlib.Path, hold: t.Callable[[str, pathlib.Path], int]) -> None:
    stale = node.file(node.cache / "py311_cu130/fused_rope/lock", size=0)
    aiter = node.file(node.cache / "jit/build/lock_module_moe", size=0)
    stay = [
        node.file(node.cache / "cached_ops/norm/norm.lock", size=0),  # kept by the kernel (flock)
        node.file(node.cache / "py311_cu130/fused_rope/lock.cpp", size=0),
        node.file(node.cache / "elsewhere/lock", size=5),
        node.file(tmp_path / "outside/lock", size=0),
    ]
    (node.cache / "link").symlink_to(tmp_path / "outside")
    held = node.file(node.cache / "other/lock", size=0)
    hold("open", held)
    swept = node.sweep()
    assert {item.path for item in swept.removed} == {str(stale), str(aiter)}
    assert [item.path for item in swept.kept] == [str(held)]
    assert all(path.exists() for path in (*stay, held))


def test_locks_on_a_network_file_system_are_left_alone(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = node.file(node.cache / "x/lock", size=0)
    node.fake.write("900/mountinfo", f"22 1 0:21 / {node.cache} rw - nfs4 server:/cache rw\n")
    swept = node.sweep_faked()
    assert "another machine" in swept.message
    assert lock.exists()


def test_sockets_at_which_nobody_listens(node: Node) -> None:
    dead, living = (socket.socket(socket.AF_UNIX) for _number in range(2))
    dead.bind(str(node.tmp / "tmpdead0000"))
    dead.close()
    living.bind(str(node.tmp / "tmplive0000"))
    living.listen()
    other = socket.socket(socket.AF_UNIX)
    other.bind(str(node.tmp / "other.sock"))
    other.close()
    os.utime(node.tmp / "tmpdead0000", (LONG_AGO, LONG_AGO))
    with living:
        swept = node.sweep()
    assert gone(swept) == ["tmpdead0000"]
    assert reasons(swept) == {"tmplive0000": "a process listens there"}
    assert (node.tmp / "other.sock").exists()


def test_a_process_whose_files_cannot_be_read_may_hold_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.fake.add(50, uid=os.getuid())
    node.fake.make_unreadable(50)
    node.file(node.shm / "nccl-AAA")
    monkeypatch.setattr(_leftovers, "_lease", lambda _file: errno.EINVAL)
    assert "pid 50 (python3) could not be read" in reasons(node.sweep_faked())["nccl-AAA"]
    monkeypatch.undo()
    assert gone(node.sweep_faked()) == ["nccl-AAA"], "the kernel says that nobody has it"


def test_a_look_that_does_not_come_back_removes_nothing(node: Node) -> None:
    node.fake.add(50)
    node.fake.block(50, "maps")
    node.file(node.shm / "nccl-AAA")
    swept = sweep(node.search, proc_root=node.fake.root, timeout=0.3)
    assert (swept.removed, len(swept.kept)) == ((), 1)
    assert "did not come back" in swept.message
    assert f"{node.fake.root}/50" in swept.message


def test_find_only_tells(node: Node) -> None:
    path = node.file(node.shm / "nccl-AAA")
    found = find(node.search)
    assert [(item.stale, item.removed) for item in found.items] == [(True, False)]
    assert found.message.startswith("Would remove 1 leftover of")
    assert path.exists()


def test_nothing_is_there(tmp_path: pathlib.Path) -> None:
    swept = sweep(Search(os.getuid(), "", "", (str(tmp_path / "none"),)))
    assert swept.items == ()
    assert swept.message == "An earlier server left nothing behind."
    gone_folder = sweep(Search(os.getuid(), str(tmp_path / "none"), ""))
    assert "could not be read" in gone_folder.message
