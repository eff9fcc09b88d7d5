# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The API key is in one file of mode 0600, and nowhere else."""

from __future__ import annotations

import contextlib
import pathlib
import threading
import typing as t

KEY = "demo-key-0123456789abcdef"  # of inventory/demo


class ArgvWatch:
    """Looks into every command line of the machine, again and again."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.looks = 0
        self.over = threading.Event()

    def look_on(self) -> None:
        while not self.over.wait(0.1):
            self.looks += 1
            for place in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    text = place.read_bytes()
                except OSError:
                    continue
                if KEY.encode() in text:
                    self.seen.append(text.replace(b"\0", b" ").decode(errors="replace"))


@contextlib.contextmanager
def watch_command_lines() -> t.Iterator[ArgvWatch]:
    watch = ArgvWatch()
    thread = threading.Thread(target=watch.look_on)
    thread.start()
    try:
        yield watch
    finally:
        watch.over.set()
        thread.join()


def test_the_key_is_found_nowhere_but_in_the_configuration(make_node, play) -> None:
    node = make_node({"die_at": {"stage": "kv_cache", "exit_code": 1}})
    with watch_command_lines() as watch:
        # The server dies: its log, which holds the key as the real one's does, is quoted in the failure.
        failed = play("relaunch", node, "-vvv", "--diff")
        node.script()
        good = play("relaunch", node, "-vvv", "--diff")
        look = play("status", node, "-vvv")
    assert failed.rc == 2, str(failed)
    assert "simulated death" in failed.text, str(failed)
    assert good.rc == 0, str(good)
    assert look.rc == 0, str(look)
    assert watch.looks > 20
    assert not watch.seen, watch.seen

    assert KEY in (node.folder / "sglang.log").read_text(), "the fake prints it, as the real one does"
    for run in (failed, good, look):
        assert KEY not in run.out, "\n".join(line for line in run.out.splitlines() if KEY in line)
    assert KEY in node.config.read_text()
    assert oct(node.config.stat().st_mode & 0o777) == "0o600"
    with_key = [
        path.relative_to(node.folder).as_posix()
        for path in node.folder.rglob("*")
        if path.is_file() and KEY.encode() in path.read_bytes()
    ]
    assert sorted(with_key) == ["etc/sglang.yaml", "sglang.log"]
    assert node.unit.exists()
