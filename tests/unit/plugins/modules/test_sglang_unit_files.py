# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import hashlib
import pathlib
import stat
import typing as t

from ansible_collections.cleanslate.gpu.tests.unit.plugins import module_process

PROGRAM = b"PK\x03\x04\xff\x00 not text \x80"


def run(folder: pathlib.Path, **options: t.Any) -> dict[str, t.Any]:
    """The module as a real process; the result as the controller gets it."""
    return module_process.run("sglang_unit_files", folder.parent, options)


def program(folder: pathlib.Path, content: bytes = PROGRAM) -> dict[str, t.Any]:
    return {
        "path": str(folder / "sglang.pyz"),
        "content": base64.b64encode(content).decode(),
        "encoding": "base64",
        "mode": "0755",
    }


def test_a_program_arrives_byte_for_byte(tmp_path: pathlib.Path) -> None:
    result = run(tmp_path, state="staged", files=[program(tmp_path)])
    staged = tmp_path / "sglang.pyz.staged"
    assert result["changed"]
    assert staged.read_bytes() == PROGRAM
    assert stat.S_IMODE(staged.stat().st_mode) == 0o755
    run(tmp_path, state="installed", files=[{"path": str(tmp_path / "sglang.pyz")}])
    assert not run(tmp_path, state="staged", files=[program(tmp_path)])["changed"]


def test_a_program_is_shown_by_its_size_and_sum(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sglang.pyz").write_bytes(b"older\xff")
    result = run(tmp_path, state="staged", files=[program(tmp_path)])
    (diff,) = result["diff"]
    assert diff["after"] == f"program, {len(PROGRAM)} bytes, sha256 {hashlib.sha256(PROGRAM).hexdigest()}\n"
    assert diff["before"].startswith("program, 6 bytes, sha256 ")
    assert base64.b64encode(PROGRAM).decode() not in str(result)


def test_what_is_no_base64_is_refused(tmp_path: pathlib.Path) -> None:
    result = run(tmp_path, state="staged", files=[{**program(tmp_path), "content": "not base64!"}])
    assert result["failed"]
    assert f"the content of {tmp_path}/sglang.pyz is no base64" in result["msg"]
    assert list(tmp_path.iterdir()) == []


def test_text_keeps_its_secrets_out_of_diff_and_result(tmp_path: pathlib.Path) -> None:
    text = 'api-key: "<<secret:api_key>>"\nname: Gerät\n'
    entry = {"path": str(tmp_path / "sglang.yaml"), "content": text, "mode": "0600"}
    result = run(tmp_path, state="staged", files=[entry], secrets={"api_key": "planted-key-123"})
    assert (tmp_path / "sglang.yaml.staged").read_text(encoding="utf-8") == 'api-key: "planted-key-123"\nname: Gerät\n'
    assert "planted-key-123" not in str(result)
    assert "name: Gerät" in result["diff"][0]["after"]
