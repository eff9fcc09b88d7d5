# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a lease is in the file and in words, without anybody who takes it."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _lease_records
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import (
    Book,
    BootClock,
    Lease,
    Marker,
    age_words,
    gpu_words,
    lease_view,
    lease_words,
    marker_view,
    parse,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._whole_file import Unreadable
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.lease_world import GPUS

DAY = 86400.0
LEASE = Lease("A", "n1", GPUS[:1], "ana", "a test", since_wall=1.8e9, since=100.0, expires=1000.0)
MARKER = Marker("A", "n1", GPUS[:1], "ana", until=1000.0)


def book_of(**change: t.Any) -> dict[str, t.Any]:
    """The document of one lease, changed."""
    document = Book((LEASE,), (MARKER,)).document()
    document["leases"][0] = {**document["leases"][0], "gpus": list(GPUS[:1]), **change}
    document["starting"][0]["gpus"] = list(GPUS[:1])
    return document


def test_what_is_written_is_read_again() -> None:
    document = book_of()
    assert document["version"] == 1, "what is in a file of today is read by the next version too, or is refused"
    assert parse(document) == Book((LEASE,), (MARKER,))
    assert parse(None) == Book()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"run_id": "a b"}, "run_id is 'a b'"),
        ({"run_id": "-rf"}, "run_id is '-rf'"),
        ({"run_id": "\n" * 200}, f"run_id is {chr(39)}{chr(92)}n"),
        ({"node": 3}, "node is 3"),
        ({"expires": True}, "expires is True"),
        ({"expires": "1000"}, "expires is '1000'"),
        ({"expires": float("inf")}, "expires is inf"),
        ({"since": None}, "since is None"),
        ({"expires": 10**400}, "int too large"),
        ({"gpus": ["all"]}, "gpus is ['all']"),
        ({"gpus": [0]}, "gpus is [0]"),
        ({"gpus": GPUS[0]}, "gpus is 'GPU-"),
    ],
)
def test_one_record_that_cannot_be_meant_makes_all_of_it_unreadable(change: dict[str, t.Any], words: str) -> None:
    with pytest.raises(Unreadable, match="it is not what was written here") as raised:
        parse(book_of(**change))
    assert words in str(raised.value)


@pytest.mark.parametrize("document", [{}, [], 3, {"version": 2}, {"version": 1}, {"version": 1, "leases": [3]}])
def test_a_document_of_another_shape_is_unreadable(document: t.Any) -> None:
    with pytest.raises(Unreadable, match="it is not what was written here"):
        parse(document)


def test_what_is_quoted_of_an_odd_file_is_short() -> None:
    with pytest.raises(Unreadable) as raised:
        parse(book_of(run_id=" " * 1000))
    assert f"(run_id is '{' ' * 40}')" in str(raised.value)
    with pytest.raises(Unreadable) as raised:
        parse(book_of(node=["x" * 1000]))
    assert str(raised.value).endswith(f"({('node is [' + repr('x' * 1000))[:120]})")


@pytest.mark.parametrize(("now", "stands", "starts"), [(999.9, 1, 1), (1000.0, 0, 0), (1000.1, 0, 0)])
def test_at_its_end_it_is_over(now: float, stands: int, starts: int) -> None:
    book = Book((LEASE,), (MARKER,))
    assert (len(book.standing(now)), len(book.starting((), now))) == (stands, starts)


@pytest.mark.parametrize(
    ("now", "leases", "markers"),
    [(999.0, 1, 1), (1000.0, 1, 0), (1000.0 + DAY - 0.5, 1, 0), (1000.0 + DAY, 0, 0), (1000.0 + DAY + 1, 0, 0)],
)
def test_an_ended_lease_is_remembered_for_a_day_and_a_start_for_no_time(now: float, leases: int, markers: int) -> None:
    pruned = Book((LEASE,), (MARKER,)).pruned(now)
    assert (len(pruned.leases), len(pruned.markers)) == (leases, markers)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 seconds"),
        (0, "0 seconds"),
        (0.9, "0 seconds"),
        (1, "1 second"),
        (2, "2 seconds"),
        (119.9, "119 seconds"),
        (120, "2 minutes"),
        (179, "2 minutes"),
        (180, "3 minutes"),
        (7199, "119 minutes"),
        (7200, "2 hours"),
        (10799, "2 hours"),
        (10800, "3 hours"),
        (2 * DAY - 1, "47 hours"),
        (2 * DAY, "2 days"),
        (3 * DAY - 1, "2 days"),
        (3 * DAY, "3 days"),
        (100 * DAY, "100 days"),
    ],
)
def test_a_time_span_as_people_say_it(seconds: float, words: str) -> None:
    assert age_words(seconds) == words


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ((), "all GPUs of the host"),
        (GPUS[:1], f"GPU {GPUS[0]}"),
        (GPUS[:2], f"GPUs {GPUS[0]}, {GPUS[1]}"),
        (GPUS[:3], f"GPUs {GPUS[0]}, {GPUS[1]}, {GPUS[2]}"),
    ],
)
def test_which_gpus(gpus: tuple[str, ...], words: str) -> None:
    assert gpu_words(gpus) == words


@pytest.mark.parametrize(
    ("now", "words"), [(400.4, "expires in 600 s"), (1000.0, "expires in 0 s"), (5e3, "expires in 0 s")]
)
def test_when_it_ends(now: float, words: str) -> None:
    assert words in lease_words(LEASE, now)


def test_what_a_module_returns_of_a_lease() -> None:
    view = lease_view(LEASE, 400.12345)
    assert (view["age_s"], view["expires_in_s"], view["since"]) == (300.123, 599.877, "2027-01-15T08:00:00Z")
    assert marker_view(MARKER, 400.12345)["until_s"] == 599.877


@pytest.mark.parametrize(
    ("wall", "since"), [(-1e12, "1970-01-01T00:00:00Z"), (0.0, "1970-01-01T00:00:00Z"), (1e300, "2100-01-01T00:00:00Z")]
)
def test_a_date_that_cannot_be_is_still_told(wall: float, since: str) -> None:
    """The file may come from a clock that was never set."""
    assert lease_view(dataclasses.replace(LEASE, since_wall=wall), 400.0)["since"] == since


@pytest.mark.parametrize(("seconds", "slept"), [(-1.0, []), (0.0, []), (0.5, [0.5]), (2.0, [2.0])])
def test_the_clock_of_the_boot_sleeps_as_long_as_it_is_asked(
    monkeypatch: pytest.MonkeyPatch, seconds: float, slept: list[float]
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(_lease_records.time, "sleep", asked.append)
    BootClock().sleep(seconds)
    assert asked == slept
