#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_unit_files
short_description: Stage, swap in and put back the files of a server unit
version_added: 0.1.0
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
description:
  - Writes the unit and the configuration of a server beside the live files, swaps them in together when the server is
    stopped, and puts the former ones back together when the new server does not come up.
  - All files of one call change, or none. C(PATH.staged) waits to become C(PATH); C(PATH.previous) is what C(PATH)
    was before the last swap.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Secrets are masked in the diff.
  idempotent:
    support: full
options:
  state:
    description:
      - What shall become of the files.
      - V(staged) writes beside the live files what differs from them in text, mode or owner. The live files stay as
        they are.
      - V(installed) swaps in what is staged and keeps the former files as C(PATH.previous).
      - V(restored) puts the former files back; a file that had no predecessor is removed. What still waits to be
        swapped in is thrown away instead, so that all that was staged can be given where it is not known whether the
        swap took place.
      - V(discarded) throws away what is staged.
      - V(proved) keeps what is live as C(PATH.proved), for a server that was just proved to serve.
      - V(reinstated) makes what was proved live again and keeps what is live as C(PATH.previous). A file that was not
        there when the server was proved is removed. Fails where nothing was ever proved.
    type: str
    choices: [staged, installed, restored, discarded, proved, reinstated]
    required: true
  files:
    description:
      - The files. With O(state=staged) each needs its O(files[].content); the other states need the paths only.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description:
          - Absolute path of the live file. Its folder must exist, or stand in O(folders).
        type: path
        required: true
      content:
        description:
          - The whole text of the file. V("<<secret:NAME>>"), quotes included, stands for the value of that name in
            O(secrets), written as a double-quoted YAML or JSON string.
        type: str
      encoding:
        description:
          - How O(files[].content) is to be read. V(base64) is for a program. It stands in the diff with its size and
            its SHA-256 only, and in no result, and holds no secrets.
        type: str
        choices: [text, base64]
        default: text
      mode:
        description:
          - Permissions as an octal string.
        type: str
        default: "0644"
      owner:
        description:
          - Name of the user who shall own the file. Without it, the user the module runs as.
        type: str
      group:
        description:
          - Name of the group that shall own the file.
        type: str
  folders:
    description:
      - With O(state=staged), folders that are made first, with their parents, in the same execution. Mode and owner of
        those that are there are corrected.
      - A folder that was made stays, whatever becomes of the files.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description:
          - Absolute path.
        type: path
        required: true
      mode:
        description:
          - Permissions as an octal string.
        type: str
        default: "0755"
      owner:
        description:
          - Name of the user who shall own the folder. Without it, the user the module runs as.
        type: str
      group:
        description:
          - Name of the group that shall own the folder.
        type: str
      log:
        description:
          - Name of a file in the folder that systemd appends to. Systemd would make it readable for everybody, so it is
            made beforehand, or corrected, with mode 0600 and the folder's owner. A symbolic link is refused.
        type: str
      keep:
        description:
          - Leave mode and owner of a folder that is there already as they are. A user's own folders may be closed to
            others for a reason.
        type: bool
        default: false
  secrets:
    description:
      - Values that stand in the files but must appear in no log, diff or result. They travel apart from the text for
        that reason.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Write the new configuration beside the live one
  cleanslate.gpu.sglang_unit_files:
    state: staged
    files:
      - path: /etc/sglang/sglang.yaml
        content: "{{ sglang_config }}"
        mode: "0600"
        owner: sglang

- name: Swap it in while the server is stopped
  cleanslate.gpu.sglang_unit_files:
    state: installed
    files:
      - path: /etc/sglang/sglang.yaml
"""

RETURN = r"""
paths:
  description:
    - The files that were, or in check mode would be, staged, swapped in, put back or discarded.
  returned: always
  type: list
  elements: str
  sample: ["/etc/sglang/sglang.yaml"]
folders:
  description:
    - The folders and logs that were, or in check mode would be, made or corrected.
  returned: always
  type: list
  elements: str
  sample: []
files:
  description:
    - RV(paths) in the form of O(files), so that a later call can put back exactly what this one swapped in.
  returned: always
  type: list
  elements: dict
  sample: [{"path": "/etc/sglang/sglang.yaml"}]
"""

import base64
import binascii
import grp
import hashlib
import json
import pwd
import re
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils import _unit_files
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import (
    check_account,
    check_line,
    check_path,
    shown,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact

_ACTS: dict[str, t.Callable[[t.Sequence[str]], tuple[str, ...]]] = {
    "installed": _unit_files.install,
    "restored": _unit_files.restore,
    "discarded": _unit_files.discard,
    "proved": _unit_files.prove,
    "reinstated": _unit_files.reinstate,
}
_WOULD: dict[str, t.Callable[[t.Sequence[str]], tuple[str, ...]]] = {
    "installed": _unit_files.staged,
    "restored": tuple,
    "discarded": _unit_files.staged,
    "proved": _unit_files.unproved,
    "reinstated": _unit_files.reinstatable,
}
_PLACEHOLDER = re.compile(r'"<<secret:([A-Za-z0-9_]*)>>"')


def _with_secrets(entry: dict[str, t.Any], secrets: t.Mapping[str, t.Any]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in secrets:
            raise ValueError(f"files: {entry['path']} asks for the secret {name!r}, which secrets does not have")
        return json.dumps(str(secrets[name]))

    return _PLACEHOLDER.sub(value, entry["content"])


def _identity(name: str | None, lookup: t.Callable[[str], int], what: str) -> int | None:
    if name is None:
        return None
    check_account(what, name)
    try:
        return lookup(name)
    except KeyError:
        raise ValueError(
            f"{what}: there is no such account as {shown(name)} on this machine; create it or name another one"
        ) from None


def _content(entry: dict[str, t.Any], secrets: t.Mapping[str, t.Any]) -> bytes:
    if entry["content"] is None:
        raise ValueError(f"files: {entry['path']} has no content, which state=staged needs")
    if entry["encoding"] == "text":
        try:
            return _with_secrets(entry, secrets).encode("utf-8")
        except UnicodeEncodeError as exc:
            raise ValueError(f"files: the content of {entry['path']} is no Unicode text: {exc.reason}") from None
    try:
        return base64.b64decode(entry["content"], validate=True)
    except (binascii.Error, ValueError) as exc:
        raise ValueError(f"files: the content of {entry['path']} is no base64: {exc}") from None


def _shown(content: bytes, entry: t.Mapping[str, t.Any]) -> str:
    """For a diff."""
    if entry["encoding"] == "base64":
        return f"program, {len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}\n"
    return redact(content.decode("utf-8", "replace"))


def _after(content: bytes, entry: t.Mapping[str, t.Any]) -> str:
    if entry["encoding"] == "base64":
        return _shown(content, entry)
    return redact(_PLACEHOLDER.sub('"********"', entry["content"]))


def _folders(entries: t.Sequence[t.Mapping[str, t.Any]], state: str, check_mode: bool) -> tuple[str, ...]:
    if entries and state != "staged":
        raise ValueError(f"folders are made with state=staged only, and it is {state}")
    wanted = []
    for entry in entries:
        path, text = check_path("folders: path", entry["path"]), str(entry["mode"])
        if not re.fullmatch(r"0?[0-7]{3}", text) or int(text, 8) & 0o002:
            raise ValueError(
                f"folders: mode of {path} is {shown(text)}; it must be three octal digits, as 0755, and not let"
                " everybody write"
            )
        log = entry["log"] or ""
        if (log and check_line("folders: log", log) in (".", "..")) or "/" in log:
            raise ValueError(f"folders: log of {path} is {shown(log)}; it must be the name of a file in that folder")
        wanted.append(_unit_files.UnitFolder(path, int(text, 8), *_account(entry, "folders"), log, entry["keep"]))
    return _unit_files.folders_differing(wanted) if check_mode else _unit_files.make_folders(wanted)


def _account(entry: t.Mapping[str, t.Any], option: str) -> tuple[int | None, int | None]:
    return (
        _identity(entry["owner"], lambda name: pwd.getpwnam(name).pw_uid, f"{option}: user"),
        _identity(entry["group"], lambda name: grp.getgrnam(name).gr_gid, f"{option}: group"),
    )


def _mode(entry: t.Mapping[str, t.Any]) -> int:
    """No file of a unit runs as somebody else, and none can be changed by everybody."""
    path, text = entry["path"], str(entry["mode"])
    if not re.fullmatch(r"0?[0-7]{3}", text) or int(text, 8) & 0o002:
        raise ValueError(
            f"files: mode of {path} is {shown(text)}; it must be three octal digits, as 0644, and not let"
            " everybody write"
        )
    if int(text, 8) & 0o077 and entry["encoding"] == "text" and _PLACEHOLDER.search(entry["content"] or ""):
        raise ValueError(f"files: mode of {path} is {shown(text)}, and a secret goes into it; it must be 0600 or less")
    return int(text, 8)


def _wanted(entry: dict[str, t.Any], secrets: t.Mapping[str, t.Any]) -> _unit_files.UnitFile:
    mode = _mode(entry)
    uid, gid = _account(entry, "files")
    return _unit_files.UnitFile(path=entry["path"], content=_content(entry, secrets), mode=mode, uid=uid, gid=gid)


def _run(
    state: str, files: list[dict[str, t.Any]], secrets: t.Mapping[str, t.Any], check_mode: bool
) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    paths = [entry["path"] for entry in files]
    if not paths:
        raise ValueError("files is empty; name at least one path")
    for path in paths:
        check_path("files: path", path)
    if len(set(paths)) != len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise ValueError(f"files: path is {shown(twice)} more than once")
    if state == "staged":
        wanted = [_wanted(entry, secrets) for entry in files]
        by_path = {entry["path"]: entry for entry in files}
        changes = _unit_files.differing(wanted) if check_mode else _unit_files.stage(wanted)
        diff = [
            {
                "before_header": change.path,
                "after_header": change.path,
                "before": "" if change.before is None else _shown(change.before, by_path[change.path]),
                "after": _after(change.after, by_path[change.path]),
            }
            for change in changes
        ]
        return tuple(change.path for change in changes), diff
    if check_mode:
        return _WOULD[state](paths), []
    return _ACTS[state](paths), []


def _in_short(entry: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """A program would be hundreds of kilobytes in every result."""
    if entry["encoding"] == "text" or entry["content"] is None:
        return dict(entry)
    return {**entry, "content": f"({len(entry['content'])} characters)"}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "required": True, "choices": ["staged", *_ACTS]},
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "path": {"type": "path", "required": True},
                    "content": {"type": "str"},
                    "encoding": {"type": "str", "choices": ["text", "base64"], "default": "text"},
                    "mode": {"type": "str", "default": "0644"},
                    "owner": {"type": "str"},
                    "group": {"type": "str"},
                },
            },
            "folders": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "path": {"type": "path", "required": True},
                    "mode": {"type": "str", "default": "0755"},
                    "owner": {"type": "str"},
                    "group": {"type": "str"},
                    "log": {"type": "str"},
                    "keep": {"type": "bool", "default": False},
                },
            },
            "secrets": {"type": "dict", "default": {}, "no_log": True},
        },
        supports_check_mode=True,
    )
    try:
        params = module.params
        folders = _folders(params["folders"], params["state"], module.check_mode)
        paths, diff = _run(params["state"], params["files"], params["secrets"], module.check_mode)
    except (ValueError, _unit_files.UnitFileError) as exc:
        module.fail_json(msg=str(exc), paths=[], folders=[], files=[])
    result: dict[str, t.Any] = {
        "changed": bool(paths or folders),
        "paths": list(paths),
        "folders": list(folders),
        "files": [{"path": path} for path in paths],
        "invocation": {"module_args": {**params, "files": [_in_short(entry) for entry in params["files"]]}},
    }
    if diff:
        result["diff"] = diff
    module.exit_json(**result)


if __name__ == "__main__":
    main()
