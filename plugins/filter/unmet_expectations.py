# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.module_utils import _expectations
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact

try:
    import jmespath
    import jmespath.exceptions
except ImportError:
    jmespath = None

MISSING = (
    "a profile has expectations, and the Python package jmespath that evaluates them is missing on the controller:"
    " install it beside ansible-core (pip install jmespath)"
)


def _plain(value: t.Any) -> t.Any:
    """Ansible's own kinds of text and containers as plain ones: JMESPath compares types."""
    return json.loads(json.dumps(value, default=str))


def unmet_expectations(data: t.Any, expect: t.Any) -> list[str]:
    """A sentence for each expectation that does not hold.

    :param data: mapping of server_info, models and nvidia_gpu; what could not be had is null or left out.
    :param expect: the resolved profile's expectations.
    """
    if not expect:
        return []
    if jmespath is None:
        raise AnsibleFilterError(f"unmet_expectations: {MISSING}")
    errors = (jmespath.exceptions.JMESPathError,)
    expect, data = _plain(expect), _plain(data)
    faults = _expectations.shape_faults(expect, jmespath.compile, errors)
    if faults or not isinstance(data, dict):
        raise AnsibleFilterError(f"unmet_expectations: {'; '.join(faults) or 'the data is no mapping'}")
    return _expectations.unmet(data, expect, jmespath.compile, errors, redact)


def wrong_expectations(profiles: t.Any) -> list[str]:
    """A sentence for each expectation of any profile that could never be evaluated."""
    if not isinstance(profiles, t.Sequence) or isinstance(profiles, (str, bytes)):
        return []  # what is wrong with the profiles themselves, sglang_profile says
    expecting = [profile for profile in profiles if isinstance(profile, t.Mapping) and profile.get("expect")]
    if expecting and jmespath is None:
        return [f"{MISSING}."]
    return [
        f"profile {str(profile.get('name', '?'))!r}, {fault}."
        for profile in expecting
        for fault in _expectations.shape_faults(
            _plain(profile["expect"]), jmespath.compile, (jmespath.exceptions.JMESPathError,)
        )
    ]


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"unmet_expectations": unmet_expectations, "wrong_expectations": wrong_expectations}
