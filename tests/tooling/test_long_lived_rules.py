# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nothing lives on in an interpreter that does, and the rule finds it where something would."""

from __future__ import annotations

import pathlib

import long_lived_rules
import pytest
import stage

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_no_module_leaves_anything_behind() -> None:
    names = [name for name in stage.files(ROOT) if long_lived_rules.applies(name)]
    assert len(names) > 50
    found = [line for name in names for line in long_lived_rules.breaches(name, (ROOT / name).read_text())]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "_SEEN = {}\ndef f(pid):\n    _SEEN[pid] = 1\n",
        "_SEEN: set[int] = set()\ndef f(pid):\n    _SEEN.add(pid)\n",
        "_LAST = None\ndef f():\n    global _LAST\n    _LAST = 1\n",
        "@functools.lru_cache(maxsize=None)\ndef f():\n    return 1\n",
        "@cache\ndef f():\n    return 1\n",
        "def f():\n    os.environ['LANG'] = 'C'\n",
        "def f():\n    del os.environ['LANG']\n",
        "def f():\n    os.environ.update(LANG='C')\n",
        "def f():\n    os.umask(0o077)\n",
        "def f():\n    signal.signal(signal.SIGALRM, print)\n",
    ],
)
def test_a_breach_is_found(text: str) -> None:
    assert long_lived_rules.breaches("plugins/module_utils/_x.py", text)


@pytest.mark.parametrize(
    "text",
    [
        "_KNOWN = {'a': 1}\n_KNOWN.update(b=2)\n",
        "_KNOWN = {'a': 1}\ndef f(name):\n    return _KNOWN[name]\n",
        "def f():\n    seen = []\n    seen.append(1)\n    return seen\n",
        "class A:\n    def __init__(self):\n        self._seen = {}\n    def f(self):\n        self._seen['a'] = 1\n",
    ],
)
def test_what_ends_with_the_execution_is_fine(text: str) -> None:
    assert not long_lived_rules.breaches("plugins/module_utils/_x.py", text)


@pytest.mark.parametrize(
    ("name", "applies"),
    [
        ("plugins/modules/gpu_wait_idle.py", True),
        ("plugins/module_utils/_gate.py", True),
        ("plugins/module_utils/_start_guard_program.py", False),
        ("plugins/filter/sglang_profile.py", False),
    ],
)
def test_it_is_about_what_runs_on_the_node(name: str, applies: bool) -> None:
    assert long_lived_rules.applies(name) is applies
