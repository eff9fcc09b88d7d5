# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import time

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import parse_stat
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import (
    MASK,
    names_a_secret,
    redact,
    redact_argv,
    secret_in_variable,
)

KEY = "sk-Q7vv/abc+d3f=="


@pytest.mark.parametrize(
    "text",
    [
        f"--api-key {KEY}",
        f"--api-key={KEY}",
        f"--api-key '{KEY} x'",
        f"--admin-api-key {KEY} --port 30000",
        f"python -m sglang.launch_server --api_key={KEY}",
        f"['--api-key', '{KEY}', '--port']",
        json.dumps(["--admin-api-key", KEY]),
        json.dumps({"api_key": KEY}),
        json.dumps({"outer": json.dumps({"admin_api_key": KEY})}),
        f"server_args={{'api_key': '{KEY}', 'port': 30000}}",
        f"ServerArgs(model_path='m', api_key='{KEY}', admin_api_key=None)",
        f'server_args=ServerArgs(api_key="{KEY}")',
        f"api-key: {KEY}",
        f"port: 30000\nadmin-api-key: '{KEY}'\n",
        f"- api-key: {KEY} with blanks",
        f"Authorization: Bearer {KEY}",
        f"-H 'Authorization: Bearer {KEY}'",
        f'{{"Authorization": "Bearer {KEY}"}}',
        f"Authorization: {KEY}",
        f"proxy-authorization={KEY}",
        f"X-API-Key: {KEY}",
        f"HF_TOKEN={KEY}",
        f"HUGGING_FACE_HUB_TOKEN='{KEY}'",
        f"AWS_SECRET_ACCESS_KEY={KEY}",
        f"SOME_LICENSE_KEY={KEY}",
        f"DB_PASSWORD={KEY} next",
        f"POSTGRES_PASS={KEY}",
        f"MY_DB_PWD={KEY}",
        f"MY_SASL_PW={KEY} next",
        f"LOCK_PASSCODE={KEY}",
        f"SENTRY_DSN={KEY}",
        f"https://user:{KEY.replace('/', '')}@example.com/x",
        "https://sk-Q7vvabcd3f0123456789@github.com/x",
        f"https://host/v1?api_key={KEY}&x=1",
        f"--hf-token {KEY}",
        f"password: {KEY}",
        f"ssl_keyfile_password='{KEY}'",
        "found hf_abcdefQ7vvghijklmnop" + "q" * 20,
        "-----BEGIN RSA PRIVATE KEY-----\nQ7vv\nQ7vv\n-----END RSA PRIVATE KEY-----",
        "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.sk-Q7vv",
    ],
)
def test_no_secret_is_left(text: str) -> None:
    shown = redact(text)
    assert "Q7vv" not in shown
    assert MASK in shown


@pytest.mark.parametrize(
    "text",
    [
        "--max-total-tokens 16384 --speculative-num-draft-tokens 4",
        "max_prefill_tokens=16384, chunked_prefill_size=8192",
        "api_key=None, admin_api_key=None",
        '"api_key": null, "port": 30000',
        "tokenizer_path='m', skip_tokenizer_init=False",
        "gen throughput (token/s): 12.3, #token: 4096, #cached-token: 12, token usage: 0.12",
        "http://127.0.0.1:30000/health",
        "https://user@example.com/x",
        "ssl_keyfile='/etc/ssl/key.pem'",
        "pid 4711 (sglang::scheduler_TP1), user sglang, GPU 1 nvidia1",
        "key: value",
        "monkey=banana",
        "PWD=/root OLDPWD=/srv",
        "second pass: 3.2 s, forward_pass=4",
        "",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "MY_DB_PWD",
        "my-db-pwd",
        "PASS",
        "DB_PASS",
        "ansible_become_pass",
        "SSHPASS",
        "MY_SASL_PW",
        "PW",
        "PASSCODE",
        "DOOR_PASSCODE",
        "DSN",
        "SENTRY_DSN",
        "PGPASSWORD",
        "ANSIBLE_VAULT_PASSWORD",
        "api-key",
    ],
)
def test_a_variable_of_this_name_holds_a_secret(name: str) -> None:
    assert names_a_secret(name)
    assert secret_in_variable(name, "x") == f"{name} looks like a secret"


@pytest.mark.parametrize(
    "name",
    [
        "",
        *[
            "PWD",
            "OLDPWD",
            "MAX_BYPASS",
            "COMPASS",
            "PASSES",
            "MAX_TOKENS",
            "PASSWORD_FILE",
            "PWD_DEPTH",
            "PATH",
            "DSNX",
        ],
    ],
)
def test_a_variable_of_this_name_holds_none(name: str) -> None:
    assert not names_a_secret(name)
    assert secret_in_variable(name, "/root") is None


@pytest.mark.parametrize(
    "text", [f"--api-key {KEY}", f'"api_key": "{KEY}"', f"Authorization: Bearer {KEY}", f"A_KEY={KEY}"]
)
def test_twice_is_once(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize("piece", ["a-", "a.", "api_", "token", "A_", "http", "key=", "--", '"', "'api_key': '", "x:"])
def test_long_lines_take_no_time(piece: str) -> None:
    began = time.process_time()
    redact(piece * (200_000 // len(piece)))
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["python", "-m", "x", "--api-key", "--host"], f"python -m x --api-key {MASK}"),
        (["x", "--api-key", "a b", "--port", "1"], f"x --api-key {MASK} --port 1"),
        (["x", "--api-key=a b", "y"], f"x --api-key={MASK} y"),
        (["sglang::scheduler_TP1"], "sglang::scheduler_TP1"),
        (["sh", "-c", "echo a; echo b"], "sh -c 'echo a; echo b'"),
        (["python", "-c", "import x\nx()"], "python -c 'import x\\nx()'"),
        (["x", ""], "x ''"),
        ([], ""),
        (["env", "HF_TOKEN=abc def", "x"], f"env HF_TOKEN={MASK} x"),
    ],
)
def test_a_command_line(argv: list[str], shown: str) -> None:
    assert redact_argv(argv) == shown


ODD = "planted-a\"b'c\\d$e%f"


@pytest.mark.parametrize(
    "text",
    [
        f"server_args=ServerArgs(api_key={ODD!r}, port=1)",
        json.dumps({"api_key": ODD}),
        json.dumps(json.dumps({"api_key": ODD})),
        json.dumps(json.dumps(json.dumps({"api_key": ODD}))),
        json.dumps(f"server_args=ServerArgs(api_key={ODD!r}, port=1)"),
        repr(json.dumps({"api_key": ODD})),
        f"api-key: {json.dumps(ODD)}",
        "api-key: '" + ODD.replace("'", "''") + "'",
    ],
)
def test_a_quote_in_a_value_does_not_end_the_mask(text: str) -> None:
    assert not [part for part in ("planted", "b'c", "d$e", "%f") if part in redact(text)]


def test_what_follows_a_quoted_value_stays() -> None:
    assert redact("ServerArgs(api_key='a', host='b', x='')") == f"ServerArgs(api_key={MASK}, host='b', x='')"
    assert redact("ServerArgs(api_key='', host='b')").endswith(", host='b')")


def test_a_long_run_of_quotes_takes_no_time() -> None:
    began = time.monotonic()
    for run in ("''", '\\"', "\\'", '""', "\\''"):
        redact("api_key='" + run * 20_000 + " x")
    assert time.monotonic() - began < 5


# What would set a terminal's title, clear it, turn the writing round or begin a line of its own.
HOSTILE = "py\x1b]0;title\x07\x1b[2J\x9b31m\u202eabc\u2028d\x00"


def test_a_title_that_a_process_gave_itself_cannot_draw_on_a_terminal() -> None:
    shown = (redact_argv([HOSTILE]), redact_argv(["python3", HOSTILE]), parse_stat(stat_line(HOSTILE)).comm)
    assert all(line.isprintable() for line in shown), shown


def stat_line(comm: str) -> bytes:
    return f"4711 ({comm}) S {' '.join(['1'] * 40)}\n".encode()


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["server", "--api-key", "two words"], "server --api-key ***"),
        (["server", "--api-key", "a'b", "--port", "30000"], "server --api-key *** --port 30000"),
        (["server", "--api-key", "--api-key", "shown"], "server --api-key *** shown"),
    ],
)
def test_what_follows_the_name_of_a_secret_is_masked_whatever_it_is(argv: list[str], line: str) -> None:
    assert redact_argv(argv).replace(MASK, "***").replace("'***'", "***") == line
