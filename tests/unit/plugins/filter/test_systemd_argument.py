# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter around the core; the quoting itself is read back in test__systemd_quoting.py."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.filter.systemd_argument import FilterModule, systemd_argument


def test_text_and_numbers() -> None:
    assert [systemd_argument(value) for value in ("a b", 8, 0.5, "50%", "$X", "")] == [
        '"a b"', "8", "0.5", '"50%%"', '"$$X"', '""',
    ]  # fmt: skip


@pytest.mark.parametrize("value", ["a\nb", "\0", None, True, [], {}])
def test_bad_input_gets_a_sentence(value: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match="systemd_argument: "):
        systemd_argument(value)


def test_the_filter_is_offered() -> None:
    assert FilterModule().filters() == {"systemd_argument": systemd_argument}
