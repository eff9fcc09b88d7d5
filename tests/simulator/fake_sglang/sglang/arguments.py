# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arguments as SGLang 0.5.23 reads them: config file first, command line behind it; CLI > file > default.

Known are the options of the versions 0.5.12 to 0.5.23 that launches really use, with their type; choices are not
checked. Not imitated: the several hundred other options, and what SGLang derives from a model's config.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import typing as t

from sglang import config_file


def _names(text: str) -> list[str]:
    return text.split()


FLAGS = _names("""trust-remote-code enable-metrics disable-custom-all-reduce enable-torch-symm-mem enable-symm-mem
enable-nccl-nvls enable-mscclpp pre-warm-nccl enable-p2p-check skip-tokenizer-init skip-server-warmup sleep-on-idle
disable-decode-cuda-graph disable-prefill-cuda-graph enable-mixed-chunk disable-radix-cache enable-cache-report
log-requests disable-overlap-schedule enable-multimodal enable-hierarchical-cache enable-piecewise-cuda-graph
enable-request-time-stats-logging weight-loader-prefetch-checkpoints enable-return-hidden-states""")
NUMBERS = _names("""
pp-size attn-dp-size port max-running-requests max-queued-requests max-total-tokens chunked-prefill-size
max-prefill-tokens page-size speculative-num-steps speculative-eagle-topk speculative-num-draft-tokens watchdog-timeout
soft-watchdog-timeout nccl-port dist-timeout nnodes node-rank base-gpu-id gpu-id-step random-seed decode-log-interval
mem-fraction-static cuda-graph-max-bs-decode cuda-graph-max-bs-prefill stream-interval schedule-conservativeness
tokenizer-worker-num max-loras-per-batch swa-full-tokens-ratio""")
TEXTS = _names("""tokenizer-path tokenizer-mode host served-model-name context-length dtype kv-cache-dtype quantization
speculative-algorithm speculative-draft-model-revision speculative-attention-mode speculative-draft-attention-backend
speculative-draft-model-quantization speculative-draft-load-format speculative-moe-runner-backend reasoning-parser
tool-call-parser moe-runner-backend moe-a2a-backend fp4-gemm-backend fp8-gemm-backend attention-backend
prefill-attention-backend decode-attention-backend mm-attention-backend sampling-backend grammar-backend
cuda-graph-backend-decode cuda-graph-backend-prefill log-level log-level-http dist-init-addr load-format
model-loader-extra-config device crash-dump-folder json-model-override-args api-key admin-api-key chat-template
mamba-scheduler-strategy mamba-ssm-dtype schedule-policy revision download-dir gated-launch-port weight-cache-mode
preferred-sampling-params mamba-radix-cache-strategy linear-attn-backend quantization-param-path""")
LISTS = ["numa-node", "cuda-graph-bs-decode", "cuda-graph-bs-prefill"]
# Refused in a config file: options with a custom action (or a --no-… form).
NOT_IN_FILE = {"disable-cuda-graph", "enable-dp-attention", "enable-tf32-matmul"}


def number(text: str) -> int | float:
    return float(text) if set(text) & set(".e") else int(text)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="launch_server.py")
    made.add_argument("--model-path", "--model", required=True)
    made.add_argument("--tp-size", "--tensor-parallel-size", type=int, default=1)
    made.add_argument("--dp-size", "--data-parallel-size", type=int, default=1)
    made.add_argument("--ep-size", "--ep", "--expert-parallel-size", type=int, default=1)
    made.add_argument("--speculative-draft-model-path", "--speculative-draft-model")
    for name in FLAGS + sorted(NOT_IN_FILE):
        made.add_argument("--" + name, action="store_true")
    for name in NUMBERS:
        made.add_argument("--" + name, type=number)
    for name in TEXTS:
        made.add_argument("--" + name)
    for name in LISTS:
        made.add_argument("--" + name, nargs="+")
    made.set_defaults(host="127.0.0.1", port=30000, pp_size=1, watchdog_timeout=300, log_level="info", nnodes=1)
    return made


def words_of(config: t.Mapping[str, t.Any]) -> list[str]:
    flags = set(FLAGS)
    words: list[str] = []
    for key, value in config.items():
        if key in NOT_IN_FILE:
            raise ValueError(f"Unsupported config option '{key}' with custom action")
        option = "--" + key
        if isinstance(value, bool):
            if key in flags:
                words += [option] if value else []
            else:
                words += [option, str(value).lower()]
        elif isinstance(value, list):
            words += [option, *[str(item) for item in value]] if value else []
        elif isinstance(value, dict):
            words += [option, json.dumps(value)]
        else:
            words += [option, str(value)]
    return words


def resolve(argv: t.Sequence[str]) -> argparse.Namespace:
    """Parsed arguments; ends the process with 2 (argparse) or 1 (a traceback in the real one) when they are wrong."""
    words = list(argv)
    if "--config" in words:
        place = words.index("--config")
        if place + 1 >= len(words):
            parser().error("argument --config: expected one argument")
        path = words[place + 1]
        del words[place : place + 2]
        try:
            if not os.path.exists(path):
                raise ValueError(f"Config file not found: {path}")
            if not path.endswith((".yaml", ".yml")):
                raise ValueError(f"Config file must be YAML format, got: {path}")
            with open(path, encoding="utf-8") as handle:
                words = words_of(config_file.parse(handle.read(), path)) + words
        except (ValueError, OSError, config_file.ConfigError) as error:
            sys.stderr.write(f"ValueError: {error}\n")
            sys.exit(1)
    parsed = parser().parse_args(words)
    if ":" in (parsed.served_model_name or ""):
        sys.stderr.write("AssertionError: served_model_name cannot contain a colon (':') character.\n")
        sys.exit(1)
    return parsed
