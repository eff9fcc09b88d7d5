# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import time
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.module_utils import _drift_limits


def drift_decision(look: t.Any, policy: t.Any, now: float | None = None) -> dict[str, t.Any]:
    """What is to be done about one host.

    :param look: results of the modules that looked; what is missing or failed counts as unknown.
    :param policy: what is allowed there.
    :param now: seconds since the epoch for the time windows, instead of the controller's clock.
    :raises AnsibleFilterError: the policy cannot be meant. A look never raises.
    """
    try:
        allowed = _drift_limits.policy_of(policy)
    except (ValueError, TypeError) as error:
        raise AnsibleFilterError(f"drift_decision: {error}") from None
    return _drift_limits.judge(look, allowed, time.time() if now is None else float(now)).as_dict()


def drift_breaker(decisions: t.Any, share: t.Any = 0.34, hosts: t.Any = None) -> dict[str, t.Any]:
    """Whether so many hosts would be acted on that nobody may be.

    :param decisions: host → its drift_decision, or null where it could not be looked at.
    """
    if not isinstance(decisions, t.Mapping):
        raise AnsibleFilterError("drift_breaker: a mapping of hosts to their decisions is needed")
    try:
        share, hosts = float(share), None if hosts in (None, "") else int(hosts)
    except (TypeError, ValueError):
        raise AnsibleFilterError(f"drift_breaker: share is {share!r} and hosts {hosts!r}; numbers are needed") from None
    if not 0 < share <= 1:
        raise AnsibleFilterError(f"drift_breaker: share is {share:g}; it must be above 0 and at most 1")
    if hosts is not None and hosts < 1:
        raise AnsibleFilterError(f"drift_breaker: hosts is {hosts}; at least 1, or null for no such limit")
    found = dataclasses.asdict(_drift_limits.breaker(decisions, share, hosts))
    return {**found, "hosts": list(found["hosts"])}


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"drift_decision": drift_decision, "drift_breaker": drift_breaker}
