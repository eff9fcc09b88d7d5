# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a lease must last, when it is given back, and whom a release that failed lets pass: the roles' own rules, in
one run of ansible-playbook without any server. Each case is a host, which takes a real lease."""

from __future__ import annotations

import json
import re
import typing as t

import pytest
from rendering import play_cases

FLOOR = {"verdict": "settled"}  # as it stands inside a release that failed, since nobody accepted that floor
RUN = "11111111-2222-3333-4444-555555555555"
TASKS = """
- name: Know the variables
  ansible.builtin.include_role: {name: "cleanslate.gpu.{{ item }}", tasks_from: variables, public: true}
  loop: [sglang_stop, sglang_server, gpu_idle]
- name: Check
  ansible.builtin.include_role: {name: cleanslate.gpu.gpu_release, tasks_from: validate, public: true}
- name: Take the lease
  ansible.builtin.include_role: {name: cleanslate.gpu.gpu_release, tasks_from: lease, public: true}
- name: Tell what holds before
  ansible.builtin.set_fact:
    leased: "{{ __gpu_release_leased | bool }}"
- name: Give back the lease
  ansible.builtin.include_role: {name: cleanslate.gpu.gpu_release, tasks_from: give_back, public: true}
- name: Tell
  ansible.builtin.copy:
    content: "{{ answers | to_json }}"
    dest: "{{ told }}"
    mode: "0600"
  vars:
    answers:
      leased: "{{ leased }}"
      stands: "{{ __gpu_release_lease_stands }}"
      open: "{{ __sglang_server_gate_open | bool }}"
"""
CASES: dict[str, dict[str, t.Any]] = {
    "long-drain": {"sglang_stop_drain": 3600},
    "short-lease": {"gpu_release_lease_ttl": 744},
    "just-enough": {"gpu_release_lease_ttl": 745},
    "released": {"gpu_release_result": {"verdict": "released", "failed": False}, "sglang_server_gate": FLOOR},
    "failed": {"gpu_release_result": {"verdict": "released", "failed": True}, "sglang_server_gate": FLOOR},
    "release-lost": {"gpu_release_result": {"unreachable": True, "msg": "timed out"}},
    "stop-lost": {"sglang_stop_result": {"unreachable": True, "msg": "timed out"}},
    "not-given-back": {"gpu_release_given_back": {"verdict": "failed"}},
    "given-back": {"gpu_release_given_back": {"verdict": "released"}},
}


class Told(t.NamedTuple):
    problem: str
    leased: bool
    stands: str
    leases: int
    gate_open: bool


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    folder = tmp_path_factory.mktemp("leases")
    hosts = {
        name: {
            "gpu_release_run_id": RUN,
            "gpu_release_lease_dir": str(folder / f"of-{name}"),
            "told": str(folder / f"{name}.json"),
            **case,
        }
        for name, case in CASES.items()
    }
    problems, printed = play_cases(folder, TASKS, hosts)
    found = {}
    for name, problem in problems.items():
        file = folder / f"{name}.json"
        assert problem or file.exists(), printed
        said = json.loads(file.read_text()) if file.exists() else {"leased": False, "stands": "", "open": False}
        lists = [json.loads(path.read_text())["leases"] for path in (folder / f"of-{name}").glob("leases-*.json")]
        stands = re.sub(r"\s+", " ", said["stands"])
        found[name] = Told(problem, said["leased"], stands, sum(map(len, lists)), said["open"])
    return found


@pytest.mark.parametrize(
    ("case", "numbers"),
    [
        ("short-lease", ("744 s", "250 s (sglang_stop_drain", "195 s (gpu_release_ladder", "300 s (gpu_idle", "745 s")),
        ("long-drain", ("1800 s", "3790 s (sglang_stop_drain", "at least 4285 s")),
    ],
)
def test_a_lease_that_could_run_out_in_the_midst_of_the_work_is_refused(told, case, numbers) -> None:
    said = told[case].problem
    assert "gpu_release_lease_ttl is" in said
    for number in numbers:
        assert number in said, said


@pytest.mark.parametrize("case", ["just-enough", "released", "failed"])
def test_a_lease_that_is_long_enough_is_taken_and_given_back(told, case) -> None:
    assert told[case][:-1] == ("", True, "", 0)


@pytest.mark.parametrize("case", ["release-lost", "stop-lost"])
def test_the_lease_is_kept_where_the_work_under_it_may_go_on(told, case) -> None:
    """Whoever got it next could have his new server ended by a release that nobody hears any more."""
    assert told[case].problem == ""
    assert told[case].leases == 1
    said = told[case].stands
    assert f"is kept, since what this run began on {case} may still be at work there" in said, said
    assert f"stands for up to 1800 s: end it with unlock.yml -e unlock_run_id={RUN} once" in said, said


def test_an_attempt_that_failed_is_no_return(told) -> None:
    assert told["not-given-back"].leased
    assert not told["given-back"].leased


def test_no_gate_is_open_inside_a_release_that_failed(told) -> None:
    assert told["released"].gate_open
    assert not told["failed"].gate_open
