# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reader of the config file, where SGLang up to 0.5.15 has it."""

from __future__ import annotations

import argparse
import typing as t

from sglang import config_file
from sglang.srt import recorded_parser
from sglang.srt.server_args import VERSION


class ConfigArgumentMerger:
    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser

    def merge_config_with_args(self, words: t.Sequence[str]) -> list[str]:
        """Config file first, then what stood around it on the command line."""
        place = list(words).index("--config")
        with open(words[place + 1], encoding="utf-8") as handle:
            try:
                config = config_file.parse(handle.read(), words[place + 1])
            except config_file.ConfigError as error:
                raise ValueError(str(error)) from None
        return recorded_parser.words_of(VERSION, config) + list(words[:place]) + list(words[place + 2 :])
