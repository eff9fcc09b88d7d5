# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A launch that does not come to serve, on real systemd: the former one is back, and the play has failed."""

from __future__ import annotations

import json
import os
import typing as t

import serving
from inside import Inside, end_holders
from playing import play

DIES = {"SIM_DIE_AT": json.dumps({"stage": "graph", "exit_code": 1})}
UNIT = "/etc/systemd/system/sglang.service"


def test_the_former_profile_serves_again(scene: tuple[Inside, Inside], watch: t.Any) -> None:
    end_holders()
    inside = scene[0]
    serving.behave(inside)
    inside.pct("sh", "-c", f"rm -rf /etc/sglang {UNIT}*; systemctl daemon-reload")
    first = play("relaunch.yml", "ct101")
    assert first.code == 0, first.why()
    former = inside.pct("cat", UNIT)
    broken = {"sglang_server_environment": DIES, "sglang_server_rollback": True}
    with watch("101 is relaunched with a profile that dies, and rolled back", 101) as case:
        played = play("relaunch.yml", "ct101", extra=broken)
    case.outcome = played.why()[-240:]
    assert played.code == 2
    assert "rolled back: profile low serves again" in played.why()
    assert serving.answers(inside)
    assert inside.pct("cat", UNIT) == former
    pid = inside.main_pid("sglang.service")
    with open(f"/proc/{pid}/environ", "rb") as handle:
        assert b"SIM_DIE_AT" not in handle.read()
    assert os.stat(f"/proc/{pid}").st_uid == int(inside.pct("id", "-u", "sglang"))
    case.untouched(102)
