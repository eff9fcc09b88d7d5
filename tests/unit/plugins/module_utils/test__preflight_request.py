# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a module's options to what is checked: what cannot be meant is refused with the option's name."""

from __future__ import annotations

import os
import pwd
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_launch import Launch
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_request import (
    LAUNCH_ARGUMENTS,
    check_timeouts,
    launch_of,
    reader_of,
)

PROFILE = {"args": {"tp_size": 8}, "argv": ["--trust"], "config": "tp-size: 8\n", "env": {"A": 1}}
GIVEN: dict[str, t.Any] = {
    **{name: spec.get("default") for name, spec in LAUNCH_ARGUMENTS.items()},
    "profile": PROFILE,
    "timeout": 20.0,
    "systemd_scope": "system",
}


def launch(**changes: t.Any) -> Launch | None:
    return launch_of({**GIVEN, **changes}, SystemClock(), None)


def test_without_a_profile_nothing_is_launched_and_bad_options_are_still_refused() -> None:
    assert launch(profile=None) is None
    with pytest.raises(ValueError, match="min_free_mib is -1"):
        launch(profile=None, min_free_mib=-1)


def test_by_default_a_gib_of_disk_and_of_shared_memory_must_be_free() -> None:
    found = launch()
    assert found is not None
    assert (found.min_free_mib, found.min_shm_mib, found.parser_timeout) == (1024, 1024, 120.0)
    assert (found.volumes, found.unit, found.folders) == (None, "", ())
    assert LAUNCH_ARGUMENTS["model_timeout"]["default"] == 120.0


def test_what_is_given_is_what_is_checked() -> None:
    given: dict[str, t.Any] = {
        "python": ["/opt/sglang/bin/python", "-I"],
        "unit": "sglang.service",
        "unit_text": "[Service]",
        "folders": ["/var/lib/sglang"],
        "root_files": ["/etc/sglang/guard"],
        "root_folders": ["/etc/sglang"],
        "volumes": ["/models:/models:ro"],
        "min_free_mib": 0,
        "min_shm_mib": 0,
        "parser_timeout": 5.0,
    }
    found = launch(**given)
    assert found is not None
    seen = {name: getattr(found, name) for name in given}
    assert {name: list(one) if isinstance(one, tuple) else one for name, one in seen.items()} == given
    assert (found.options, found.argv, found.environment) == ({"tp-size": 8}, ("--trust",), {"A": "1"})
    empty = launch(volumes=[])
    assert empty is not None
    assert empty.volumes == (), "a container without volumes is a container"


def profile(**changes: t.Any) -> dict[str, t.Any]:
    return {"profile": {**PROFILE, **changes}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parser_timeout": 0.0}, "parser_timeout is 0"),
        ({"model_timeout": -1.0}, "model_timeout is -1"),
        ({"min_free_mib": -1}, "min_free_mib is -1"),
        ({"min_shm_mib": -1}, "min_shm_mib is -1"),
        ({"unit": "sglang"}, "unit is 'sglang'"),
        ({"python": ["-x"]}, "python is '-x'"),
        ({"python": ["python3", "a\nb"]}, "an entry of python is .*a newline"),
        ({"volumes": ["/a:/b", "a\nb"]}, "an entry of volumes is .*a newline"),
        ({"unit_text": "[Service]"}, "unit_text is given, but unit is empty"),
        ({"folders": ["/a", "b"]}, "an entry of folders is 'b', which is not an absolute path"),
        ({"root_files": ["b"]}, "an entry of root_files is 'b', which is not an absolute path"),
        ({"root_folders": ["b"]}, "an entry of root_folders is 'b', which is not an absolute path"),
        (profile(args={"tp_size": 8, "tp-size": 4}), "profile.args: "),
        (profile(argv=["--a", "a\nb"]), "an entry of profile.argv is .*a newline"),
        (profile(env={"1A": "x"}), "profile.env has '1A', which can be no name of a variable"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_name(changes: dict[str, t.Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        launch(**changes)


def test_the_value_of_a_variable_is_never_shown() -> None:
    with pytest.raises(ValueError, match=r"profile\.env: TOKEN") as caught:
        launch(**profile(env={"TOKEN": "PLANTED\0"}))
    assert "PLANTED" not in str(caught.value)


def test_more_than_one_wait_is_checked() -> None:
    check_timeouts({"a": 1.0, "b": 2.0}, "a", "b")
    with pytest.raises(ValueError, match="b is 0"):
        check_timeouts({"a": 1.0, "b": 0.0}, "a", "b")


def test_as_whom_models_are_read() -> None:
    account = reader_of(pwd.getpwuid(os.getuid()).pw_name, "")
    assert account is not None
    assert account.uid == os.getuid()
    assert reader_of("", "") is None
    assert reader_of("nobody-has-this-name", "") is None, "told by a check of its own"
