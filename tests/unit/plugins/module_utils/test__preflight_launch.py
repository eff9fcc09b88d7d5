# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a resolved profile says by itself: numbers, paths in a container, switches."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._model_files import ModelReading
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_launch import OVERWRITE, Launch


def launch(options: t.Mapping[str, t.Any] | None = None, **fields: t.Any) -> Launch:
    fields = {"argv": (), "config": "", "environment": {}, "python": (), "parser_timeout": 30.0, **fields}
    return Launch(options or {}, read=lambda path, load_format: ModelReading(path), **fields)


def test_where_nothing_is_said() -> None:
    plain = launch()
    assert (plain.model_path, plain.load_format, plain.overrides, plain.longer_context_allowed) == (
        "",
        "auto",
        {},
        False,
    )
    assert (plain.min_free_mib, plain.min_shm_mib, plain.volumes, plain.systemd_scope) == (0, 0, None, "system")
    assert (plain.text("x"), plain.flag("x"), plain.count("x"), plain.count("x", 3)) == ("", False, None, 3)


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (8, 8),
        ("8", 8),
        (" 8 ", 8),
        ("2k", 2000),
        ("2M", 2_000_000),
        ("2G", 2_000_000_000),
        ("2T", 2_000_000_000_000),
        ("2Ki", 2048),
        ("2Mi", 2 * 2**20),
        ("2Gi", 2 * 2**30),
        ("2Ti", 2 * 2**40),
        ("1.5k", 1500),
        ("0.5Ki", 512),
        ("2K", None),
        ("2ki", None),
        ("2kk", None),
        ("-8", None),
        ("a lot", None),
        ("9" * 400, None),
        (True, 1),
        (None, 1),
    ],
)
def test_a_number_as_sglang_reads_it(value: t.Any, count: int | None) -> None:
    assert launch({"x": value}).count("x", 1) == count


@pytest.mark.parametrize(("value", "flag"), [(True, True), (False, False), ("true", False), (1, False), (None, False)])
def test_a_switch_is_on_where_it_is_true(value: t.Any, flag: bool) -> None:
    assert launch({"x": value}).flag("x") is flag


@pytest.mark.parametrize(
    ("text", "found"),
    [("", {}), ("{", {}), ("[1]", {}), ("3", {}), ('{"max_position_embeddings": 8}', {"max_position_embeddings": 8})],
)
def test_what_the_launch_changes_in_the_model(text: str, found: dict[str, t.Any]) -> None:
    assert launch({"json-model-override-args": text}).overrides == found


@pytest.mark.parametrize(
    ("value", "allowed"),
    [("1", True), ("TRUE", True), (" yes ", True), ("y", True), ("0", False), ("", False), ("on", False)],
)
def test_leave_for_a_longer_context(value: str, allowed: bool) -> None:
    assert launch(environment={OVERWRITE: value}).longer_context_allowed is allowed


@pytest.mark.parametrize(
    ("volumes", "path", "place"),
    [
        pytest.param(None, "/models/kimi", "/models/kimi", id="no container"),
        pytest.param((), "/models/kimi", "", id="a container that gets nothing"),
        pytest.param(("/srv/m:/models",), "/models/kimi", "/srv/m/kimi", id="below a folder"),
        pytest.param(("/srv/m:/models:ro",), "/models", "/srv/m", id="the folder itself, read-only"),
        pytest.param(("/srv/m:/models/",), "/models/kimi", "/srv/m/kimi", id="written with a slash"),
        pytest.param(("/models",), "/models/kimi", "/models/kimi", id="the same path on both sides"),
        pytest.param(("/srv/m:/models",), "/models2/kimi", "", id="a name that only begins the same"),
        pytest.param(("models:/models",), "/models/kimi", "", id="a named volume lies nobody knows where"),
        pytest.param(("/a:/m", "/b:/m/long"), "/m/long/x", "/b/x", id="the innermost counts"),
        pytest.param(("/a/very/long/path:/m", "/b:/m/in"), "/m/in/x", "/b/x", id="whatever it is called on the host"),
        pytest.param(("/a:/m",), "/m/../etc", "/etc", id="as the server resolves it"),
    ],
)
def test_where_a_model_is_on_this_node(volumes: tuple[str, ...] | None, path: str, place: str) -> None:
    found, why = launch(volumes=volumes).place(path)
    assert found == place
    assert why == ("" if place else f"{path} is in no folder of this node that the container gets")


@pytest.mark.parametrize("path", ["org/model", "./model", "s3://bucket/model", ""])
def test_a_path_that_is_not_absolute_is_elsewhere(path: str) -> None:
    assert launch().place(path) == (
        "",
        f"{path} is no absolute path, SGLang looks for it in its cache or on a hub",
    )
