# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a schedule is held against: the nodes that it will look after, not the controller that it runs on."""

from __future__ import annotations

PRINTED = {"drift_schedule_state": "printed", "drift_schedule_inventory": ["/etc/ansible/gpu"]}


def test_the_limit_of_a_run_leaves_time_for_the_longest_load_of_all_nodes(make_node, play) -> None:
    """The default limit would cut off a relaunch of the slow one and leave it down."""
    quick, slow = make_node(), make_node()
    slow.variables = {"sglang_server_load_budget": 7200}
    refused = play("schedule", [quick, slow], **PRINTED)
    assert refused.rc == 2, str(refused)
    assert "drift_schedule_run_limit (5400 s) must be at least 8455 s" in refused.text, str(refused)
    told = play("schedule", [quick, slow], **PRINTED, drift_schedule_run_limit=8455)
    assert told.rc == 0, str(told)
    assert "8455" in told.text, "it is in what is printed"
