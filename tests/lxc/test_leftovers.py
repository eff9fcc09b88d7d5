# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a killed server leaves in a container's shared memory and caches, and what the next start does about it."""

from __future__ import annotations

import json
import typing as t

import pytest
import serving
from inside import Inside, end_holders
from playing import play

UNIT = "sglang.service"
SHM = "/dev/shm"
HELD, STALE, STRANGE, ROOTS = (f"{SHM}/{name}" for name in ("nccl-BBB", "nccl-AAA", "other-CCC", "nccl-ROOT"))


def there(inside: Inside, *paths: str) -> list[str]:
    found = inside.pct("sh", "-c", 'for path; do test -e "$path" && echo "$path"; done; true', "sh", *paths)
    return found.splitlines()


def make(inside: Inside, path: str, owner: str = "sglang", size: int = 4096) -> None:
    inside.pct("sh", "-c", 'mkdir -p "${1%/*}"; head -c "$3" /dev/zero >"$1"; chown "$2" "$1"', "sh", path, owner,
               str(size))  # fmt: skip


@pytest.fixture
def stopped(scene: tuple[Inside, Inside]) -> t.Iterator[Inside]:
    """A unit of ours that served once, and was stopped."""
    inside = scene[0]
    serving.behave(inside)
    inside.pct("sh", "-c", f"rm -rf /etc/sglang /etc/systemd/system/{UNIT}*; systemctl daemon-reload")
    played = play("start.yml", "ct101")
    assert played.code == 0, played.why()
    inside.pct("systemctl", "stop", UNIT)
    yield inside
    end_holders()
    inside.pct("rm", "-f", HELD, STALE, STRANGE, ROOTS)


def test_what_a_process_still_holds_stays(stopped: Inside) -> None:
    for path, owner in ((HELD, "sglang"), (STALE, "sglang"), (STRANGE, "sglang"), (ROOTS, "root")):
        make(stopped, path, owner)
    stopped.run_unit("test-holds", "sh", "-c", f"exec sleep 600 3<{HELD}")
    stopped.pct("systemctl", "start", UNIT, timeout=120)
    assert there(stopped, HELD, STALE, STRANGE, ROOTS) == [HELD, STRANGE, ROOTS]
    told = json.loads(stopped.pct("cat", f"/run/cleanslate-guard/{UNIT}.json"))["leftovers"]
    assert [item["path"] for item in told["removed"]] == [STALE]
    assert [item["path"] for item in told["kept"]] == [HELD]
    assert "sleep" in told["kept"][0]["reason"]
    # Once it is let go, the next start takes it too.
    stopped.pct("systemctl", "stop", "test-holds.service", UNIT)
    stopped.pct("systemctl", "start", UNIT, timeout=120)
    assert there(stopped, HELD, STALE, STRANGE, ROOTS) == [STRANGE, ROOTS]


def test_the_lock_of_a_killed_build_no_longer_stops_a_start(stopped: Inside) -> None:
    home = stopped.pct("sh", "-c", "getent passwd sglang | cut -d: -f6").strip()
    lock = f"{home}/.cache/torch_extensions/py311_cu130/fused/lock"
    make(stopped, lock, size=0)
    stopped.pct("systemctl", "start", UNIT, timeout=120)
    assert there(stopped, lock) == []
