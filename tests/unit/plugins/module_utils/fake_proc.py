# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A folder that looks like /proc, for tables of cases. Open files are links to real files, so that stat works."""

from __future__ import annotations

import os
import pathlib
import typing as t

ORDINARY = 0x400000
EXITING = 0x4
KERNEL_THREAD = 0x200000


class FakeProc:
    """One /proc. Process 900 is the module, with its shell 800 above it."""

    def __init__(self, folder: pathlib.Path, cgroup: str = "0::/user.slice/user-0.slice/session-1.scope") -> None:
        self.path = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.root = str(folder)
        self.write("devices", "Character devices:\n  1 mem\n\nBlock devices:\n  7 loop\n")
        self.write("uptime", "5000.00 1.00\n")
        (folder / "self").symlink_to("900")
        self.add(1, comm="systemd", ppid=0, cgroup="0::/init.scope")
        self.add(800, comm="bash", cgroup=cgroup)
        self.add(900, comm="python3", ppid=800, cgroup=cgroup)
        self.write("900/mountinfo", f"22 1 0:21 / {folder} rw - proc proc rw\n")

    def write(self, name: str, content: str | bytes) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def add(
        self,
        pid: int,
        *,
        comm: str = "python3",
        state: str = "S",
        ppid: int = 1,
        flags: int = ORDINARY,
        start: int = 1000,
        uid: int = 0,
        groups: t.Sequence[int] = (0,),
        ns_pids: t.Sequence[int] | None = None,
        opens: t.Sequence[str | os.PathLike[str]] = (),
        maps: t.Sequence[str | os.PathLike[str]] = (),
        cgroup: str = "0::/",
        argv: t.Sequence[str] = ("python3", "x.py"),
        exe: str | None = "/usr/bin/python3",
        namespace: str | None = "pid:[1]",
        pending: int = 0,
        tasks: t.Mapping[int, t.Mapping[str, t.Any]] | None = None,
    ) -> None:
        """tasks: per TID what differs from the leader (state, flags, opens, maps, pending)."""
        self._entry(str(pid), pid, comm, state, ppid, flags, start, uid, groups, ns_pids or (pid,), pending)
        self._tables(str(pid), opens, maps)
        self._labels(str(pid), cgroup, argv, exe, namespace)
        for tid, other in (tasks or {pid: {"state": state, "flags": flags, "opens": opens, "maps": maps}}).items():
            place = f"{pid}/task/{tid}"
            self._entry(
                place, tid, comm, other.get("state", "S"), ppid, other.get("flags", ORDINARY), start, uid, groups,
                (*(ns_pids or (pid,))[:-1], tid), other.get("pending", 0),
            )  # fmt: skip
            self._tables(place, other.get("opens", ()), other.get("maps", ()))
            self._labels(place, cgroup, argv, exe, namespace)

    def _entry(
        self, place: str, number: int, comm: str, state: str, ppid: int, flags: int, start: int, uid: int,
        groups: t.Sequence[int], ns_pids: t.Sequence[int], pending: int,
    ) -> None:  # fmt: skip
        fields = [str(number), f"({comm})", state, str(ppid), "1", "1", "0", "-1", str(flags), *["0"] * 12, str(start)]
        self.write(f"{place}/stat", " ".join([*fields, *["0"] * 30]) + "\n")
        self.write(
            f"{place}/status",
            f"Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{groups[0]}\t{groups[0]}\t{groups[0]}\t{groups[0]}\n"
            f"Groups:\t{' '.join(str(group) for group in groups)}\nNSpid:\t{chr(9).join(str(n) for n in ns_pids)}\n"
            f"SigPnd:\t{0:016x}\nShdPnd:\t{pending:016x}\n",
        )

    def _tables(self, place: str, opens: t.Sequence[t.Any], maps: t.Sequence[t.Any]) -> None:
        folder = self.path / place / "fd"
        folder.mkdir(parents=True, exist_ok=True)
        for number, target in enumerate(opens, 3):
            (folder / str(number)).symlink_to(target)
        lines = [
            "55e000000000-55e000001000 r-xp 00000000 fd:00 4242 /usr/bin/python3",
            "7ff000000000-7ff000001000 rw-p 0 00:00 0 ",
        ]
        for number, target in enumerate(maps):
            inode = os.stat(target).st_ino if os.path.exists(target) else 77
            lines.append(
                f"7f{number:x}000000000-7f{number:x}000001000 rw-s 00000000 00:05 {inode}    {os.fspath(target)}"
            )
        self.write(f"{place}/maps", "\n".join(lines) + "\n")
        (self.path / place / "root").symlink_to("/")

    def _labels(self, place: str, cgroup: str, argv: t.Sequence[str], exe: str | None, namespace: str | None) -> None:
        self.write(f"{place}/cgroup", cgroup + "\n")
        self.write(f"{place}/cmdline", "\0".join(argv) + "\0" if argv else "")
        self.write(f"{place}/wchan", "0")
        if exe is not None:
            (self.path / place / "exe").symlink_to(self._program(exe))
        (self.path / place / "ns").mkdir()
        (self.path / place / "ns/user").symlink_to("user:[1]")
        if namespace is not None:
            (self.path / place / "ns/pid").symlink_to(namespace)

    def _program(self, exe: str) -> str:
        """A file that is not on this machine is made, as root (or whoever tests) would have installed it."""
        if os.path.exists(exe):
            return exe
        place = self.path.parent / f"{self.path.name}-files" / exe.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.parent.chmod(0o755)
        place.touch(0o755)
        return str(place)

    def make_unreadable(self, pid: int, table: str = "fd") -> None:
        """A table that is there and cannot be read, for root as well: a link to itself."""
        path = self.path / str(pid) / table
        if path.is_dir():
            for entry in path.iterdir():
                entry.unlink()
            path.rmdir()
        else:
            path.unlink()
        path.symlink_to(path.name)

    def block(self, pid: int, table: str) -> None:
        """A table whose reading never comes back: a pipe that nobody writes to."""
        path = self.path / str(pid) / table
        path.unlink()
        os.mkfifo(path)


def make_nodes(folder: pathlib.Path, names: t.Sequence[str] = ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")) -> str:
    """Plain files that play device nodes, and the glob that finds them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\0" * 4096)
    return str(folder / "nvidia*")
