# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import stat
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._device_nodes import LAST_GPU_MINOR
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_nodes import (
    NeededNode,
    fault_of,
    needed_nodes,
    of_the_driver,
    sound_nodes,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.preflight_node import (
    UUIDS,
    PreflightNode,
    device,
    result,
)

OTHERS = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"]


def names(*minors: int) -> list[str]:
    return [*(f"nvidia{minor}" for minor in minors), *OTHERS]


@pytest.mark.parametrize(
    ("expectation", "driver", "there", "needed", "wanted"),
    [
        (Expectation(count=4), (), 4, names(0, 1, 2, 3), 4),
        (Expectation(count=2), (4, 5), 0, names(4, 5), 2),  # this container got the last ones
        (Expectation(count=2), range(8), 2, names(0, 1), 2),  # two of eight, whichever
        (Expectation(count=4), range(8), 2, names(0, 1), 4),
        (Expectation(count=3), (0, 2), 0, names(0, 1, 2), 3),
        (Expectation(uuids=(UUIDS[5], UUIDS[3].upper())), range(8), 0, names(3, 5), 2),
        (Expectation(uuids=(UUIDS[5], UUIDS[3])), (), 3, names(0, 1, 2), 2),
        (Expectation(uuids=(UUIDS[5], UUIDS[3])), (5,), 3, names(5, 0, 1, 2), 2),
        (Expectation(), (0, 2), 0, names(0, 2), 2),
        (Expectation(), (), 0, names(0), 1),
    ],
)
def test_which_nodes(
    tmp_path: pathlib.Path,
    expectation: Expectation,
    driver: tuple[int, ...],
    there: int,
    needed: list[str],
    wanted: int,
) -> None:
    node = PreflightNode(tmp_path, gpus=there)
    node.driver_has(driver)
    found = needed_nodes(node.context(expectation=expectation))
    assert ([one.name for one in found.nodes], found.gpus_wanted) == (needed, wanted)


def test_the_folders_of_the_globs(tmp_path: pathlib.Path) -> None:
    node = PreflightNode(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "two/nvidiactl").write_text("")
    for devices in (
        (f"{tmp_path}/one/nvidia*", f"{tmp_path}/two/nvidia*"),
        (f"{tmp_path}/one/*", f"{tmp_path}/two"),
        (f"{tmp_path}/[ot]*/nvidia*",),
    ):
        found = needed_nodes(node.context(devices=devices, stat=os.stat))
        assert [one.path for one in found.present] == [f"{tmp_path}/two/nvidiactl"]
        assert found.missing[0].path == f"{tmp_path}/one/nvidia0"


@pytest.mark.parametrize(
    ("name", "found", "what"),
    [
        ("nvidia3", device(195, 3), None),
        ("nvidia3", device(195, 2), "has the minor 2, but a node of that name has 3"),
        ("nvidia3", device(226, 3), "has the stale major 226, but /proc/devices gives nvidia 195"),
        ("nvidiactl", device(195, 255), None),
        ("nvidiactl", device(195, 0), "has the minor 0, but a node of that name has 255"),
        ("nvidia-uvm", device(509, 0), None),
        ("nvidia-uvm", device(510, 0), "has the stale major 510, but /proc/devices gives nvidia-uvm 509"),
        ("nvidia-uvm-tools", device(509, 1), None),
        ("nvidia-uvm-tools", device(509, 0), "has the minor 0, but a node of that name has 1"),
        (
            "nvidia-uvm",
            result(stat.S_IFREG, 0o644),
            "is a plain file: the container was started before the host had the node",
        ),
        (
            "nvidia0",
            result(stat.S_IFDIR, 0o755),
            "is a folder: something was mounted there before the host had the node",
        ),
        ("nvidia0", result(stat.S_IFIFO, 0o644), "is no character device (mode 10644)"),
        ("nvidia0", result(stat.S_IFBLK, 0o644, (195, 0)), "is no character device (mode 60644)"),
    ],
)
def test_what_stands_at_the_path(tmp_path: pathlib.Path, name: str, found: os.stat_result, what: str | None) -> None:
    fault = fault_of(NeededNode(name, f"/dev/{name}", found), PreflightNode(tmp_path).context())
    assert (fault.what if fault else None) == what


def test_the_cure_of_a_stale_number_says_what_carries_it(tmp_path: pathlib.Path) -> None:
    fault = fault_of(NeededNode("nvidia-uvm", "/dev/nvidia-uvm", device(510, 0)), PreflightNode(tmp_path).context())
    assert fault is not None
    for word in ("start the container again", "lxc.cgroup2.devices.allow", "fixed number", "devN"):
        assert word in fault.cure


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("195 nvidia-frontend\n195 nvidiactl\n509 nvidia-uvm", None),  # until driver 550
        ("195 nvidiactl\n509 nvidia-uvm", None),
        ("509 nvidia-uvm", "has no driver behind it: /proc/devices has no nvidia"),
        ("1 mem", "has no driver behind it: /proc/devices has no nvidia"),
        ("1 mem\n\nBlock devices:\n195 nvidia", "has no driver behind it: /proc/devices has no nvidia"),
    ],
)
def test_names_that_the_driver_gave_its_number(tmp_path: pathlib.Path, line: str, what: str | None) -> None:
    node = PreflightNode(tmp_path)
    node.write("devices", f"Character devices:\n{line}\n")
    fault = fault_of(NeededNode("nvidia0", "/dev/nvidia0", device(195, 0)), node.context())
    assert (fault.what if fault else None) == what


def test_a_uvm_node_without_the_module(tmp_path: pathlib.Path) -> None:
    node = PreflightNode(tmp_path)
    node.write("devices", "Character devices:\n195 nvidia\n241 nvidia-uvm-of-another-name\n")
    fault = fault_of(NeededNode("nvidia-uvm", "/dev/nvidia-uvm", device(509, 0)), node.context())
    assert fault is not None
    assert fault.what == "has no driver behind it: /proc/devices has no nvidia-uvm"
    assert "nvidia-modprobe -u -c=0" in fault.cure


def test_majors_that_were_given(tmp_path: pathlib.Path) -> None:
    context = PreflightNode(tmp_path).context(majors=(4, 5))
    assert fault_of(NeededNode("nvidia0", "/dev/nvidia0", device(4, 20)), context) is None
    fault = fault_of(NeededNode("nvidia0", "/dev/nvidia0", device(195, 0)), context)
    assert fault is not None
    assert fault.what == "has the major 195, but the option majors lists 4, 5"


def test_plain_files_stand_in_outside_dev_only(tmp_path: pathlib.Path) -> None:
    plain = NeededNode("nvidia0", "/srv/dev/nvidia0", result(stat.S_IFREG, 0o644))
    node = PreflightNode(tmp_path)
    assert fault_of(plain, node.context(devices=("/srv/dev/nvidia*",))) is None
    assert fault_of(plain, node.context(devices=("/srv/dev/nvidia*", "/dev/nvidia*"))) is not None
    folder = NeededNode("nvidia0", "/srv/dev/nvidia0", result(stat.S_IFDIR, 0o755))
    assert fault_of(folder, node.context(devices=("/srv/dev/nvidia*",))) is not None


def test_what_must_not_be_opened(tmp_path: pathlib.Path) -> None:
    node = PreflightNode(tmp_path, gpus=2)
    node.paths["/dev/nvidia1"] = device(226, 1)
    del node.paths["/dev/nvidia-uvm-tools"]
    context = node.context(expectation=Expectation(count=2))
    sound, unsure = sound_nodes(context)
    assert [one.name for one in sound] == ["nvidia0", "nvidiactl", "nvidia-uvm"]
    assert unsure == ()
    os.unlink(node.proc / "devices")  # 195 is fixed; the number of uvm is now anybody's guess
    sound, unsure = sound_nodes(context)
    assert [one.name for one in sound] == ["nvidia0", "nvidiactl"]
    assert [one.name for one in unsure] == ["nvidia-uvm"]


def test_gpu_nodes_and_the_others(tmp_path: pathlib.Path) -> None:
    node = PreflightNode(tmp_path, gpus=2)
    found = needed_nodes(node.context(expectation=Expectation(count=2)))
    assert [one.name for one in found.gpus_present] == ["nvidia0", "nvidia1"]


@pytest.mark.parametrize(
    ("changes", "of_it"),
    [
        ({}, True),
        ({"majors": (195,)}, True),
        ({"majors": (4, 195)}, True),
        ({"majors": (4,)}, False),
        ({"devices": ("/srv/dev/nvidia*",)}, False),
    ],
)
def test_whose_nodes_they_are(tmp_path: pathlib.Path, changes: dict[str, t.Any], of_it: bool) -> None:
    assert of_the_driver(PreflightNode(tmp_path).context(**changes)) is of_it


@pytest.mark.parametrize("minor", [LAST_GPU_MINOR, LAST_GPU_MINOR + 1])
def test_the_last_number_of_a_gpu_counts_too(tmp_path: pathlib.Path, minor: int) -> None:
    node = PreflightNode(tmp_path, gpus=0)
    node.paths[f"/dev/nvidia{minor}"] = device(195, minor)
    found = needed_nodes(node.context(expectation=Expectation(uuids=(UUIDS[0],))))
    assert [one.name for one in found.gpus_present] == ([f"nvidia{minor}"] if minor == LAST_GPU_MINOR else [])


def test_where_nothing_says_the_number_the_driver_s_fixed_one_counts(tmp_path: pathlib.Path) -> None:
    node = PreflightNode(tmp_path)
    os.unlink(node.proc / "devices")
    found = fault_of(NeededNode("nvidia0", "/dev/nvidia0", device(226, 0)), node.context())
    assert found is not None
    assert found.what == "has the stale major 226, but /proc/devices gives nvidia 195"
    assert fault_of(NeededNode("nvidia-uvm", "/dev/nvidia-uvm", None), node.context()) is None
    plain = NeededNode("nvidia-uvm", "/srv/dev/nvidia-uvm", result(stat.S_IFREG, 0o644))
    node.paths = {"/srv/dev/nvidia-uvm": plain.found} if plain.found else {}
    sound, unsure = sound_nodes(node.context(devices=("/srv/dev/nvidia*",)))
    assert ([one.name for one in sound], unsure) == (["nvidia-uvm"], ()), "a plain file has no number"


def test_a_gpu_of_which_the_driver_tells_nothing_hides_no_other(tmp_path: pathlib.Path) -> None:
    node = PreflightNode(tmp_path, gpus=0)
    node.driver_has((1, 2))
    (node.proc / "driver/nvidia/gpus/0000:00:00.0").mkdir()
    found = needed_nodes(node.context(expectation=Expectation()))
    assert [one.name for one in found.nodes][:2] == ["nvidia1", "nvidia2"]


def test_the_folder_of_a_file_that_is_named(tmp_path: pathlib.Path) -> None:
    """As long as it is no folder itself, what is named is a node among others."""
    node = PreflightNode(tmp_path)
    found = needed_nodes(node.context(devices=("/dev/nvidia0", "/srv/*/nvidia*")))
    assert found.nodes[0].path == "/dev/nvidia0"
    nowhere = needed_nodes(node.context(devices=("/no*where/one/nvidia*", "/no*where/two/nvidia*")))
    assert nowhere.nodes[0].path == "/no*where/one/nvidia0"
