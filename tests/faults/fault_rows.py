# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a row of a fault table says to its reader; docs/faults.md is printed from these (write_faults.py).

A folder's table adds what its tests need: how the fault is planted and what is asserted.
"""

from __future__ import annotations

import functools
import os
import subprocess
import typing as t


class FaultRow(t.Protocol):
    """One fault. What must not have happened is read from call logs, the process table and files, never from our own
    result."""

    @property
    def group(self) -> str:
        """The heading it stands under."""

    @property
    def name(self) -> str:
        """The fault. No other row of its folder has this name."""

    @property
    def before(self) -> str:
        """The state before."""

    @property
    def must(self) -> str:
        """What must happen."""

    @property
    def must_not(self) -> str:
        """What must not have happened."""

    @property
    def needs(self) -> t.Sequence[str]:
        """What has to be there for it to run, words of NEEDS. Where one is missing the row is listed as not run."""


@functools.cache
def _can_mount() -> bool:
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    tried = subprocess.run(["unshare", *own, "--mount", "true"], capture_output=True, check=False)
    return tried.returncode == 0


NEEDS: dict[str, t.Callable[[], bool]] = {
    "root": lambda: os.geteuid() == 0,
    "mounts": _can_mount,  # in a mount namespace of one's own
    "every break": lambda: bool(os.environ.get("CLEANSLATE_EVERY_BREAK")),  # what nearly repeats another row
}


def not_run(row: FaultRow) -> str:
    """Why this row cannot run here; empty where it can."""
    missing = [need for need in row.needs if not NEEDS[need]()]
    return f"not run: needs {', '.join(missing)}" if missing else ""
