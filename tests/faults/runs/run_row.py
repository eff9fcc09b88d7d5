# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A row of the tables about runs: what befalls one, and what must and must not come of it."""

from __future__ import annotations

import dataclasses
import typing as t


@dataclasses.dataclass(frozen=True)
class RunFault:
    """One fault. play names the function that plays it, options what it is told; says: pieces of the sentence that a
    person must get."""

    group: str
    name: str
    before: str
    must: str
    must_not: str
    play: str
    options: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    says: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name
