# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Describe the argument parser of SGLang wheels: record_sglang_parsers.py sglang-0.5.23-….whl …

Needs PyYAML, msgspec and typing_extensions, and neither GPU nor torch: what else SGLang imports on its way there
is played by empty objects. The modules that say what the parser takes must load for real, or nothing is recorded.
Names, kinds, choices and defaults are written, no help texts. One option a line, so that a new version can be compared.
"""

from __future__ import annotations

import abc
import argparse
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import typing as t
import zipfile

OUT = pathlib.Path(__file__).resolve().parents[1] / "recordings" / "sglang-parsers"
MERGERS = ("sglang.srt.utils.server_args_config_parser", "sglang.srt.server_args_config_parser")
REAL = ("yaml", "msgspec", "typing_extensions")  # without these what is recorded would be wrong
# Hardware that is recognised by what can be imported or found in torch.
ABSENT = ("torch_npu", "torch_musa", "torch_xla", "mlx", "habana_frameworks", "sgl_kernel_npu", "vllm", "ray")
ABSENT_ATTRIBUTES = ("npu", "_abc_impl")
# What decides about options; none of these may have failed to load.
DECIDES = ("sglang.srt.server_args", "sglang.srt.arg_groups", "sglang.srt.parser", "sglang.srt.function_call", *MERGERS)
KINDS = {
    argparse._StoreAction: "store",
    argparse._StoreTrueAction: "store_true",
    argparse._StoreFalseAction: "store_false",
    argparse._AppendAction: "append",
    argparse.BooleanOptionalAction: "boolean_optional",
}


def _hidden(name: str) -> bool:
    return (name.startswith("__") and name.endswith("__")) or name in ABSENT_ATTRIBUTES


class Anything(abc.ABCMeta):
    """A class that has every attribute and can be called, iterated and compared: empty and false."""

    def __getattr__(cls, name: str) -> t.Any:
        if _hidden(name):
            raise AttributeError(name)
        made = Anything(name, (Stub,), {"__module__": cls.__module__})
        setattr(cls, name, made)
        return made

    def __call__(cls, *args: t.Any, **named: t.Any) -> t.Any:
        if len(args) == 1 and not named and callable(args[0]) and not isinstance(args[0], Anything):
            return args[0]  # used as a decorator
        return type.__call__(cls)

    def register(cls, *args: t.Any, **named: t.Any) -> t.Any:  # type: ignore[override]
        return args[0] if len(args) == 1 and callable(args[0]) else lambda function: function

    def __iter__(cls) -> t.Iterator[t.Any]:
        return iter(())

    def __or__(cls, other: t.Any) -> t.Any:
        return cls

    __ror__ = __or__

    def __getitem__(cls, key: t.Any) -> t.Any:
        return cls

    def __setitem__(cls, key: t.Any, value: t.Any) -> None:
        pass

    def __bool__(cls) -> bool:
        return False

    def __lt__(cls, other: t.Any) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def __int__(cls) -> int:
        return 0


class Stub(metaclass=Anything):
    def __init__(self, *args: t.Any, **named: t.Any) -> None:
        pass

    def __init_subclass__(cls, **named: t.Any) -> None:
        pass

    def __getattr__(self, name: str) -> t.Any:
        if _hidden(name):
            raise AttributeError(name)
        return getattr(type(self), name)

    def __call__(self, *args: t.Any, **named: t.Any) -> t.Any:
        return args[0] if len(args) == 1 and not named and callable(args[0]) else self

    def __getitem__(self, key: t.Any) -> t.Any:
        return self

    def __setitem__(self, key: t.Any, value: t.Any) -> None:
        pass

    def __iter__(self) -> t.Iterator[t.Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> t.Any:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class StubModule(types.ModuleType):
    def __getattr__(self, name: str) -> t.Any:
        if _hidden(name):
            raise AttributeError(name)
        made = Anything(name, (Stub,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class Missing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes last: whatever is not installed is an empty module."""

    def find_spec(self, name: str, path: t.Any, target: t.Any = None) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        if top in ("sglang", *REAL, *ABSENT) or top in sys.stdlib_module_names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        made = StubModule(spec.name)
        made.__version__ = "99.0.0"  # type: ignore[attr-defined]
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class Tolerant(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes first: a module of SGLang's that cannot be run on empty objects becomes an empty one itself."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}
        self._real: dict[str, t.Any] = {}

    def find_spec(self, name: str, path: t.Any, target: t.Any = None) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name.startswith("sglang.") else None
        if spec is not None and spec.loader is not None:
            self._real[name] = spec.loader
            spec.loader = self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        try:
            self._real[module.__name__].exec_module(module)
        except Exception as error:  # noqa: BLE001 it is looked at afterwards which these were
            self.failed[module.__name__] = f"{type(error).__name__}: {error}"
            module.__class__ = StubModule


def plain(value: t.Any) -> t.Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return repr(type(value).__name__)


def refused_in_config(merger: t.Any, name: str, action: argparse.Action) -> bool:
    """A key is refused with an exception, or becomes other words than the option takes: older versions know a key by
    the attribute that it sets, and take a flag of another name for an option with a value."""
    switch = action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction)
    try:
        words = merger._convert_config_to_args({name: True if switch else "x"})
    except ValueError:
        return True
    return bool(words != ([f"--{name}"] if switch else [f"--{name}", "x"]))


def described(action: argparse.Action, merger: t.Any) -> dict[str, t.Any]:
    kind = KINDS.get(type(action), type(action).__name__)
    names = [flag[2:] for flag in action.option_strings if flag.startswith("--")]
    found = {
        "flags": list(action.option_strings),
        "action": kind,
        "nargs": action.nargs,
        "type": getattr(action.type, "__name__", None) if action.type else None,
        "choices": plain(action.choices) if action.choices is not None else None,
        "default": plain(action.default) if action.default is not argparse.SUPPRESS else None,
        "required": action.required or None,
        "not_in_config": [name for name in names if refused_in_config(merger, name, action)] or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def inside(folder: str, version: str) -> str:
    """Runs in a process of its own, in which SGLang of this folder is imported."""
    for name in REAL:
        importlib.import_module(name)
    tolerant = Tolerant()
    sys.meta_path.insert(0, tolerant)
    sys.meta_path.append(Missing())
    package = types.ModuleType("sglang")  # its own __init__ patches transformers
    package.__path__ = [os.path.join(folder, "sglang")]
    sys.modules["sglang"] = package
    parser = argparse.ArgumentParser(prog="sglang serve")
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    merger = None
    for name in MERGERS:
        try:
            merger = importlib.import_module(name).ConfigArgumentMerger(parser)
            break
        except ModuleNotFoundError:
            continue
    bad = {name: why for name, why in tolerant.failed.items() if name.startswith(DECIDES)}
    if merger is None or bad:
        raise SystemExit(f"SGLang {version} cannot be described: {bad or 'no reader of its config file'}")
    options = [described(action, merger) for action in parser._actions if "--help" not in action.option_strings]
    lines = ",\n".join("  " + json.dumps(option) for option in options)
    return f'{{"version": {json.dumps(version)}, "options": [\n{lines}\n]}}\n'


def record(wheel: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    version = wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder, [name for name in packed.namelist() if name.endswith(".py")])
        command = [sys.executable, __file__, "--inside", folder, version]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=600)
        if done.returncode:
            raise SystemExit(f"{wheel.name}: the description ended with exit code {done.returncode}")
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{version}.json"
    path.write_text(done.stdout[done.stdout.index('{"version"') :], encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheels", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=OUT)
    if sys.argv[1:2] == ["--inside"]:
        sys.stdout.write(inside(*sys.argv[2:4]))
        return
    asked = parser.parse_args()
    for wheel in asked.wheels:
        sys.stdout.write(f"{record(wheel, asked.out)}\n")


if __name__ == "__main__":
    main()
