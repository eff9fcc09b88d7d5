# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Says how a scheduled run ended: as a metric for node_exporter, and to a webhook if it failed.

systemd runs it after each run (ExecStopPost=) and tells it by SERVICE_RESULT, EXIT_CODE and EXIT_STATUS.
Exit code 0, or 1 if what it had to say did not reach its reader.
"""

import argparse
import contextlib
import http.client
import json
import os
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request

WEBHOOK_TIMEOUT = 20.0
# What Ansible means by its exit codes.
MEANING = {
    "0": "every host is well, or was mended",
    "1": "Ansible could not run",
    "2": "something failed or has drifted on a host",
    "4": "a host could not be reached",
    "8": "the play was cut off",
    "99": "it was interrupted",
    "250": "Ansible itself failed unexpectedly",
}
METRICS = """\
# HELP cleanslate_schedule_last_run_timestamp_seconds When a scheduled run of this name ended last.
# TYPE cleanslate_schedule_last_run_timestamp_seconds gauge
cleanslate_schedule_last_run_timestamp_seconds{{name="{name}"}} {now:.0f}
# HELP cleanslate_schedule_last_run_success Whether that run ended with exit code 0.
# TYPE cleanslate_schedule_last_run_success gauge
cleanslate_schedule_last_run_success{{name="{name}"}} {success}
# HELP cleanslate_schedule_last_run_exit_code Its exit code; -1 where a signal or the time limit ended it.
# TYPE cleanslate_schedule_last_run_exit_code gauge
cleanslate_schedule_last_run_exit_code{{name="{name}"}} {code}
"""


def message(name, environment, now):
    """What is sent."""
    result, code, status = (environment.get(key, "") for key in ("SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS"))
    if result == "timeout":
        said = "it ran past its time limit and was ended"
    elif code == "exited":
        said = MEANING.get(status, "an exit code that Ansible does not document")
    else:
        said = "it was ended by signal {}".format(status or "unknown")
    return {
        "schema": 1,
        "event": "scheduled_run_failed",
        "name": name,
        "controller": socket.gethostname(),
        "ended_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "result": result,
        "exit_status": status,
        "text": f"The scheduled run {name} on {socket.gethostname()} failed: {said}. See journalctl -u {name}.service.",
    }


def write_metrics(folder, name, environment, now):
    exited = environment.get("EXIT_CODE") == "exited" and environment.get("EXIT_STATUS", "").isdigit()
    code = int(environment["EXIT_STATUS"]) if exited else -1
    success = int(environment.get("SERVICE_RESULT") == "success" and code == 0)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix="." + name)
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(METRICS.format(name=name, now=now, success=success, code=code))
            os.fchmod(stream.fileno(), 0o644)
        os.replace(temporary, os.path.join(folder, name + ".prom"))
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def send(path, body):
    with open(path) as handle:
        address = handle.read().strip()
    try:
        request = urllib.request.Request(
            address, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=WEBHOOK_TIMEOUT) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        # The address can hold a token: it is not repeated.
        raise OSError(f"the webhook answered {error.code}") from None
    except (http.client.HTTPException, ValueError) as error:
        # Its words can hold the address, or whatever was answered.
        raise OSError(f"the webhook does not speak HTTP, or its address is none ({type(error).__name__})") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", required=True)
    parser.add_argument("--metrics-dir")
    parser.add_argument("--webhook-file")
    wanted = parser.parse_args()
    now, failed = time.time(), []
    if wanted.metrics_dir:
        try:
            write_metrics(wanted.metrics_dir, wanted.name, os.environ, now)
        except OSError as error:
            failed.append(f"no metric in {wanted.metrics_dir}: {error.strerror or error}")
    if wanted.webhook_file and os.environ.get("SERVICE_RESULT") != "success":
        try:
            send(wanted.webhook_file, message(wanted.name, os.environ, now))
        except (OSError, ValueError) as error:
            failed.append("the failure was not sent: {}".format(getattr(error, "reason", None) or error))
    for line in failed:
        print("report_run: " + line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
