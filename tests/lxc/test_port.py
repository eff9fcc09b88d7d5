# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The server's port inside a container, released and looked at from the Proxmox host."""

from __future__ import annotations

import os
import subprocess
import typing as t

import commands
import layout
import serving
from inside import Inside
from playing import play

UNIT = "sglang.service"
BY_HAND = "/etc/sglang/by-hand.yaml"


def serve_by_hand(inside: Inside) -> int:
    """A server that somebody started through `pct exec`, on the port of the unit's. The launcher's PID on the host."""
    serving.behave(inside)
    inside.pct(
        "sh", "-c", f"rm -rf /etc/sglang /etc/systemd/system/{UNIT}*; systemctl daemon-reload; mkdir /etc/sglang"
    )
    inside.put(BY_HAND, serving.CONFIG.format(count=4, port=layout.PORT))
    serving.outside_every_unit(inside, "env", "CUDA_VISIBLE_DEVICES=0,1,2,3", "/opt/sglang/bin/python", "-m",
                               "sglang.launch_server", "--config", BY_HAND)  # fmt: skip
    commands.wait_for("the server answers", lambda: serving.answers(inside), 60)
    return inside.host_pid(int(inside.pct("pgrep", "-o", "-f", f"launch_server --config {BY_HAND}")))


def test_a_server_started_by_pct_exec_makes_room(ct101: Inside, watch: t.Any) -> None:
    """The host has somebody on that port too, who is in nobody's way: the container has a network of its own."""
    launcher = serve_by_hand(ct101)
    beside = [layout.PYTHON, "-m", "http.server", "--bind", "127.0.0.1", str(layout.PORT)]
    with subprocess.Popen(beside, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as host_server:
        try:
            with watch("relaunch of 101, where a server started by pct exec has the port", 101) as case:
                played = play("relaunch.yml", "ct101")
            assert host_server.poll() is None
        finally:
            host_server.kill()
    case.outcome = "ready; the launcher made room" if played.code == 0 else played.why()[:240]
    assert played.code == 0, played.why()
    released = played.release("ct101")
    assert [(one["pid"], one["disposition"]) for one in released["port_owners"]] == [(launcher, "target")]
    first = released["signalled"][0]
    assert (first["pid"], first["signal"]) == (launcher, "TERM")
    assert not os.path.exists(f"/proc/{launcher}")
    assert serving.answers(ct101)
    assert ct101.main_pid(UNIT)


def test_another_service_of_the_container_is_named_and_nothing_is_stopped(ct101: Inside, watch: t.Any) -> None:
    ct101.run_unit("test-web", layout.PYTHON, "-m", "http.server", str(layout.PORT))
    web = ct101.main_pid("test-web.service")
    with watch("relaunch of 101, where another service has the port", 101) as case:
        played = play("relaunch.yml", "ct101")
    case.outcome = "refused: " + played.why()[:240]
    assert played.code == 2, played.text
    assert not played.stopped("ct101")
    for text in ("test-web.service", f":{layout.PORT}"):
        assert text in played.why()
    assert ct101.main_pid("test-web.service") == web
