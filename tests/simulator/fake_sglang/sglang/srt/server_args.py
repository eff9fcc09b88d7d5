# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parser of the version that this node plays, as the real module offers it."""

from __future__ import annotations

import argparse
import os

import processes

import sglang
from sglang import behaviour
from sglang.srt import recorded_parser

VERSION = behaviour.load(os.environ[processes.VARIABLE], os.environ).version
sglang.__version__ = VERSION


class ServerArgs:
    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        recorded_parser.add_arguments(parser, VERSION)
