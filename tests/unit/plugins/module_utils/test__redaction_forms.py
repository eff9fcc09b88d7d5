# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The forms in which a secret is written: over several lines, with commas in it, cut off, in pairs, abbreviated."""

from __future__ import annotations

import json

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import MASK, redact, redact_argv

KEY = "Zq7v/abc+d3f=="
WITH_SECRETS = [
    *(f"api-key: {sign}\n  {KEY}\n" for sign in ("|", ">", "|-", ">-", ">2-", "| # why", "!!str |", "&key >-", "")),
    *(f"- api-key: |\n    x\n\n    {KEY}\n  port: 1\n", f"a:\n  api-key: >-\r\n    {KEY}\r\n  port: 1\r\n"),
    *(f'api-key: "abc\n  {KEY}"\nport: 1\n', f"api-key: 'abc\n  {KEY}'\n", f"api-key: |\n\tx\n\t{KEY}"),
    *(f"api_keys:\n- abc\n- {KEY}\n", f"api_keys: [\n  abc,\n  {KEY}\n]", f"tokens:\n  token:\n    - {KEY}\n"),
    json.dumps({"outer": {"api_key": [KEY, KEY], "port": 1}}, indent=2),
    *(f"api-key: abc,{KEY}", f"api-key: abc {{x}} {KEY}", f"api-key: !!str {KEY}", f"api-key: &key {KEY}"),
    *(f"api_key=abc,{KEY}", f"f(api_key=abc,{KEY}, port=1)", f"api_key=abc{{x}}{KEY}", f"x api_key=ab)({KEY} port=1"),
    *(f"{name}={value}-{KEY}" for name in ("api_key", "API_TOKENS") for value in ("null", "true", "None", "False")),
    *(f"api_key: null-{KEY}", f"x api_key: true.{KEY}", f"api_key=None{KEY}"),
    *(f"Authorization: Token {KEY}", f"-H 'Authorization: ApiKey {KEY}'", f'{{"authorization": "Token {KEY}"}}'),
    *(f"('api_key', '{KEY}')", f"[('X-API-Key', '{KEY}'), ('a', 'b')]", f"('Authorization', 'Token {KEY}')"),
    *(
        f"api_keys=['abc', '{KEY}']",
        f"passwords: {KEY}",
        f"HF_TOKENS={KEY}",
        f"HF_TOKENS=abc,{KEY}",
        f"HF_TOKENS='{KEY}'",
    ),
    *(f"curl -u user:{KEY} http://h", f"curl -s --user 'user:a {KEY}' h", f'sh -c "curl -uuser:{KEY} h"'),
    *(f"Cookie: session={KEY}", f"-H 'Cookie: a=b; session={KEY}'", f'{{"Set-Cookie": "session={KEY}; Path=/"}}'),
    *(f"ServerArgs(api_key='abc {KEY}", f'{{"api_key": "abc {KEY}', f"--api-key 'abc {KEY}", f"['--api-key', 'a {KEY}"),
    *(
        f"api_keys=['abc', '{KEY}",
        f"sglang::title --api-k {KEY}",
        "api_key=" + "\\" * 31 + f'"{KEY}',
        f"x --admin-api={KEY}",
    ),
]


@pytest.mark.parametrize("text", WITH_SECRETS)
def test_no_form_shows_a_secret(text: str) -> None:
    shown = redact(text)
    assert "Zq7v" not in shown
    assert "d3f" not in shown
    assert MASK in shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("api-key: |\n  x\n\n  y\nport: 30000\n", f"api-key: {MASK}\nport: 30000\n"),
        ("- api-key: >-\n    x\n  port: 30000\n", f"- api-key: {MASK}\n  port: 30000\n"),
        ("api-key: x,y # z\nport: 30000\n", f"api-key: {MASK}\nport: 30000\n"),
        ("password: x, user: root", f"password: {MASK}, user: root"),
        ("api_keys:\n- x\nhosts:\n- y\n", f"api_keys: {MASK}\nhosts:\n- y\n"),
        ("api_key=x,port=3", f"api_key={MASK},port=3"),
        ("f(api_key=x, port=3)", f"f(api_key={MASK}, port=3)"),
        ("f(api_key=x)", f"f(api_key={MASK})"),
        ("?api_key=x&port=3", f"?api_key={MASK}&port=3"),
        ("Authorization: Bearer abcdef from 127.0.0.1", f"Authorization: Bearer {MASK} from 127.0.0.1"),
        ("('api_key', 'x'), ('port', '3')", f"('api_key', {MASK}), ('port', '3')"),
        ("HF_TOKENS=x MAX_TOKENS=3", f"HF_TOKENS={MASK} MAX_TOKENS=3"),
        ("curl -u a:b http://h -o x", f"curl -u {MASK} http://h -o x"),
        ("curl -H 'Cookie: a=b' http://h", f"curl -H 'Cookie: {MASK}' http://h"),
    ],
)
def test_what_stands_beside_a_secret_stays(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        *(
            "api_key: null\nport: 3",
            "api-key: ~",
            "(api_key=None)",
            "api_key=None,port=3",
            "{api_key: null}",
            "api_key=None.",
        ),
        *(json.dumps({"api_key": None}, indent=2), json.dumps(json.dumps({"api_key": None})), "<Args api_key=None>"),
        *("MAX_TOKENS=4096", 'export MAX_TOKENS="4096"', "STOP_TOKENS: 1.5", "TOTAL_TOKENS=None"),
        *("docker run -u 1000:1000 image", "sudo -u user:group x", "curl http://127.0.0.1:30000/health", "curl -s h"),
        *(
            "('token', 'usage', 3)",
            "cookie jar: empty",
            "--api v1",
            "--apis x",
            "--administer x",
            "--ssl-keyfile /k.pem",
        ),
        *(
            "secrets:\n  api-key-file:\n    path: /k\n",
            "tokens:\n  - a\n  - b\n",
            "port: |\n  3\n",
            "token:\n  a: 1\n  b: 2\n",
            "api_key:\nport: 3",
        ),
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        *(
            (["p", option, KEY, "x"], f"p {option} {MASK} x")
            for option in ("--api", "--api-", "--api-k", "--admin-api")
        ),
        *((["p", f"{option}={KEY}", "x"], f"p {option}={MASK} x") for option in ("--api", "--adm", "--ssl-keyfile-p")),
        (["p", "--ssl-keyfile", "/k.pem"], "p --ssl-keyfile /k.pem"),
        (["p", "--a", "x", "--apis", "y", "--address", "z"], "p --a x --apis y --address z"),
        (["webui", "--api", "--port", "7860"], "webui --api --port 7860"),
        (["curl", "-u", f"user:{KEY}", "h"], f"curl -u {MASK} h"),
        (["curl", "-H", f"Authorization: Token {KEY}", "h"], f"curl -H 'Authorization: {MASK}' h"),
    ],
)
def test_a_command_line(argv: list[str], shown: str) -> None:
    assert redact_argv(argv).replace(f"'{MASK}'", MASK) == shown
