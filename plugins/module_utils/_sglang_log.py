# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What SGLang's log says: how far a start has come, and why it failed. Text in, records out.

The wordings are those of SGLang 0.5.12, 0.5.15 and 0.5.23. Progress bars are written with carriage returns and end
with one newline, so a line ends at either. Only rank 0 and the launcher decide the stage: eight ranks print the same
lines at different moments. Every line is redacted before it is kept: SGLang prints its own keys in its first line.
"""

from __future__ import annotations

import dataclasses
import re
import time
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._text_table import printable

Stage = t.Literal[
    "guard",
    "launch",
    "init_distributed",
    "load_weights",
    "load_draft_weights",
    "allocate_memory",
    "capture_graphs",
    "open_port",
    "warm_up",
    "ready",
]
Redact = t.Callable[[str], str]

CLOCK_SLACK = 60.0  # seconds by which a server's clock may be ahead
TAIL_LINES = 20
FAILURE_LINES = 10
LINE_LENGTH = 400  # of a line that is kept
_READ_LENGTH = 16384  # of a line that is looked at

_PREFIX = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)?((?: [A-Z_]+\d+)*)\] ?")
_STAMP = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_BAR = re.compile(r"^\s*(?P<what>[^|%]*?):?\s*\d+%(?: Completed)? ?\|(?:[^|]*\|)?\s*(?P<done>\d+)/(?P<total>\d+)")
# (stage that begins here, pattern, stages in which it counts; none: in all)
_MARKS: tuple[tuple[Stage, re.Pattern[str], tuple[Stage, ...]], ...] = (
    ("init_distributed", re.compile(r"Init (parallel|torch distributed) begin", re.IGNORECASE), ()),
    ("load_weights", re.compile(r"Load weight begin", re.IGNORECASE), ()),
    ("allocate_memory", re.compile(r"Load weight end", re.IGNORECASE), ("load_weights", "load_draft_weights")),
    ("capture_graphs", re.compile(r"Capture .*cuda graph begin", re.IGNORECASE), ()),
    ("open_port", re.compile(r"max_total_num_tokens=.*context_len="), ()),
    ("warm_up", re.compile(r"Application startup complete|Uvicorn running on "), ()),
    ("ready", re.compile(r"The server is fired up and ready to roll"), ()),
)
_NEW_RUN = re.compile(r"\bserver_args=")
# Lines after which this server does not come up any more; its processes may stay for more than a minute all the same.
_FATAL = re.compile(
    r"Scheduler hit an exception|scheduler died during initialization|Received sigquit from a child process"
    r"|Subprocess \S+ \(pid=\d+\) crashed|Capture cuda graph failed|Initialization failed\. |SIGQUIT received\."
    r"|watchdog timeout \(.*soft=False|error while attempting to bind on address"
)
_TROUBLE = re.compile(
    r"Error\b|ERROR|Exception\b|exception:|error:|out of memory|unbalanced|[Nn]o such file"
    r"|Cannot find any model weights|Health check failed|No space left on device|Traceback"
)
# What a server writes because it is asked how it is: no sign that it moves.
_ACCESS = re.compile(r'INFO:\s+\S+:\d+ - "[A-Z]+ /')
# With --log-requests a client's own words stand in the log: they say nothing about the server, and are not kept.
_REQUEST = re.compile(r"\b(?:Receive|Finish): obj=|\b[A-Za-z]+(?:ReqInput|Request)\(")
_UNANSWERED = re.compile(r"Health check failed\.")
_SHUTTING_DOWN = re.compile(r"Health check request received during shutdown")


@dataclasses.dataclass(frozen=True)
class Steps:
    """A progress bar: `what` as the server calls it."""

    what: str
    done: int
    total: int

    def as_dict(self) -> dict[str, t.Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class LogState:
    """What the lines of one run have said so far. Times: `since` is monotonic, `stamp` the log's own clock.

    `accepting` is False while lines are still an earlier run's; `doubtful` holds the last of those. The ones at its end
    that have no time stamp may be of either run. `begun` is True once a line has told how far this run is; until then
    the stage is only an assumption, as for a server whose log was cut since its start. `unanswered` and `shutting_down`
    say that the server has answered a question for its health with no, and why.
    """

    stage: Stage = "launch"
    since: float = 0.0
    stamp: float | None = None
    stages: tuple[tuple[str, float], ...] = ()
    steps: Steps | None = None
    ready: bool = False
    fatal: str = ""
    failures: tuple[str, ...] = ()
    earlier_failures: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    lines: int = 0
    target_loaded: bool = False
    begun: bool = False
    unanswered: bool = False
    shutting_down: bool = False
    accepting: bool = True

    def stage_seconds(self, now: float) -> dict[str, float]:
        """Seconds per stage, the current one up to now."""
        result: dict[str, float] = {}
        for name, seconds in self.stages:
            result[name] = result.get(name, 0.0) + seconds
        if self.stage != "ready":
            result[self.stage] = result.get(self.stage, 0.0) + max(0.0, now - self.since)
        return {name: round(seconds, 1) for name, seconds in result.items()}

    def last_lines(self) -> tuple[str, ...]:
        """The end of the log. Where no line is surely of this run, those of the last run that began to write."""
        if self.tail:
            return self.tail
        begins = max((i for i, line in enumerate(self.doubtful) if _NEW_RUN.search(line)), default=0)
        return self.doubtful[begins:]


def split_lines(text: str) -> tuple[list[str], str]:
    """Complete lines (ended by newline or carriage return), and what is left unfinished at the end.

    A progress bar has no end of its own while it is drawn: what another process writes then stands behind it.
    """
    *complete, rest = re.split(r"[\r\n]", text)
    lines: list[str] = []
    for line in complete:
        behind = _STAMP.search(line, 1)
        if behind and parse_bar(line[: behind.start()]) is not None:
            lines += [line[: behind.start()], line[behind.start() :]]
        elif line.strip():
            lines.append(line)
    return lines, rest


def time_stamp(line: str) -> float | None:
    """Seconds since the epoch of a line's prefix, which is local time; None where it has none."""
    found = _PREFIX.match(line)
    if not found:
        return None
    try:
        return time.mktime(time.strptime(found.group(1), "%Y-%m-%d %H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def parse_bar(line: str) -> Steps | None:
    """The progress that a line shows, if it is a progress bar."""
    found = _BAR.match(line[:_READ_LENGTH])
    if not found or int(found.group("total")) == 0:
        return None
    return Steps(found.group("what").split("(")[0].strip()[:60], int(found.group("done")), int(found.group("total")))


def _first_rank(line: str) -> bool:
    found = _PREFIX.match(line)
    return not found or all(number == "0" for number in re.findall(r"[A-Z_]+(\d+)", found.group(2)))


def _enter(state: LogState, stage: Stage, now: float, stamp: float | None) -> LogState:
    if state.stage == stage:
        return state
    seconds = max(0.0, now - state.since)
    if stamp is not None and state.stamp is not None and stamp >= state.stamp:
        seconds = stamp - state.stamp  # true also for lines that were read long after they were written
    return dataclasses.replace(
        state,
        stage=stage,
        since=now,
        stamp=stamp,
        stages=(*state.stages, (state.stage, round(seconds, 2))),
        steps=None,
        ready=stage == "ready",
    )


def _stage_of(line: str, state: LogState) -> Stage | None:
    if not _first_rank(line):
        return None
    for stage, pattern, only_in in _MARKS:
        if pattern.search(line) and (not only_in or state.stage in only_in):
            return "load_draft_weights" if stage == "load_weights" and state.target_loaded else stage
    return None


def _keep(kept: tuple[str, ...], line: str, limit: int, redact: Redact) -> tuple[str, ...]:
    # Redacted before it is cut: half a key is still a secret.
    return (*kept, printable(redact(line[:_READ_LENGTH])[:LINE_LENGTH]).rstrip())[-limit:]


def _advance_one(
    state: LogState, line: str, now: float, since: float | None, until: float | None, redact: Redact
) -> LogState:
    stamp = time_stamp(line)
    if not state.accepting:
        future = stamp is not None and until is not None and stamp > until
        if stamp is None or since is None or stamp < int(since) or future:
            if parse_bar(line) is not None:
                return state
            return dataclasses.replace(state, doubtful=_keep(state.doubtful, line, TAIL_LINES, redact))
        # What stood between the last old line and this one came, most likely, with the new process.
        last_old = max((i for i, kept in enumerate(state.doubtful) if time_stamp(kept) is not None), default=-1)
        state = dataclasses.replace(state, accepting=True, tail=state.doubtful[last_old + 1 :], doubtful=())
    if _ACCESS.search(line[:_READ_LENGTH]) or _REQUEST.search(line[:_READ_LENGTH]):
        return state
    if state.stage == "launch" and state.stamp is None and since is not None:
        state = dataclasses.replace(state, stamp=since)  # the launch began with the process
    if _UNANSWERED.search(line[:_READ_LENGTH]):
        state = dataclasses.replace(state, unanswered=True)
    elif _SHUTTING_DOWN.search(line[:_READ_LENGTH]):
        state = dataclasses.replace(state, shutting_down=True)
    else:
        state = dataclasses.replace(state, lines=state.lines + 1)
    steps = parse_bar(line)
    if steps is not None:
        return dataclasses.replace(state, steps=steps)
    looked_at = line[:_READ_LENGTH]
    if _NEW_RUN.search(looked_at) and _first_rank(line):
        if state.begun:
            failed = state.failures or state.earlier_failures
            state = LogState(since=now, stamp=stamp, lines=state.lines, tail=state.tail, earlier_failures=failed)
        state = dataclasses.replace(state, begun=True)
    state = dataclasses.replace(state, tail=_keep(state.tail, line, TAIL_LINES, redact))
    if _FATAL.search(looked_at):
        state = dataclasses.replace(state, fatal=state.fatal or state.tail[-1])
    if _FATAL.search(looked_at) or _TROUBLE.search(looked_at):
        state = dataclasses.replace(state, failures=_keep(state.failures, line, FAILURE_LINES, redact))
    stage = _stage_of(looked_at, state)
    if stage is not None:
        state = dataclasses.replace(_enter(state, stage, now, stamp), begun=True)
        if stage == "load_weights":
            state = dataclasses.replace(state, target_loaded=True)
    return state


def advance(
    state: LogState,
    lines: t.Sequence[str],
    now: float,
    *,
    redact: Redact,
    since: float | None = None,
    until: float | None = None,
    rest: str = "",
) -> LogState:
    """The state after some more lines.

    :param now: monotonic seconds at which they were read.
    :param since: start of this run in seconds since the epoch; lines before it are an earlier run's.
    :param until: seconds since the epoch, now. A line that says later goes by another time zone, and may be of any run.
    :param rest: the unfinished line at the end: only its progress bar counts, it is read again later.
    """
    for line in lines:
        state = _advance_one(state, line, now, since, None if until is None else until + CLOCK_SLACK, redact)
    steps = parse_bar(rest) if rest and state.accepting else None
    return dataclasses.replace(state, steps=steps) if steps is not None else state


def enter_guard(state: LogState, now: float) -> LogState:
    """The unit is still in its start guard: nothing of the server has run yet."""
    if state.stage != "launch" or state.lines:
        return state
    return dataclasses.replace(state, stage="guard", since=now)


def leave_guard(state: LogState, now: float) -> LogState:
    return _enter(state, "launch", now, None) if state.stage == "guard" else state


def to_json(state: LogState) -> dict[str, t.Any]:
    return dataclasses.asdict(state)


def from_json(data: t.Mapping[str, t.Any]) -> LogState:
    """The state that to_json wrote. ValueError where it is not one."""
    names = {field.name for field in dataclasses.fields(LogState)}
    if set(data) != names:
        raise ValueError("the remembered log state has other fields than this version writes")
    values: dict[str, t.Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    values["stages"] = tuple((str(name), float(seconds)) for name, seconds in data["stages"])
    values["steps"] = Steps(**data["steps"]) if data["steps"] else None
    return LogState(**values)
