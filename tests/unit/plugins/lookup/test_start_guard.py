# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import os

from ansible.parsing.dataloader import DataLoader

from ansible_collections.cleanslate.gpu.plugins.lookup.start_guard import LookupModule
from ansible_collections.cleanslate.gpu.plugins.module_utils import _start_guard_archive


def test_it_gives_the_program_of_this_collection() -> None:
    (text,) = LookupModule(loader=DataLoader()).run([], {})
    sources = os.path.dirname(_start_guard_archive.__file__)
    assert base64.b64decode(text, validate=True) == _start_guard_archive.archive(sources)
