# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All rows about release, gate, facts and start guard."""

from __future__ import annotations

from device_faults import DEVICE_FAULTS
from holder_faults import HOLDER_FAULTS
from peer_faults import PEER_FAULTS
from proc_faults import PROC_FAULTS
from release_row import ReleaseFault
from scope_faults import SCOPE_FAULTS
from smi_faults import SMI_FAULTS

ROWS: tuple[ReleaseFault, ...] = (
    *PEER_FAULTS,
    *DEVICE_FAULTS,
    *SMI_FAULTS,
    *HOLDER_FAULTS,
    *SCOPE_FAULTS,
    *PROC_FAULTS,
)
