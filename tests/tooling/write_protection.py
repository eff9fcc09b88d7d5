# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print docs/never-killed.md from the rules by which processes are judged: python tests/tooling/write_protection.py."""

from __future__ import annotations

import functools
import pathlib
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "never-killed.md"

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / ".ansible" / "collections"))

from ansible_collections.cleanslate.gpu.plugins.module_utils import _dispositions as rules  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Container, Scope  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._ownership import Ownership  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import (  # noqa: E402
    PF_KTHREAD,
    ProcStat,
    ProcStatus,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._raw_holds import Hold, RawHolder  # noqa: E402

HEAD = """# What is never killed, and why

<!-- Printed from plugins/module_utils/_dispositions.py by tests/tooling/write_protection.py; edit there. -->

Every process that has a GPU device open or mapped is put into one of six words. Only a *target* is ever signalled,
and only in the scope that was asked for. Each cell below is what the rules themselves answer, not a description.

| word | what is done |
|---|---|
| self | nothing: it is this run, its SSH session, or another of its ancestors |
| never | nothing, whatever the scope |
| protected | nothing; named in `gpu_release_allow_protected` it is judged like others, and stopped by its manager |
| monitor | nothing; it computes on no GPU and does not shut the gate |
| foreign | nothing; it is reported with its owner, and shuts the gate where it uses the server's GPUs |
| target | signalled, after its start time and its hold were checked again that instant |

A process that is already dying is waited for, whatever it is: no signal helps while it gives back its memory.

## Who is what in which scope

`unit` and `own` are asked with `sglang.service`, `lxc` with container 101; `all` needs
`gpu_release_allow_foreign`, by hand. The last column is the reason as a result says it, in `own` or else in the
first scope where it is no target.

`own` takes the group of processes that the module itself runs in for the node: an SSH service without sessions puts all
of its logins there. Where a playbook runs on the node inside a service that starts GPU jobs as well, a CI runner or
a notebook server, these jobs are targets too: set `gpu_release_scope: unit` there.

`lxc` is asked on a GPU host, which tells containers apart and not what runs in them: whatever computes in container 101
is a target, in its other services and in docker containers inside it too. What keeps those is a second look:
`preflight.yml`, `relaunch.yml` and `release.yml` rehearse the gate inside the container as well, with `own` there, and
whoever is foreign in that look refuses the run before anything is stopped. The role `gpu_release` and the module
`gpu_force_release` by themselves have no such look, and what begins to compute in the container after it, a rollback
included, is a target like the rest ([on Proxmox](on-proxmox.md#what-else-runs-in-the-container)).

The init of a container is never signalled. Where it computes itself it shuts the gate, be its container named or not:
stop that container first.

| process | unit | own | lxc | all | reason |
|---|---|---|---|---|---|
"""

PROTECTED = """
## Protected daemons

By the file that they execute, where only root can have put it there:

{executables}

By the unit that they run in:

{units}

`gpu_release_protect` adds names of programs, paths and units to these. A name that a process gives itself
(`argv`, `comm`) counts for one thing only: where its executable cannot be read at all, a name of the list protects it.

## What cannot be told

What is not known is foreign, never a target: an owner that cannot be read, a container of an unknown kind, a unit of
which systemd does not say whether it is active, mappings that could not be read. A scan that could not look at a
process which might hold a GPU is `incomplete`, and then nobody is signalled at all.
"""

SCOPES = (
    Scope("unit", units=("sglang.service",)),
    Scope("own", units=("sglang.service",)),
    Scope("lxc", lxc=("101",)),
    Scope("all"),
)
_FD, _MAP = Hold("/dev/nvidia0", "gpu", 0, "fd"), Hold("/dev/nvidia0", "gpu", 0, "map")
_SETTING = {"own_pids": {42}, "unit_active": {"crashed.service": False, "train.service": True}}


def claim(
    owner: Ownership, *, computes: bool | None = True, same_namespace: bool = True, **other: t.Any
) -> rules.Claim:
    """A holder as the rules see it. What is trusted of its executable is what other names as program."""
    exe = other.get("exe", "/usr/bin/python3")
    raw = RawHolder(
        stat=ProcStat(other.get("pid", 4711), other.get("comm", "python3"), "S", 1, other.get("flags", 0), 1),
        status=ProcStatus((0, 0, 0, 0), frozenset({0}), other.get("ns_pids", (4711,))),
        holds=(_FD, _MAP) if computes else (_FD,),
        dying=False,
        cgroup="0::/",
        exe=exe,
        program=other.get("program"),
    )
    return rules.Claim(raw, owner, same_namespace, computes, ())


def _unit(name: str, **more: t.Any) -> Ownership:
    return Ownership(name, name, **more)


_NOWHERE = Ownership()
_LXC = Ownership(container=Container("lxc", "101"))
_LXC_SERVICE = Ownership("train.service", container=Container("lxc", "101"))
_LXC_DOCKER = Ownership(container=Container("lxc", "101"), nested=Container("docker", "cd" * 32))
_DOCKER = Ownership(container=Container("docker", "ab" * 32))
_DCGM = {"exe": "/usr/bin/nv-hostengine", "comm": "nv-hostengine"}
CASES: tuple[tuple[str, rules.Claim], ...] = (
    ("this module or its SSH session", claim(_NOWHERE, pid=42)),
    ("PID 1", claim(_NOWHERE, pid=1)),
    ("a kernel thread", claim(_NOWHERE, flags=PF_KTHREAD)),
    ("PID 1 of container 101", claim(_LXC, ns_pids=(8000, 1), same_namespace=False)),
    ("the monitor of a container", claim(Ownership(lxc_monitor=True))),
    ("nv-hostengine, root's file", claim(_NOWHERE, **_DCGM, program="nv-hostengine")),
    ("nv-hostengine in the server's own unit", claim(_unit("sglang.service"), **_DCGM, program="nv-hostengine")),
    ("anything in nvidia-fabricmanager.service", claim(_unit("nvidia-fabricmanager.service"))),
    ("a user's file with the name nv-hostengine", claim(_NOWHERE, **_DCGM)),
    ("a user's service with the name dcgm.service", claim(_unit("dcgm.service", user_service=True))),
    ("python that calls itself nv-hostengine", claim(_NOWHERE, comm="nv-hostengine")),
    ("the same, executable not readable", claim(_NOWHERE, comm="nv-hostengine", exe=None)),
    ("nvidia-smi, nvtop, an exporter", claim(_NOWHERE, computes=False, exe="/usr/bin/nvtop", comm="nvtop")),
    ("mappings not readable", claim(_NOWHERE, computes=None)),
    ("the server in its unit", claim(_unit("sglang.service"))),
    ("the server in its unit, no GPU mapped", claim(_unit("sglang.service"), computes=False)),
    ("python in a login session or tmux", claim(Ownership(session=True))),
    ("python in no unit (nohup, pct exec)", claim(_NOWHERE)),
    ("left behind by a unit that is not active", claim(_unit("crashed.service"))),
    ("in another active service", claim(_unit("train.service"))),
    ("in the service that the module runs in (SSH without sessions, a CI runner)", claim(Ownership(own_group=True))),
    ("in another service, and it calls itself sglang", claim(_unit("train.service"), comm="sglang")),
    ("in a service of which nothing is known", claim(_unit("unknown.service"))),
    ("in a user's service", claim(_unit("notebook.service", user_service=True))),
    ("in a docker container of this node", claim(_DOCKER, same_namespace=False)),
    ("the init of that docker container", claim(_DOCKER, ns_pids=(8000, 1), same_namespace=False)),
    ("in LXC container 101", claim(_LXC, same_namespace=False)),
    ("in another service of LXC container 101", claim(_LXC_SERVICE, same_namespace=False)),
    ("in a docker container inside LXC container 101", claim(_LXC_DOCKER, same_namespace=False)),
    ("in LXC container 102", claim(Ownership(container=Container("lxc", "102")), same_namespace=False)),
    ("in a container of unknown kind", claim(Ownership(container=Container("unknown", "/strange")))),
    ("in another PID namespace", claim(_NOWHERE, same_namespace=False)),
)


def rulings(one: rules.Claim) -> list[rules.Ruling]:
    return [rules.rule(one, rules.Setting(scope, **_SETTING)) for scope in SCOPES]  # type: ignore[arg-type]


def _rows() -> t.Iterator[str]:
    for words, one in CASES:
        ruled = rulings(one)
        own_first = sorted(zip(SCOPES, ruled), key=lambda pair: pair[0].name != "own")
        reason = next((why for _scope, (word, why) in own_first if word != "target"), ruled[0][1])
        cells = [f"**{word}**" if word == "target" else word for word, _why in ruled]
        yield f"| {words} | {' | '.join(cells)} | {reason} |"


@functools.lru_cache(maxsize=1)
def page() -> str:
    """The whole page."""
    names = {
        "executables": ", ".join(f"`{name}`" for name in sorted(rules.PROTECTED_EXECUTABLES)),
        "units": ", ".join(f"`{name}`" for name in sorted(rules.PROTECTED_UNITS)),
    }
    return HEAD + "\n".join(_rows()) + "\n" + PROTECTED.format(**names)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
