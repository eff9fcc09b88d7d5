# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Servers and other holders as people have them before a relaunch: started by the tests' own means."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import typing as t

import commands
import layout
import teardown
from inside import Inside

UNIT = """[Unit]
Description=SGLang server, by hand
[Service]
Type=exec
User=sglang
Environment=CUDA_VISIBLE_DEVICES={gpus}
ExecStart=/opt/sglang/bin/python -m sglang.launch_server --config /etc/sglang/sglang.yaml
StandardOutput=append:/var/log/sglang/sglang.log
StandardError=append:/var/log/sglang/sglang.log
KillMode=mixed
Restart=always
RestartSec=1
TimeoutStopSec=60
"""
CONFIG = "model-path: /models/demo-397b\nserved-model-name: demo-397b\ntp-size: {count}\nhost: 0.0.0.0\nport: {port}\n"
ALLOWED = "/etc/cleanslate/allowed.json"
QUICK = {"load_s": 0.6, "warmup_s": 0.1, "release_delay_s": 0.4, "release_tail": [4, 0.3]}


def behave(inside: Inside, **server: t.Any) -> None:
    """How the fake server of this container is to behave from its next start on."""
    inside.put(os.path.join(layout.NODE, "scenario.json"), json.dumps({"server": {**QUICK, **server}}), "666")


def answers(inside: Inside) -> bool:
    """Asked inside: a relaunched server listens there only."""
    ask = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{layout.PORT}/health', timeout=5)"
    done = commands.run([layout.PCT, "exec", str(inside.about.vmid), "--", layout.PYTHON, "-c", ask], check=False)
    return done.returncode == 0


def install(inside: Inside, gpus: t.Sequence[int], unit: str = UNIT) -> None:
    inside.pct("sh", "-c", "mkdir -p /etc/sglang /var/log/sglang; chown sglang: /var/log/sglang; rm -f /etc/sglang/*"
               " /etc/systemd/system/sglang.service*; : >/var/log/sglang/sglang.log;"
               " chown sglang: /var/log/sglang/sglang.log")  # fmt: skip
    inside.put("/etc/sglang/sglang.yaml", CONFIG.format(count=len(gpus), port=layout.PORT))
    inside.put("/etc/systemd/system/sglang.service", unit.format(gpus=",".join(map(str, gpus))))
    inside.pct("systemctl", "daemon-reload")


def serve(inside: Inside, gpus: t.Sequence[int], **server: t.Any) -> None:
    """A server that serves on these GPUs, as sglang.service, installed by hand."""
    behave(inside, **server)
    install(inside, gpus)
    inside.pct("systemctl", "start", "sglang.service")
    commands.wait_for("the server answers", lambda: answers(inside), 60)


@contextlib.contextmanager
def allowed(mode: int = 0o644, **lists: t.Any) -> t.Iterator[None]:
    """The host's allow-list, as long as this lasts. `down` removes it after a test that was killed."""
    if os.path.exists(ALLOWED):
        raise layout.HarnessError(f"{ALLOWED} is there already and is not ours")
    there = os.path.isdir(os.path.dirname(ALLOWED))
    layout.write(teardown.ALLOW_LIST_IS_OURS, ALLOWED)
    layout.write(ALLOWED, json.dumps(lists), mode)
    try:
        yield
    finally:
        teardown.remove_allow_list()
        if not there:
            os.rmdir(os.path.dirname(ALLOWED))


def daemon_in(inside: Inside) -> int:
    """nvidia-persistenced of a container: by its executable, nodes open, nothing computed. Its host PID."""
    inside.pct("sh", "-c", "cp -n $(readlink -f /usr/bin/python3) /usr/local/bin/nvidia-persistenced")
    command = inside.hold_command('{"gpu": 0, "no_map": true}')
    inside.pct("systemd-run", "--quiet", "--collect", "--unit=test-daemon", "--setenv=PYTHONHOME=/usr",
               "/usr/local/bin/nvidia-persistenced", *command[1:])  # fmt: skip
    return inside.main_pid("test-daemon.service")


def daemon_on_host() -> subprocess.Popen[str]:
    """The host's own nvidia-persistenced."""
    place = os.path.join(layout.STATE, "bin", "nvidia-persistenced")
    if not os.path.exists(place):
        shutil.copy(os.path.realpath(layout.PYTHON), place)
    hold = os.path.join(layout.SOURCES, "lxc", "node_side", "hold.py")
    process = subprocess.Popen(
        [place, "-B", hold, layout.NODE, "1", '{"gpu": 0, "no_map": true}'], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        env={**commands.environment(), "PYTHONHOME": "/usr"},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def outside_every_unit(inside: Inside, *argv: str) -> None:
    """Something started by `pct exec`, which goes on after it."""
    inside.pct("setsid", "--fork", "sh", "-c", 'exec "$@" </dev/null >/dev/null 2>&1', "sh", *argv)
