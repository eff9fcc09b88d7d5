# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A simulated 8-GPU node in a folder: simulate.py COMMAND NODE ... (README.md beside this file says what it plays).

Not imitated: real device numbers (the nodes are plain files), cgroups, containers, state D, CUDA itself. What each tool
leaves out stands at the head of its file.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import typing as t

sys.dont_write_bytecode = True  # nothing outside NODE is written

import node as nodes  # noqa: E402
import processes  # noqa: E402
import stories  # noqa: E402


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="simulate.py", description="A simulated GPU node in a folder.")
    commands = top.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.add_argument("node", metavar="NODE")
        return made

    create = command("create", "Make the node (again: completes it, keeps UUIDs, port and scenario).")
    create.add_argument("--gpus", type=int, default=8)
    create.add_argument("--memory-mib", type=int, default=nodes.MEMORY_MIB)
    create.add_argument("--name", default=nodes.NAME)
    create.add_argument("--python", default=nodes.default_python(), help="interpreter of all the node's programs")
    create.add_argument("--port", type=int, help="the server's port (default: a free one, kept in node.json)")

    keeper = os.environ.get("CLEANSLATE_SIMULATED_KEEPER")
    create.add_argument(
        "--keeper",
        type=int,
        metavar="PID",
        default=keeper and int(keeper),
        help="the node's processes end when this process has (default: $CLEANSLATE_SIMULATED_KEEPER)",
    )

    start = command("start-server", "Start a server by hand: detached, own session, no unit.")
    start.add_argument("--config", help="config file; default: a small one written to NODE/by-hand.yaml")
    start.add_argument("--wait", choices=("forked", "loaded", "ready"), default="forked")
    start.add_argument("--timeout", type=float, default=60.0)
    start.add_argument("arguments", nargs="*", help="further arguments of sglang.launch_server, behind --")

    story = command("story", "Bring the node into a named state; returns when it is reached.")
    story.add_argument("story", choices=sorted(stories.STORIES))
    story.add_argument("--gpu", type=int, default=1)
    story.add_argument("--mib", type=int, default=stories.MIB)
    story.add_argument("--ignore-term", action="store_true", help="the left-over process ignores SIGTERM")

    script = command("script", "Set scenario.json ({} or none: no faults). Call numbers and times start anew.")
    script.add_argument("scenario", metavar="JSON|FILE")

    status = command("status", "Memory, processes and what they hold, by the simulator's own means.")
    status.add_argument("--json", action="store_true")

    hold = command("hold", "Start a plain holder and print its pid.")
    hold.add_argument("--gpu", type=int, required=True)
    hold.add_argument("--mib", type=int, default=1000)
    hold.add_argument("--as", dest="name", metavar="TITLE", help="its title (comm is cut to 15 characters)")
    hold.add_argument("--map-only", action="store_true", help="mappings without a descriptor")
    hold.add_argument("--no-map", action="store_true", help="descriptors without a mapping: a monitor, holds no memory")
    hold.add_argument("--ignore-term", action="store_true")
    hold.add_argument("--zombie-leader", action="store_true", help="the main thread ends, a second thread lives on")
    hold.add_argument("--orphan", action="store_true", help="a fork that inherited the context of its dead parent")
    hold.add_argument("--unreaped", action="store_true", help="once killed it stays Z while its memory is up: dying")
    hold.add_argument("--second-node", metavar="PATH", help="open this path (a hard link) instead of the GPU's node")
    hold.add_argument("--release-delay", type=float, metavar="S", help="memory stays this long after its death")

    command("stop", "End every process of the node: its memory is free then, its files stay.")
    command("destroy", "stop, then remove the folder.")
    return top


def hold(node: str, options: argparse.Namespace) -> int:
    about = nodes.read(node)
    if options.gpu >= len(about["gpus"]):
        raise nodes.NodeError(f"--gpu {options.gpu}: the node has GPUs 0 to {len(about['gpus']) - 1}")
    shapes = (("zombie", options.zombie_leader), ("child", options.orphan), ("unreaped", options.unreaped))
    shape = [word for word, wanted in shapes if wanted]
    return stories.start_holder(
        node, gpu=options.gpu, mib=options.mib, name=options.name, map_only=options.map_only, no_map=options.no_map,
        ignore_term=options.ignore_term, second_node=options.second_node, shape=shape,
        release_delay=options.release_delay,
    )  # fmt: skip


def set_script(node: str, text: str) -> None:
    nodes.read(node)
    if not text.lstrip().startswith("{"):
        with open(text, encoding="utf-8") as handle:
            text = handle.read()
    scenario = json.loads(text)
    if not isinstance(scenario, dict):
        raise nodes.NodeError("a scenario is a JSON object")
    stories.check_scenario(scenario)
    path = os.path.join(node, "scenario.json")
    nodes.write_atomically(path, json.dumps({**nodes.EMPTY_SCENARIO, **scenario}, indent=2) + "\n")


def status(node: str) -> dict[str, t.Any]:
    about = nodes.read(node)
    return {
        "node": node,
        "port": about["port"],
        "gpus": stories.memory(node),
        "processes": [
            {"pid": p.pid, "parent": p.parent, "state": p.state, "role": p.role, "comm": p.comm, "cmdline": p.cmdline,
             "fds": sorted(p.fds), "maps": sorted(p.maps)}
            for p in sorted(processes.belonging(node))
        ],
    }  # fmt: skip


def show(seen: t.Mapping[str, t.Any]) -> None:
    print("node {}, server port {}".format(seen["node"], seen["port"]))
    for gpu in seen["gpus"]:
        print(f"GPU {gpu['minor']}  {gpu['used_mib']:6d} MiB  {gpu['uuid']}")
    for process in seen["processes"]:
        mapped = sorted(name[4:] for name in process["maps"] if name.startswith("dev/nvidia"))
        print(
            f"pid {process['pid']} (parent {process['parent']}, {process['state']}) {process['role']}: "
            f"{process['cmdline'] or process['comm']}; {len(process['fds'])} files open, "
            f"maps {', '.join(mapped) or 'nothing'}"
        )


def run(options: argparse.Namespace) -> int:
    node = os.path.realpath(options.node)
    if options.command == "create":
        about = nodes.create(
            node, gpus=options.gpus, memory_mib=options.memory_mib, name=options.name, port=options.port,
            python=os.path.abspath(options.python),
        )  # fmt: skip
        processes.keep(node, options.keeper)
        print(f"node {node}: {len(about['gpus'])} GPUs, server port {about['port']}")
    elif options.command == "start-server":
        nodes.read(node)
        pid = stories.start_server(node, options.config, options.arguments, options.wait, options.timeout)
        print(pid)
    elif options.command == "story":
        nodes.read(node)
        print(stories.tell(node, options.story, gpu=options.gpu, mib=options.mib, ignore_term=options.ignore_term))
    elif options.command == "script":
        set_script(node, options.scenario)
    elif options.command == "hold":
        print(hold(node, options))
    elif options.command == "status":
        seen = status(node)
        print(json.dumps(seen, indent=2)) if options.json else show(seen)
    else:
        nodes.check_ours(node)
        left = processes.stop(node)
        if left:
            print("still there after SIGKILL: {}".format(", ".join(str(p.pid) for p in left)), file=sys.stderr)
            return 1
        if options.command == "destroy":
            nodes.destroy(node)
        else:
            nodes.forget(node)
    return 0


def main() -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        return run(parser().parse_args())
    except (nodes.NodeError, OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"simulate.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
