# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet's status as data, as text and as a page."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._fleet_status import fleet_status
from ansible_collections.cleanslate.gpu.plugins.module_utils._status_page import status_page
from ansible_collections.cleanslate.gpu.plugins.module_utils._status_text import status_text


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"status_fleet": fleet_status, "status_page": status_page, "status_table": status_text}
