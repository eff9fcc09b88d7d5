# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options that describe a launch to the preflight, and what it looks at besides."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  profile:
    description:
      - The launch as it was resolved and rendered. Without it only the node is looked at.
    type: dict
    suboptions:
      args:
        description:
          - SGLang's options and their values, keys (secrets) left out.
        type: dict
        default: {}
      argv:
        description:
          - What stands on the command line behind the configuration file.
        type: list
        elements: str
        default: []
      config:
        description:
          - The text of the configuration file, with placeholders of the form C(<<secret:NAME>>) for keys.
        type: str
        default: ""
      env:
        description:
          - Environment variables of the server that matter to its parser or to the length of its context. Leave secrets
            out.
        type: dict
        default: {}
  python:
    description:
      - The command that starts the interpreter of the environment in which SGLang is installed, as a list. Where it is
        empty the parser is not asked.
    type: list
    elements: str
    default: []
  parser_timeout:
    description:
      - How many seconds importing SGLang and parsing may take.
    type: float
    default: 120.0
  model_timeout:
    description:
      - How many seconds reading one model folder may take. O(timeout) is for each file in it.
    type: float
    default: 120.0
  volumes:
    description:
      - Where the server runs in a container, what that gets of the node, as C(HOST:CONTAINER[:OPTIONS]). Models are
        then looked for through these. An empty list is a container that gets nothing.
      - By default the server runs on the node itself.
    type: list
    elements: str
  folders:
    description:
      - The folders that the server writes into. Where one does not exist yet, the nearest above it counts.
    type: list
    elements: path
    default: []
  root_files:
    description:
      - Files that root reads or runs at each start of the unit. They must be there, and nobody but root may be able to
        change them or a folder above them.
    type: list
    elements: path
    default: []
  root_folders:
    description:
      - Where root makes what belongs to the unit. Nobody but root may be able to change these or a folder above them.
    type: list
    elements: path
    default: []
  min_free_mib:
    description:
      - How many MiB must be free in each of O(folders).
    type: int
    default: 1024
  min_shm_mib:
    description:
      - How many MiB must be free in C(/dev/shm), through which the ranks share data.
    type: int
    default: 1024
  unit:
    description:
      - The name of the server's unit, with its suffix.
    type: str
    default: ""
  unit_text:
    description:
      - The text of the unit that is about to be installed.
    type: str
    default: ""
  gate:
    description:
      - Rehearses the gate in the same execution, as M(cleanslate.gpu.gpu_wait_idle) does in check mode. With an empty
        dictionary its defaults hold. Without it nobody does.
    type: dict
    suboptions:
      max_used_mib:
        description:
          - How many MiB a GPU may hold and still be called idle.
        type: int
        default: 0
      settled_mib:
        description:
          - How many MiB a GPU may hold when nothing uses it, on hardware that never goes down to 0.
        type: int
        default: 0
  health:
    description:
      - Looks at the server in the same execution, as M(cleanslate.gpu.sglang_health_info) does with these options and
        O(unit), and judges nothing by it. Without it nobody looks.
    type: dict
    suboptions:
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
          - The key of the server, where it has one.
        type: str
      log_file:
        description:
          - The file with the server's output. Where it is left out, the journal of the unit is read.
        type: path
"""
