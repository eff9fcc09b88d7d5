# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""SGLang's launch options as text: which of them its config file takes, and how each is written.

The config file is read by SGLang itself: it puts `--key value` for each entry before the command line. It refuses
options whose parser action is neither "store" nor "store_true", and up to 0.5.15 also the option that such an alias
sets; those are listed here as SGLang 0.5.12, 0.5.15 and 0.5.23 have them (tests/recordings/sglang-parsers). An option
that one of the three refuses goes to the command line for all of them.
"""

from __future__ import annotations

import json
import math
import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import kind_of, odd_character, shown

# Names that SGLang's parser takes for one option; the first is what is written.
SPELLINGS = (
    ("model-path", "model"),
    ("tp-size", "tensor-parallel-size", "tp"),
    ("pp-size", "pipeline-parallel-size", "pp"),
    ("dp-size", "data-parallel-size", "dp"),
    ("ep-size", "expert-parallel-size", "ep"),
    ("speculative-draft-model-path", "speculative-draft-model"),
    ("dist-init-addr", "nccl-init-addr"),
)
CANONICAL = {other: names[0] for names in SPELLINGS for other in names[1:]}

# true is --x, false is --no-x
SWITCHES = frozenset(
    {
        "dcp-replicate-q-proj",
        "dllm-fdfo",
        "enable-decoder-swa-bounded-replay",
        "enable-dsa-fused-indexer",
        "enable-fused-qk-norm-rope",
        "enable-tf32-matmul",
        "enable-tp-lm-head-all-to-all",
        "experts-shared-outer-loras",
        "lora-strict-loading",
        "mm-enable-dp-encoder",
        "ple-offload-embedding",
        "record-nolora-graph",
        "speculative-enable-w4a4-mxfp4-megamoe",
    }
)
REFUSED_BY_CONFIG = SWITCHES | {
    "collect-tokens-histogram",
    "cuda-graph-backend-prefill",
    "cuda-graph-bs",
    "cuda-graph-bs-decode",
    "cuda-graph-bs-prefill",
    "cuda-graph-max-bs",
    "cuda-graph-max-bs-decode",
    "cuda-graph-max-bs-prefill",
    "cuda-graph-tc-compiler",
    "disable-cuda-graph",
    "disable-piecewise-cuda-graph",
    "dsa-decode-backend",
    "dsa-prefill-backend",
    "dsa-prefill-cp-mode",
    "enable-breakable-cuda-graph",
    "enable-dp-attention",
    "enable-dsa-prefill-context-parallel",
    "enable-nsa-prefill-context-parallel",
    "enable-piecewise-cuda-graph",
    "enable-prefill-context-parallel",
    "enforce-piecewise-cuda-graph",
    "hybrid-kvcache-ratio",
    "incremental-streaming-output",
    "lora-paths",
    "mamba-radix-cache-strategy",
    "mamba-scheduler-strategy",
    "monokernel-backend",
    "nsa-decode-backend",
    "nsa-prefill-backend",
    "nsa-prefill-cp-mode",
    "piecewise-cuda-graph-compiler",
    "piecewise-cuda-graph-max-tokens",
    "piecewise-cuda-graph-tokens",
    "prefill-cp-mode",
    "prefill-round-robin-balance",
    "speculative-dflash-draft-window-size",
    "speculative-draft-window-size",
    "stream-output",
}
SECRETS = frozenset({"api-key", "admin-api-key"})
_KEY = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")


def check_text(where: str, value: str) -> str:
    """ValueError for text that cannot stand in one line of a config file or unit."""
    odd = odd_character(value)
    if odd:
        raise ValueError(f"{where} contains {odd}, which neither a config file nor a unit can carry; remove it.")
    return value


def canonical_args(args: t.Any) -> dict[str, t.Any]:
    """The arguments under SGLang's own dashed names, nulls dropped, sorted. ValueError with a sentence."""
    if not isinstance(args, t.Mapping):
        raise ValueError(f"the arguments must be a mapping of SGLang option to value, not {kind_of(args)}.")
    given: dict[str, str] = {}
    result: dict[str, t.Any] = {}
    for key, value in args.items():
        name = str(key).replace("_", "-")
        name = name[2:] if name.startswith("--") else name
        if not isinstance(key, str) or not _KEY.fullmatch(name):
            raise ValueError(
                f"{shown(key)} is not the name of an SGLang option: letters, digits and dashes, as in tp-size."
            )
        if name == "config":
            raise ValueError("config is the file that is written here; it cannot name another one.")
        name = CANONICAL.get(name, name)
        if name in given:
            raise ValueError(f"{given[name]} and {key} are the same SGLang option; give only one of them.")
        given[name] = key
        written = plain(name, value)
        if written is not None and written != []:
            result[name] = written
    return dict(sorted(result.items()))


def plain(name: str, value: t.Any) -> t.Any:
    """A value as bool, number, text, or a list of these; a mapping as JSON text. ValueError with a sentence."""
    if getattr(value, "__ENCRYPTED__", False):
        value = str(value)  # a vaulted value of older ansible-core is no str
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}, which is no number that SGLang can use.")
        return value
    if isinstance(value, t.Mapping):
        try:
            return json.dumps(value, sort_keys=True, allow_nan=False, default=_vaulted)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} cannot be written as JSON: {error}.") from error
    if isinstance(value, str):
        text = check_text(name, str(value))
        if name not in SECRETS and text.startswith("-") and not _NUMBER.fullmatch(text):
            raise ValueError(
                f"{name} is {shown(text)}: SGLang would take a value that begins with a dash for an option."
            )
        return text
    if isinstance(value, t.Sequence) and not isinstance(value, (bytes, bytearray)):
        items = [plain(name, item) for item in value]
        if any(item is None or isinstance(item, list) for item in items):
            raise ValueError(
                f"{name} is a list that holds a null or another list; give text, numbers or mappings in it."
            )
        return items
    kind = type(value).__name__
    raise ValueError(f"{name} is a {kind}; an option can be text, a number, true, false, a list or a mapping.")


def _vaulted(value: t.Any) -> t.Any:
    if getattr(value, "__ENCRYPTED__", False):
        return str(value)
    raise TypeError(f"it holds a {kind_of(value)}")


def _text(value: t.Any) -> str:
    """As SGLang turns a value of its config file into an argument."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _yaml(value: t.Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_yaml(item) for item in value) + "]"
    if isinstance(value, str):
        # A JSON string is a YAML double-quoted scalar once control characters are excluded.
        return json.dumps(value, ensure_ascii=False)
    return _text(value)


def config_text(args: t.Any) -> str:
    """The bytes of SGLang's config file: the same arguments always give the same. ValueError with a sentence."""
    result = canonical_args(args)
    refused = sorted(set(result) & REFUSED_BY_CONFIG)
    if refused:
        raise ValueError(
            f"SGLang's config file refuses {', '.join(refused)}; pass the arguments through sglang_split_args first."
        )
    _check_secrets(result)
    return "".join(f"{name}: {_yaml(value)}\n" for name, value in result.items())


def _check_secrets(args: t.Mapping[str, t.Any]) -> None:
    for name in SECRETS & set(args):
        value = args[name]
        if not isinstance(value, str) or not value or not (value.isascii() and value == value.strip()):
            raise ValueError(
                f"{name} must be printable ASCII text without blanks at its ends: SGLang can compare no other."
            )
    if "admin-api-key" in args and "api-key" not in args:
        raise ValueError("an admin-api-key without an api-key leaves the ordinary endpoints open to everybody.")


def _argv(name: str, value: t.Any) -> list[str]:
    if isinstance(value, bool):
        if name in SWITCHES:
            return [f"--{name}" if value else f"--no-{name}"]
        return [f"--{name}"] if value else []
    if isinstance(value, list):
        return [f"--{name}", *(_text(item) for item in value)]
    return [f"--{name}", _text(value)]


def _names(names: t.Iterable[str]) -> set[str]:
    dashed = (str(name).replace("_", "-") for name in names)
    return {CANONICAL.get(name, name) for name in dashed}


def split_args(
    args: t.Any, to_argv: t.Iterable[str] = (), to_config: t.Iterable[str] = ()
) -> tuple[dict[str, t.Any], list[str]]:
    """The part for the config file, and the arguments for the command line.

    :param to_argv: options that a version refuses in its config file though they are not known to be refused.
    :param to_config: options that a version takes there though another one refuses them.
    :raises ValueError: one sentence. Keys never go to the command line, where every user of the node can read them.
    """
    result = canonical_args(args)
    more, fewer = _names(to_argv), _names(to_config)
    both = sorted(more & fewer)
    if both:
        raise ValueError(f"{', '.join(both)} cannot go both to the command line and to the config file.")
    if more & SECRETS:
        raise ValueError("a key must not stand on the command line: every user of the node could read it there.")
    on_argv = (REFUSED_BY_CONFIG | more) - fewer
    argv: list[str] = []
    for name in sorted(set(result) & on_argv):
        argv += _argv(name, result[name])
    return {name: value for name, value in result.items() if name not in on_argv}, argv
