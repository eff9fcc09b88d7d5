# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The very commands of a podman unit, run by hand in the control group that systemd would make for it.

Needs root, podman, crun and catatonit. Not shown here, for want of systemd: that it runs ExecStop and ExecStopPost.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource
import shlex
import shutil
import signal
import subprocess
import time
import typing as t

import pytest
import rendering
from simulated_nodes import ROOT, Node, alive

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder, Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest, look_for_holders
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_processes import look_at_processes

NAME = f"cleanslate-test-{os.getpid()}"
UNIT = f"{NAME}.service"
GROUP = f"/system.slice/{UNIT}"
SIMULATOR = ROOT / "tests" / "simulator"
PATIENCE = 60.0
# The unified hierarchy, also where the machine itself has the hybrid one, which crun refuses.
ENTER = f"""
mount --make-rprivate /
umount -R -l /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup || exit 99
mkdir -p /sys/fs/cgroup{GROUP}
[ "$1" = end ] && exec rmdir /sys/fs/cgroup{GROUP}
echo $$ > /sys/fs/cgroup{GROUP}/cgroup.procs
exec "$@"
"""


def why_not() -> str:
    """Why podman cannot be run here, empty where it can."""
    if os.geteuid() != 0:
        return "needs root, as the unit's podman does"
    missing = [tool for tool in ("podman", "crun", "catatonit", "unshare") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} is not installed"
    return "" if pathlib.Path("/usr/bin/python3").exists() else "there is no /usr/bin/python3 for the container"


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "podman is there")


def within_limits(argv: t.Sequence[str]) -> list[str]:
    """A machine without CAP_SYS_RESOURCE cannot give what the unit's own limits allow on a real one."""
    if os.system("ulimit -Hn 1048576 2>/dev/null") == 0:
        return list(argv)
    most = [
        f"--ulimit={name}={min(10_000, resource.getrlimit(which)[1])}"
        for name, which in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))
    ]
    run = argv.index("run") + 1
    return [*argv[:run], *most, *(word for word in argv[run:] if not word.startswith("--ulimit="))]


def command(line: str) -> list[str]:
    """A command of a unit as systemd takes it apart; there is neither %, $ nor a backslash in it."""
    return shlex.split(line.lstrip("-"))


class Server:
    """The server of a podman unit on a simulated node."""

    def __init__(self, node: Node, folder: pathlib.Path) -> None:
        self.node = node
        root = folder / "root"
        for name in ("usr", "etc", "tmp", "proc", "sys", "dev", "run", "var", "root"):
            (root / name).mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (root / name).symlink_to(f"usr/{name}")
        (folder / "rendered").mkdir()
        self.rendered = rendering.render(
            folder / "rendered",
            {
                "case": {
                    "sglang_server_unit": UNIT,
                    "sglang_server_guard": False,
                    "sglang_server_runner": "podman",
                    "sglang_server_rootfs": str(root),
                    "sglang_server_python": "/usr/bin/python3",
                    "sglang_server_container_devices": [],
                    "sglang_server_config_dir": str(node.folder / "etc"),
                    "sglang_server_volumes": [
                        "/usr:/usr:ro", f"{node.folder}:{node.folder}", f"{SIMULATOR}:{SIMULATOR}:ro",
                    ],
                    "sglang_server_environment": {
                        "CLEANSLATE_SIMULATED_NODE": str(node.folder),
                        "PYTHONPATH": f"{SIMULATOR / 'fake_sglang'}:{SIMULATOR}",
                        "PYTHONDONTWRITEBYTECODE": 1,
                    },
                    "sglang_server_profiles": [
                        {"name": "p", "args": {"model-path": "/models/m", "tp-size": 8, "port": node.port}}
                    ],
                }
            },
        )["case"]  # fmt: skip
        assert not self.rendered.problem, self.rendered.problem
        (node.folder / "etc").mkdir(exist_ok=True)
        (node.folder / "etc" / f"{NAME}.yaml").write_text(self.rendered.config)
        self.log = folder / "log"
        self.main: subprocess.Popen[bytes] | None = None

    def enter(self, *argv: str) -> list[str]:
        return ["unshare", "--mount", "sh", "-c", ENTER, "enter", *argv]

    def start(self, until: bytes) -> None:
        argv = command(self.rendered.value("ExecStart"))
        argv = within_limits(argv[argv.index("/usr/bin/podman") :])
        with self.log.open("wb") as log:
            self.main = subprocess.Popen(self.enter(*argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE
        while until not in self.log.read_bytes():
            assert self.main.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.1)

    def run(self, directive: str) -> subprocess.CompletedProcess[str]:
        argv = self.enter(*command(self.rendered.value(directive)))
        return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)

    def scan(self, scope: Scope) -> list[Holder]:
        request = ScanRequest(scope=scope, devices=(f"{self.node.folder}/dev/nvidia*",))
        seen = look_for_holders(request, (), unit_states=lambda units: dict.fromkeys(units, True), clock=SystemClock())
        assert seen.complete, seen.incomplete_reason
        return list(seen.holders)

    def end(self) -> None:
        with contextlib.suppress(subprocess.SubprocessError):
            self.run("ExecStopPost")
        if self.main is not None:
            self.main.kill()
            self.main.wait(PATIENCE)
        subprocess.run(self.enter("end"), timeout=PATIENCE, check=False, capture_output=True)


@pytest.fixture
def start(make_node, tmp_path: pathlib.Path) -> t.Iterator[t.Callable[..., Server]]:
    with contextlib.ExitStack() as ends:

        def started(until: bytes = b"ready to roll", **behaviour: t.Any) -> Server:
            server = Server(make_node(behaviour), tmp_path)
            ends.callback(server.end)
            server.start(until)
            return server

        yield started


def test_the_processes_of_the_container_are_the_units_and_a_stop_reaches_the_launcher(start) -> None:
    server = start()
    for scope in (Scope("own", units=(UNIT,)), Scope("unit", units=(UNIT,))):
        seen = server.scan(scope)
        assert len(seen) >= 8
        assert {(holder.disposition, holder.unit) for holder in seen} == {("target", UNIT)}
    assert {holder.disposition for holder in server.scan(Scope("own", units=("other.service",)))} == {"foreign"}

    # What is told of the unit counts them too: no worker of another server, and the port is its own.
    assert server.main is not None
    looked = look_at_processes(server.main.pid, GROUP, "127.0.0.1", server.node.port)
    assert len(looked.workers) == 8
    assert (looked.outside, looked.ours, looked.foreign) == (False, True, None)

    stopped = server.run("ExecStop")
    assert stopped.returncode == 0, stopped.stderr
    assert server.main.wait(PATIENCE) == 0, "SGLang 0.5.23 ends with 0 after a SIGTERM that reached its launcher"
    assert server.scan(Scope("own", units=(UNIT,))) == []
    assert "SIGKILL" not in stopped.stderr


def test_what_a_killed_client_leaves_is_removed_after_it(start) -> None:
    server = start()
    assert server.main is not None
    left = [holder.pid for holder in server.scan(Scope("own", units=(UNIT,)))]
    assert len(left) >= 8
    server.main.send_signal(signal.SIGKILL)
    server.main.wait(PATIENCE)
    assert all(alive(pid) for pid in left), "podman's client is not the container"
    removed = server.run("ExecStopPost")
    assert removed.returncode == 0, removed.stderr
    end = time.monotonic() + 10
    while any(alive(pid) for pid in left) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in left)
    assert server.scan(Scope("own", units=(UNIT,))) == []


def test_a_stop_is_heard_while_the_server_loads(start) -> None:
    """As the container's PID 1 the launcher, which has no handler yet, would not even get the signal."""
    server = start(b"Load weight begin", load_s=60)
    began = time.monotonic()
    stopped = server.run("ExecStop")
    assert stopped.returncode == 0, stopped.stderr
    assert time.monotonic() - began < 15
    assert server.scan(Scope("own", units=(UNIT,))) == []
