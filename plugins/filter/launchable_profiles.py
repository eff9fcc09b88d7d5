# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.filter.sglang_profile import sglang_profile
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import kind_of


def launchable_profiles(profiles: t.Any) -> list[str]:
    """The names of the profiles that a server can be started with; others are there to be inherited from, or wrong."""
    if isinstance(profiles, (str, bytes)) or not isinstance(profiles, t.Sequence):
        raise AnsibleFilterError(f"launchable_profiles: expected a list of profiles, not {kind_of(profiles)}")
    names = [str(profile.get("name")) for profile in profiles if isinstance(profile, t.Mapping)]
    return [name for name in names if _resolves(profiles, name)]


def _resolves(profiles: t.Any, name: str) -> bool:
    try:
        sglang_profile(profiles, name)
    except AnsibleFilterError:
        return False
    return True


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"launchable_profiles": launchable_profiles}
