# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who is held to start targets again, step by step, without a ladder around it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Container, Holder
from ansible_collections.cleanslate.gpu.plugins.module_utils._kinship import Process
from ansible_collections.cleanslate.gpu.plugins.module_utils._respawning import Respawning

SHELL, SHIM = 30, 40
INSIDE = Container("docker", "ab" * 32)


class Family:
    """PID 1, a shell, and a shim that adopts; whoever is in gone has ended."""

    def __init__(self) -> None:
        self.gone: set[int] = set()
        self.start = 1

    def own(self) -> frozenset[int]:
        return frozenset()

    def process(self, pid: int) -> Process | None:
        known = {1: "systemd", 2: "sh", SHELL: "bash", SHIM: "containerd-shim"}
        if pid not in known or pid in self.gone:
            return None
        return Process(pid, self.start, 1, known[pid], adopts=pid in (1, SHIM))

    def describe(self, process: Process) -> str:
        return f"PID {process.pid} ({process.comm})"


def holder(pid: int, ppid: int = SHELL, **fields: t.Any) -> Holder:
    fields = {"cmdline": "serve", "age_s": 0.0, "disposition": "target", **fields}
    return Holder(pid=pid, start_time=pid, comm="python3", ppid=ppid, **fields)


def above(pid: int) -> tuple[int, ...]:
    return ()


def key(one: Holder) -> tuple[int, int]:
    return (one.pid, one.start_time)


@pytest.fixture
def family() -> Family:
    return Family()


@pytest.mark.parametrize(
    ("ppid", "fields", "watched"),
    [
        pytest.param(SHELL, {}, [SHELL], id="a shell"),
        pytest.param(2, {}, [2], id="whoever has the PID 2"),
        pytest.param(1, {}, [], id="init"),
        pytest.param(99, {}, [], id="nobody"),
        pytest.param(SHIM, {}, [], id="a shim that adopted it"),
        pytest.param(SHIM, {"container": INSIDE, "unit": "a.service"}, [SHIM], id="an init whose service it is"),
        pytest.param(SHIM, {"container": INSIDE, "unit": "a.scope"}, [], id="an init, but no service"),
        pytest.param(SHIM, {"container": INSIDE}, [], id="an init, no unit"),
        pytest.param(SHIM, {"unit": "a.service"}, [], id="a service without a container: systemd was asked"),
    ],
)
def test_whose_parent_may_start_it_again(
    family: Family, ppid: int, fields: dict[str, t.Any], watched: list[int]
) -> None:
    one = holder(10, ppid, **fields)
    respawning = Respawning(family, [one])
    assert respawning.parents_to_watch() == (), "it has not ended"
    respawning.note_gone({key(one)}, 5.0)
    assert [parent.pid for parent in respawning.parents_to_watch()] == watched


def test_a_parent_is_watched_as_long_as_it_is_the_same(family: Family) -> None:
    one, living, other = holder(10), holder(11, SHIM), holder(12, 2)
    respawning = Respawning(family, [living, one, other])
    respawning.note_gone({key(one), key(other)}, 5.0)
    assert [parent.pid for parent in respawning.parents_to_watch()] == [SHELL, 2]
    family.gone.add(SHELL)
    assert [parent.pid for parent in respawning.parents_to_watch()] == [2]
    family.start = 7
    assert respawning.parents_to_watch() == (), "the PID is somebody else's by now"


def test_a_parent_that_was_a_target_is_not_watched(family: Family) -> None:
    child, shell, other = holder(10), holder(SHELL, 1), holder(12, 2)
    respawning = Respawning(family, [child, other])
    respawning.meet(shell, [], above, 6.0)
    respawning.note_gone({key(child), key(other)}, 7.0)
    assert [parent.pid for parent in respawning.parents_to_watch()] == [2]


def test_ends_are_news_once(family: Family) -> None:
    one, other = holder(10), holder(11)
    respawning = Respawning(family, [one, other])
    assert respawning.last_end == 0.0
    assert respawning.note_gone({key(one)}, 5.0)
    assert not respawning.note_gone({key(one)}, 6.0)
    assert respawning.last_end == 5.0
    assert respawning.note_gone({key(one), key(other)}, 7.0)
    assert respawning.last_end == 7.0


def test_two_that_appear_late_are_tolerated_and_the_third_is_not(family: Family) -> None:
    """They may have been started before the first signal."""
    respawning = Respawning(family, [holder(10)])
    found = [respawning.meet(holder(20 + n), [], above, 5.0 + n) for n in range(4)]
    assert found == [None, None, "PID 30 (bash)", "PID 30 (bash)"]


@pytest.mark.parametrize(("born", "told"), [(9.9, False), (10.0, True), (10.1, True)])
def test_who_is_born_after_an_empty_look_was_started_again(family: Family, born: float, told: bool) -> None:
    respawning = Respawning(family, [holder(10)])
    respawning.note_empty(10.0)
    respawning.note_empty(99.0)
    found = respawning.meet(holder(20, age_s=12.0 - born), [], above, 12.0)
    assert found == ("PID 30 (bash)" if told else None)


@pytest.mark.parametrize(
    ("fields", "age_s", "told"),
    [
        pytest.param({}, 1.0, True, id="born after the end of the first"),
        pytest.param({}, 2.0, True, id="born at its end"),
        pytest.param({}, 3.0, False, id="born before its end: both were there"),
        pytest.param({}, None, True, id="nobody knows how old it is"),
        pytest.param({"cmdline": "other"}, 1.0, False, id="another program"),
        pytest.param({"cmdline": ""}, 1.0, False, id="no command line"),
    ],
)
def test_whom_init_starts_again_is_known_by_the_command_line(
    family: Family, fields: dict[str, t.Any], age_s: float | None, told: bool
) -> None:
    first = holder(10, 1, **({"cmdline": ""} if fields.get("cmdline") == "" else {}))
    respawning = Respawning(family, [first])
    respawning.note_gone({key(first)}, 5.0)
    respawning.note_empty(0.0)
    found = respawning.meet(holder(20, 1, age_s=age_s, **fields), [], above, 7.0)
    words = "PID 1 (systemd), on behalf of something that is not among its ancestors any more"
    assert found == (words if told else None)


def test_a_parent_that_cannot_be_read_is_told_by_its_number(family: Family) -> None:
    first = holder(10, 99)
    respawning = Respawning(family, [first])
    respawning.note_gone({key(first)}, 5.0)
    respawning.note_empty(5.0)
    assert (respawning.meet(holder(20, 99), [], above, 7.0) or "").startswith("PID 99, on behalf of")


def test_who_stands_below_a_living_target_was_not_started_again(family: Family) -> None:
    first, root = holder(10, 1), holder(11, 1, cmdline="x")
    respawning = Respawning(family, [first, root])
    respawning.note_gone({key(first)}, 5.0)
    respawning.note_empty(0.0)
    assert respawning.meet(holder(20, 1), [root], lambda pid: (11, 1) if pid == 20 else (1,), 7.0) is None
