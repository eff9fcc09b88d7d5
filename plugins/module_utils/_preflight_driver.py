# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Whether the driver's library here and the kernel module it talks to are of the same version."""

from __future__ import annotations

import glob
import os
import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import (
    Check,
    Context,
    Fault,
    failed,
    not_checked,
    passed,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_nodes import of_the_driver
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import text

# The first that is found decides. CUDA's forward compatibility package brings a newer libcuda on purpose, so that one
# comes last and not from there.
LIBRARIES = ("libnvidia-ml", "libcuda")
LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
)
_MODULE = re.compile(r"Kernel Module(?:\s+for\s+\S+)?\s+(\d+\.\d[\d.]*)")
_LOADER_LINE = re.compile(r"\s*(lib[\w-]+)\.so\.1 \(([^)]*)\) => (/.+)")
_CURE = (
    "Install the version of the kernel module: in a container the driver's libraries of the version that its host"
    " runs, without the kernel module; after an update of the driver reboot the machine that owns the GPUs, so that the"
    " new module is loaded, and start its containers again."
)


def driver_match(context: Context, *, folders: t.Sequence[str] = LIBRARY_FOLDERS) -> Check:
    """The same version on both sides; anything else makes NVML and CUDA fail as soon as a new process starts."""
    name = "driver_match"
    if not of_the_driver(context):
        return not_checked(name, "these nodes are not those of the NVIDIA driver")
    module = module_version(context)
    found = library_version(context, folders)
    if module is None:
        where = os.path.join(context.proc.root, "driver/nvidia/version")
        return not_checked(name, f"the version of the kernel module cannot be read from {where}")
    if found is None:
        return not_checked(name, f"the kernel module is {module}, but no {LIBRARIES[0]}.so.VERSION was found here")
    version, path = found
    if version != module:
        what = f"the kernel module is {module}, but the library {path} is {version}"
        return failed(name, [Fault(what, _CURE)])
    return passed(name, f"kernel module and {os.path.basename(path)} are both {module}")


def module_version(context: Context) -> str | None:
    try:
        said = text(context.proc.read(os.path.join(context.proc.root, "driver/nvidia/version")))
    except OSError:
        return None
    match = _MODULE.search(said)
    return match.group(1) if match else None


def library_version(context: Context, folders: t.Sequence[str]) -> tuple[str, str] | None:
    """Version and path of the library that a new process would load."""
    known = _loader_paths(context)
    for library in LIBRARIES:
        for path in [*known.get(library, ()), *(os.path.join(folder, f"{library}.so.1") for folder in folders)]:
            if "/compat/" in path:
                continue
            version = _version_of(library, path)
            if version is not None:
                return version
    return None


def _loader_paths(context: Context) -> dict[str, list[str]]:
    """What the loader's cache knows, its 64-bit entries first: a 32-bit copy serves no server."""
    for tool in ("ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"):
        result = context.runner([tool, "-p"], context.timeout)
        if result.exit_code == 0:
            break
    else:
        return {}
    lines: list[tuple[bool, str, str]] = []
    for match in filter(None, map(_LOADER_LINE.match, result.stdout.splitlines())):
        lines.append(("64" not in match.group(2), match.group(1), match.group(3).strip()))
    paths: dict[str, list[str]] = {}
    for _narrow, library, path in sorted(lines, key=lambda line: line[0]):
        paths.setdefault(library, []).append(path)
    return paths


def _version_of(library: str, path: str) -> tuple[str, str] | None:
    """From the name of the file that the link leads to. Where the loader's name is itself the file, from the only
    file with a version beside it."""
    real = os.path.realpath(path)
    if not os.path.exists(real):
        return None
    pattern = re.compile(re.escape(library) + r"\.so\.(\d+\.\d[\d.]*)\Z")
    candidates: t.Iterable[str] = [real]
    if not pattern.match(os.path.basename(real)):
        candidates = glob.glob(os.path.join(glob.escape(os.path.dirname(real)), f"{library}.so.*"))
    versions = {}
    for candidate in candidates:
        match = pattern.match(os.path.basename(candidate))
        if match:
            versions[match.group(1)] = candidate
    if len(versions) != 1:
        return None
    return next(iter(versions.items()))
