# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Release and gate in one execution, as cleanslate.gpu.gpu_force_release carries them out: release_once.py NODE COUNT.

Prints as JSON when it began and ended, on the simulator's clock, so that what Ansible adds is not part of it.
"""

from __future__ import annotations

import json
import sys

import measuring

measuring.use_collection()

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._gate import GateOptions  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_release import release_gpus  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_world import GpuWorld  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Scope  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder import ReleaseOptions  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import read_ladder  # noqa: E402

SAMPLES, INTERVAL = 2, 0.1


def main(node: str, count: int) -> None:
    clock = SystemClock()
    world = GpuWorld(
        ScanRequest(scope=Scope(name="own"), devices=(f"{node}/dev/nvidia*",), timeout=60.0),
        clock,
        nvidia_smi=f"{node}/bin/nvidia-smi",
    )
    gate = GateOptions(Expectation(count=count), samples=SAMPLES, interval=INTERVAL)
    options = ReleaseOptions(read_ladder([{"signal": "KILL", "wait": 180}]), 10.0, False)
    began = measuring.boottime()
    released = release_gpus(world, options, gate=gate)
    ended = measuring.boottime()
    said = {
        "began": began,
        "ended": ended,
        "failed": released.failed,
        "message": released.message,
        "release_s": released.result.elapsed_s,
        "gate_s": released.gate.waited_s if released.gate else None,
        "looks": released.gate.looks if released.gate else 0,
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
