# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of the modules that keep something about a server in a file on the node."""

from __future__ import annotations


class ModuleDocFragment:
    # Each module says the default of path.
    DOCUMENTATION = r"""
options:
  unit:
    description:
      - The systemd unit that runs the server, with its suffix.
    type: str
    required: true
  path:
    description:
      - The file. The last part of its folder's path is made with mode 0755.
      - The folder must belong to the user that the module runs as, and must not be writable by others.
    type: path
"""
