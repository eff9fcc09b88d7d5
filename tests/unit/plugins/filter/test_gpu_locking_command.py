# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.filter.gpu_locking_command import gpu_locking_command

UUID = "GPU-0D951c95-602f-417c-2d01-7e07fc10d0f9"


def test_all_gpus_are_one_lock() -> None:
    assert gpu_locking_command([], "/run/x", "/bin/flock") == [
        *("/bin/flock", "--no-fork", "--nonblock", "--conflict-exit-code", "75", "/run/x/all.lock")
    ]


def test_named_gpus_share_that_and_have_one_each() -> None:
    words = gpu_locking_command([UUID], "/run/x")
    assert words[3:7] == ["--shared", "--conflict-exit-code", "75", "/run/x/all.lock"]
    assert words[-1] == f"/run/x/{UUID.lower()}.lock"


def test_what_is_no_uuid_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="gpu_locking_command: 'GPU 0' is no GPU UUID"):
        gpu_locking_command(["GPU 0"], "/run/x")
