# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import math
import os
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

MODULE = "cleanslate.gpu.sglang_wait_ready"
BAR_WIDTH = 16
# Seconds that pass at most without a line although nothing has changed: a person wants to see that it lives.
REPEAT_AFTER = 60.0

display = Display()


def draw_bar(done: int, total: int, width: int = BAR_WIDTH) -> str:
    """Filled according to done of total."""
    filled = 0 if total <= 0 else max(0, min(width, width * done // total))
    return "[" + "#" * filled + "." * (width - filled) + "]"


def progress_text(result: t.Mapping[str, t.Any]) -> str:
    """What has come of the wait so far: a line is printed where this text has changed."""
    text = str(result.get("stage") or result.get("verdict"))
    steps = result.get("progress")
    if isinstance(steps, dict) and steps.get("total"):
        done, total = int(steps["done"]), int(steps["total"])
        # "Multi-thread loading shards": the stage has said the rest, and a terminal is narrow.
        what = str(steps.get("what") or "").split()[-1:]
        text += f" {draw_bar(done, total)} {' '.join([f'{done}/{total}', *what])}"
    if result.get("verdict") in ("hung", "busy", "unknown"):
        text += f" ({result['verdict']})"
    return text.rstrip()


def in_minutes(seconds: float) -> str:
    """Seconds as people say them: 45 s, 4 min 10 s."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{rest} s" if not minutes else f"{minutes} min" if not rest else f"{minutes} min {rest} s"


def detail_text(result: t.Mapping[str, t.Any]) -> str:
    """What changes with every look: it is shown, but is no reason to print another line."""
    text = ""
    memory, estimate = result.get("gpu_memory"), result.get("estimate")
    if isinstance(memory, dict):
        total = f" of {memory['total_mib'] / 1024:.0f}" if memory.get("total_mib") else ""
        text += (
            f", {memory['used_mib'] / 1024:.0f}{total} GiB on {memory['gpus']} GPU{'' if memory['gpus'] == 1 else 's'}"
        )
    text += f", {in_minutes(float(result.get('waited_s') or 0.0))}"
    if isinstance(estimate, dict):
        left, last = float(estimate["left_s"]), in_minutes(estimate["last_s"])
        # A number of minutes is all that an estimate is worth while there are some.
        about = f"{math.ceil(left / 60)} min" if left >= 90 else f"{math.ceil(left / 5) * 5} s"
        text += f", about {about} left (last start took {last})" if left else f" (last start took {last})"
    return text


def parent_stdout_is_terminal() -> bool:
    """A worker's own streams are closed; where the run's output goes shows in its parent."""
    try:
        return os.readlink(f"/proc/{os.getppid()}/fd/1").startswith(("/dev/pts/", "/dev/tty", "/dev/console"))
    except OSError:
        return False


class ActionModule(ActionBase):
    _supports_async = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        args = dict(self._task.args)
        if self._task.async_val or self._task.check_mode or args.get("resume") is not None:
            in_background = bool(self._task.async_val)
            return self._execute_module(
                module_name=MODULE, module_args=args, task_vars=task_vars, wrap_async=in_background
            )
        show = _Progress(str(task_vars.get("inventory_hostname", "")), _redraws(task_vars))
        args["resume"] = ""
        try:
            while True:
                result = self._execute_module(module_name=MODULE, module_args=args, task_vars=task_vars)
                if result.get("failed") or result.get("unreachable") or result.get("finished") is not False:
                    return result
                show(result)
                args["resume"] = result["resume"]
        finally:
            show.close()


def _redraws(task_vars: t.Mapping[str, t.Any]) -> bool:
    return len(task_vars.get("ansible_play_batch") or []) == 1 and parent_stdout_is_terminal()


class _Progress:
    """Prints on stderr: standard output may be read by a program."""

    def __init__(self, host: str, redraws: bool) -> None:
        self._host = host
        self._redraws = redraws
        self._last = ""
        self._last_at = 0.0
        self._drawn = 0

    def __call__(self, result: t.Mapping[str, t.Any]) -> None:
        text, waited = progress_text(result), float(result.get("waited_s") or 0.0)
        line = f"  {self._host}: {text}{detail_text(result)}"
        if self._redraws:
            line = line[: max(20, display.columns - 1)]
            display.display("\r" + line.ljust(self._drawn), stderr=True, newline=False)
            self._drawn = len(line)
        elif text != self._last or waited - self._last_at >= REPEAT_AFTER:
            display.display(line, stderr=True)
            self._last_at = waited
        self._last = text

    def close(self) -> None:
        if self._drawn:
            display.display("", stderr=True)
            self._drawn = 0
