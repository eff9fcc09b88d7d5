# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import MASK, redact

_PROBE = "Probe4711"


def _names_a_secret(text: str) -> bool:
    """Whether the redactor masks what follows this name."""
    return _PROBE not in redact(f"{text}{_PROBE}")


def _masked(value: t.Any, secrets: t.Sequence[str]) -> t.Any:
    if isinstance(value, str):
        text = str(value)
        for secret in secrets:
            text = text.replace(secret, MASK)
        return redact(text)
    if isinstance(value, t.Mapping):
        return {
            _masked(key, secrets): MASK
            if item and not isinstance(item, bool) and isinstance(key, str) and _names_a_secret(f"{key}=")
            else _masked(item, secrets)
            for key, item in value.items()
        }
    if isinstance(value, t.Sequence) and not isinstance(value, (bytes, bytearray)):
        result = []
        secret_follows = False
        for item in value:
            result.append(MASK if secret_follows and item else _masked(item, secrets))
            # --api-key as an argument of its own: the next one is the key
            secret_follows = isinstance(item, str) and item.startswith("-") and _names_a_secret(f"{item} ")
        return result
    return value


def sglang_redact(value: t.Any, secrets: t.Any = ()) -> t.Any:
    """The same data with every secret masked."""
    if isinstance(secrets, (str, bytes)) or not isinstance(secrets, t.Sequence):
        raise AnsibleFilterError("sglang_redact: secrets must be a list of texts that are to be masked.")
    known = sorted({str(secret) for secret in secrets if secret}, key=len, reverse=True)
    return _masked(value, known)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"sglang_redact": sglang_redact}
