# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.filter.launchable_profiles import launchable_profiles


def test_who_only_passes_something_on_is_left_out() -> None:
    profiles = [
        {"name": "common", "args": {"tp-size": 8}},
        {"name": "kimi", "inherit": "common", "args": {"model-path": "/models/k"}},
        {"name": "circle", "inherit": "circle"},
        {"name": "orphan", "inherit": "nobody", "args": {"model-path": "/m"}},
        {"name": "nextn", "inherit": "kimi"},
    ]
    assert launchable_profiles(profiles) == ["kimi", "nextn"]


@pytest.mark.parametrize("profiles", [None, "kimi", {"name": "kimi"}])
def test_bad_input_gets_a_sentence(profiles: object) -> None:
    with pytest.raises(AnsibleFilterError, match="expected a list of profiles"):
        launchable_profiles(profiles)
