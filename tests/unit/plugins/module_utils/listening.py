# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A process that listens on a port, with children as a server has them: python listening.py PORT [WAY NODE [LATE]].

WAY: `open` has the node open itself; `worker` has it mapped by a child only; `none` has nothing to do with it. Prints
"ready PID CHILD" (0 without a child). With a worker, TERM ends the child first and the listener LATE seconds later.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import types

from hold_node import map_without_fd


def main() -> None:
    port, way, path, late = int(sys.argv[1]), *(*sys.argv[2:], "none", "", "0")[:3]
    child = 0
    if way == "worker":
        child = os.fork()
        if child == 0:
            map_without_fd(path)
            time.sleep(300)
            return
    handle = os.open(path, os.O_RDONLY) if way == "open" else -1

    def leave(_number: int, _frame: types.FrameType | None) -> None:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        time.sleep(float(late))
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    listener = socket.socket(socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    print("ready", os.getpid(), child, handle, flush=True)
    while True:
        time.sleep(300)


if __name__ == "__main__":
    main()
