# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: start_guard
author: cleanslate.gpu contributors (@cleanslate-gpu)
version_added: 0.1.0
short_description: The program that keeps a server from starting on GPUs in use
description:
  - Packs the code of the gate into one file that Python runs as it is, and gives it base64-encoded. The role
    C(sglang_server) installs it beside the unit, which runs it before every start.
  - The same version of the collection gives the same bytes.
options: {}
"""

EXAMPLES = r"""
- name: Stage the start guard
  cleanslate.gpu.sglang_unit_files:
    state: staged
    files:
      - path: /usr/local/lib/cleanslate/sglang.pyz
        content: "{{ lookup('cleanslate.gpu.start_guard') }}"
        encoding: base64
"""

RETURN = r"""
_raw:
  description: The program, base64-encoded.
  type: list
  elements: str
"""

import base64
import os
import typing as t

from ansible.plugins.lookup import LookupBase

from ansible_collections.cleanslate.gpu.plugins.module_utils import _start_guard_archive


class LookupModule(LookupBase):
    def run(self, *dummy_terms: t.Any, **dummy: t.Any) -> list[str]:
        sources = os.path.dirname(_start_guard_archive.__file__)
        return [base64.b64encode(_start_guard_archive.archive(sources)).decode("ascii")]
