# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The benchmarks: bench.py [--quick] [PART ...], with PART one of those in PARTS; none: all but the larger fleets.

Each part writes results/PART.json, the fleet after each size. A timing never fails; a part that could not run does,
and the others still run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib
import signal
import sys
import tempfile
import time
import traceback
import typing as t

from measuring import RESULTS, CouldNotRun, Report

# part → module, function in it
PARTS = {
    "scan": ("scanning", "run"),
    "release": ("releasing", "run"),
    "facts": ("looking", "run"),
    "relaunch": ("relaunching", "run"),
    "fleet": ("fleet", "run"),
    "fleet-large": ("fleet", "run_large"),
    "fleet-wide": ("fleet", "run_wide"),
}
USUAL = ("scan", "release", "facts", "relaunch", "fleet")


def write(part: str, results: pathlib.Path, *, quick: bool, **named: t.Any) -> None:
    module_name, function = PARTS[part]
    module = importlib.import_module(module_name)
    with tempfile.TemporaryDirectory(prefix="cleanslate-bench-") as folder:
        found = getattr(module, function)(pathlib.Path(folder), quick=quick, **named)
        # A part that takes long hands over what it has so far, again and again.
        for report in [found] if isinstance(found, Report) else found:
            text = json.dumps(report.as_dict(module.PEERS), indent=2) + "\n"
            (results / f"{part}.json").write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure, against peers, in one run.")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; default: {', '.join(USUAL)}"
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, to try whether it works; results go elsewhere"
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", help="of the large fleet; what stands there of its others is kept"
    )
    parser.add_argument("--results", type=pathlib.Path, help="folder for the results")
    options = parser.parse_args()
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    results = options.results or (RESULTS.parents[1] / "output" / "benchmarks" if options.quick else RESULTS)
    results.mkdir(parents=True, exist_ok=True)
    # So that nodes, servers and crowds are ended too where this run is.
    signal.signal(signal.SIGTERM, lambda *dummy: sys.exit(143))
    failed = []
    for part in options.parts or USUAL:
        began = time.monotonic()
        print(f"{part} ...", flush=True)
        try:
            named: dict[str, t.Any] = {}
            if options.sizes and part == "fleet-large":
                named = {"sizes": options.sizes, "earlier": results / f"{part}.json"}
            write(part, results, quick=options.quick, **named)
        except CouldNotRun as error:
            print(f"{part} COULD NOT RUN: {error}", file=sys.stderr, flush=True)
            failed.append(part)
        except Exception:  # noqa: BLE001 the other parts are still worth their time
            traceback.print_exc()
            failed.append(part)
        print(f"{part}: {time.monotonic() - began:.0f} s", flush=True)
    if failed:
        print(
            f"Could not run: {', '.join(failed)}. What stands in {results} for them is old, or a part.", file=sys.stderr
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
