# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of device nodes, of the globs that find them, and of the GPUs that are asked for."""

from __future__ import annotations

import functools

from release_row import ReleaseFault

ROOT = ("root",)
EVERYBODY = {"scope": "all", "allow_foreign": True}
Node = functools.partial(ReleaseFault, "Device nodes")
Subset = functools.partial(ReleaseFault, "GPUs that are asked for")

NODES: tuple[ReleaseFault, ...] = (
    Node("a stale node of another driver", "somebody uses that driver", "stale_node", "free", needs=ROOT,
         lives=("stranger",), says="nvidia-uvm"),
    Node("a stale node, with every right", "its user is in compute-apps", "computing_stranger_on_a_stale_node", "free",
         needs=ROOT, lives=("stranger",), options=EVERYBODY),
    Node("nvidia0 has the number of /dev/null", "every process has that open", "null_as_a_gpu", "incomplete", "check",
         needs=ROOT, options=EVERYBODY, expects={"would_signal": []}),
    Node("nvidia0 is a link to /dev/null", "every process has that open", "link_to_null", "incomplete", "check",
         options=EVERYBODY, expects={"would_signal": []}),
    Node("nvidia0 is a link to nowhere", "nothing else is there", "dangling_link", "incomplete",
         expects={"failed": True}),
    Node("a pipe, a socket and a folder between the nodes", "somebody has the pipe open", "odd_files", "released",
         dies=("worker",), lives=("stranger",)),
    Node("a plain file below /dev", "somebody has it mapped", "plain_file_among_devices", "incomplete", needs=ROOT,
         lives=("stranger",), options=EVERYBODY),
    Node("nvidia0 is a link to the C library", "every process has that mapped", "link_to_a_library", "incomplete",
         "check", "is a link to a plain file", options=EVERYBODY, expects={"would_signal": []}),
    Node("nvidia0 is a hard link to a program", "somebody runs it", "hard_link_to_a_program", "incomplete",
         says="with something in it", lives=("stranger",)),
    Node("nvidia1 lies where everybody may write", "somebody has it mapped", "folder_of_everybody", "incomplete",
         says="others than root and this user", lives=("stranger",)),
    Node("the glob is /dev/*, with every right", "the real /dev of this machine", "real_dev", "incomplete", "check",
         options=EVERYBODY, expects={"would_signal": []}),
    Node("the glob is /*, with every right", "the root of this machine", "whole_root", ("incomplete", "free"), "check",
         options=EVERYBODY, expects={"would_signal": []}),
    Node("a greedy glob over real nodes", "notes and another driver's node lie beside them", "greedy_glob", "released",
         needs=ROOT, dies=("worker",), lives=("reader", "stranger")),
    Node("a greedy glob over files", "somebody has the notes mapped", "greedy_glob_of_files", "released",
         dies=("worker",), lives=("reader",)),
    Node("there is no node", "the glob finds nothing", "no_node_at_all", "incomplete", expects={"failed": True}),
    Node("there is no node, at the gate", "all GPUs read 0 MiB", "no_node_at_all", "unknown", "gate"),
    Node("there is no node, in the start guard", "all GPUs read 0 MiB", "no_node_at_all", "gave_up", "guard"),
    Node("the node was removed and made anew", "the old one is held", "node_made_anew", "released", needs=ROOT,
         dies=("worker",)),
    Node("a node by mknod in another mount namespace", "nobody else sees its path", "node_in_another_mount_namespace",
         "released", needs=ROOT, dies=("worker",)),
)  # fmt: skip

SUBSETS: tuple[ReleaseFault, ...] = (
    Subset("one of two GPUs of a unit", "two servers, GPU 1 and GPU 5", "two_of_two_users", "released", needs=ROOT,
           dies=("worker",), lives=("neighbour",), peer="SGLang's killall"),
    Subset("a GPU that nobody uses", "two servers, GPU 1 and GPU 5", "subset_that_nobody_uses", ("foreign", "free"),
           needs=ROOT, lives=("worker", "neighbour")),
    Subset("a GPU that is not there", "one server", "subset_that_is_not_there", ("foreign", "free"), needs=ROOT,
           lives=("worker",)),
    Subset("a GPU by its index", "numbers change", "subset_by_index", "options", lives=("worker",),
           says="gpus holds '1'"),
    Subset("a GPU by its bus id", "one server", "subset_by_bus_id", "options", lives=("worker",), says="gpus holds"),
    Subset("ten GPUs where eight are expected", "all idle", "nothing", "unknown", "gate", gpus=10,
           options={"expected_count": 8}),
    Subset("ten GPUs where eight are expected, in the start guard", "all idle", "nothing", "gave_up", "guard", gpus=10,
           options={"expected_count": 8}),
    Subset("ten GPUs where eight are expected, in the facts", "all idle", "nothing", "unknown", "facts", gpus=10,
           options={"expected_count": 8}),
    Subset("eight of ten by UUID", "somebody works on the other two", "neighbours_beside_the_subset", "idle", "gate",
           gpus=10, lives=("neighbour",)),
)  # fmt: skip

DEVICE_FAULTS: tuple[ReleaseFault, ...] = (*NODES, *SUBSETS)
