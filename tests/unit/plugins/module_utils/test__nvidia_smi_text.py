# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import pathlib

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi_text import (
    bus_key,
    first_line,
    is_gpu_uuid,
    parse_gpus,
    parse_processes,
    refused_field,
)

RECORDINGS = pathlib.Path(__file__).resolve().parents[3] / "recordings" / "nvidia-smi"
INDEX = json.loads((RECORDINGS / "index.json").read_text(encoding="utf-8"))
GPU_QUERIES = [entry for entry in INDEX["fixtures"] if entry["query"] not in ("apps", "list")]
APPS_QUERIES = [entry for entry in INDEX["fixtures"] if entry["query"] == "apps"]

FIELDS = ("count", "index", "uuid", "pci.bus_id", "name", "memory.total", "memory.used", "utilization.gpu")
UUIDS = tuple(f"GPU-0d951c95-602f-417c-2d01-7e07fc10d0f{number}" for number in range(8))


def names(entries):
    return [entry["file"] for entry in entries]


def recorded(entry):
    return (RECORDINGS / entry["file"]).read_bytes().decode("utf-8", "replace")


def row(index=0, count=1, uuid=None, bus="00000000:1B:00.0", name="NVIDIA H200", total="143771", used="0", load="0"):
    return ", ".join((str(count), str(index), uuid or UUIDS[index], bus, name, total, used, load))


def parse(*lines, stderr="", finished=True, end="\n"):
    return parse_gpus("\n".join(lines) + end, stderr, FIELDS, finished=finished)


@pytest.mark.parametrize("entry", GPU_QUERIES, ids=names(GPU_QUERIES))
def test_every_recorded_gpu_query(entry):
    expected = entry["expected"]
    fields = INDEX["queries"][entry["query"]]["fields"]
    rows = parse_gpus(recorded(entry), entry["stderr"], fields, finished=not entry.get("timed_out"))
    used = {gpu.index: gpu.used_mib for gpu in rows.gpus}
    assert len(rows.gpus) == expected["rows"]
    assert [used.get(index) for index in range(len(expected["used_mib"]))] == expected["used_mib"]
    assert list(rows.faulty) == expected["faulty"]
    assert [gpu.index for gpu in rows.gpus if gpu.mig] == expected.get("mig", [])
    unsupported = [gpu.index for gpu in rows.gpus if any("does not report its memory" in one for one in gpu.problems)]
    assert unsupported == expected.get("unsupported", [])


@pytest.mark.parametrize("entry", APPS_QUERIES, ids=names(APPS_QUERIES))
def test_every_recorded_process_query(entry):
    idle = parse_gpus((RECORDINGS / "idle-8.csv").read_text(encoding="utf-8"), "", INDEX["queries"]["std"]["fields"])
    index = {gpu.uuid: gpu.index for gpu in idle.gpus}
    listed = parse_processes(recorded(entry), entry["stderr"])
    processes = [
        {"gpu": index[one.gpu_uuid], "pid": one.process.pid, "name": one.process.name, "used_mib": one.process.used_mib}
        for one in listed.rows
        if one.process
    ]
    if "processes" in entry["expected"]:
        assert processes == entry["expected"]["processes"]
    assert [index[one.gpu_uuid] for one in listed.rows if not one.process] == entry["expected"].get("faulty", [])
    assert listed.problems == ()


def test_a_sound_row():
    rows = parse(row(total="143771", used="42103", load="37"))
    (gpu,) = rows.gpus
    assert (gpu.index, gpu.uuid, gpu.bus_id, gpu.name) == (0, UUIDS[0], "00000000:1B:00.0", "NVIDIA H200")
    assert (gpu.total_mib, gpu.used_mib, gpu.utilization_pct) == (143771, 42103, 37)
    assert (gpu.reserved_mib, gpu.mig, gpu.persistence, gpu.recovery_action, gpu.fabric_state) == (None,) * 5
    assert (gpu.problems, rows.problems, rows.faulty, rows.count) == ((), (), (), 1)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(row() + ", 0", id="a field too many"),
        pytest.param(row().rpartition(", ")[0], id="a field too few"),
        pytest.param(row(name="NVIDIA, H200"), id="a comma in a name"),
        pytest.param(row(index="x", uuid=UUIDS[0]), id="no index"),
        pytest.param(row(index="-1", uuid=UUIDS[0]), id="a negative index"),
        pytest.param(row(index="\u0661", uuid=UUIDS[0]), id="a digit that is not ASCII"),
        pytest.param(row(index="9" * 40, uuid=UUIDS[0]), id="an absurd index"),
        pytest.param(row(uuid=UUIDS[0][:-1]), id="a short UUID"),
        pytest.param(row(uuid="MIG-" + UUIDS[0][4:]), id="a MIG UUID"),
        pytest.param(row(uuid="[Unknown Error]"), id="a marker for the UUID"),
        pytest.param("No devices were found", id="a sentence"),
        pytest.param("ERR!", id="a word"),
        pytest.param(".", id="a lone dot"),
    ],
)
def test_a_line_that_is_no_row_is_a_problem_and_never_skipped(line):
    rows = parse(line, row())
    assert len(rows.gpus) == 1
    assert len(rows.problems) == 1
    assert rows.elsewhere == ()


@pytest.mark.parametrize(
    "marker",
    [
        "[GPU is lost]",
        "[GPU requires reset]",
        "[Unknown Error]",
        "[Insufficient Permissions]",
        "[Not Found]",
        "[Timeout]",
        "[Function Not Found]",
        "[something that a later driver says]",
        "[]",
    ],
)
@pytest.mark.parametrize("field", ["total", "used", "load", "name", "bus"])
def test_an_error_marker_in_any_column_taints_the_row(field, marker):
    rows = parse(row(**{field: marker}))
    (gpu,) = rows.gpus
    assert len(gpu.problems) == 1
    assert marker in gpu.problems[0]
    assert rows.faulty == (0,)
    assert gpu.used_mib == (None if field == "used" else 0)


@pytest.mark.parametrize(
    "text", ["[N/A]", "[Not Supported]", "[Requested functionality has been deprecated]", "N/A", ""]
)
@pytest.mark.parametrize("field", ["total", "load", "name", "bus"])
def test_harmless_texts_do_not_taint_the_row(field, text):
    rows = parse(row(**{field: text}))
    assert (rows.gpus[0].problems, rows.faulty, rows.problems) == ((), (), ())


@pytest.mark.parametrize("text", ["[N/A]", "[Not Supported]", "N/A", ""])
def test_memory_that_is_not_reported_is_null_and_a_problem_but_no_fault(text):
    rows = parse(row(used=text))
    assert rows.gpus[0].used_mib is None
    assert len(rows.gpus[0].problems) == 1
    assert rows.faulty == ()


@pytest.mark.parametrize("text", ["ERR!", "-1", "0.0", "0 MiB", "1e3", "0x0", "\u0660", "none"])
def test_memory_that_is_no_number_is_null_and_a_fault(text):
    rows = parse(row(used=text))
    assert rows.gpus[0].used_mib is None
    assert len(rows.gpus[0].problems) == 1
    assert rows.faulty == (0,)


@pytest.mark.parametrize(
    ("action", "problem"),
    [("None", False), ("[N/A]", False), ("", False), ("Reset", True), ("Reboot", True), ("Drain", True)],
)
def test_a_recovery_that_the_driver_asks_for_is_a_problem(action, problem):
    rows = parse_gpus(f"0, {UUIDS[0]}, 0, {action}\n", "", ("index", "uuid", "memory.used", "gpu_recovery_action"))
    assert bool(rows.gpus[0].problems) is problem
    assert rows.faulty == ((0,) if problem else ())


@pytest.mark.parametrize(
    ("mode", "mig", "problem"),
    [("Enabled", True, False), ("Disabled", False, False), ("[N/A]", False, False), ("[Unknown Error]", None, True)],
)
def test_mig(mode, mig, problem):
    rows = parse_gpus(f"0, {UUIDS[0]}, 0, {mode}\n", "", ("index", "uuid", "memory.used", "mig.mode.current"))
    assert (rows.gpus[0].mig, bool(rows.gpus[0].problems)) == (mig, problem)


@pytest.mark.parametrize(
    ("message", "faulty"),
    [
        ("Unable to determine the device handle for GPU3: 0000:61:00.0: Unknown Error", 3),
        ("Unable to determine the device handle for GPU0000:61:00.0: Unknown Error", "0000:61:00.0"),
        ("Unable to determine the device handle for GPU 0000:61:00.0: GPU is lost.  Reboot", "0000:61:00.0"),
        ("Unable to determine the device handle for gpu 0000:61:00.0: Unknown Error", "0000:61:00.0"),
        ("Unable to determine the device handle for GPU3: Unknown Error", 3),
        ("Unable to determine the device handle for GPU 3: GPU is lost.", 3),
    ],
)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_gpu_whose_handle_failed_is_named_and_does_not_taint_the_others(message, faulty, stream):
    lines = [row(0, 3), row(1, 3, bus="00000000:43:00.0"), row(2, 3, bus="00000000:52:00.0")]
    rows = parse(message, *lines) if stream == "stdout" else parse(*lines, stderr=message + "\n")
    assert rows.faulty == (faulty,)
    assert len(rows.gpus) == 3
    assert [gpu.problems for gpu in rows.gpus] == [()] * 3
    assert rows.problems == rows.elsewhere
    assert message in rows.problems[0]


def test_a_message_about_a_gpu_that_has_a_row_taints_this_row():
    rows = parse(row(0, 2), row(1, 2, bus="00000000:D1:00.0"), "WARNING: infoROM is corrupted at gpu 0000:D1:00.0")
    assert [len(gpu.problems) for gpu in rows.gpus] == [0, 1]
    assert rows.faulty == ("0000:D1:00.0",)
    assert (len(rows.problems), rows.elsewhere) == (1, ())


@pytest.mark.parametrize(
    ("lines", "faulty", "elsewhere"),
    [
        pytest.param([row(0, 2), row(1, 2)], (), 0, id="all there"),
        pytest.param([row(0, 3), row(2, 3)], (1,), 1, id="a gap"),
        pytest.param([row(1, 2)], (0,), 1, id="the first is missing"),
        pytest.param([row(0, 8)], (1, 2, 3, 4, 5, 6, 7), 7, id="the driver counts more"),
        pytest.param([row(1, 2), row(0, 2)], (), 0, id="another order"),
    ],
)
def test_the_numbering_shows_who_is_missing(lines, faulty, elsewhere):
    rows = parse(*lines)
    assert rows.faulty == faulty
    assert len(rows.elsewhere) == len(rows.problems) == elsewhere


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([row(0, 2), row(0, 2, uuid=UUIDS[1])], id="an index twice"),
        pytest.param([row(0, 2), row(1, 2, uuid=UUIDS[0])], id="a UUID twice"),
        pytest.param([row(0, 2), row(1, 2, uuid=UUIDS[0].upper())], id="a UUID twice, other case"),
        pytest.param([row(0, 1), row(1, 1)], id="the driver counts fewer"),
        pytest.param([row(0, 2), row(1, 3)], id="the rows do not agree"),
    ],
)
def test_a_numbering_that_cannot_be_is_a_problem_of_all(lines):
    rows = parse(*lines)
    assert set(rows.problems) - set(rows.elsewhere)


def test_an_absurd_count_does_not_make_a_list_of_a_billion():
    rows = parse(row(0, 10**12))
    assert len(rows.problems) <= 1024


def test_what_was_cut_off_is_not_believed():
    rows = parse(row(0, 8), row(1, 8, used="421"), finished=False, end="")
    assert [gpu.index for gpu in rows.gpus] == [0]
    assert rows.problems == (), "that the rest is missing is known already"


def test_carriage_returns_and_blank_lines_do_not_matter():
    rows = parse_gpus(f"\r\n{row(0, 1)}\r\n\r\n", "\n", FIELDS)
    assert (len(rows.gpus), rows.problems) == (1, ())


def test_anything_on_stderr_is_a_problem():
    rows = parse(row(), stderr="warning: something\n")
    assert len(rows.problems) == 1
    assert rows.elsewhere == ()


def test_foreign_text_is_made_safe_and_short():
    rows = parse("\x1b[31m" + "x" * 5000, row())
    assert "\x1b" not in rows.problems[0]
    assert len(rows.problems[0]) < 300


@pytest.mark.parametrize(
    ("line", "name", "used"),
    [
        ("31871, python3, 41570", "python3", 41570),
        ("31871, [Not Found], 56510", None, 56510),
        ("31871, [Not Found], [N/A]", None, None),
        ("31871, a, b , c, 12", "a, b , c", 12),
        ('31871, /x/mem "q" hog, 12', '/x/mem "q" hog', 12),
        ("31871, [Insufficient Permissions], 12", None, 12),
        ("31871, , 12", None, 12),
        ("31871, python3, [GPU is lost]", "python3", None),
    ],
)
def test_process_rows(line, name, used):
    listed = parse_processes(f"{UUIDS[0]}, 00000000:1B:00.0, {line}\n", "")
    (found,) = listed.rows
    assert (found.process.pid, found.process.name, found.process.used_mib) == (31871, name, used)
    assert listed.problems == ()


@pytest.mark.parametrize(
    "line", ["No devices were found", "a, b, c, d, e", f"{UUIDS[0]}, 00000000:1B:00.0, 12, python3"]
)
def test_a_line_that_is_no_process_row_is_a_problem(line):
    listed = parse_processes(line + "\n", "")
    assert (listed.rows, len(listed.problems)) == ((), 1)


def test_a_process_cannot_name_itself_into_a_row_about_another_one():
    """A row has four commas, and in names nvidia-smi prints none (apps-odd-names), were a newline printed as it is."""
    name = f"x, 100\n{UUIDS[1]}, 00000000:43:00.0, 4711, victim".replace(",", "?")
    listed = parse_processes(f"{UUIDS[0]}, 00000000:1B:00.0, 31871, {name}, 12\n", "")
    assert listed.rows == ()
    assert len(listed.problems) == 2, "what such a list leaves out is not known to be nobody"


def test_what_the_process_query_writes_on_stderr_is_a_problem():
    assert len(parse_processes("", "oops\n").problems) == 1


@pytest.mark.parametrize(
    ("output", "field"),
    [
        ('Field "memory.reserved" is not a valid field to query.\n\n', "memory.reserved"),
        ("Invalid combination of input arguments.\n", None),
        ("", None),
    ],
)
def test_the_refused_field(output, field):
    assert refused_field(output) == field


@pytest.mark.parametrize(
    ("spelling", "key"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("000f:01:00.0", "000f:01:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("10000:01:00.0", "10000:01:00.0"),
    ],
)
def test_one_spelling_for_bus_ids(spelling, key):
    assert bus_key(spelling) == key


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (UUIDS[0], True),
        (UUIDS[0].upper(), True),
        (UUIDS[0] + "0", False),
        (UUIDS[0][4:], False),
        (UUIDS[0] + "\n", False),
        ("", False),
    ],
)
def test_gpu_uuids(text, valid):
    assert is_gpu_uuid(text) is valid


def test_the_first_line():
    assert first_line("\n\n a \nb\n", "c") == "a"
    assert first_line("\n", "c\n") == "c"
    assert first_line("", "") == ""
