# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a killed server leaves things behind: three folders, and a /proc that is made up."""

from __future__ import annotations

import os
import pathlib
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._leftovers import Search, Swept, sweep
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import FakeProc

LONG_AGO = 1_000_000_000  # before every process that runs here


class Node:
    """Looked at through the real /proc or the made-up one."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.shm, self.tmp, self.cache = folder / "shm", folder / "tmp", folder / "cache"
        for place in (self.shm, self.tmp, self.cache):
            place.mkdir()
        self.fake = FakeProc(folder / "proc")
        self.search = Search(os.getuid(), str(self.shm), str(self.tmp), (str(self.cache),))

    def file(self, path: pathlib.Path, size: int = 4096, made: int | None = LONG_AGO) -> pathlib.Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
        if made is not None:
            os.utime(path, (made, made))
        return path

    def sweep(self, **options: t.Any) -> Swept:
        return sweep(self.search, **options)

    def sweep_faked(self) -> Swept:
        return sweep(self.search, proc_root=self.fake.root)
