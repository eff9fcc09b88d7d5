# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One slow host holds nobody back."""

from __future__ import annotations

SLOW = 8  # seconds for each question to systemd: far more than two executions differ by


def first_query(run, node) -> float:
    return next(call.time for call in run.of(node) if call.tool == "nvidia-smi")


def test_a_look_at_one_node_does_not_wait_for_another_that_answers_slowly(make_node, play) -> None:
    quick, slow = make_node(), make_node()
    slow.wrap_systemctl({"show": f"sleep {SLOW}"})

    run = play("drift", [quick, slow])

    # Neither node serves, and that is seen of both.
    assert run.rc == 0, str(run)
    assert first_query(run, slow) - first_query(run, quick) > SLOW / 2, str(run)
