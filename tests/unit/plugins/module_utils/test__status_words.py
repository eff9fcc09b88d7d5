# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the status of nodes says to whoever reads it, as lines and as a page."""

from __future__ import annotations

import html.parser
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._fleet_status import fleet_status
from ansible_collections.cleanslate.gpu.plugins.module_utils._status_page import status_page
from ansible_collections.cleanslate.gpu.plugins.module_utils._status_text import (
    computing,
    last_run,
    memory,
    status_text,
    used_share,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fleet_looks import (
    gone,
    gpus,
    look,
    server,
    stuck,
)

NOW = "2026-11-29T18:40:12Z"
RUNS = [
    {"playbook": "stop.yml", "verdict": "done", "ended_at": "2026-11-29T10:00:00Z", "began_at": None, "who": "anna"},
    {"playbook": "relaunch.yml", "verdict": "failed", "reason": "GPU 1 is held", "began_at": "2026-11-29T15:00:00Z"},
]


class Reader(html.parser.HTMLParser):
    """The text of every table row, fact and list item, blanks put together; and the widths of bars."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.widths: list[str] = []
        self.summaries = 0
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("tr", "dt", "li", "h2", "h3", "summary", "caption"):
            self.end()
        elif tag in ("th", "td", "dd", "p", "div"):
            self.text += " | "
        if tag == "rect":
            self.widths.append(str(dict(attrs)["width"]))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("tr", "dd", "li", "h2", "h3", "summary", "caption"):
            self.end()

    def handle_data(self, data: str) -> None:
        self.text += data

    def end(self) -> None:
        line = " ".join(self.text.split()).strip(" |")
        if line:
            self.lines.append(line)
        self.text = ""


def page(*looks: dict[str, t.Any]) -> Reader:
    return Reader(status_page(fleet_status(list(looks), NOW)))


def lines(*looks: dict[str, t.Any]) -> list[str]:
    return [" ".join(line.split()) for line in status_text(fleet_status(list(looks), NOW)).splitlines()]


def with_runs(host: str, runs: t.Any, **more: t.Any) -> dict[str, t.Any]:
    """A node whose record of runs was read."""
    document = fleet_status([look(host, **more)], NOW)["hosts"][0]
    return {**document, "runs": {"known": runs is not None, "value": runs or []}}


def runs_page(runs: t.Any) -> Reader:
    document = fleet_status([look("gpu1")], NOW)
    return Reader(status_page({**document, "hosts": [with_runs("gpu1", runs)]}))


class TestPage:
    """What stands on the page"""

    def test_each_node_is_a_row_that_leads_to_its_part(self) -> None:
        found = page(look("gpu1"), stuck("gpu2"), gone("gpu3"))
        rows = [line for line in found.lines if line.startswith("gpu") and "|" in line]
        assert rows[0].startswith("gpu1 | ✓ well | ready kimi | 1024.0 GiB of 1123.2 GiB on 8 | 8 target | ")
        assert rows[1].startswith("gpu2 | ! attention | failed kimi | 74.3 GiB of 1123.2 GiB on 8 | ")
        assert rows[2] == "gpu3 | ? not known | unreachable | - | - | -"
        text = status_page(fleet_status([look("gpu1"), stuck("gpu2")], NOW))
        for number in (1, 2):
            assert f'href="#node-{number}"' in text
            assert f'id="node-{number}"' in text

    def test_the_nodes_are_counted_by_how_they_stand(self) -> None:
        found = page(look("a"), look("b"), stuck("c"), gone("d"))
        assert {"! 1 attention", "? 1 not known", "✓ 2 well"} <= set(found.lines)

    def test_the_facts_of_a_server_that_serves(self) -> None:
        found = page(look("gpu1", gpu_host="pve1")).lines
        assert any(line.startswith("Server | ready: sglang.service on 127.0.0.1:30000: serves kimi") for line in found)
        for line in (
            "Since | 2026-11-29 15:02:11 UTC",
            "Profile | kimi (in the inventory)",
            "Requests | 12 running, 0 queued",
            "GPUs | busy",
            "Driver | 580.159.04",
            "GPU host | pve1",
        ):
            assert line in found
        assert not [line for line in found if line.startswith(("Stage", "Restarts"))]

    def test_the_facts_of_one_that_starts(self) -> None:
        starting = server("starting", "", stage="load_weights", restarts=2)
        found = page(look("gpu1", health=starting)).lines
        assert {"Server | starting", "Stage | load_weights", "Restarts | 2"} <= set(found)
        assert any(line.startswith("GPUs | busy: GPU 0 holds 131072 MiB") for line in found)
        assert not [line for line in found if line.startswith(("Requests", "GPU host", "Since"))]

    def test_each_gpu_tells_its_memory_and_who_computes(self) -> None:
        seen = gpus([0, 1, 71886, None], {2: 4802}, {3: "GPU 3 reads [N/A]"})
        found = page(look("gpu1", gpu=seen, holders={"verdict": "some", "incomplete_reason": "", "holders": []}))
        rows = [line for line in found.lines if "NVIDIA H200" in line]
        assert rows[0] == "0 NVIDIA H200 | | 0 of 143771 MiB (0 %) | nobody listed"
        assert rows[1] == "1 NVIDIA H200 | | 1 of 143771 MiB (0 %) | nobody listed"
        assert rows[2] == "2 NVIDIA H200 | | 71886 of 143771 MiB (50 %) | | 4802 python3 71886 MiB"
        assert rows[3] == "3 NVIDIA H200 | | not known | | GPU 3 reads [N/A]"
        assert found.widths == ["0.0", "1.0", "50.0"], "what is not nothing is seen"

    def test_whoever_has_a_gpu_open_is_named_at_once_where_something_is_wrong(self) -> None:
        wrong = stuck("gpu1")
        wrong["holders"]["holders"][0].update(unit="other.service", container={"kind": "lxc", "id": "101"})
        found = page(wrong).lines
        assert "Processes with a GPU open, seen on gpu1" in found
        row = next(line for line in found if line.startswith("5310 python3"))
        assert "| anna, other.service, lxc 101 | target: on this node, in no other active service | " in row
        assert "--model-path /models/Kimi-K2.5" in row
        assert not [line for line in found if line.endswith("processes with a GPU open")]
        assert "Last lines of its log" in found
        quiet = page(look("gpu1")).lines
        assert "9 processes with a GPU open" in quiet
        assert "Last lines of its log" not in quiet

    def test_what_is_wrong_comes_with_what_to_do_next(self) -> None:
        found = [line for line in page(stuck("gpu1")).lines if "Next:" in line]
        assert found
        assert not [line for line in page(look("gpu1")).lines if "Next:" in line]

    def test_a_node_that_was_not_reached_has_no_facts(self) -> None:
        assert not [line for line in page(gone("gpu1")).lines if line.startswith(("Server |", "GPUs |"))]

    def test_the_last_runs_stand_newest_first(self) -> None:
        found = runs_page(RUNS).lines
        rows = [line for line in found if line.startswith(("?", "2026")) and ".yml" in line]
        assert rows == [
            "2026-11-29 15:00:00 UTC | relaunch.yml | failed: GPU 1 is held | ?",
            "? | stop.yml | done | anna",
        ]
        fleet = next(line for line in found if line.startswith("gpu1 |"))
        assert fleet.endswith("| relaunch.yml failed 2026-11-29 15:00:00 UTC")

    @pytest.mark.parametrize(
        ("runs", "words"),
        [
            ([], "none"),
            (None, "not known"),
            ([{**RUNS[0], "interrupted": True}], "stop.yml interrupted 2026-11-29 10:00:00 UTC"),
            ([{}], "? ?"),
        ],
    )
    def test_the_last_run_in_short(self, runs: t.Any, words: str) -> None:
        fleet = next(line for line in runs_page(runs).lines if line.startswith("gpu1 |"))
        assert fleet.endswith(f"| {words}")


class TestText:
    """What stands in the lines"""

    def test_each_node_is_a_line(self) -> None:
        found = lines(look("gpu1"), stuck("gpu2"), gone("gpu3"))
        assert found[0] == "node state server profile GPUs memory computing last run"
        assert found[1].startswith("gpu1 well ready kimi busy 1024.0 GiB of 1123.2 GiB on 8 8 target ")
        assert found[2].startswith("gpu2 ATTENTION failed kimi busy 74.3 GiB of 1123.2 GiB on 8 ")
        assert found[3] == "gpu3 not known unreachable - - - - -"

    def test_details_are_shown_where_something_is_wrong_and_of_one_node_alone(self) -> None:
        assert "gpu2: server failed, GPUs busy" in lines(look("gpu1"), stuck("gpu2"))
        assert "gpu1: server ready, GPUs busy" not in lines(look("gpu1"), stuck("gpu2"))
        assert "gpu1: server ready, GPUs busy" in lines(look("gpu1"))

    def test_a_gpu_is_a_bar_of_twenty_in_which_anything_at_all_is_seen(self) -> None:
        found = lines(look("gpu1", gpu=gpus([0, 1, 71886, 143771, None], {}, {4: "GPU 4 reads [N/A]"})))
        bars = [
            next(word for word in line.split() if set(word) <= set("#.?") and len(word) > 9)
            for line in found[1:]
            if "H200" in line
        ]
        assert bars == ["." * 20, "#" + "." * 19, "#" * 11 + "." * 9, "#" * 20, "?" * 20]
        assert any("? / ? MiB" in line or "? / ?" in line for line in found)

    def test_who_has_a_gpu_open_is_told_with_whose_it_is(self) -> None:
        found = lines(stuck("gpu1"))
        assert "pid 5310 (python3), user anna: target (on this node, in no other active service)" in found
        assert "has a GPU open, seen on gpu1:" in found

    @pytest.mark.parametrize(
        ("runs", "words"),
        [
            ([], "-"),
            (None, "?"),
            (RUNS, "relaunch.yml failed 2026-11-29T15:00:00Z"),
            ([{**RUNS[0], "began_at": "x"}], "stop.yml done 2026-11-29T10:00:00Z"),
            ([{**RUNS[0], "interrupted": True}], "stop.yml interrupted 2026-11-29T10:00:00Z"),
            ([{}], "? ?"),
        ],
    )
    def test_the_last_run_in_short(self, runs: t.Any, words: str) -> None:
        assert last_run(with_runs("gpu1", runs)) == words

    @pytest.mark.parametrize(
        ("verdict", "holders", "words"),
        [
            ("some", [], "none"),
            ("incomplete", [], "? and more?"),
            ("unknown", ["target"], "1 target and more?"),
            ("some", ["foreign", "target", "target", "protected"], "2 target, 1 protected, 1 foreign"),
        ],
    )
    def test_whose_processes_compute(self, verdict: str, holders: list[str], words: str) -> None:
        processes = [{"disposition": name, "computes": True} for name in holders]
        processes.append({"disposition": "foreign", "computes": False})
        assert computing({"holders": {"verdict": verdict, "processes": processes}}) == words

    @pytest.mark.parametrize(
        ("used", "total", "words"),
        [
            (0, 286000, "2 x 0 MiB"),
            (1, 286000, "1 MiB of 279.3 GiB on 2"),
            (1023, 2048, "1023 MiB of 2.0 GiB on 2"),
            (1024, 1025, "1.0 GiB of 1.0 GiB on 2"),
            (None, None, "? of ? on 2"),
        ],
    )
    def test_the_memory_of_a_node_in_short(self, used: t.Any, total: t.Any, words: str) -> None:
        assert memory({"gpus": [{}, {}], "used_mib_total": used, "total_mib_total": total}) == words
        assert memory({"gpus": []}) == "-"

    @pytest.mark.parametrize(
        ("used", "total", "share"),
        [
            (0, 2, 0.0),
            (1, 2, 0.5),
            (3, 2, 1.0),
            (-1, 2, 0.0),
            (1, 0, None),
            (1, -1, None),
            (None, 2, None),
            (1, None, None),
            (1, 1, 1.0),
        ],
    )
    def test_how_full_a_gpu_is(self, used: t.Any, total: t.Any, share: float | None) -> None:
        assert used_share(used, total) == share
