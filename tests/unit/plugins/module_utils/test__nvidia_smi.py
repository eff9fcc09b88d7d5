# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import pathlib

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi import (
    ESSENTIAL_QUERY,
    FULL_QUERY,
    MINIMAL_QUERY,
    MOST_GPU_QUERIES,
    FieldMemo,
    fewer_fields,
    look,
)

RECORDINGS = pathlib.Path(__file__).resolve().parents[3] / "recordings" / "nvidia-smi"
INDEX = json.loads((RECORDINGS / "index.json").read_text(encoding="utf-8"))
GPU_QUERIES = [entry for entry in INDEX["fixtures"] if entry["query"] not in ("apps", "list")]

# What --help-query-gpu of these driver series offers, as far as it is asked for here.
SINCE_470 = tuple(
    field for field in FULL_QUERY if field not in ("memory.reserved", "fabric.state", "gpu_recovery_action")
)
SINCE_418 = tuple(field for field in SINCE_470 if field != "mig.mode.current")
SINCE_535 = tuple(field for field in FULL_QUERY if field != "gpu_recovery_action")

CELLS = {
    "count": "2",
    "name": "NVIDIA H200",
    "memory.total": "143771",
    "memory.used": "0",
    "memory.free": "143156",
    "utilization.gpu": "0",
    "compute_mode": "Default",
    "persistence_mode": "Enabled",
    "driver_version": "580.159.04",
    "mig.mode.current": "Disabled",
    "memory.reserved": "616",
    "fabric.state": "Completed",
    "gpu_recovery_action": "None",
}
UUIDS = ("GPU-0d951c95-602f-417c-2d01-7e07fc10d0f9", "GPU-061bfd71-05da-2c88-8018-a460eaf5d6e7")
BUSES = ("00000000:1B:00.0", "00000000:43:00.0")


class Driver:
    """Answers like an nvidia-smi that knows these fields. gpu and apps may replace the whole answer."""

    def __init__(self, known=FULL_QUERY, gpu=None, apps=None, used=("0", "0"), apps_text=""):
        self.known, self.gpu, self.apps, self.used, self.apps_text = known, gpu, apps, used, apps_text
        self.calls = []

    def __call__(self, argv, timeout):
        assert argv[0] == "nvidia-smi"
        assert argv[2:] == ("--format=csv,noheader,nounits",)
        kind, _equals, fields = argv[1].partition("=")
        self.calls.append((kind, fields.split(","), timeout))
        if kind == "--query-compute-apps":
            return self.apps or answer(self.apps_text)
        refused = [field for field in fields.split(",") if field not in self.known]
        if refused:
            return answer(f'Field "{refused[0]}" is not a valid field to query.\n\n', exit_code=2)
        return self.gpu or answer("".join(self.row(index, fields.split(",")) for index in (0, 1)))

    def row(self, index, fields):
        own = {"index": str(index), "uuid": UUIDS[index], "pci.bus_id": BUSES[index], "memory.used": self.used[index]}
        return ", ".join({**CELLS, **own}[field] for field in fields) + "\n"

    def kinds(self):
        return [kind for kind, _fields, _timeout in self.calls]


def answer(stdout="", stderr="", exit_code=0, **others):
    return CommandResult(("nvidia-smi",), exit_code, stdout, stderr, 0.25, **others)


def test_one_gpu_query_and_one_process_query_for_each_look():
    driver = Driver()
    seen = look(driver, timeout=7.0)
    assert driver.kinds() == ["--query-gpu", "--query-compute-apps"]
    assert [timeout for _kind, _fields, timeout in driver.calls] == [7.0, 7.0]
    assert (seen.state, seen.exit_code, seen.count, seen.driver_version) == ("ok", 0, 2, "580.159.04")
    assert (seen.processes_verdict, seen.problems, seen.faulty) == ("none", (), ())
    assert seen.query_seconds == pytest.approx(0.5)
    assert [(gpu.reserved_mib, gpu.fabric_state, gpu.recovery_action) for gpu in seen.gpus] == [
        (616, "Completed", "None")
    ] * 2


def test_without_processes_only_the_gpus_are_asked_for():
    driver = Driver()
    assert look(driver, processes=False).processes_verdict == "unknown"
    assert driver.kinds() == ["--query-gpu"]


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        pytest.param(FULL_QUERY, 1, id="580"),
        pytest.param(SINCE_535, 2, id="535 to 565"),
        pytest.param(SINCE_470, 2, id="450 to 495"),
        pytest.param(SINCE_418, 2, id="390 and 418"),
        pytest.param(MINIMAL_QUERY, 2, id="a tool that knows the minimum"),
        pytest.param(("count", *ESSENTIAL_QUERY), 2, id="a tool that knows next to nothing"),
        pytest.param(ESSENTIAL_QUERY, 3, id="a tool that does not even count"),
    ],
)
def test_an_old_driver_costs_one_more_call_and_only_the_first_time(known, asked):
    driver, memo = Driver(known), FieldMemo()
    seen = look(driver, memo=memo)
    assert driver.kinds().count("--query-gpu") == asked
    assert seen.state == "ok"
    assert [gpu.used_mib for gpu in seen.gpus] == [0, 0]
    assert set(driver.calls[asked - 1][1]) <= set(known)

    driver.calls.clear()
    assert look(driver, memo=memo) == seen.__class__(**{**vars(seen), "query_seconds": 0.5})
    assert driver.kinds() == ["--query-gpu", "--query-compute-apps"]


@pytest.mark.parametrize("known", [SINCE_535, SINCE_470, SINCE_418])
def test_no_field_that_an_old_driver_knows_is_given_up(known):
    driver = Driver(known)
    look(driver)
    assert set(driver.calls[-2][1]) == set(known)


@pytest.mark.parametrize(
    "text", ['Field "memory.reserved" is not a valid field to query.\n\n', 'Field "index" is not a valid', "", "Usage"]
)
def test_a_tool_that_refuses_everything_is_not_asked_for_ever(text):
    calls = []

    def refuse(argv, timeout):
        calls.append(argv)
        return answer(text, exit_code=2)

    seen = look(refuse)
    assert (seen.state, seen.exit_code, seen.gpus) == ("error", 2, ())
    assert len(calls) <= MOST_GPU_QUERIES
    assert len(set(calls)) == len(calls), "nothing is asked twice"


@pytest.mark.parametrize("refused", [None, "nonsense", *FULL_QUERY])
@pytest.mark.parametrize("fields", [FULL_QUERY, SINCE_470, MINIMAL_QUERY, ("count", *ESSENTIAL_QUERY), ESSENTIAL_QUERY])
def test_the_next_query_is_always_smaller(fields, refused):
    steps = 0
    while fields is not None:
        assert set(ESSENTIAL_QUERY) <= set(fields)
        fewer = fewer_fields(fields, refused)
        assert fewer is None or (len(fewer) < len(fields) and refused not in fewer)
        fields = fewer
        steps += 1
    assert steps < 10


@pytest.mark.parametrize(
    ("gpu", "state"),
    [
        (answer(exit_code=None, error="not_found"), "no_tool"),
        (answer("sh: nvidia-smi: not found\n", exit_code=127), "no_tool"),
        (answer(exit_code=None, error="not_permitted"), "blocked"),
        (answer(exit_code=None, error="Exec format error"), "error"),
        (
            answer("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", exit_code=9),
            "no_driver",
        ),
        (answer("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", exit_code=12), "no_driver"),
        (answer("Failed to initialize NVML: Driver/library version mismatch\n", exit_code=18), "library_mismatch"),
        (answer("Failed to initialize NVML: Driver/library version mismatch\n", exit_code=255), "library_mismatch"),
        (answer("Failed to initialize NVML: Driver/library version mismatch\n", exit_code=231), "library_mismatch"),
        (answer("Failed to initialize NVML: Unknown Error\n", exit_code=255), "blocked"),
        (answer("Failed to initialize NVML: Insufficient Permissions\n", exit_code=4), "blocked"),
        (answer("Failed to initialize NVML: GPU access blocked by the operating system\n", exit_code=17), "blocked"),
        (answer("No devices were found\n", exit_code=6), "no_devices"),
        (answer("No devices were found\n", exit_code=0), "no_devices"),
        (answer("", exit_code=0), "error"),
        (answer("", exit_code=-9), "error"),
        (answer("", exit_code=255), "error"),
        (answer("", exit_code=None, timed_out=True), "hung"),
        (answer("", exit_code=None, timed_out=True, hung_pid=7), "hung"),
    ],
)
def test_states(gpu, state):
    driver = Driver(gpu=gpu)
    seen = look(driver)
    assert seen.state == state
    assert seen.gpus == ()
    assert seen.exit_code == gpu.exit_code
    assert (seen.processes, seen.processes_verdict) == ((), "unknown")
    assert driver.kinds() == ["--query-gpu"], "after a query that failed or hung there is no second one"


@pytest.mark.parametrize("entry", GPU_QUERIES, ids=[entry["file"] for entry in GPU_QUERIES])
def test_the_state_of_every_recording(entry):
    """A state other than ok exactly where nvidia-smi as a whole did not do its work."""
    exit_code = entry["exit_code"]
    recorded = answer(
        (RECORDINGS / entry["file"]).read_bytes().decode("utf-8", "replace"),
        entry["stderr"],
        exit_code=exit_code,
        timed_out=bool(entry.get("timed_out")),
    )
    seen = look(lambda argv, timeout: recorded, processes=False)
    expected = {
        "driver-mismatch.txt": "library_mismatch",
        "driver-mismatch-470.txt": "library_mismatch",
        "gpu-all-lost.txt": "no_devices",
        "gpu-lost-470.txt": "error",
        "gpu-lost-550.txt": "error",
        "h200-control-node-hidden.txt": "blocked",
        "hang-partial.csv": "hung",
        "inforom-warning.csv": "error",
        "no-devices.txt": "no_devices",
        "no-driver.txt": "no_driver",
        "no-library.txt": "no_driver",
        "nvml-no-permission.txt": "blocked",
        "nvml-unknown-error.txt": "blocked",
        "old-driver-unknown-field.txt": "error",
        "empty-success.txt": "error",
    }
    if exit_code != 0 or entry["expected"]["rows"] == 0:
        assert seen.state == expected[entry["file"]]
    else:
        assert entry["file"] not in expected


def test_what_a_hung_query_had_flushed_is_shown():
    driver = Driver()
    cut = driver.row(0, FULL_QUERY) + driver.row(1, FULL_QUERY)[:-3]
    seen = look(Driver(gpu=answer(cut, exit_code=None, timed_out=True, hung_pid=7)))
    assert (seen.state, seen.hung_pid, len(seen.gpus)) == ("hung", 7, 1)


@pytest.mark.parametrize(
    ("apps", "says"),
    [
        (answer(exit_code=None, timed_out=True, hung_pid=9), "did not answer within 5 s"),
        (answer("No devices were found\n", exit_code=6), 'ended with 6 ("No devices were found")'),
        (answer(exit_code=None, error="not_found"), "could not be started (not_found)"),
    ],
)
def test_a_process_query_that_fails_is_a_problem(apps, says):
    seen = look(Driver(apps=apps), timeout=5.0)
    assert (seen.state, seen.exit_code, seen.processes_verdict) == ("ok", 0, "unknown")
    assert [gpu.used_mib for gpu in seen.gpus] == [0, 0]
    assert len(seen.problems) == 1
    assert says in seen.problems[0]
    assert seen.hung_pid == apps.hung_pid
    assert seen.elsewhere == ()


@pytest.mark.parametrize(
    ("apps", "used", "verdict", "problems", "faulty"),
    [
        pytest.param("", ("0", "0"), "none", (0, 0), (), id="nobody"),
        pytest.param(f"{UUIDS[0]}, {BUSES[0]}, 7, x, 5\n", ("9", "0"), "some", (0, 0), (), id="a user of a busy GPU"),
        pytest.param(f"{UUIDS[0]}, {BUSES[0]}, 7, x, 5\n", ("0", "0"), "some", (1, 0), (), id="a user of a GPU at 0"),
        pytest.param(
            f"{UUIDS[0]}, {BUSES[0]}, [GPU is lost], [GPU is lost], [GPU is lost]\n",
            ("0", "0"),
            "unknown",
            (1, 0),
            (0,),
            id="a marker",
        ),
        pytest.param(
            f"MIG-0b1c, {BUSES[1]}, 7, x, 5\n", ("0", "0"), "some", (0, 1), (), id="a MIG UUID, found by its bus id"
        ),
    ],
)
def test_processes_only_add_suspicion(apps, used, verdict, problems, faulty):
    seen = look(Driver(apps_text=apps, used=used))
    assert seen.processes_verdict == verdict
    assert tuple(len(gpu.problems) for gpu in seen.gpus) == problems
    assert seen.faulty == faulty
    assert seen.problems == ()


def test_a_process_in_a_mig_instance_is_one_of_the_parent():
    seen = look(Driver(apps_text=f"MIG-0b1c, {BUSES[1]}, 7, x, 5\n"))
    assert [process.gpu_uuid for process in seen.processes] == [UUIDS[1]]


def test_a_process_on_a_gpu_that_was_not_listed_is_about_another_gpu():
    other = "GPU-ffffffff-05da-2c88-8018-a460eaf5d6e7"
    seen = look(Driver(apps_text=f"{other}, 00000000:99:00.0, 7, x, 5\n"))
    assert len(seen.problems) == 1
    assert seen.problems == seen.elsewhere


def test_secrets_in_process_names_are_masked():
    seen = look(Driver(apps_text=f"{UUIDS[0]}, {BUSES[0]}, 7, python3 -m x --api-key sk-very-secret --tp 8, 5\n"))
    assert "sk-very-secret" not in (seen.processes[0].name or "")
    assert "--tp 8" in (seen.processes[0].name or "")


@pytest.mark.parametrize("folder", ["0000:1b:00.0", "0000:1B:00.0"])
def test_minors_come_from_the_kernel_module(tmp_path, folder):
    gpus = tmp_path / "driver" / "nvidia" / "gpus"
    (gpus / folder).mkdir(parents=True)
    (gpus / folder / "information").write_text(
        "Model: \t\t NVIDIA H200\nBus Location: \t 0000:1b:00.0\nDevice Minor: \t 5\nGPU Excluded:\t No\n",
        encoding="utf-8",
    )
    (gpus / "0000:43:00.0").mkdir()  # without a file: as a container sees it that masks the content
    seen = look(Driver(), proc_root=str(tmp_path))
    assert [gpu.minor for gpu in seen.gpus] == [5, None]
    assert [gpu.minor for gpu in look(Driver(), proc_root=str(tmp_path / "absent")).gpus] == [None, None]


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (3, "error"), (4, "blocked"), (5, "error"), (6, "no_devices"), (7, "error"), (8, "error"), (9, "no_driver"),
        (10, "error"), (11, "error"), (12, "no_driver"), (13, "error"), (16, "error"), (17, "blocked"),
        (18, "library_mismatch"), (19, "error"), (125, "error"), (126, "blocked"), (127, "no_tool"), (128, "error"),
        (None, "error"),
    ],
)  # fmt: skip
def test_what_an_exit_code_says_where_the_text_says_nothing(code, state):
    assert look(Driver(gpu=answer("", exit_code=code))).state == state


def test_the_first_line_is_shown_where_no_gpu_is():
    assert look(Driver()).first_line == ""
    assert look(Driver(gpu=answer("", "Segmentation fault", exit_code=139))).first_line == "Segmentation fault"
    missing = look(Driver(gpu=answer(exit_code=None, error="not_found")))
    assert (missing.state, missing.first_line) == ("no_tool", "nvidia-smi: not found")


def test_what_is_elsewhere_is_the_process_and_not_an_earlier_problem():
    rows = "".join(Driver().row(index, FULL_QUERY) for index in (0, 1))
    lost = "Unable to determine the device handle for GPU2: 0000:99:00.0: Unknown Error\n"
    stranger = "GPU-ffffffff-602f-417c-2d01-7e07fc10d0f9, 00000000:99:00.0, 7, x, 5\n"
    seen = look(Driver(gpu=answer(rows + lost), apps_text=stranger))
    assert len(seen.problems) > 1
    assert [one for one in seen.elsewhere if "which the GPU query did not list" in one]


def test_a_gpu_of_the_kernel_that_cannot_be_read_does_not_hide_the_others(tmp_path):
    folder = tmp_path / "driver/nvidia/gpus"
    for number, bus in enumerate(BUSES):
        name = bus[4:].lower()
        (folder / name).mkdir(parents=True)
        (folder / name / "information").write_text(f"Model: H200\nDevice Minor: \t {number + 4}\n")
    for number in range(6):
        (folder / f"0000:0{number}:00.0").mkdir()
    assert [gpu.minor for gpu in look(Driver(), proc_root=str(tmp_path)).gpus] == [4, 5], "by the folder's own name"
