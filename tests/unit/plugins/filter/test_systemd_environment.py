# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter around the core; the quoting itself is read back in test__systemd_quoting.py."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.filter.systemd_environment import FilterModule, systemd_environment


def test_assignments() -> None:
    assert systemd_environment("A=b c %d $E") == '"A=b c %%d $E"'
    assert systemd_environment("A=") == "A="


@pytest.mark.parametrize("value", ["A", "A=b\nc", None, True, 8, [], {}])
def test_bad_input_gets_a_sentence(value: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match="systemd_environment: "):
        systemd_environment(value)


def test_the_filter_is_offered() -> None:
    assert FilterModule().filters() == {"systemd_environment": systemd_environment}
