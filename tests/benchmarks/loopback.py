# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Debian's sshd on loopback: own port, own keys, own configuration, in a folder of its own; and a relay that counts."""

from __future__ import annotations

import contextlib
import getpass
import os
import pathlib
import selectors
import socket
import subprocess
import threading
import time
import typing as t

from measuring import CouldNotRun, need, program, until


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Sshd:
    """under: a program that runs sshd (strace)."""

    def __init__(self, folder: pathlib.Path, under: t.Sequence[str] = ()) -> None:
        need("sshd", "ssh", "ssh-keygen")
        self.folder, self.port = folder, free_port()
        (folder / "home").mkdir(parents=True)
        self.key, self.log = folder / "key", folder / "sshd.log"
        for key in ("key", "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
        (folder / "authorized_keys").write_text((folder / "key.pub").read_text())
        settings = {
            "ListenAddress": "127.0.0.1",
            "Port": self.port,
            "HostKey": folder / "host_key",
            "PidFile": folder / "pid",
            "AuthorizedKeysFile": folder / "authorized_keys",
            "PasswordAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "UsePAM": "no",
            "StrictModes": "no",
            "UseDNS": "no",
            "PrintMotd": "no",
            "MaxSessions": 64,
            "MaxStartups": 100,
            "Subsystem": "sftp internal-sftp",
            # A person's own shell settings are no part of what is measured.
            "SetEnv": f"HOME={folder / 'home'}",
        }
        config = folder / "sshd_config"
        config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        if os.geteuid() == 0:
            # Debian makes it when its own service starts.
            pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        command = [*under, program("sshd"), "-D", "-f", str(config), "-E", str(self.log)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            until("sshd", self._listens, 15)
        except CouldNotRun as error:
            self.close()
            said = self.log.read_text() if self.log.exists() else "nothing"
            raise CouldNotRun(f"{error} It said: {said}") from None

    def _listens(self) -> bool:
        if self._process.poll() is not None:
            raise CouldNotRun(f"sshd ended with {self._process.returncode}.")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def close(self) -> None:
        """sshd by the pid that it wrote (under strace it is not our child), then what ran it."""
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self.folder / "pid").read_text()), 15)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait()

    def arguments(self, port: int | None = None) -> list[str]:
        """ssh as somebody types it who has set up his keys."""
        return ["-i", str(self.key), "-p", str(port or self.port), "-o", "StrictHostKeyChecking=no",
                "-o", f"UserKnownHostsFile={self.folder / 'known'}", "-o", "IdentitiesOnly=yes", "-o", "LogLevel=ERROR",
                "-F", "none"]  # fmt: skip

    def variables(self, port: int | None = None) -> dict[str, t.Any]:
        """Of a host in the inventory."""
        return {
            "ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": port or self.port,
            "ansible_user": getpass.getuser(), "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": "-F none -o StrictHostKeyChecking=no -o IdentitiesOnly=yes -o LogLevel=ERROR"
                                       f" -o UserKnownHostsFile={self.folder / 'known'}",
        }  # fmt: skip

    def leave(self, paths: pathlib.Path) -> None:
        """End the connections that Ansible keeps open."""
        for path in paths.glob("*"):
            if path.is_socket():
                subprocess.run(["ssh", "-F", "none", "-o", f"ControlPath={path}", "-O", "exit", "127.0.0.1"],
                               check=False, capture_output=True)  # fmt: skip


class Relay:
    """Between ssh and sshd: counts connections, bytes, and how often the direction changed from answer to question."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.connections = self.sent = self.received = self.turns = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, dummy = self._server.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self.to)) as server, selectors.DefaultSelector() as ready:
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            asking = False
            while True:
                for key, dummy in ready.select():
                    try:
                        data = t.cast(socket.socket, key.fileobj).recv(65536)
                        key.data.sendall(data)
                    except OSError:
                        data = b""
                    if not data:
                        return
                    if key.fileobj is client:
                        self.sent += len(data)
                        self.turns += not asking
                        asking = True
                    else:
                        self.received += len(data)
                        asking = False

    def counted(self) -> dict[str, int]:
        time.sleep(0.1)  # what is still under way
        return {"connections": self.connections, "round trips": self.turns, "bytes sent": self.sent,
                "bytes received": self.received}  # fmt: skip

    def close(self) -> None:
        self._server.close()
