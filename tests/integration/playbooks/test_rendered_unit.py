# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit and the configuration that come of the role's variables, read by systemd itself where it is installed."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import typing as t

import pytest
import rendering
from rendering import BASE, Rendered

PROFILES = BASE["sglang_server_profiles"]
SHUFFLED = [{"args": {"port": 30000, "tp": 8, "model_path": "/models/m"}, "description": "Said anew.", "name": "p"}]
ODD = {
    "A": "50%",
    "B": "$HOME",
    "C": '{"a": "b c"}',
    "D": "/with a/space",
    "E": "back\\slash",
    "F": "it's",
    "G": "größe",
    "H": "",
}
PODMAN = {"sglang_server_runner": "podman", "sglang_server_image": "docker.io/lmsysorg/sglang:v0.5.23"}
CASES: dict[str, dict[str, t.Any]] = {
    "plain": {},
    "shuffled": {"sglang_server_profiles": SHUFFLED},
    "instance": {"sglang_server_unit": "sglang@left.service"},
    "odd": {"sglang_server_environment": ODD},
    "dumps": {"sglang_server_crash_dumps": True},
    "drain": {"sglang_stop_drain": 300},
    "journal": {"sglang_server_log_file": ""},
    "files": {"sglang_server_environment_files": ["/etc/sglang/50%.env"]},
    "podman": {
        **PODMAN,
        "sglang_server_volumes": ["/models:/models:ro"],
        "sglang_server_environment": {"NCCL_P2P_LEVEL": "SYS", "B": "a b"},
        "sglang_server_environment_files": ["/etc/sglang/secret.env"],
        "sglang_server_container_args": ["--annotation=x=y"],
    },
    "rootfs": {"sglang_server_runner": "podman", "sglang_server_rootfs": "/srv/sglang root"},
    "docker": {**PODMAN, "sglang_server_runner": "docker", "sglang_server_unit": "sglang@left.service"},
    "short stop": {"sglang_server_stop_budget": 149},
    "slow": {"sglang_server_progress_timeout": 2701},
    "too few": {"gpu_idle_expected_count": 7},
    "root": {"sglang_server_user": "root"},
    "no image": {"sglang_server_runner": "podman"},
    "both": {**PODMAN, "sglang_server_rootfs": "/r"},
    "docker rootfs": {"sglang_server_runner": "docker", "sglang_server_rootfs": "/r"},
    "idle image": {"sglang_server_image": "x"},
    "user container": {**PODMAN, "sglang_server_systemd_scope": "user"},
    "uuids": {"gpu_idle_expected_uuids": ["GPU-1", "GPU-2"]},
    "unit name": {"sglang_server_unit": "sglang"},
    "left": {"ansible_host": "192.0.2.1"},
    "right": {"ansible_host": "192.0.2.1", "sglang_server_unit": "sglang@right.service"},
}
LOADER = ["GLIBC_TUNABLES=glibc.malloc.trim_threshold=1", "LD_LIBRARY_PATH=/opt/cuda/lib64", "OPENSSL_CONF=/dev/null"]
CASES["loader"] = {"sglang_server_environment": dict(one.split("=", 1) for one in LOADER)}
# Whatever they name is not on this machine; it is the syntax and the directives that are checked.
NOT_HERE = ("is not executable", "Failed to create", "Unit configuration has fatal error")


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rendered]:
    cases = {name.replace(" ", "_"): variables for name, variables in CASES.items()}
    return rendering.render(tmp_path_factory.mktemp("rendered"), cases)


@pytest.mark.parametrize("case", ["plain", "instance", "odd", "journal", "files", "podman", "rootfs", "docker"])
def test_systemd_accepts_the_unit(case: str, rendered, tmp_path: pathlib.Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed, so the unit is not checked by systemd")
    place = tmp_path / CASES[case].get("sglang_server_unit", "sglang.service")
    place.write_text(rendered[case].unit)
    done = subprocess.run(
        [program, "verify", "--man=no", str(place)], capture_output=True, text=True, timeout=60, check=False
    )
    about = [line for line in done.stderr.splitlines() if str(place) in line or place.name in line]
    assert [line for line in about if not any(words in line for words in NOT_HERE)] == [], done.stderr


def test_the_order_of_what_a_person_wrote_changes_no_byte(rendered) -> None:
    assert rendered["shuffled"].unit == rendered["plain"].unit
    assert rendered["shuffled"].config == rendered["plain"].config


def test_the_stop_has_time_for_the_drain_and_for_what_sglang_does_after_it(rendered) -> None:
    assert rendered["plain"].value("TimeoutStopSec") == "150"
    assert rendered["drain"].value("TimeoutStopSec") == "390"


def test_a_crash_loop_is_one_burst_though_each_start_used_its_whole_budget(rendered) -> None:
    for case, crash in (("plain", 0), ("dumps", 65)):
        unit = rendered[case]
        burst = int(unit.value("StartLimitBurst"))
        assert int(unit.value("StartLimitIntervalSec")) >= 1.5 * burst * (2700 + crash + int(unit.value("RestartSec")))


def test_the_server_is_not_root_and_its_output_is_for_root_only(rendered) -> None:
    unit = rendered["plain"]
    assert unit.value("User") == "sglang"
    assert unit.value("UMask") == "0077"
    assert unit.value("KillMode") == "mixed"
    assert unit.value("StandardError") == "append:/var/log/sglang/sglang.log"
    assert rendered["journal"].value("StandardError") == "journal"


def test_what_the_loader_obeys_is_for_the_server_alone(rendered) -> None:
    """Root's guard starts in the unit's environment, which files of variables can add to."""
    unit = rendered["loader"]
    dropped = unit.value("UnsetEnvironment").split()
    assert {"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "GLIBC_TUNABLES", "GCONV_PATH", "OPENSSL_CONF"} <= set(dropped)
    given = unit.values("Environment")
    assert not [one for one in given if one.strip('"').partition("=")[0] in dropped]
    for assignment in LOADER:
        assert f"/usr/bin/env {' '.join(LOADER)}" in unit.value("ExecStart"), assignment


def test_no_hardening_that_keeps_the_gpus_away(rendered) -> None:
    """ProtectClock implies a DeviceAllow, with which every device that is not listed is shut out."""
    names = {line.partition("=")[0] for line in rendered["plain"].unit.splitlines()}
    assert not names & {"ProtectClock", "PrivateDevices", "DevicePolicy", "DeviceAllow", "MemoryDenyWriteExecute"}


def test_crash_dumps_are_off_unless_asked_for(rendered) -> None:
    off = {"SGLANG_CUDA_COREDUMP_BEFORE_CRASH=0", "SGLANG_PYSPY_DUMP_BEFORE_CRASH=0"}
    assert off <= set(rendered["plain"].values("Environment"))
    assert not off & set(rendered["dumps"].values("Environment"))


def test_an_instance_has_files_of_its_own(rendered) -> None:
    unit = rendered["instance"]
    assert "--config /etc/sglang/sglang@left.yaml" in unit.value("ExecStart")
    assert unit.value("StandardOutput") == "append:/var/log/sglang/sglang@left.log"


def test_podman_keeps_the_server_in_the_units_own_group(rendered) -> None:
    unit = rendered["podman"]
    start = unit.value("ExecStart")
    assert "/usr/bin/podman run --name=sglang --rm --init --pull=never --network=host --ipc=host " in start
    for argument in (
        "--cgroups=disabled",
        "--replace",
        "--log-driver=passthrough",
        "--device=nvidia.com/gpu=all",
        "--annotation=x=y",
        "--ulimit=memlock=-1:-1",
        "--volume=/models:/models:ro",
        "--volume=/etc/sglang/sglang.yaml:/etc/sglang/sglang.yaml:ro",
        "--env-file=/etc/sglang/secret.env",
        "--env=NCCL_P2P_LEVEL=SYS",
        '"--env=B=a b"',
        "--env=CUDA_VISIBLE_DEVICES",
        "--entrypoint=python3",
    ):
        assert f" {argument} " in start, start
    assert start.endswith(f" {PODMAN['sglang_server_image']} -m sglang.launch_server --config /etc/sglang/sglang.yaml")
    assert unit.value("ExecStop") == "-/usr/bin/podman stop -t 145 sglang"
    assert unit.value("ExecStopPost") == "-/usr/bin/podman rm --force --ignore -t 0 sglang"
    assert not unit.values("User"), "a root file system of the image's own, and devices, need root"
    assert not unit.values("Environment"), "PATH and its like are meant for the server, not for podman"
    assert ' --rootfs "/srv/sglang root" -m sglang.launch_server ' in rendered["rootfs"].value("ExecStart")


def test_docker_names_its_container_after_the_unit_and_leaves_none_behind(rendered) -> None:
    unit = rendered["docker"]
    assert "/usr/bin/docker run --name=sglang-left " in unit.value("ExecStart")
    assert "--cgroups" not in unit.value("ExecStart")
    remove = "-/usr/bin/docker rm --force sglang-left"
    assert unit.values("ExecStartPre")[0] == remove
    assert unit.value("ExecStopPost") == remove
    assert unit.value("ExecStop") == "-/usr/bin/docker stop -t 145 sglang-left"
    assert unit.value("After").endswith(" docker.service")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            "short stop",
            "sglang_server_stop_budget is 149 s. SGLang may need sglang_stop_drain (60 s) and 90 s after it",
        ),
        ("slow", "sglang_server_progress_timeout is 2701 s and sglang_server_load_budget 2700 s"),
        ("too few", "profile p uses 8 GPUs (tp x pp x dp), and gpu_idle_expected_count expects only 7 on this node"),
        ("root", "sglang_server_user is root"),
        ("no image", "It needs one of the two, and only one."),
        ("both", "It needs one of the two, and only one."),
        ("docker rootfs", "It needs an image, and knows no rootfs."),
        ("idle image", "Without a container neither is used"),
        ("user container", "only the systemd of the system runs containers"),
        ("uuids", "profile p uses 8 GPUs (tp x pp x dp), and gpu_idle_expected_uuids names 2"),
        ("unit name", 'sglang_server_unit is "sglang"; it must be the name of a service'),
        ("left", "left and right are servers of one node (192.0.2.1) and listen on the same port, 30000"),
        ("right", "left and right does not say which GPUs are its own"),
    ],
)
def test_what_cannot_work_is_refused_before_any_host_is_asked(case: str, words: str, rendered) -> None:
    assert words in rendered[case.replace(" ", "_")].problem
