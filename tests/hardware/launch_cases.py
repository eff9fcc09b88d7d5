# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole relaunch with real GPUs, real SGLang and a real systemd: this checkout's playbooks, run as a user does.

Run as root on a machine with NVIDIA GPUs on which nothing of value runs, with SGLang 0.5.15 importable from
/opt/sglang-site (see real_plays.SITE) beside the PyTorch of the python3 that runs this:

    python3 tests/hardware/launch_cases.py REPORT_FOLDER --debs FOLDER --site FOLDER [--only WORD,WORD]

--debs: Debian packages of systemd and what it links; --site: a folder with ansible-core. Each case
leaves the node as the next finds it, and brings it there itself where it is run alone: with eight GPUs too each fits
into ten minutes. No setting of a GPU is changed and nothing is reset; what is signalled
is the node's own. Writes REPORT_FOLDER/launch_cases.json and .md and small logs; exit code 1 when a case did not end as
it must.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import typing as t

import launch_report
from launch_steps import CASES, Bench
from real_gpus import HERE
from real_plays import KEY, MODEL, Player, Stranger
from systemd_node import Node, as_json, memory_used

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816,
    "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 32000,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
}  # fmt: skip


def run_case(bench: Bench, case: t.Callable[[Bench], dict[str, t.Any]]) -> dict[str, t.Any]:
    bench.plays = []
    began, stranger = time.time(), Stranger(bench.node)
    before = subprocess.check_output(["nvidia-smi"], text=True)
    stranger.start()
    try:
        found: dict[str, t.Any] = {"result": "passed", **case(bench)}
    except Exception as problem:  # noqa: BLE001 - the other cases still say something
        found = {"result": "FAILED", "error": f"{type(problem).__name__}: {problem}"}
    found["seconds"] = round(time.time() - began, 1)
    found["seen_by_a_stranger"] = stranger.end()
    found["nvidia_smi"] = {"before": before, "after": subprocess.check_output(["nvidia-smi"], text=True)}
    found["plays"] = [
        {"playbook": play.name, "code": play.code, "seconds": play.seconds, "steps": play.longest(),
         "told": play.told(), "at": round(play.began - began, 1)}
        for play in bench.plays
    ]  # fmt: skip
    return found


def prepare(work: pathlib.Path) -> None:
    """What the overlay shows of the machine, so before it is made."""
    shutil.copy(HERE / "cuda_holder.py", work)
    pathlib.Path(MODEL).mkdir(parents=True, exist_ok=True)
    pathlib.Path(MODEL, "config.json").write_text(json.dumps(CONFIG))
    work.chmod(0o755)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("--debs", type=pathlib.Path, required=True)
    parser.add_argument("--site", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="", help="words, one of which a case's name must have")
    options = parser.parse_args()
    options.report.mkdir(parents=True, exist_ok=True)
    used = memory_used()
    if any(used):
        print(f"These GPUs are in use ({used} MiB): nothing was touched.", file=sys.stderr)
        return 2
    work = pathlib.Path(tempfile.mkdtemp(prefix="cleanslate-hardware-", dir="/tmp"))
    prepare(work)
    node = Node(work, options.debs.resolve())
    report: dict[str, t.Any] = {"machine": launch_report.describe_machine(options.site), "cases": {}}
    try:
        node.boot()
        report["machine"]["systemd"] = node.say("systemctl", "--version").splitlines()[0]
        bench = Bench(
            node, Player(node, options.site.resolve(), len(used), shutil.which("nvidia-smi") or "nvidia-smi"), len(used)
        )
        words = [word for word in options.only.split(",") if word]
        for name in [name for word in words for name in CASES if word in name] or CASES:
            report["cases"][name] = run_case(bench, CASES[name])
            print(time.strftime("%H:%M:%S"), name, as_json(report["cases"][name], 700), flush=True)
            launch_report.write(report, options.report)
        report["key_found_in"] = launch_report.files_with(KEY, node, work)
        launch_report.write(report, options.report)
    finally:
        launch_report.keep_logs(node, work, options.report)
        node.shut_down()
    results = [case["result"] for case in report["cases"].values()]
    print(f"{results.count('passed')} passed, {results.count('FAILED')} failed", flush=True)
    return 1 if "FAILED" in results or not results else 0


if __name__ == "__main__":
    sys.exit(main())
