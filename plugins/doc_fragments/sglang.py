# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options and return values of the modules that look at an SGLang server."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  unit:
    description:
      - The systemd unit that runs the server, with its suffix, for example V(sglang.service).
      - May be empty for a server that no unit runs. Then whoever listens on O(port) is taken for the server, and a
        death during the start cannot be noticed.
    type: str
    required: true
  systemd_scope:
    description:
      - Whether the unit belongs to the system's manager or to that of the user the module runs as.
    type: str
    choices: [system, user]
    default: system
  systemctl:
    description:
      - The C(systemctl) to run, as a name that is looked up in E(PATH) or as a path.
    type: path
    default: systemctl
  host:
    description:
      - The address on which the server listens. A wildcard address is asked on loopback.
    type: str
    default: 127.0.0.1
  port:
    description:
      - The port on which the server listens.
    type: int
    default: 30000
  api_key:
    description:
      - The key of the server, where it has one. It is only ever sent in the header of a request to the server itself,
        never to a port that belongs to another process.
      - Must be printable ASCII; SGLang can compare no other.
    type: str
  served_model_name:
    description:
      - The model that C(/v1/models) must list. Where it is left out, any will do.
    type: str
  expected_workers:
    description:
      - How many scheduler processes must be alive; on one node the product of the tensor, pipeline and data parallel
        sizes. Where it is left out, they are counted but nothing depends on it.
    type: int
  log_file:
    description:
      - The file to which the unit appends the server's output. Where it is left out, the journal of the unit is read.
    type: path
  request_timeout:
    description:
      - How many seconds each request that needs the model may take.
      - SGLang itself waits 20 seconds before it says that its model does not answer, so a shorter time cannot tell a
        hung server from a slow one.
    type: float
    default: 25.0
  with_server_info:
    description:
      - Whether to return what a healthy server says under C(/server_info) and C(/v1/models) too. It is long.
    type: bool
    default: false
"""
