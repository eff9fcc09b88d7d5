# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plots of the page, as SVG: the same figures give the same bytes."""

from __future__ import annotations

import pathlib
import re
import typing as t

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

LICENCE = """<!-- Copyright (c) 2026 cleanslate.gpu contributors -->
<!-- GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt) -->
<!-- SPDX-License-Identifier: GPL-3.0-or-later -->
"""
LOGARITHMIC = frozenset({"release", "scan", "fleet", "fleet-large", "fleet-wide"})


def draw(result: dict[str, t.Any], folder: pathlib.Path) -> list[str]:
    """One plot of a part's medians with their spread; its name as the page links it."""
    cases = list(dict.fromkeys(figure["case"] for figure in result["figures"]))
    cases = [case for case in cases if sum(figure["case"] == case for figure in result["figures"]) > 1]
    subjects = list(dict.fromkeys(figure["subject"] for figure in result["figures"] if figure["case"] in cases))
    if not cases:
        return []
    mpl.rcParams.update({"svg.hashsalt": "cleanslate", "svg.fonttype": "none", "font.size": 9})
    figure, axes = plt.subplots(figsize=(9, max(2.5, 0.24 * len(cases) * (len(subjects) + 1))))
    height = 0.8 / len(subjects)
    for number, subject in enumerate(subjects):
        found = {row["case"]: row for row in result["figures"] if row["subject"] == subject}
        rows = [(place, found[case]) for place, case in enumerate(cases) if case in found]
        medians = [row["median"] for dummy, row in rows]
        spread = [
            [row["median"] - row["low"] for dummy, row in rows],
            [row["high"] - row["median"] for dummy, row in rows],
        ]
        places = [place + number * height for place, dummy in rows]
        axes.barh(places, medians, height=height * 0.92, xerr=spread, label=subject, error_kw={"lw": 0.8})
        for place, median in zip(places, medians):
            axes.annotate(
                f"{median:.3g}", (median, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=7
            )
    axes.set_yticks([place + 0.4 - height / 2 for place in range(len(cases))], cases)
    axes.invert_yaxis()
    if result["part"] in LOGARITHMIC:
        axes.set_xscale("log")
    axes.set_xlabel("seconds, median; the line is the spread of the runs")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['part']}.svg"
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    text = path.read_text(encoding="utf-8")
    # Behind the first line, which has to be the first.
    head, dummy, rest = text.partition("?>\n")
    path.write_text(f"{head}?>\n{LICENCE}{re.sub(r'[ ]+$', '', rest, flags=re.MULTILINE)}", encoding="utf-8")
    return [f"{folder.name}/{path.name}"]
