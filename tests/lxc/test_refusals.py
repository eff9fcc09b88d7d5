# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a relaunch refuses before it touches anything: both old servers still serve, and nobody got a signal."""

from __future__ import annotations

import contextlib
import typing as t

import layout
import playing
import pytest
import serving
from inside import Inside
from playing import WHOLE, play

NOBODY = "10.231.77.250"  # an address on the bridge that nothing has
SSH = ("-F /dev/null -o ConnectTimeout=3 -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no "
       "-o IdentitiesOnly=yes")  # fmt: skip


@pytest.fixture(scope="module")
def both_on_all(scene: tuple[Inside, Inside]) -> tuple[Inside, Inside]:
    for inside in scene:
        serving.serve(inside, range(layout.GPUS), gpu_mib=40000)
    return scene


class Refused(t.NamedTuple):
    title: str
    host: str
    variables: dict[str, t.Any]
    # Each must be said, in one failed step.
    words: tuple[str, ...]
    allow: dict[str, t.Any] | None = None


REFUSED = {
    "both on all eight": Refused(
        "101 and 102 serve on all eight; relaunch of 102", "ct102", {}, ("101", "sglang.service", "GPU"),
    ),
    "wrong VMID": Refused(
        "node 101 with VMID 102", "ct101", {"gpu_release_lxc": ["102"]},
        ("PID namespace", "this node is not container 102", "Nothing was touched"),
    ),
    "VMID alone": Refused(
        "gpu_release_lxc without gpu_release_host", "ct101", {"gpu_release_host": ""}, ("come together or not at all",),
    ),
    "host alone": Refused(
        "gpu_release_host without gpu_release_lxc", "ct101", {"gpu_release_lxc": []}, ("come together or not at all",),
    ),
    "VMID that does not run": Refused(
        "VMID 103, which does not run", "ct101", {"gpu_release_lxc": [103]},
        ("No container 103 runs on this GPU host",),
    ),
    "host unreachable": Refused(
        "gpu_release_host does not answer", "ct101", {"gpu_release_host": "lost"}, ("connect to host " + NOBODY,),
    ),
    "VMID not allowed": Refused(
        "the host's allow-list names 101 only; relaunch of 102", "ct102", {},
        ("Container 102 may not be touched on this host", "allowed.json"), {"lxc": [101]},
    ),
    "GPUs not allowed": Refused(
        "the host's allow-list names GPUs 0 to 3; relaunch of 101 on all", "ct101", {},
        ("may not be released on this host",), {"lxc": [101, 102], "gpus": range(4)},
    ),
    "allow-list of anybody": Refused(
        "an allow-list that its group can write", "ct101", {}, ("must belong to root and be writable by root only",),
        {"mode": 0o664, "lxc": [101, 102]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_and_nothing_is_touched(name: str, both_on_all: tuple[Inside, Inside], watch: t.Any) -> None:
    told = REFUSED[name]
    hosts = {
        "ct101": dict(WHOLE["ct101"]), "ct102": dict(WHOLE["ct102"]),
        "lost": {"ansible_host": NOBODY, "ansible_ssh_common_args": SSH},
    }  # fmt: skip
    hosts[told.host].update(told.variables)
    allow = dict(told.allow or {})
    if "gpus" in allow:
        allow["gpus"] = playing.uuids(allow["gpus"])
    with serving.allowed(**allow) if allow else contextlib.nullcontext(), watch(
        told.title, int(told.host[2:])
    ) as case:  # fmt: skip
        played = play("relaunch.yml", told.host, hosts=hosts)
    case.outcome = "refused: " + (played.why() or played.text[-300:])[:240]
    assert played.code != 0
    assert any(all(word in line for word in told.words) for line in played.why().splitlines()), played.why()
    assert not played.stopped("ct101")
    assert not played.stopped("ct102")
    case.untouched(101)
    case.untouched(102)
    assert all(serving.answers(inside) for inside in both_on_all)


def test_the_allow_list_is_gone() -> None:
    with pytest.raises(FileNotFoundError):
        open(serving.ALLOWED, encoding="ascii").close()
