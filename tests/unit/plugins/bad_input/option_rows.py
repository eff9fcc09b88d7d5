# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which values each option of each module must refuse, and which options take any text."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.tests.unit.plugins.bad_input import bad_values as bad

UNIT, RUN = "sglang.service", "run-1"
UUID = "GPU-0d951c95-602f-417c-2d01-7e07fc10d0f9"
UNIT_SCOPE = {"scope": "unit", "units": [UNIT]}
LADDER_END = {"signal": "KILL", "wait": 1}


@dataclasses.dataclass(frozen=True)
class Row:
    """Values that must be refused, with what else is given. named: the sentence must show the value too."""

    values: tuple[t.Any, ...]
    given: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    named: bool = True


@dataclasses.dataclass(frozen=True)
class Any:
    """An option that takes whatever its type takes. why: what makes that harmless, and where it is tested."""

    why: str


CHOICES = Any("a closed list, which Ansible checks")
YES_OR_NO = Any("true or false, which Ansible checks")

# A call that is refused for nothing but the one option under test.
BASES: dict[str, dict[str, t.Any]] = {
    "gpu_force_release": {"scope": "own", "expected_count": 8, "wait_idle": True},
    "gpu_holders_info": {},
    "gpu_host_lock": {"run_id": RUN, "node": "gpu1"},
    "gpu_wait_idle": {"expected_count": 8},
    "nvidia_gpu_facts": {},
    "run_record": {"event": "begun", "run_id": RUN, "playbook": "stop.yml", "node": "gpu1"},
    "sglang_dead_man": {"unit": UNIT, "state": "armed", "run_id": RUN, "after": 600},
    "sglang_drift_look": {"unit": UNIT, "unit_path": "/none/sglang.service", "config_path": "/none/sglang.yaml"},
    "sglang_drift_memory": {"unit": UNIT, "state": "noted", "revision": 0, "key": "hung"},
    "sglang_evidence": {"unit": UNIT, "run_id": RUN},
    "sglang_health_info": {"unit": UNIT},
    "sglang_preflight": {},
    "sglang_unit_files": {"state": "staged", "files": [{"path": "/none/x", "content": "x"}]},
    "sglang_unit_start": {"unit": UNIT},
    "sglang_unit_stop": {"unit": UNIT},
    "sglang_wait_ready": {"unit": UNIT},
    "sglang_wanted": {"unit": UNIT, "state": "serving"},
}

# By name: an option of this name is the same thing in every module that has it.
ROWS: dict[str, tuple[Row, ...] | Any] = {
    "nvidia_smi": (Row(bad.PROGRAM),),
    "smi_timeout": (Row(bad.SECONDS),),
    "expected_count": (Row(bad.COUNT),),
    "expected_uuids": (Row((*bad.UUID_OF_LIST, [UUID, UUID]), {"expected_count": None}),),
    "max_used_mib": (Row((*bad.AMOUNT, 513, 80000)),),
    "settled_mib": (Row((*bad.AMOUNT, 513, 80000)),),
    "samples": (Row(bad.COUNT),),
    "interval": (Row(bad.SECONDS),),
    "timeout": (Row(bad.SECONDS),),
    "devices": (Row((*bad.lists(bad.PATH), [])),),
    "majors": (Row(bad.lists((0, -1, 4096, bad.HUGE))),),
    "scope": CHOICES,
    "units": (Row(bad.UNIT_OF_LIST), Row(([],), {"scope": "unit"})),
    "containers": (Row((*bad.lists(bad.NAME), ["0123"])), Row((["web"],), {"scope": "lxc", "lxc": ["101"]})),
    "lxc": (
        Row(bad.lists((*bad.NAME, "0", "-1", "101\n", "web")), {"scope": "lxc"}),
        Row(([],), {"scope": "lxc"}),
        Row((["101"],)),
    ),
    "gpus": (Row(bad.UUID_OF_LIST, UNIT_SCOPE), Row(([UUID],))),
    "protect": (Row(bad.lists(("", *bad.BROKEN_LINES, "bin/dcgm"))),),
    "allow_protected": (Row(bad.lists(("", *bad.BROKEN_LINES, "bin/dcgm"))),),
    "allow_foreign": (Row((True,)), Row((False,), {"scope": "all"}, named=False)),
    "scan_timeout": (Row(bad.SECONDS),),
    "systemd_scope": CHOICES,
    "port": (Row(bad.PORT),),
    "host": (Row(bad.HOST),),
    "processes": YES_OR_NO,
    "wait_idle": YES_OR_NO,
    "unit": (Row(bad.UNIT),),
    "run_id": (Row(bad.NAME),),
    "path": (Row(bad.PATH),),
    "dir": (Row(bad.PATH),),
    "systemctl": (Row(bad.PROGRAM),),
    "log_file": (Row(tuple(path for path in bad.PATH if path)),),
    "request_timeout": (Row(bad.SECONDS),),
    "expected_workers": (Row(bad.COUNT),),
    "with_server_info": YES_OR_NO,
    "served_model_name": (Row(bad.LINE),),
    "keep": (Row(bad.COUNT),),
    "max_bytes": (Row((*bad.COUNT, 1000)),),
    "who": Any("for people: cut, on one line, redacted (test_free_text)"),
    "reason": Any("for people: cut, on one line, redacted (test_free_text)"),
}

# What only one module has, or means in its own way.
OF_MODULE: dict[str, dict[str, tuple[Row, ...] | Any]] = {
    "gpu_force_release": {
        "ladder": (
            Row(
                tuple(
                    [{"signal": name, "wait": 1}, LADDER_END] for name in ("", "9", "STOP", "TERM ", *bad.BROKEN_LINES)
                )
            ),
            Row(tuple([{"signal": "KILL", "wait": wait}] for wait in (-1, bad.NAN, bad.INFINITE, 1e308))),
            Row(([], [{"signal": "TERM", "wait": 1}], [LADDER_END, LADDER_END], [LADDER_END] * 100)),
        ),
        "stop_unit": (Row(bad.UNIT), Row(("sglang.service",), {"scope": "lxc", "lxc": ["101"]})),
        "drain": (Row(bad.SECONDS_OR_NONE),),
        "stop_timeout": (Row(bad.SECONDS),),
        "respawn_watch": (Row(bad.SECONDS_OR_NONE),),
        "node_pid_namespace": (Row(("", "pid:[1", "4026531836", *bad.ODD_NAMES)),),
        "timeout": (Row(bad.SECONDS_OR_NONE),),
    },
    "gpu_wait_idle": {
        "killed_ago": (Row(bad.SECONDS_OR_NONE),),
        "holders": (Row((False,), {"port": 30000}),),
        "timeout": (Row(bad.SECONDS_OR_NONE),),
        "expected_count": (Row(bad.COUNT), Row((None,), {})),
        "expected_uuids": (
            Row((*bad.UUID_OF_LIST, [UUID, UUID], []), {"expected_count": None}),
            Row(([UUID],), named=False),
        ),
    },
    "nvidia_gpu_facts": {
        "expected_uuids": (Row((*bad.UUID_OF_LIST, [])), Row(([UUID],), {"expected_count": 8}, named=False))
    },
    "gpu_host_lock": {
        "state": CHOICES,
        "containers": (Row(bad.lists((*bad.NAME, "0", "-1", "web"))),),
        "pve_dir": (Row(bad.PATH),),
        "node": (Row(bad.NAME),),
        "gpus": (Row(bad.UUID_OF_LIST),),
        "ttl": (Row(bad.SECONDS),),
        "wait": (Row(bad.SECONDS_OR_NONE),),
        "wait_for_others": YES_OR_NO,
        "takeover": (Row(bad.ODD_NAMES),),
        "marker_ttl": (Row(bad.SECONDS_OR_NONE, {"state": "released"}),),
        "withdraw_marker": YES_OR_NO,
        "purpose": Any("for people: cut and on one line (test_free_text)"),
    },
    "run_record": {
        "state": CHOICES,
        "event": CHOICES,
        **{
            name: Any("what is recorded: bounded, redacted, in one line of ASCII (test_free_text)")
            for name in (
                "profile",
                "mode",
                "failed_step",
                "evidence",
                "duration_s",
                "gpus_before",
                "gpus_after",
                "holders",
                "signals",
                "seconds",
                "rollback",
                "unit",
                "run_id",
                "playbook",
                "node",
            )
        },
        "verdict": (Row(("",), {"event": "ended"}),),
        "decision": (Row(({}, {"action": "reboot"}), {"event": "drift"}),),
        "metrics_dir": (Row(tuple(path for path in bad.PATH if path)),),
        "limit": (Row(bad.AMOUNT, {"state": "shown"}),),
    },
    "sglang_dead_man": {
        "state": CHOICES,
        "after": (Row((*bad.COUNT, 4, 604801)),),
        "systemd_run": (Row(bad.PROGRAM),),
        "guard": (Row(bad.PATH),),
    },
    "sglang_drift_look": {
        "unit_path": (Row(bad.PATH),),
        "config_path": (Row(bad.PATH),),
        "wanted_file": (Row(bad.PATH),),
        "memory_file": (Row(bad.PATH),),
        "lease_dir": (Row(bad.PATH),),
        "profile": (Row(bad.LINE),),
        "profiles": (Row(({"kimi": "text"}, {"kimi": {"unit_text": 7}}, {"kimi": {"launch": "python"}})),),
        "secrets": (Row(({"kimi": "text"},)),),
        "must_be_enabled": YES_OR_NO,
        "count_installed": YES_OR_NO,
        "health": (
            Row(tuple({"port": port} for port in (0, 65536))),
            Row(tuple({"host": host} for host in bad.HOST)),
            Row(({"expected_workers": 0}, {"request_timeout": 0.0})),
        ),
        "gate": (
            Row(({}, {"expected_count": 0}, {"expected_count": 8, "expected_uuids": [UUID]})),
            Row(tuple({"expected_count": 8, "devices": [path]} for path in bad.PATH)),
            Row(({"expected_count": 8, "scan_timeout": 0.0}, {"expected_count": 8, "smi_timeout": 0.0})),
        ),
    },
    "sglang_drift_memory": {
        "state": CHOICES,
        "action": CHOICES,
        "outcome": CHOICES,
        "revision": (Row(bad.AMOUNT), Row((None,))),
        "key": (Row(("", *bad.BROKEN_LINES)),),
        "run_id": (Row(bad.NAME, {"state": "begun", "action": "release"}),),
        "confirm_within": (Row((*bad.SECONDS_OR_NONE, 1)),),
        "confirm_after": (Row((*bad.SECONDS_OR_NONE, 3600)),),
        "max_remediations": (Row(bad.AMOUNT),),
        "window": (Row(bad.SECONDS_OR_NONE),),
        "backoff": (Row((*bad.SECONDS_OR_NONE, 86400)),),
        "backoff_most": (Row((*bad.SECONDS_OR_NONE, 1)),),
    },
    "sglang_evidence": {
        "units": (Row(bad.UNIT_OF_LIST),),
        "py_spy": (Row(tuple(name for name in bad.PROGRAM if name)),),
    },
    "sglang_health_info": {
        "api_key": (Row(("a\nb", "a\0b", " a", "ä"), named=False),),
        "unit": (Row(tuple(unit for unit in bad.UNIT if unit)),),
        "installed": (
            Row(tuple({"unit_path": path, "config_path": "/none/sglang.yaml"} for path in bad.PATH)),
            Row(({"unit_path": "/none/sglang.service", "config_path": "/none/sglang.yaml"},), {"unit": ""}),
        ),
    },
    "sglang_preflight": {
        "expected_uuids": (Row((*bad.UUID_OF_LIST, [])), Row(([UUID],), {"expected_count": 8}, named=False)),
        "unit": (Row(tuple(unit for unit in bad.UNIT if unit)), Row(("",), {"unit_text": "[Service]\n"})),
        "unit_text": Any("a file, given to systemd-analyze in a folder that nobody else reads"),
        "profile": (
            Row(({"args": {"model path": "x"}}, {"args": {"model-path": "a\nb"}}, {"args": {"config": "/x"}})),
            Row(({"args": {"tp": 8, "tp-size": 8}}, {"args": {"model-path": "--trust"}}, {"args": {"x": bad.NAN}})),
            Row(tuple({"argv": [line]} for line in bad.BROKEN_LINES)),
            Row(tuple({"env": {"NAME": line}} for line in bad.BROKEN_LINES if line != bad.LONG)),
            Row(({"env": {"A\nB": "x"}}, {"env": {"A=B": "x"}}, {"env": {"": "x"}})),
        ),
        "python": (Row(bad.lists(bad.PROGRAM)),),
        "parser_timeout": (Row(bad.SECONDS),),
        "model_timeout": (Row(bad.SECONDS),),
        "volumes": (Row(bad.lists(bad.LINE)),),
        "folders": (Row(bad.lists(bad.PATH), {"profile": {}}),),
        "root_files": (Row(bad.lists(bad.PATH), {"profile": {}}),),
        "root_folders": (Row(bad.lists(bad.PATH), {"profile": {}}),),
        "min_free_mib": (Row(bad.AMOUNT),),
        "min_shm_mib": (Row(bad.AMOUNT),),
        "service_user": (Row(bad.ACCOUNT),),
        "service_group": (Row(bad.ACCOUNT, {"service_user": "nobody"}), Row(("video",))),
        "health": (
            Row(tuple({"port": port} for port in (0, 65536))),
            Row(tuple({"host": host} for host in bad.HOST)),
            Row(tuple({"log_file": path} for path in bad.PATH if path)),
            Row(tuple({"api_key": key} for key in ("a\nb", "a\0b", " a", "ä")), named=False),
        ),
        "gate": (
            Row(({},), {"expected_count": None}, named=False),
            Row(
                tuple({name: mib} for name in ("max_used_mib", "settled_mib") for mib in (-1, 513)),
                {"expected_count": 8},
            ),
        ),
    },
    "sglang_unit_files": {
        "state": CHOICES,
        "files": (
            Row(([], [{"path": "/none/x", "content": "x"}] * 2, [{"path": "/none/x"}])),
            Row(tuple([{"path": path, "content": "x"}] for path in bad.PATH)),
            Row(
                tuple(
                    [{"path": "/none/x", "content": "x", "mode": mode}]
                    for mode in ("", "4755", "0666", "9", "-1", "u=r")
                )
            ),
            Row(tuple([{"path": "/none/x", "content": "x", "owner": name}] for name in (*bad.ACCOUNT, "no-such-user"))),
            Row(
                tuple([{"path": "/none/x", "content": "x", "group": name}] for name in (*bad.ACCOUNT, "no-such-group"))
            ),
            Row(tuple([{"path": "/none/x", "content": text, "encoding": "base64"}] for text in ("$", "a\0", "YQ"))),
            Row(([{"path": "/none/x", "content": '"<<secret:api_key>>"', "mode": "0600"}],)),
            Row(([{"path": "/none/x", "content": '"<<secret:k>>"', "mode": "0644"}],), {"secrets": {"k": "v"}}),
        ),
        "folders": (
            Row(tuple([{"path": path}] for path in bad.PATH)),
            Row(tuple([{"path": "/none", "mode": mode}] for mode in ("", "4755", "0777", "9", "-1"))),
            Row(tuple([{"path": "/none", "owner": name}] for name in (*bad.ACCOUNT, "no-such-user"))),
            Row(tuple([{"path": "/none", "log": name}] for name in ("a/b", "..", ".", *bad.BROKEN_LINES))),
            Row(([{"path": "/none"}],), {"state": "installed"}),
        ),
        "secrets": Any("values that are written as JSON text, to placeholders only (test_sglang_unit_files)"),
    },
    "sglang_unit_start": {
        "enable": YES_OR_NO,
        "files": (Row(bad.lists(bad.PATH)), Row((["/none/x", "/none/x"],))),
        "guard_report": (Row(tuple(path for path in bad.PATH if path)),),
        "timeout": (Row(bad.SECONDS),),
    },
    "sglang_unit_stop": {"drain": (Row(bad.SECONDS_OR_NONE),)},
    "sglang_wait_ready": {
        "api_key": (Row(("a\nb", "a\0b", " a", "ä"), named=False),),
        "unit": (Row(tuple(unit for unit in bad.UNIT if unit)),),
        "expected_uuids": (Row(bad.UUID_OF_LIST),),
        "progress_timeout": (Row(bad.SECONDS),),
        "progress_interval": (Row(bad.SECONDS),),
        "settle": (Row(bad.SECONDS_OR_NONE),),
        "log_position": (
            Row(
                (
                    {},
                    {"inode": 1},
                    {"cursor": "a\nb"},
                    {"cursor": 7},
                    {"inode": "x", "offset": 0},
                    {"inode": 1, "offset": -1},
                )
            ),
        ),
        "log_since": (Row((-1, bad.NAN, bad.INFINITE, 1e308)),),
        "profile": (Row(bad.LINE),),
        "starts_file": (Row(tuple(path for path in bad.PATH if path)),),
        "guard_file": (Row(tuple(path for path in bad.PATH if path)),),
        "resume": (Row(("x", "eJwDAAAAAAE=", "ä", *bad.BROKEN_LINES), named=False),),
    },
    "sglang_wanted": {
        "state": CHOICES,
        "outcome": CHOICES,
        "profile": (Row(bad.ODD_NAMES),),
        "until": (
            Row(
                ("", "soon", "2001-01-01T00:00:00Z", "9999-01-01T00:00:00Z", *bad.LINE),
                {"state": "paused", "reason": "x"},
            ),
        ),
        "reason": (Row(("", " "), {"state": "paused", "until": "2100-01-01T00:00:00Z"}),),
        "by": Any("for people: cut, on one line, redacted (test_free_text)"),
        "run_id": Any("for people: cut and on one line (test_free_text)"),
        "proved_files": (Row(tuple([path] for path in bad.PATH), {"outcome": "ready"}),),
        "memory_path": (Row(tuple(path for path in bad.PATH if path), {"outcome": "ready"}),),
    },
}


def rows_of(module: str, option: str) -> tuple[Row, ...] | Any | None:
    return OF_MODULE.get(module, {}).get(option, ROWS.get(option))
