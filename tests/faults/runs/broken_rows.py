# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes that are lost in a relaunch: a real run of the playbook."""

from __future__ import annotations

from run_row import RunFault

BEFORE_LEASE = "Take the lease on the GPUs of"  # the task before which the node is lost

# On a node without a server, which costs little, so that guards can be taken out of copies there.
ROWS = (
    RunFault(
        "Node lost",
        "unreachable from: lease",
        "A relaunch of a node without a server",
        "rescue and always run; its message says that nothing was stopped",
        "the run goes on without the lease; it ends without a word; a server is started",
        "lost_connection",
        says=(
            "was lost while the lease on the GPUs of",
            "Nothing was stopped",
            "The old server was not stopped by this run",
        ),
    ),
)
