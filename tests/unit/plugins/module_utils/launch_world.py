# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A launch of a small but whole model in a folder, until a test changes something."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._model_reading import ModelReader
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import Context
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_launch import Launch
from ansible_collections.cleanslate.gpu.tests.simulator import model_folder
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.preflight_node import PreflightNode


class LaunchWorld:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.model = folder / "model"
        self.draft = folder / "draft"
        model_folder.make(str(self.model))
        self.node = PreflightNode(folder / "node")
        self.launch = Launch(
            options={"model-path": str(self.model), "tp-size": 8},
            argv=(),
            config="",
            environment={},
            python=("/opt/sglang/bin/python",),
            parser_timeout=30.0,
            read=ModelReader(SystemClock(), timeout=20.0, stall=10.0),
        )

    def make_draft(self, **changes: t.Any) -> None:
        model_folder.make(str(self.draft), **changes)

    def context(self, options: t.Mapping[str, t.Any] | None = None, **changes: t.Any) -> Context:
        """options: further ones of SGLang; changes: of the launch. Everything is read anew."""
        launch = dataclasses.replace(
            self.launch,
            options={**self.launch.options, **(options or {})},
            **{"read": ModelReader(SystemClock(), timeout=20.0, stall=10.0), **changes},
        )
        return self.node.context(launch=launch)

    def shards(self) -> list[pathlib.Path]:
        return sorted(self.model.glob("*.safetensors"))

    def change_config(self, **changes: t.Any) -> None:
        path = self.model / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
