# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPU host is lost in the middle of a relaunch: nothing starts on unproved GPUs, the next run finds its way."""

from __future__ import annotations

import re
import shutil
import typing as t

import pytest
import serving
from inside import Inside, end_holders
from playing import HALVES, LEASES, Play, play
from test_refusals import NOBODY, SSH

AFTER_STOP = "sglang_stop_result"
AFTER_START = "sglang_server_started"


def lose_host(once: str) -> dict[str, dict[str, t.Any]]:
    """The inventory in which the host does not answer any more once this variable of the node is there."""
    lost = f"hostvars['ct101'].{once} is defined"
    host = {
        "ansible_connection": f"{{{{ 'ssh' if {lost} else 'local' }}}}",
        "ansible_host": f"{{{{ '{NOBODY}' if {lost} else 'localhost' }}}}",
        "ansible_ssh_common_args": SSH,
    }
    return {"ct101": HALVES["ct101"], "pve": host}


@pytest.fixture
def served(scene: tuple[Inside, Inside]) -> t.Iterator[Inside]:
    end_holders()
    serving.serve(scene[0], HALVES["ct101"]["gpus"])
    yield scene[0]
    # Whatever a failure here leaves, or every case after it would be refused.
    shutil.rmtree(LEASES, ignore_errors=True)


def unlock_as_told(lost: Play) -> None:
    """With the words of the lost run."""
    (run_id,) = set(re.findall(r"unlock\.yml -e unlock_run_id=([\w-]+)", lost.text))
    unlocked = play("unlock.yml", "ct101", extra={"unlock_run_id": run_id})
    assert unlocked.code == 0, unlocked.why()


def test_between_stop_and_release(served: Inside, watch: t.Any) -> None:
    with watch("the GPU host is lost between the stop of 101 and the release", 101) as case:
        played = play("relaunch.yml", "ct101", hosts=lose_host(AFTER_STOP))
    case.outcome = played.why()[-240:]
    assert played.code in (2, 4)
    assert played.stopped("ct101")
    assert not played.of("Start the server", "ct101")
    assert case.units_after[101].shown["ActiveState"] == "inactive"
    case.untouched(102)
    (said,) = [line for line in played.why().splitlines() if "How it stands now" in line]
    assert "pve was lost during the release" in said
    assert "IS DOWN on ct101" in said
    assert "nothing was started" in said
    assert "could not be given back" in said
    assert "unlock.yml" in said
    refused = play("relaunch.yml", "ct101")
    assert refused.code == 2
    assert "unlock.yml" in refused.why()
    assert not refused.stopped("ct101")
    unlock_as_told(played)
    again = play("relaunch.yml", "ct101")
    assert again.code == 0, again.why()
    assert serving.answers(served)


def test_after_the_start(served: Inside, watch: t.Any) -> None:
    """The server serves; that the lease stands is told, and is no reason to call the launch a failure."""
    with watch("the GPU host is lost after the start in 101", 101) as case:
        played = play("relaunch.yml", "ct101", hosts=lose_host(AFTER_START))
    case.outcome = played.text.strip()[-240:]
    assert serving.answers(served)
    assert played.last("Wait until the server serves").result["verdict"] == "ready"
    assert "could not be given back" in played.text
    assert "unlock.yml" in played.text
    case.untouched(102)
    unlock_as_told(played)
