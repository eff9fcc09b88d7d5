# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which tests are asked about which file of the core.

Only tests that take moments are named, since each mutant costs one run of them: what slower suites would notice besides
counts as not noticed.
"""

from __future__ import annotations

import pathlib

CORE = pathlib.Path("plugins", "module_utils")
TESTS = pathlib.Path("tests", "unit", "plugins", "module_utils")

# What decides who may be signalled, and what is called clean: every mutant is noticed, or argued one by one.
SAFETY = (
    "_dispositions",
    "_kinship",
    "_ownership",
    "_container_names",
    "_ladder_rules",
    "_signalling",
    "_gpu_verdict",
    "_gate_verdicts",
    "_pair_proof",
    "_allow_list",
    "_node_match",
    "_drift_decision",
    "_drift_limits",
    "_start_guard_rules",
    "_lease_records",
)

# Where the test file of the same name is not all, or is not there.
TESTED_BY = {
    "_container_names": ("test__container_names.py", "test__ownership.py"),
    "_gate_verdicts": ("test__gate_verdicts.py", "test__gate.py"),
    "_ladder_rules": ("test__ladder_rules.py", "test__ladder.py"),
    "_lease_records": ("test__lease.py", "test__lease_refusals.py", "test__lease_folder.py"),
    "_ownership": ("test__ownership.py", "test__dispositions.py"),
}


def core(root: pathlib.Path) -> list[str]:
    """Every file of the core that has a test, those of the safety rules first."""
    names = sorted(path.stem for path in (root / CORE).glob("_*.py"))
    rest = [name for name in names if name not in SAFETY and tests(root, name)]
    return [*SAFETY, *rest]


def tests(root: pathlib.Path, name: str) -> list[str]:
    """The test files of one file of the core, relative to the root."""
    files = TESTED_BY.get(name, (f"test_{name}.py",))
    return [(TESTS / file).as_posix() for file in files if (root / TESTS / file).is_file()]
