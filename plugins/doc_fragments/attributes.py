# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the modules of this collection support, in the words of Ansible's attributes."""

from __future__ import annotations


class ModuleDocFragment:
    # Every module names its own support for these three.
    DOCUMENTATION = r"""
attributes:
  check_mode:
    description:
      - Can run in C(check_mode) and tells what would be done without changing anything.
  diff_mode:
    description:
      - Returns what has changed, or would change in C(check_mode), in diff mode.
  idempotent:
    description:
      - Run twice in a row, with nothing else happening in between, the second run changes nothing.
"""

    # For modules that only look.
    INFO_MODULE = r"""
attributes:
  check_mode:
    support: full
    details:
      - The module changes nothing, so it does the same in check mode.
  diff_mode:
    support: N/A
    details:
      - The module changes nothing, so there is nothing to show.
  idempotent:
    support: full
    details:
      - The module changes nothing. What it returns follows the machine.
"""

    FACTS = r"""
attributes:
  facts:
    description:
      - Returns facts in C(ansible_facts).
"""

    # For modules that only look and return facts; to be used together with FACTS.
    FACTS_MODULE = r"""
attributes:
  check_mode:
    support: full
    details:
      - The module changes nothing, so it does the same in check mode.
  diff_mode:
    support: N/A
    details:
      - The module changes nothing, so there is nothing to show.
  idempotent:
    support: full
    details:
      - The module changes nothing. What it returns follows the machine.
  facts:
    support: full
"""
