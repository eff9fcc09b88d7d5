# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""A folder of evidence about one moment of a server: taken part by part, each under its own deadline.

Nothing here signals a process or changes anything but the folder. A part that fails is an entry in index.json, and
whatever was taken before it stays.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import stat
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import check_number, check_path, shown
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._run_record_file import RecordError, failure, opened
from ansible_collections.cleanslate.gpu.plugins.module_utils._run_records import moment
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_deadline import collect

FOLDER = "evidence"
INDEX = "index.json"
VERSION = 1
SMALLEST_BYTES = 1 << 16
MOST_BYTES = 1 << 40
_RUN_ID = re.compile(r"[A-Za-z0-9_.:@+][A-Za-z0-9_.:@+-]{0,99}\Z")
_MOST_OF_ONE_RUN = 99
_LONGEST_REASON = 200  # characters of one part's error in the sentence; all of it stands in the index
_AT_ONCE = 1 << 16  # characters whose secrets are masked here and now; more of them in a child that can be ended
_MASKING = 2.0  # seconds that masking gets where a part used up its own: what it brought is not thrown away for that
_CUT = "\n[... cut here: the limit of the evidence folder was reached ...]\n"
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_DIRECTORY

Verdict = t.Literal["taken", "partial", "would_take", "not_taken", "refused"]


@dataclasses.dataclass(frozen=True)
class Piece:
    """One file of a part. tail: its end is worth more than its beginning."""

    file: str
    text: str
    tail: bool = False


@dataclasses.dataclass(frozen=True)
class Found:
    """What a part brought. error says what of it is missing; skipped says why it does not apply here."""

    pieces: tuple[Piece, ...] = ()
    error: str = ""
    skipped: str = ""


@dataclasses.dataclass(frozen=True)
class Part:
    """One thing to look at. take gets the seconds that it may use and keeps to them."""

    name: str
    what: str
    seconds: float
    take: t.Callable[[float], Found]


@dataclasses.dataclass(frozen=True)
class Entry:
    """What became of a part. ok is None where it does not apply on this machine."""

    part: str
    ok: bool | None
    error: str = ""
    seconds: float = 0.0
    files: tuple[str, ...] = ()
    bytes: int = 0
    cut: bool = False

    def as_dict(self) -> dict[str, t.Any]:
        return {**dataclasses.asdict(self), "files": list(self.files), "error": self.error or None}


@dataclasses.dataclass(frozen=True)
class Request:
    """Where the folder goes and how large it may become. folder is that of the record."""

    run_id: str
    unit: str
    folder: str
    keep: int
    max_bytes: int
    timeout: float

    def refusal(self) -> str | None:
        """A sentence where an option cannot be meant."""
        for name, text in (("run_id", self.run_id), ("unit", self.unit)):
            if not _RUN_ID.match(text) or text.startswith("."):
                return (
                    f"{name} is {shown(text)}: it must be 1 to 100 letters, digits and _.:@+- and not begin with a dot."
                )
        try:
            check_path("dir", self.folder)
            check_number("keep", self.keep, 1, 1000)
            check_number("max_bytes", self.max_bytes, SMALLEST_BYTES, MOST_BYTES)
        except ValueError as error:
            return str(error)
        if not 0 < self.timeout <= 3600:
            return f"timeout is {self.timeout:g}: it must be above 0 and at most 3600 seconds."
        return None


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The outcome. path is the folder, None where there is none."""

    verdict: Verdict
    reason: str
    path: str | None = None
    parts: tuple[Entry, ...] = ()
    pruned: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return self.verdict in ("not_taken", "refused")


def take_evidence(request: Request, parts: t.Sequence[Part], clock: Clock, *, check: bool = False) -> Evidence:
    """Take every part. Never raises for what the machine looks like."""
    refused = request.refusal()
    if refused is not None:
        return Evidence("refused", f"{refused} No evidence was taken.")
    base = os.path.join(os.path.normpath(request.folder), FOLDER)
    if check:
        path = os.path.join(base, f"{request.run_id}-{request.unit}")
        would = tuple(Entry(part.name, None) for part in parts)
        told = "; ".join(part.what for part in parts)
        return Evidence("would_take", f"would take into {path}: {told}.", path, would)
    began = clock.monotonic()
    try:
        handle, name = _make(request)
    except RecordError as error:
        return Evidence("not_taken", f"no evidence about {request.unit} was taken: {error}.")
    path = os.path.join(base, name)
    try:
        pruned = _prune(base, request.keep, name)
        files = _Files(handle, path, request.max_bytes)
        entries: list[Entry] = []
        problem = files.index(_index(request, entries, clock))
        for part in parts:
            left = began + request.timeout - clock.monotonic()
            entries.append(_take(part, min(part.seconds, left), files, clock))
            # After each part: whoever is interrupted leaves an index of what is there.
            problem = files.index(_index(request, entries, clock))
    finally:
        os.close(handle)
    if problem:
        return Evidence(
            "not_taken", f"the index of the evidence could not be written: {problem}", path, tuple(entries), pruned
        )
    failed = [entry for entry in entries if entry.ok is False]
    seconds = clock.monotonic() - began
    reason = f"{path}: {sum(entry.ok is True for entry in entries)} of {len(entries)} parts in {seconds:.1f} s"
    if failed:
        reason += ". Not: " + "; ".join(f"{entry.part} ({_short(entry.error)})" for entry in failed)
    return Evidence("partial" if failed else "taken", f"{reason}.", path, tuple(entries), pruned)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


def _index(request: Request, entries: t.Sequence[Entry], clock: Clock) -> str:
    document = {
        "version": VERSION,
        "run_id": request.run_id,
        "unit": request.unit,
        "at": moment(clock.wall()),
        "parts": [entry.as_dict() for entry in entries],
    }
    return json.dumps(document, indent=1) + "\n"


def _take(part: Part, seconds: float, files: _Files, clock: Clock) -> Entry:
    if seconds <= 0:
        return Entry(part.name, False, "no time was left for it (timeout)")
    began = clock.monotonic()
    try:
        found = part.take(seconds)
    except (OSError, ValueError, LookupError) as error:
        found = Found(error=str(error))
    if found.skipped:
        return Entry(part.name, None, redact(found.skipped), round(clock.monotonic() - began, 3))
    errors = [redact(found.error)] if found.error else []
    written, size, cut = [], 0, False
    left = max(_MASKING, seconds - (clock.monotonic() - began))
    masked, late = _masked([piece.text for piece in found.pieces], left, clock)
    errors += [f"{piece.file} was left out: {late}" for piece in found.pieces[len(masked) :]]
    for piece, text in zip(found.pieces, masked):
        took, short, problem = files.write(dataclasses.replace(piece, text=text))
        if problem:
            errors.append(problem)
        else:
            written.append(piece.file)
            size, cut = size + took, cut or short
    took_seconds = round(clock.monotonic() - began, 3)
    return Entry(part.name, not errors, "; ".join(errors), took_seconds, tuple(written), size, cut)


def _masked(texts: t.Sequence[str], seconds: float, clock: Clock) -> tuple[list[str], str]:
    """The texts without their secrets, as many as there was time for, and why it is not all of them."""
    if sum(map(len, texts)) <= _AT_ONCE:
        return [redact(text) for text in texts], ""
    end = clock.monotonic() + seconds
    found = collect(lambda dummy: map(redact, texts), deadline=end, stall=seconds, clock=clock)
    late = f"its secrets were not masked within {seconds:.1f} s, and unmasked it is not kept"
    return list(found.items), "" if found.finished else found.error or late


class _Files:
    """The files of one folder, together never larger than the limit."""

    def __init__(self, handle: int, path: str, limit: int) -> None:
        self._handle = handle
        self._path = path
        self._left = limit - (SMALLEST_BYTES >> 2)  # for the index

    def write(self, piece: Piece) -> tuple[int, bool, str]:
        """How many bytes, whether it was cut, and what went wrong. The piece's secrets are masked already."""
        data = piece.text.encode("utf-8", "backslashreplace")
        cut = len(data) > self._left
        if cut:
            room = self._left - len(_CUT)
            if room <= 0:
                return 0, True, f"no room was left for {piece.file} (max_bytes)"
            mark = _CUT.encode("ascii")
            data = mark + data[-room:] if piece.tail else data[:room] + mark
        problem = self._put(piece.file, data)
        if not problem:
            self._left -= len(data)
        return len(data), cut, problem

    def index(self, text: str) -> str:
        """What went wrong, else empty."""
        problem = self._put(f".{INDEX}", text.encode("utf-8"))
        if not problem:
            os.replace(f".{INDEX}", INDEX, src_dir_fd=self._handle, dst_dir_fd=self._handle)
        return problem

    def _put(self, name: str, data: bytes) -> str:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(name, flags, 0o600, dir_fd=self._handle), "wb") as file:
                file.write(data)
        except OSError as error:
            try:
                os.unlink(name, dir_fd=self._handle)  # half a file would be taken for a whole one
            except OSError:
                pass  # there is none
            return str(failure("write", f"{self._path}/{name}", error))
        return ""


def _make(request: Request) -> tuple[int, str]:
    """A new folder, mode 0700, in one that nobody else can look into. Its open descriptor and its name."""
    with opened(request.folder, create=True) as record:
        if record is None:
            raise RecordError(f"the folder {request.folder} was removed while it was being opened; try again")
        path = os.path.join(record.path, FOLDER)
        try:
            try:
                os.mkdir(FOLDER, 0o700, dir_fd=record.handle)
            except FileExistsError:
                pass
            base = os.open(FOLDER, os.O_RDONLY | _FLAGS, dir_fd=record.handle)
        except OSError as error:
            raise failure("make the folder", path, error) from error
        try:
            found = os.fstat(base)
            if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o077:
                raise RecordError(
                    f"cannot use the folder {path}: it belongs to user id {found.st_uid} and has the mode"
                    f" {stat.S_IMODE(found.st_mode):04o}, but nobody else may look into evidence."
                    f" Look at what is in it, then: chown root {path} && chmod 0700 {path}"
                )
            return _new(base, path, f"{request.run_id}-{request.unit}")
        finally:
            os.close(base)


def _new(base: int, path: str, name: str) -> tuple[int, str]:
    for number in range(1, _MOST_OF_ONE_RUN + 1):
        tried = name if number == 1 else f"{name}.{number}"
        try:
            os.mkdir(tried, 0o700, dir_fd=base)
            return os.open(tried, os.O_RDONLY | _FLAGS, dir_fd=base), tried
        except FileExistsError:
            continue  # the same run took evidence before, such as before its first signal
        except OSError as error:
            raise failure("make the folder", f"{path}/{tried}", error) from error
    raise RecordError(f"there are {_MOST_OF_ONE_RUN} folders {path}/{name} already; use a run_id of its own")


def _prune(base: str, keep: int, own: str) -> tuple[str, ...]:
    """Remove the oldest folders. Only root (or who runs this) can have put anything there, and only what has an index
    or is empty is taken for ours."""
    aged = []
    for name in os.listdir(base):
        path = os.path.join(base, name)
        try:
            ours = os.path.exists(os.path.join(path, INDEX)) or not os.listdir(path)
            if name != own and ours and not os.path.islink(path):
                aged.append((os.lstat(path).st_mtime, name))
        except OSError:
            continue  # no folder, or gone
    pruned = []
    for _mtime, name in sorted(aged)[: max(0, len(aged) - (keep - 1))]:
        try:
            shutil.rmtree(os.path.join(base, name))
            pruned.append(name)
        except OSError:
            continue  # the next run tries again
    return tuple(pruned)
