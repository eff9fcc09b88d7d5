# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a relaunch costs: executions on the node, above all between stop and start, and tasks of the controller."""

from __future__ import annotations

import re

# Stop, release and gate are one, swap and start the other.
MOST_BETWEEN = 2
MOST_EXECUTIONS = 15
# Skipped ones too: each passes through the one main process of a controller that may have a hundred nodes.
MOST_TASKS = 57
# Said by -vvv for each execution; the banner of its task may come before or after it.
EXECUTION = re.compile(r"^Using module file .*/(?P<module>\w+)\.py$", re.MULTILINE)
RECAP = re.compile(r"^\S+ +: ok=(\d+) .*skipped=(\d+) ", re.MULTILINE)


def test_few_executions_between_stop_and_start(make_node, play, capsys) -> None:
    # Stops at once, gives its memory back at once.
    node = make_node({"release_delay_s": 0, "time_scale": 0.001})
    assert play("start", node).rc == 0
    (old,) = node.launchers()

    run = play("relaunch", node, "-vvv")

    assert run.rc == 0, str(run)
    assert node.launchers() != [old]
    stop = next(call for call in run.of(node) if call.verb == "stop")
    start = next(call for call in run.of(node) if call.verb == "start")
    modules = EXECUTION.findall(run.out)
    between = modules[modules.index("gpu_force_release") : modules.index("sglang_unit_start") + 1]
    with capsys.disabled():
        print(f"\n  stop to start: {start.time - stop.time:.2f} s from call to call; on the node: {between}")
    assert len(between) <= MOST_BETWEEN, str(run)
    assert len(modules) <= MOST_EXECUTIONS, modules
    tasks = sum(map(int, RECAP.search(run.out).groups()))
    assert tasks <= MOST_TASKS, str(run)
    # Far more than it takes, and far less than a person would notice going wrong.
    assert start.time - stop.time < 30
