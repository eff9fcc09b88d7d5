# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each role must refuse before its first task: pairs that contradict each other, ranges, hostile text."""

from __future__ import annotations

import typing as t

UUID = "GPU-0d951c95-602f-417c-2d01-7e07fc10d0f9"
UNIT = "[Service]\nExecStart=/bin/sh -c reboot"
PROFILE = {"name": "kimi", "args": {"model-path": "/models/kimi"}}

# What a valid host has; the rows change one thing.
VALID: dict[str, t.Any] = {
    "sglang_server_profiles": [PROFILE],
    "sglang_server_profile": "kimi",
    "gpu_idle_expected_count": 8,
    "run_record_playbook": "stop.yml",
    "run_record_run_id": "run-1",
    "drift_schedule_inventory": ["/etc/ansible/hosts"],
    "drift_schedule_ansible_playbook": "/usr/bin/ansible-playbook",
    "drift_schedule_directory": "/root",
    "drift_schedule_log_file": "/etc/cleanslate-drift.log",
}


def profile(**changes: t.Any) -> list[dict[str, t.Any]]:
    return [{**PROFILE, **changes}]


def model(**args: t.Any) -> list[dict[str, t.Any]]:
    return profile(
        args={"model-path": "/models/kimi", **{name.replace("_", "-"): value for name, value in args.items()}}
    )


# (role, variables, what the sentence must hold besides the name of the first variable)
ROWS: tuple[tuple[str, dict[str, t.Any], str], ...] = (
    ("sglang_stop", {"sglang_stop_drain": -1}, "-1"),
    ("sglang_stop", {"sglang_stop_drain": 3601}, "3601"),
    ("sglang_stop", {"sglang_stop_unit": "system.slice"}, "system.slice"),
    ("sglang_stop", {"sglang_stop_unit": UNIT}, "no unit name"),
    ("sglang_stop", {"sglang_stop_drian": 1}, "sglang_stop_drain"),
    ("gpu_release", {"gpu_release_host": "pve1"}, "pve1"),
    ("gpu_release", {"gpu_release_lxc": [101]}, "101"),
    ("gpu_release", {"gpu_release_host": "nobody", "gpu_release_lxc": [101]}, "no host of this inventory"),
    ("gpu_release", {"gpu_release_scope": "all"}, "gpu_release_allow_foreign"),
    ("gpu_release", {"gpu_release_scope": "lxc"}, "lxc"),
    ("gpu_release", {"gpu_release_port": "70000"}, "70000"),
    ("gpu_release", {"gpu_release_port": "-1"}, "-1"),
    ("gpu_release", {"gpu_release_devices": "/dev/nvidia0"}, "list"),
    ("gpu_release", {"gpu_release_units": ["user.slice"]}, "user.slice"),
    ("gpu_release", {"gpu_release_units": ["init.scope"]}, "init.scope"),
    ("gpu_release", {"gpu_release_units": [UNIT]}, "no unit name"),
    ("gpu_release", {"gpu_release_protect": ["a\0b"]}, "NUL"),
    ("gpu_release", {"gpu_release_scan_timeout": "nan"}, "no number"),
    ("gpu_release", {"gpu_release_smi_timeout": "inf"}, "no number"),
    ("gpu_release", {"gpu_release_lease_dir": "run/cleanslate"}, "absolute"),
    ("gpu_idle", {"gpu_idle_expected_uuids": [UUID]}, "not both"),
    ("gpu_idle", {"gpu_idle_expected_count": 0, "sglang_server_profiles": None}, "expect"),
    ("gpu_idle", {"gpu_idle_timeout": "nan"}, "no number"),
    ("gpu_idle", {"gpu_idle_timeout": "1e308"}, "no number"),
    ("gpu_idle", {"gpu_idle_max_used_mib": 10**17}, "100000000000000000"),
    ("gpu_idle", {"gpu_idle_max_used_mib": -1}, "-1"),
    ("gpu_idle", {"gpu_idle_max_used_mib": 80000}, "80000"),
    ("gpu_idle", {"gpu_idle_settled_mib": 513}, "513"),
    ("gpu_drift", {"gpu_drift_max_share": 0}, "gpu_drift_max_share (0"),
    ("gpu_drift", {"gpu_drift_max_share": 1.5}, "1.5"),
    ("gpu_drift", {"gpu_drift_max_hosts": -1}, "-1"),
    ("gpu_drift", {"gpu_drift_confirm_after": "nan"}, "no number"),
    ("gpu_drift", {"gpu_drift_memory_file": "drift.json"}, "absolute"),
    ("gpu_drift", {"gpu_drift_wanted_file": "/var/lib/a\nb"}, "newline"),
    ("run_record", {"run_record_keep": 0}, "0"),
    ("run_record", {"run_record_max_mib": -1}, "-1"),
    ("run_record", {"run_record_evidence_timeout": 0}, "0"),
    ("run_record", {"run_record_dir": "log"}, "log"),
    ("run_record", {"run_record_run_id": "run\n1"}, "newline"),
    ("run_record", {"run_record_metrics_dir": "metrics"}, "metrics"),
    ("drift_schedule", {"drift_schedule_name": "../x"}, "../x"),
    ("drift_schedule", {"drift_schedule_name": "drift\n"}, "newline"),
    ("drift_schedule", {"drift_schedule_calendar": "hourly\nPersistent=true"}, "newline"),
    ("drift_schedule", {"drift_schedule_user": "root\nExecStartPre=/bin/sh"}, "newline"),
    ("drift_schedule", {"drift_schedule_user": "a b"}, "a b"),
    ("drift_schedule", {"drift_schedule_inventory": []}, "none"),
    ("drift_schedule", {"drift_schedule_inventory": ["hosts"]}, "hosts"),
    ("drift_schedule", {"drift_schedule_jitter": -1}, "-1"),
    ("drift_schedule", {"drift_schedule_run_limit": 10}, "10"),
    ("drift_schedule", {"drift_schedule_run_limit": 3954}, "3955"),
    ("drift_schedule", {"drift_schedule_arguments": ["--ask-vault-pass"]}, "--ask-vault-pass"),
    ("drift_schedule", {"drift_schedule_arguments": ["a\u2028b"]}, "U+2028"),
    ("drift_schedule", {"drift_schedule_environment": {"DB_PWD": "x"}}, "DB_PWD looks like a secret"),
    ("drift_schedule", {"drift_schedule_arguments": ["-e", "api_key=x"]}, "api_key looks like a secret"),
    ("drift_schedule", {"drift_schedule_webhook": "file:///etc/shadow"}, "http"),
    ("drift_schedule", {"drift_schedule_log_file": "/var/log/a\nExecStart=/bin/sh"}, "newline"),
    ("drift_schedule", {"drift_schedule_log_file": "drift.log"}, "not written as an absolute path"),
    ("drift_schedule", {"drift_schedule_log_file": "/etc/../tmp/drift.log"}, "not written as an absolute path"),
    ("drift_schedule", {"drift_schedule_log_file": "/etc//drift.log"}, "not written as an absolute path"),
    ("drift_schedule", {"drift_schedule_log_file": "/tmp/drift.log"}, "/tmp may be written to by others (mode 1777)"),
    ("drift_schedule", {"drift_schedule_log_file": "/proc/self/drift.log"}, "/proc/self is a link"),
    ("drift_schedule", {"drift_schedule_log_file": "/etc"}, "/etc is no regular file"),
    ("drift_schedule", {"drift_schedule_log_file": "/etc/none-of-it/drift.log"}, "/etc/none-of-it does not exist"),
    ("drift_schedule", {"drift_schedule_environment": {"A": "x\ny"}}, "the value of A contains a newline"),
    ("sglang_server", {"gpu_idle_expected_uuids": UUID}, "list"),
    ("sglang_server", {"sglang_server_unit": "../sglang.service"}, "../sglang.service"),
    ("sglang_server", {"sglang_server_unit": "sglang.service\n"}, "newline"),
    ("sglang_server", {"sglang_server_user": "root"}, "root"),
    ("sglang_server", {"sglang_server_user": UNIT}, "newline"),
    ("sglang_server", {"sglang_server_group": "a b"}, "a b"),
    ("sglang_server", {"sglang_server_log_file": "/var/log/x/a\nExecStartPre=+/bin/sh"}, "newline"),
    ("sglang_server", {"sglang_server_log_file": "/tmp/sglang.log"}, "/tmp"),
    ("sglang_server", {"sglang_server_environment_files": ["/etc/a\nExecStart=/bin/sh"]}, "newline"),
    ("sglang_server", {"sglang_server_config_dir": "etc/sglang"}, "absolute"),
    ("sglang_server", {"sglang_server_python": "/opt/x\0y"}, "NUL"),
    ("sglang_server", {"sglang_server_container_args": ["a\nb"]}, "newline"),
    ("sglang_server", {"sglang_server_container_args": ["--env", "HF_TOKEN=x"]}, "HF_TOKEN looks like a secret"),
    ("sglang_server", {"sglang_server_container_args": ["--env=DB_PWD=x"]}, "DB_PWD looks like a secret"),
    ("sglang_server", {"sglang_server_image": "sglang:1"}, "sglang:1"),
    ("sglang_server", {"sglang_server_runner": "podman"}, "podman"),
    ("sglang_server", {"sglang_server_stop_budget": "150\nExecStart=/bin/sh"}, "150"),
    ("sglang_server", {"sglang_server_guard_timeout": 0}, "0"),
    ("sglang_server", {"sglang_server_progress_timeout": 5000}, "5000"),
    ("sglang_server", {"sglang_server_profile": "none"}, "none"),
    ("sglang_server", {"sglang_server_profiles": profile(name="../x")}, "../x"),
    ("sglang_server", {"sglang_server_profiles": model(model_path=UNIT)}, "newline"),
    ("sglang_server", {"sglang_server_profiles": model(tp=0)}, "tp-size"),
    ("sglang_server", {"sglang_server_profiles": model(port="x")}, "port"),
    ("sglang_server", {"sglang_server_profiles": model(api_key="k")}, "api_key"),
    ("sglang_server", {"sglang_server_profiles": profile(api_key="a b")}, "bearer"),
    ("sglang_server", {"sglang_server_profiles": profile(env={"A": "x\ny"})}, "newline"),
    ("sglang_server", {"sglang_server_profiles": profile(inherit="kimi")}, "circle"),
)  # fmt: skip
