# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the unit says of the start guard, the locks and their times, for the options that change them."""

from __future__ import annotations

import argparse
import pathlib
import shlex
import shutil
import subprocess
import typing as t

import pytest
import rendering
from rendering import Rendered

from ansible_collections.cleanslate.gpu.plugins.module_utils import _start_guard_program

UUIDS = [f"GPU-{number:08d}-1111-2222-3333-444444444444" for number in range(8)]
LEFT = UUIDS[:4]
HALF = [{"name": "p", "args": {"model-path": "/models/m", "tp-size": 4, "port": 30001, "host": "127.0.0.1"}}]
PODMAN = {"sglang_server_runner": "podman", "sglang_server_image": "docker.io/lmsysorg/sglang:v0.5.23"}
CASES: dict[str, dict[str, t.Any]] = {
    "plain": {},
    "left": {
        "sglang_server_unit": "sglang@left.service",
        "sglang_server_profiles": HALF,
        "gpu_idle_expected_uuids": list(reversed(LEFT)),
    },
    "tuned": {
        "sglang_server_guard_timeout": 900,
        "sglang_server_guard_dir": "/opt/with a space/50%",
        "gpu_idle_settled_mib": 4,
        "gpu_idle_expected_count": 9,
        "gpu_release_majors": [4],
        "gpu_release_devices": ["/dev/nvidia*", "/dev/other*"],
        "gpu_release_protect": ["my tool"],
        "sglang_server_sweep": False,
    },
    "off": {"sglang_server_guard": False},
    "podman": PODMAN,
    "impatient": {"sglang_server_guard_timeout": 29},
}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rendered]:
    return rendering.render(tmp_path_factory.mktemp("rendered"), CASES)


def guard(unit: Rendered) -> tuple[list[str], argparse.Namespace]:
    """The guard's own command line, as the guard reads it."""
    (line,) = [line for line in unit.values("ExecStartPre") if line.startswith("+")]
    words = shlex.split(line[1:].replace("%%", "%"))
    return words, _start_guard_program.parser().parse_args(words[3:])


def test_the_guard_runs_as_root_and_apart_from_every_other_python(rendered) -> None:
    words, options = guard(rendered["plain"])
    assert words[:3] == ["/usr/bin/python3", "-I", "/usr/local/lib/cleanslate/sglang.pyz"]
    assert (options.unit, options.expected_count, options.expected_uuids) == ("sglang.service", 8, None)
    assert (options.scope, options.timeout, options.sweep_user) == ("own", 300.0, "sglang")
    assert (options.host, options.port) == ("127.0.0.1", 30000)
    assert options.state_dir == "/run/cleanslate-guard"


def test_what_the_gate_was_told_the_guard_is_told(rendered) -> None:
    words, options = guard(rendered["tuned"])
    assert words[2] == "/opt/with a space/50%/sglang.pyz"
    assert (options.expected_count, options.settled_mib, options.majors) == (9, 4, [4])
    assert options.devices == ["/dev/nvidia*", "/dev/other*"]
    assert (options.protect, options.sweep_user) == (["my tool"], None)


@pytest.mark.parametrize("case", ["plain", "tuned"])
def test_the_times_are_in_their_order(rendered, case: str) -> None:
    unit = rendered[case]
    timeout, start = guard(unit)[1].timeout, int(unit.value("TimeoutStartSec"))
    # Its own time, 30 s for a look that does not come back, 10 s for systemctl, 10 s for the sweep.
    assert start >= timeout + _start_guard_program.GRACE + _start_guard_program.RESET_TIMEOUT + 10
    burst, restart = int(unit.value("StartLimitBurst")), int(unit.value("RestartSec"))
    assert int(unit.value("StartLimitIntervalSec")) >= 1.5 * burst * (start + 2700 + restart)


def test_a_time_that_is_too_short_is_refused(rendered) -> None:
    assert "sglang_server_guard_timeout is 29 s; it must be between 30 and 3600 s." in rendered["impatient"].problem


def test_a_server_on_all_gpus_takes_one_lock(rendered) -> None:
    words = shlex.split(rendered["plain"].value("ExecStart"))
    assert words[:5] == ["/usr/bin/flock", "--no-fork", "--nonblock", "--conflict-exit-code", "75"]
    assert words[5:8] == ["/run/cleanslate-gpus/all.lock", "/opt/sglang/bin/python", "-m"]
    assert not rendered["plain"].values("EnvironmentFile")


def test_a_server_on_named_gpus_takes_theirs_in_order_and_is_told_their_numbers(rendered) -> None:
    unit = rendered["left"]
    words = shlex.split(unit.value("ExecStart"))
    locks = [word for word in words if word.endswith(".lock")]
    assert locks == [f"/run/cleanslate-gpus/{name}.lock" for name in ("all", *(uuid.lower() for uuid in LEFT))]
    assert words.count("--shared") == 1
    assert words.index("--shared") < words.index(locks[0])
    options = guard(unit)[1]
    assert (options.scope, options.expected_count, set(options.expected_uuids)) == ("unit", None, set(LEFT))
    assert unit.value("EnvironmentFile") == "-/run/cleanslate-guard/sglang@left.service.env"


def test_exit_status_75_is_tried_again(rendered) -> None:
    """The other server may go, and until then the guard says who it is."""
    assert rendered["plain"].value("Restart") == "always"
    assert not rendered["plain"].values("RestartPreventExitStatus")


def test_a_container_is_started_under_the_same_lock_and_nothing_of_root_is_swept(rendered) -> None:
    unit = rendered["podman"]
    words = shlex.split(unit.value("ExecStart"))
    assert words[5:7] == ["/run/cleanslate-gpus/all.lock", "/usr/bin/podman"]
    assert guard(unit)[1].sweep_user is None


def test_switched_off_nothing_is_left_of_it(rendered) -> None:
    unit = rendered["off"]
    assert not unit.values("ExecStartPre")
    assert not unit.values("TimeoutStartSec")
    assert unit.value("ExecStart").startswith("/opt/sglang/bin/python ")


@pytest.mark.parametrize("case", ["plain", "left", "tuned"])
def test_systemd_accepts_it(case: str, rendered, tmp_path: pathlib.Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed, so the unit is not checked by systemd")
    place = tmp_path / CASES[case].get("sglang_server_unit", "sglang.service")
    # The server is not on this machine; what is asked is whether systemd understands the lines.
    place.write_text(rendered[case].unit.replace("/opt/sglang/bin/python", "/usr/bin/env"))
    done = subprocess.run(
        [program, "verify", "--man=no", str(place)], capture_output=True, text=True, timeout=60, check=False
    )
    about = [line for line in done.stderr.splitlines() if str(place) in line or place.name in line]
    assert [line for line in about if "is not executable" not in line] == [], done.stderr
