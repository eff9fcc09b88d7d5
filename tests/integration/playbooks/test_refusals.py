# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What preflight refuses, refuses while the old server serves: its process is the same afterwards."""

from __future__ import annotations

import pytest
from simulated_nodes import Node, alive

# Between the preflight and the stop requests come in; the server that reports them is another start of it.
REQUESTS_COME = """\
- name: Start the server that the scenario now tells of
  ansible.builtin.command: "{{ simulated_node }}/bin/systemctl --user restart sglang.service"

- name: Wait until it serves
  ansible.builtin.uri:
    url: "http://127.0.0.1:%d/health"
  register: answer
  until: answer is success
  retries: 100
  delay: 0.2
"""


@pytest.fixture(scope="module")
def serving(make_shared_node, play) -> list[Node]:
    nodes = [make_shared_node() for dummy in range(4)]
    run = play("start", nodes, relaunch_serial="100%")
    assert run.rc == 0, str(run)
    return nodes


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        pytest.param({"gpu_relaese_scope": "unit"}, "did you mean gpu_release_scope", id="misspelt"),
        pytest.param({"gpu_release_host": "node1"}, "gpu_release_lxc", id="host without lxc"),
        pytest.param({"gpu_release_lxc": [101]}, "gpu_release_host", id="lxc without host"),
        pytest.param({"sglang_server_profile": "kimi"}, "there is no profile 'kimi'", id="unknown profile"),
        pytest.param(
            {"sglang_server_profiles": [{"name": "demo", "args": ["--tp-size", 8]}]},
            "profile 'demo': args must be a mapping of SGLang option to value, not list. Nothing was changed.",
            id="profile of another shape",
        ),
        pytest.param({"gpu_idle_max_used_mib": 80000}, "gpu_idle_max_used_mib is 80000", id="a server would be idle"),
        pytest.param({"gpu_release_scope": "all"}, "gpu_release_allow_foreign", id="scope all by accident"),
        pytest.param({"sglang_stop_drain": "soon"}, "sglang_stop_drain", id="another type"),
        pytest.param({"gpu_drift_mode": "mend"}, "must be one of: report, remediate", id="none of the choices"),
        pytest.param({"run_record_keep": 0}, "it must be at least 1", id="out of range"),
        pytest.param({"relaunch_when_busy": "wait"}, "it must be refuse, drain or force", id="when busy"),
    ],
)
def test_variables(variables, said, serving, play) -> None:
    node = serving[0]
    old, before = node.launchers(), node.snapshot()
    run = play("relaunch", node, variables=variables)
    assert run.rc == 2, str(run)
    assert said in run.text, str(run)
    assert not run.of(node), "wrong variables are found before the node is asked anything"
    assert node.launchers() == old
    assert node.snapshot() == before


def test_states_of_the_gpus(serving, play) -> None:
    """Nodes at once, each with another reason; nobody is stopped, not even the node that would have passed."""
    hung, lost, mig, dummy = serving
    hung.script(faults=[{"effect": "hang"}])
    lost.script(faults=[{"effect": "lost", "gpus": [3]}])
    mig.script(faults=[{"effect": "mig", "gpus": [5]}])
    old = {node.name: node.launchers() for node in serving}
    try:
        run = play("relaunch", serving, variables={"gpu_release_smi_timeout": 2})
    finally:
        for node in serving:
            node.script()
    assert run.rc == 2, str(run)
    assert {node.name: node.launchers() for node in serving} == old
    for node in serving:
        assert all(call.asks for call in run.of(node)), run.of(node)
    reasons = {node.name: " ".join(run.failures(node)) for node in serving}
    assert "2 s" in reasons[hung.name] or "hung" in reasons[hung.name], reasons
    asked = [call.argv for call in run.of(hung) if call.tool == "nvidia-smi"]
    assert len(asked) == 1, f"each further question would have taken its whole deadline: {asked}"
    assert "GPU" in reasons[lost.name], reasons
    assert "7" in reasons[lost.name] or "GPU3" in reasons[lost.name], reasons
    assert "MIG" in reasons[mig.name], reasons


def test_ten_gpus_where_eight_are(serving, play) -> None:
    node = serving[0]
    old = node.launchers()
    run = play("relaunch", node, variables={"gpu_idle_expected_count": 10})
    assert run.rc == 2, str(run)
    # GPUs 8 and 9 of the ten have no device node.
    assert "/dev/nvidia8" in run.text, str(run)
    assert "/dev/nvidia9 are missing" in run.text, str(run)
    assert node.launchers() == old
    assert all(call.asks for call in run.of(node)), run.of(node)


def test_running_requests(make_node, play) -> None:
    """Refused at first; drained or cut off where a person says so."""
    node = make_node({"requests_running": 3, "requests_finish_s": 0.5})
    assert play("start", node).rc == 0
    (first,) = node.launchers()

    refused = play("relaunch", node)
    assert refused.rc == 2, str(refused)
    assert "answering 3 requests" in refused.text, str(refused)
    assert "relaunch_when_busy=drain" in refused.text, str(refused)
    assert node.launchers() == [first]
    assert all(call.asks for call in refused.of(node)), refused.of(node)

    # The next one would never finish its requests.
    node.script({"requests_running": 2})
    drained = play("relaunch", node, relaunch_when_busy="drain")
    assert drained.rc == 0, str(drained)
    assert "drained" in drained.text, str(drained)
    (second,) = node.launchers()
    assert not alive(first)
    assert second != first

    node.script()
    forced = play("relaunch", node, relaunch_when_busy="force")
    assert forced.rc == 0, str(forced)
    assert "cut" in forced.text, str(forced)
    assert not alive(second)
    assert len(node.launchers()) == 1


def test_requests_that_come_after_the_preflight(make_node, play, tmp_path) -> None:
    """A hook that drains a load balancer takes its time, and so does the turn of a node among many."""
    node = make_node()
    assert play("start", node).rc == 0
    hook = tmp_path / "hook.yml"
    hook.write_text(REQUESTS_COME % node.port)
    node.script({"requests_running": 3})
    run = play("relaunch", node, relaunch_hook_before_stop=str(hook))
    assert run.rc == 2, str(run)
    assert "answering 3 requests" in " ".join(run.failures(node)), str(run)
    assert run.verbs(node, "stop", "start", "restart") == ["restart"], run.of(node)
    assert len(node.launchers()) == 1
