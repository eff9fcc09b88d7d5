# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which tests are asked about which file of the core.

Only tests that take moments are named, since each mutant costs one run of them: what slower suites would notice besides
counts as not noticed.
"""

from __future__ import annotations

import os
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
    "_trusted_program",
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
    "_drift_evidence": ("test__drift_evidence.py", "test__drift_evidence_shapes.py"),
    "_drift_limits": ("test__drift_limits.py", "test__drift_policy.py"),
    "_drift_memory": ("test__drift_memory.py", "test__drift_memory_file.py"),
    "_drift_memory_file": ("test__drift_memory_file.py", "test__drift_memory_words.py"),
    "_evidence": ("test__evidence_bounds.py", "test__evidence.py"),
    "_evidence_parts": ("test__evidence_answers.py", "test__evidence_parts.py"),
    "_evidence_processes": ("test__evidence_processes.py", "test__evidence_parts.py"),
    "_gate": ("test__gate_ends.py", "test__gate.py", "test__gate_verdicts.py"),
    "_gate_verdicts": ("test__gate_samples.py", "test__gate_verdicts.py", "test__gate.py"),
    "_gpu_fill": ("test__sglang_ready_progress.py", "test__sglang_ready.py"),
    "_gpu_records": ("test__gpu_verdict.py", "test__nvidia_smi_text.py", "test__gate.py"),
    "_gpu_verdict": ("test__gpu_verdict.py", "test__gpu_verdict_words.py", "test__smi_arguments.py"),
    "_gpu_release": ("test__gpu_release_refusals.py", "test__gpu_release.py"),
    "_gpu_world": ("test__gpu_world.py", "test__gpu_release.py"),
    "_holder_records": ("test__holders.py", "test__gate_verdicts.py", "test__ladder.py"),
    "_holders": ("test__holders.py", "test__holders_again.py"),
    "_holder_scan": ("test__holder_scan.py", "test__holders.py", "test__port_rulings.py"),
    "_html": ("test__status_page.py",),
    "_ladder": (
        "test__ladder_contract.py",
        "test__ladder.py",
        "test__ladder_managers.py",
        "test__respawning.py",
        "test__ladder_waits.py",
    ),
    "_ladder_arguments": ("test__ladder_rules.py",),
    "_ladder_rules": ("test__ladder_rules.py", "test__ladder.py"),
    "_lease": ("test__lease_words.py", "test__lease.py", "test__lease_refusals.py"),
    "_lease_records": ("test__lease_records.py", "test__lease.py", "test__lease_refusals.py"),
    "_leftovers": ("test__leftovers_refusals.py", "test__leftovers.py"),
    "_managers": ("test__managers.py", "test__mps.py"),
    "_momentary_lock": ("test__state_file.py", "test__lease_folder.py"),
    "_ownership": ("test__ownership.py", "test__dispositions.py"),
    "_port_owner": ("test__port_owner.py", "test__port_rulings.py"),
    "_preflight_arguments": ("test__preflight_parser_words.py", "test__preflight_arguments.py"),
    "_raw_holds": ("test__holder_scan.py", "test__node_match.py", "test__dispositions.py"),
    "_relaunch_outcome": ("../filter/test_run_history.py", "../filter/test_node_tables.py"),
    "_respawning": ("test__respawning_steps.py", "test__respawning.py"),
    "_root_only": ("test__root_only.py", "test__evidence_parts.py", "test__preflight_trust.py"),
    "_server_log_mode": ("test__start_guard_options.py", "test__unit_files.py"),
    "_sglang_health": ("test__sglang_health_words.py", "test__sglang_health.py"),
    "_sglang_log": ("test__sglang_log_runs.py", "test__sglang_log.py"),
    "_sglang_log_source": ("test__sglang_log_reads.py", "test__sglang_log_source.py"),
    "_sglang_ready": ("test__sglang_ready_ends.py", "test__sglang_ready.py", "test__sglang_ready_progress.py"),
    "_start_guard_program": ("test__start_guard_options.py", "test__start_guard_program.py"),
    "_state_file": ("test__state_file_units.py", "test__state_file.py"),
    "_status_findings": ("test__status_sentences.py", "test__fleet_status.py", "test__status_page.py"),
    "_status_style": ("test__status_page.py",),
    "_status_page": ("test__status_words.py", "test__status_page.py"),
    "_status_text": ("test__status_words.py", "test__fleet_status.py"),
    "_text_table": ("test__redaction.py", "test__procfs.py"),
    "_unit_files": (
        "test__unit_files_owners.py",
        "test__unit_files.py",
        "test__unit_files_folders.py",
        "test__unit_files_proved.py",
    ),
    "_whole_file": ("test__whole_file.py", "test__state_file.py"),
}


def core(root: pathlib.Path) -> list[str]:
    """Every file of the core that has a test, those of the safety rules first."""
    names = sorted(path.stem for path in (root / CORE).glob("_*.py"))
    rest = [name for name in names if name not in SAFETY and tests(root, name)]
    return [*SAFETY, *rest]


def tests(root: pathlib.Path, name: str) -> list[str]:
    """The test files of one file of the core, relative to the root."""
    files = TESTED_BY.get(name, (f"test_{name}.py",))
    paths = (pathlib.Path(os.path.normpath(TESTS / file)) for file in files)
    return [path.as_posix() for path in paths if (root / path).is_file()]


def of_modules_only(root: pathlib.Path) -> list[str]:
    """Files whose tests run a whole module in a process of its own, where no mutant can be put."""
    judged = set(core(root))
    return sorted(path.stem for path in (root / CORE).glob("_*.py") if path.stem not in judged)
