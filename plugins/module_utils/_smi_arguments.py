# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.
"""The options that every module which asks nvidia-smi shares, and what makes them valid together."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_verdict import check_idle_mib
from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi_text import is_gpu_uuid
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import (
    check_program,
    shown,
)

LONGEST_SMI_TIMEOUT = 3600.0
MOST_GPUS = 1024

SMI_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "nvidia_smi": {"type": "path", "default": "nvidia-smi"},
    "smi_timeout": {"type": "float", "default": 60.0},
}
EXPECTATION_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "expected_count": {"type": "int"},
    "expected_uuids": {"type": "list", "elements": "str"},
    "max_used_mib": {"type": "int", "default": 0},
}


def check_smi_arguments(params: t.Mapping[str, t.Any]) -> None:
    """ValueError with a sentence where an option cannot be meant."""
    check_program("nvidia_smi", str(params["nvidia_smi"]))
    timeout = params["smi_timeout"]
    if not 0 < timeout <= LONGEST_SMI_TIMEOUT:  # which NaN is not either
        raise ValueError(
            f"smi_timeout is {timeout:g}: it must be above 0 and at most {LONGEST_SMI_TIMEOUT:g} seconds."
            " nvidia-smi may take seconds for each GPU where persistence mode is off, so 60 is a good value."
        )


def expectation_from(params: t.Mapping[str, t.Any]) -> Expectation:
    """What the options say about the GPUs that must be there. ValueError with a sentence where they contradict
    themselves. Neither option given: an Expectation without count and uuids."""
    count, uuids, most = params["expected_count"], params["expected_uuids"], params["max_used_mib"]
    check_idle_mib("max_used_mib", most)
    if count is not None and uuids is not None:
        raise ValueError(
            f"expected_count ({shown(count)}) and expected_uuids ({len(uuids)} UUIDs) exclude each other: give the"
            " number of all GPUs, or name those that matter."
        )
    if count is not None and count > MOST_GPUS:
        raise ValueError(f"expected_count is {shown(count)}: no machine has more than {MOST_GPUS} GPUs.")
    if count is not None and count < 1:
        raise ValueError(
            f"expected_count is {shown(count)}: at least 1 GPU must be expected. No GPU is never an idle node."
        )
    if uuids is None:
        return Expectation(count=count)
    if not uuids:
        raise ValueError("expected_uuids is empty: name at least one GPU, or leave the option out.")
    wanted = [uuid.strip() for uuid in uuids]
    for uuid in wanted:
        if not is_gpu_uuid(uuid):
            raise ValueError(
                f"expected_uuids contains {shown(uuid)}, which is no GPU UUID: one looks like"
                " GPU-0d951c95-602f-417c-2d01-7e07fc10d0f9. `nvidia-smi -L` lists them."
            )
    lowered = [uuid.lower() for uuid in wanted]
    for uuid, lower in zip(wanted, lowered):
        if lowered.count(lower) > 1:
            raise ValueError(f"expected_uuids contains {uuid} more than once: name each GPU once.")
    return Expectation(uuids=tuple(wanted))
