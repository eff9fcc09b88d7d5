# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.filter.misspelt_options import misspelt_options

SPECS = {"argument_specs": {"main": {"options": {"gpu_release_scope": {}, "gpu_release_units": {}}}, "empty": {}}}


@pytest.mark.parametrize("name", ["gpu_relaese_scope", "gpu_release_scop", "gpu_release_scopes", "gpu_release_unit"])
def test_a_name_within_two_letters_is_found_with_the_right_one(name: str) -> None:
    (sentence,) = misspelt_options([name, "gpu_release_scope"], SPECS)
    assert sentence.startswith(f"{name} is not an option; did you mean gpu_release_")


@pytest.mark.parametrize("name", ["gpu_release_scope", "gpu_idle_timeout", "_gpu_release_scop", "inventory_hostname"])
def test_right_private_and_distant_names_pass(name: str) -> None:
    assert misspelt_options([name], SPECS) == []


def test_a_known_name_passes() -> None:
    assert misspelt_options(["gpu_release_unit"], SPECS, ["gpu_release_unit"]) == []


def test_something_else_than_a_specification_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="no argument specification"):
        misspelt_options(["x"], {})
