# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Whether a model folder is complete: its config.json, every shard that its index names, and no shard cut short.

A safetensors file says itself how long it must be: eight bytes with the length of its header, the header (JSON with the
place of every tensor), the tensors. Only the header is read, so a model of 400 GB takes moments.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import stat
import struct
import typing as t

INDEX = "model.safetensors.index.json"
_OTHER_INDEXES = {".bin": "pytorch_model.bin.index.json"}
# What a load format reads, in its order; formats that are not here read something else than files of the folder.
PATTERNS: dict[str, tuple[str, ...]] = {
    "auto": (".safetensors", ".bin", ".pt"),
    "safetensors": (".safetensors",),
    "fastsafetensors": (".safetensors",),
    "instanttensor": (".safetensors",),
    "mistral": (".safetensors",),
    "layered": (".safetensors", ".bin", ".pt"),
    "pt": (".pt", ".bin"),
    "npcache": (".bin",),
}
TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "tiktoken.model",
    "tekken.json",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
)
_HEADER_LIMIT = 100_000_000  # that of the format
_JSON_LIMIT = 200_000_000
_OF = re.compile(r"(?P<stem>.+)-(?P<number>\d{2,6})-of-(?P<count>\d{2,6})\.\w+")
_POINTER = b"version https://git-lfs"


@dataclasses.dataclass(frozen=True)
class Flaw:
    """One thing that is wrong with a model folder. kind says what cures it."""

    kind: t.Literal["absent", "closed", "incomplete", "broken"]
    what: str


@dataclasses.dataclass(frozen=True)
class ModelReading:
    """What was read of one model. config is {} where there was none; blocked says where a read did not come back."""

    path: str
    config: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    flaws: tuple[Flaw, ...] = ()
    weights: tuple[str, ...] = ()
    bytes: int = 0
    tokenizer: bool = False
    blocked: str = ""

    @property
    def whole(self) -> bool:
        return not self.flaws and not self.blocked


def inspect(path: str, load_format: str) -> t.Generator[str, None, ModelReading]:
    """Yields the path of each file before it is touched, since a network mount may never answer, and returns what was
    found."""
    yield path
    try:
        found = os.stat(path)
        if not stat.S_ISDIR(found.st_mode):
            return _single_file(path, found.st_size)
        names = sorted(os.listdir(path))
    except OSError as error:
        return ModelReading(path, flaws=(_trouble(path, error),))
    flaws: list[Flaw] = []
    config: t.Any = {}
    if "config.json" in names:
        config = yield from _read_json(path, "config.json", flaws)
    elif "params.json" not in names:  # Mistral's own format
        flaws.append(Flaw("incomplete", f"{path} has no config.json"))
    weights: list[str] = []
    size = 0
    if load_format in PATTERNS:
        weights, size = yield from _weights(path, names, PATTERNS[load_format], flaws)
    tokenizer = any(name in TOKENIZERS or name.endswith(".tiktoken") for name in names)
    return ModelReading(path, config, tuple(flaws), tuple(weights), size, tokenizer)


def _single_file(path: str, size: int) -> ModelReading:
    """A GGUF file is a model of its own."""
    try:
        with open(path, "rb") as handle:
            good = handle.read(4) == b"GGUF"
    except OSError as error:
        return ModelReading(path, flaws=(_trouble(path, error),))
    flaw = Flaw("absent", f"{path} is a file, and no GGUF file; a model is a folder with a config.json")
    return ModelReading(path, flaws=() if good else (flaw,), weights=(path,), bytes=size, tokenizer=True)


def _read_json(folder: str, name: str, flaws: list[Flaw]) -> t.Generator[str, None, dict[str, t.Any]]:
    path = os.path.join(folder, name)
    yield path
    try:
        with open(path, "rb") as handle:
            found = json.loads(handle.read(_JSON_LIMIT))
    except OSError as error:
        flaws.append(_trouble(path, error))
        return {}
    except ValueError as error:
        flaws.append(Flaw("broken", f"{path} is no JSON ({error})"))
        return {}
    if not isinstance(found, dict):
        flaws.append(Flaw("broken", f"{path} holds no JSON object"))
        return {}
    return found


def _weights(
    folder: str, names: t.Sequence[str], patterns: t.Sequence[str], flaws: list[Flaw]
) -> t.Generator[str, None, tuple[list[str], int]]:
    """The files of the first pattern that has any, as SGLang picks them; with an index, those that it names."""
    ending = next((ending for ending in patterns if any(name.endswith(ending) for name in names)), patterns[0])
    index = INDEX if ending == ".safetensors" else _OTHER_INDEXES.get(ending, "")
    wanted = [name for name in names if name.endswith(ending)]
    if index in names:
        content = yield from _read_json(folder, index, flaws)
        named = content.get("weight_map")
        if isinstance(named, dict) and named:
            wanted = sorted({str(name) for name in named.values()})
        elif content:
            flaws.append(Flaw("broken", f"{os.path.join(folder, index)} has no weight_map"))
    else:
        missing = _missing_numbers(wanted)
        if missing:
            flaws.append(Flaw("incomplete", f"{folder} lacks {_some(missing)}, which the numbers of the others imply"))
    if not wanted:
        told = ", ".join(f"*{pattern}" for pattern in patterns)
        flaws.append(Flaw("incomplete", f"{folder} has no weights ({told})"))
    total = 0
    missing = []
    for name in wanted:
        path = os.path.join(folder, name)
        yield path
        try:
            found = os.stat(path)
        except FileNotFoundError:
            missing.append(f"{name} (a symbolic link to nothing)" if os.path.islink(path) else name)
            continue
        except OSError as error:
            flaws.append(_trouble(path, error))
            continue
        total += found.st_size
        flaw = _flaw_of_shard(path, found, ending)
        if flaw is not None:
            flaws.append(flaw)
    if missing:
        by = f"which {index} names" if index in names else "which the folder lists"
        flaws.append(Flaw("incomplete", f"{folder} lacks {_some(missing)}, {by} ({len(missing)} of {len(wanted)})"))
    return wanted, total


def _missing_numbers(names: t.Sequence[str]) -> list[str]:
    there = {name: found for name in names for found in (_OF.fullmatch(name),) if found is not None}
    missing = []
    for name, found in there.items():
        ending = name.rpartition(".")[2]
        width, count = len(found["number"]), int(found["count"])
        for number in range(1, min(count, 100_000) + 1):
            other = f"{found['stem']}-{number:0{width}d}-of-{found['count']}.{ending}"
            if other not in there and other not in missing:
                missing.append(other)
        break  # one set of files is what a folder has
    return missing


def _flaw_of_shard(path: str, found: os.stat_result, ending: str) -> Flaw | None:
    if not stat.S_ISREG(found.st_mode):
        return Flaw("broken", f"{path} is no file")
    if found.st_size == 0:
        return Flaw("broken", f"{path} is empty")
    try:
        with open(path, "rb") as handle:
            start = handle.read(len(_POINTER))
            if start == _POINTER:
                return Flaw("broken", f"{path} is a Git LFS pointer of {found.st_size} bytes, not the weights")
            if ending != ".safetensors":
                return None
            handle.seek(0)
            return _flaw_of_header(path, handle, found.st_size)
    except OSError as error:
        return _trouble(path, error)


def _flaw_of_header(path: str, handle: t.BinaryIO, size: int) -> Flaw | None:
    (length,) = struct.unpack("<Q", handle.read(8).ljust(8, b"\0"))
    if length > _HEADER_LIMIT or length < 2:
        return Flaw("broken", f"{path} is no safetensors file: its header would have {length} bytes")
    if 8 + length > size:
        return Flaw("broken", f"{path} is cut short: it has {size} bytes, less than its header of {length}")
    try:
        tensors = json.loads(handle.read(length))
        ends = [int(entry["data_offsets"][1]) for name, entry in tensors.items() if name != "__metadata__"]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return Flaw("broken", f"{path} is no safetensors file: its header cannot be read")
    right = 8 + length + max(ends, default=0)
    if size < right:
        return Flaw("broken", f"{path} is cut short: it has {size} bytes, by its own header it must have {right}")
    if size > right:
        return Flaw("broken", f"{path} has {size} bytes, {size - right} more than its own header says")
    return None


def _trouble(path: str, error: OSError) -> Flaw:
    said = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        broken = ", a symbolic link to nothing" if os.path.islink(path) else ""
        return Flaw("absent", f"{path} does not exist{broken}")
    if error.errno in (errno.EACCES, errno.EPERM):
        return Flaw("closed", f"{path} may not be read ({said})")
    return Flaw("broken", f"{path} cannot be read ({said})")


def _some(names: t.Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
