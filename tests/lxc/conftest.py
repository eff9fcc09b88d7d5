# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The played host for the tests: taken up once, taken down at the end; skipped with the reason where it cannot be."""

from __future__ import annotations

import os
import sys
import typing as t

import pytest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)

import cases  # noqa: E402
import commands  # noqa: E402
import containers  # noqa: E402
import evidence  # noqa: E402
import layout  # noqa: E402
import teardown  # noqa: E402
from inside import Inside, end_holders, harness  # noqa: E402


def why_not() -> str:
    try:
        commands.check_machine()
    except layout.HarnessError as error:
        return str(error)
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests that interrupt `up` need the machine for themselves: they come first."""
    reason = why_not()
    for item in items:
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
    items.sort(key=lambda item: "played" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def played() -> t.Iterator[None]:
    """Both containers running. CLEANSLATE_LXC_KEEP=1 takes one that is up already, and leaves it up."""
    keep = os.environ.get("CLEANSLATE_LXC_KEEP") == "1"
    if not (keep and all(containers.about(one).get("systemd") for one in layout.CONTAINERS)):
        done = harness("up")
        assert done.returncode == 0, done.stderr
    end_holders()
    yield
    if not keep:
        done = harness("down")
        assert done.returncode == 0, done.stderr
        assert teardown.remains() == []


@pytest.fixture
def ct101(played: None) -> t.Iterator[Inside]:
    yield Inside(101)
    end_holders()


@pytest.fixture
def ct102(played: None) -> t.Iterator[Inside]:
    yield Inside(102)
    end_holders()


@pytest.fixture(scope="session")
def report() -> t.Iterator[cases.Report]:
    """The side-by-side table, written when the session ends, failed or not."""
    made = cases.Report()
    yield made
    if made.cases:
        print("\nReport:", made.write())


@pytest.fixture(scope="session")
def watch(played: None, report: cases.Report) -> t.Iterator[cases.Watch]:
    """Makes cases; the kernel writes down who gets a signal as long as it lasts."""
    with evidence.traced() as told:
        yield cases.Watch(told, report)


@pytest.fixture(scope="module")
def scene(played: None) -> t.Iterator[tuple[Inside, Inside]]:
    """Both containers, for the tests of one file that stand on each other's shoulders."""
    end_holders()
    yield Inside(101), Inside(102)
    end_holders()
