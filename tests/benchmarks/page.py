# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/benchmarks.md and its plots, from results/*.json: page.py [RESULTS [DOCS]]. Nothing in it is written by hand."""

from __future__ import annotations

import json
import pathlib
import sys
import typing as t

Result = dict[str, t.Any]
HERE = pathlib.Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
TITLES = {
    "scan": "Holder scan",
    "release": "Release and gate",
    "facts": "`nvidia_gpu_facts`",
    "relaunch": "Relaunch of one node over SSH, and a look at drift",
    "fleet": "Fleet, up to 8 nodes",
    "fleet-large": "Fleet, 32 to 128 nodes",
    "fleet-wide": "Fleet, 32 and 128 nodes on many cores",
}
INTRODUCTION = (
    "Written by `make bench` and `make bench-fleet` from `tests/benchmarks/results/`; do not edit. Every "
    "figure was measured in the same run as what it is compared with, on simulated nodes: none is a promise "
    "about your machine, the ratios travel better."
)
UNIT = (
    "The unit of Ansible's own cost is one *ping*: a play of several `ansible.builtin.ping` on the same hosts "
    "with the same forks, divided by their number."
)
WORDS = {
    "scan": (
        "`scan` is the look that every module takes at `/proc`, in the running interpreter of the module; "
        "`scan as a program` is the same with Python's own start. `fuser` and `lsof` get the same device "
        "nodes. Four holders are planted: one with descriptors and a mapping, one with mappings only, a "
        "thread of a zombie leader, and a fork whose parent died."
    ),
    "release": (
        "Eight holders on eight GPUs, each its own process and none with a living parent; the ladder has KILL"
        " only. The delay is how long the simulated driver keeps memory after the death of a holder. The "
        "typed recipe is `pkill -9 -f …; fuser -k /dev/nvidia*; sleep 2; nvidia-smi`, with an nvidia-smi that"
        " lists memory. The waits of SGLang's `killall` are written anew: 1, 1, 3 and 3 s of sleep, then a "
        "look every 10 s; clean is below 10 % there."
    ),
    "facts": (
        "`look` is what the module does: two queries, read and judged. The module and `ping` are tasks of one"
        " play, by local connection."
    ),
    "relaunch": (
        "A simulated node behind Debian's sshd on loopback, with a server that stops, loads and gives memory "
        "back at once. The plain playbook is `tests/benchmarks/peers/plain_relaunch.yml`: shell tasks with "
        "`until` loops. The typed commands are four `ssh` calls without any time to think, each with its own "
        "connection. Both peers start a unit without the start guard; ours has it. *stop → server started* is"
        " from the call of `systemctl stop` to the birth of the new server process. Processes are counted by "
        "strace in a run of their own, bytes and round trips by a relay between ssh and sshd; those of the "
        "simulated server, its nvidia-smi and its systemctl are among the node's. That systemctl starts a Python "
        "for each call, which systemd's does not: the table says how much of the time without a server that is."
    ),
    "fleet": (
        "Simulated nodes with one GPU each on the same machine as the controller, by local connection, 16 "
        "forks, all nodes in one batch; the nodes' work is therefore in these figures too. A ping is one "
        "`ansible.builtin.ping` on all of the nodes."
    ),
}
WORDS["fleet-large"] = (
    f"{WORDS['fleet']} All of it has a hundred minutes: what would not have fitted any more, told from what fewer "
    "nodes took, is listed as not measured."
)
WORDS["fleet-wide"] = (
    f"{WORDS['fleet']} Here a machine with many cores is the controller and all of the nodes, so this comes nearer to "
    "what a controller costs whose nodes are elsewhere. Mitogen keeps each process of Ansible to one core and the "
    "first for itself: with two cores, as above, all of Ansible to one."
)


def table(head: t.Sequence[str], rows: t.Iterable[t.Sequence[object]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |" for row in rows), ""]


def seconds(figure: Result, key: str) -> str:
    value = figure[key]
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def figures(result: Result) -> list[str]:
    rows = []
    for figure in result["figures"]:
        ratio = figure.get("ratio")
        spread = f"{seconds(figure, 'low')} to {seconds(figure, 'high')}" if len(figure["runs"]) > 1 else "one run"
        median = f"{seconds(figure, 'median')} {figure['unit']}"
        compared = f"{ratio['value']:.2f} of {ratio['to']}" if ratio else ""
        rows.append((figure["case"], figure["subject"], median, spread, len(figure["runs"]), compared))
    return table(("case", "what", "median", "spread", "runs", "ratio"), rows)


def counts(result: Result) -> list[str]:
    """One table for each set of columns."""
    lines: list[str] = []
    by_columns: dict[tuple[str, ...], list[Result]] = {}
    for entry in result["counts"]:
        by_columns.setdefault(tuple(entry), []).append(entry)
    for columns, entries in by_columns.items():
        lines += table(columns, ([shown(entry[column]) for column in columns] for entry in entries))
    return lines


def shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {inner}" for name, inner in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)


def profiles(result: Result) -> list[str]:
    lines = []
    for name, rows in result["profiles"].items():
        lines += [f"Where the time goes: {name}", ""]
        lines += table(
            ("seconds", "times", "task"), ((f"{row['seconds']:.2f}", row["times"], row["task"]) for row in rows)
        )
    return lines


def targets(results: t.Sequence[Result]) -> list[str]:
    rows = [
        (
            target["name"],
            target["wanted"],
            target["measured"],
            "met" if target["met"] else "**not met**",
            target["remark"],
        )
        for result in results
        for target in result["targets"]
    ]
    return table(("what", "target", "measured", "", "remark"), rows)


def page(results: t.Sequence[Result], plots: t.Mapping[str, t.Sequence[str]]) -> str:
    """plots: part → its files, as a link from the page."""
    lines = ["# Benchmarks", "", INTRODUCTION, "", UNIT, "", "## Targets", "", *targets(results)]
    for result in results:
        machine = result["machine"]
        lines += [f"## {TITLES[result['part']]}", "", WORDS[result["part"]], ""]
        lines += [
            f"{result['at'][:10]}, {machine['cores']} cores, {machine['memory_gib']} GiB, Linux {machine['kernel']}, "
            f"Python {machine['python']}; it took {result['took_s']:.0f} s, load at its end {machine['load_at_end']}.",
            "",
        ]
        for plot in plots.get(result["part"], ()):
            lines += [f"![{TITLES[result['part']]}]({plot})", ""]
        lines += figures(result)
        lines += counts(result)
        lines += profiles(result)
    return "\n".join(lines).rstrip() + "\n"


def read(folder: pathlib.Path) -> list[Result]:
    found = [
        json.loads((folder / f"{part}.json").read_text("utf-8"))
        for part in TITLES
        if (folder / f"{part}.json").exists()
    ]
    if not found:
        raise SystemExit(f"There is no result in {folder}.")
    return found


def main(arguments: t.Sequence[str]) -> None:
    import plots

    results = pathlib.Path(arguments[0]) if arguments else HERE / "results"
    docs = pathlib.Path(arguments[1]) if len(arguments) > 1 else DOCS
    found = read(results)
    drawn = {result["part"]: plots.draw(result, docs / "benchmarks") for result in found}
    (docs / "benchmarks.md").write_text(page(found, drawn), encoding="utf-8")
    print(f"{docs / 'benchmarks.md'}: {len(found)} parts")


if __name__ == "__main__":
    main(sys.argv[1:])
