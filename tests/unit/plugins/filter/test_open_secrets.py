# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.filter.open_secrets import FilterModule, open_secrets

SECRET = "Zq9-planted"


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"HF_TOKEN": SECRET}, "HF_TOKEN"),
        ({"MY_DB_PWD": SECRET, "PWD": "/root"}, "MY_DB_PWD"),
        ({"ANSIBLE_VAULT_PASSWORD": SECRET}, "ANSIBLE_VAULT_PASSWORD"),
        ({"HTTPS_PROXY": f"http://bob:{SECRET}@10.0.0.1:3128"}, "HTTPS_PROXY"),
        ([{"A": "b"}, {"SENTRY_DSN": SECRET}], "SENTRY_DSN"),
        (["-e", f"api_key={SECRET}"], "api_key"),
        (["--shm-size=32g", "--env", f"HF_TOKEN={SECRET}"], "HF_TOKEN"),
        ([f"--env=HF_TOKEN={SECRET}"], "HF_TOKEN"),
        (["-e", f"other=1 ansible_become_pass='{SECRET} x'"], "ansible_become_pass"),
        ([f"-eansible_password={SECRET}"], "ansible_password"),
        ([f"--extra-vars=ansible_ssh_pass={SECRET}"], "ansible_ssh_pass"),
        (["-e", json.dumps({"outer": [{"db_pw": SECRET}]})], "db_pw"),
        (["-e", f"{{my_passcode: {SECRET}}}"], "my_passcode"),
        ([f"--token={SECRET}"], "--token"),
        ([f"proxy=http://bob:{SECRET}@10.0.0.1"], "proxy"),
        ([f"Authorization: Bearer {SECRET}"], "an argument"),
        (["-e", f"it's password={SECRET}"], "password"),
        (["-e", f"{{a: [ password={SECRET}"], "password"),
    ],
)
def test_a_secret_is_named_and_not_shown(value: t.Any, named: str) -> None:
    (sentence,) = open_secrets(value, "drift_schedule_arguments")
    assert sentence.startswith("drift_schedule_arguments: ")
    assert named in sentence
    assert SECRET not in sentence


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"PATH": "/opt/bin:/usr/bin", "PWD": "/root", "ANSIBLE_COLLECTIONS_PATH": "/x", "MAX_TOKENS": 8, "A": None},
        {"ANSIBLE_VAULT_PASSWORD_FILE": "/root/.vault", "HTTPS_PROXY": "http://10.0.0.1:3128", "HF_TOKEN": ""},
        ["--env-file=/etc/sglang/env", "--secret=hf,type=env,target=HF_TOKEN", "--secret", "hf,target=HF_TOKEN"],
        ["--env", "HF_TOKEN", "--env", "NCCL_PROTO=LL", "--device=nvidia.com/gpu=all", "--shm-size=32g"],
        ["--limit", "gpu1", "--vault-password-file", "/root/.vault", "--private-key", "/root/.ssh/id"],
        ["--private-key=/root/.ssh/id", "--key-file=/root/.ssh/id", "--vault-password-file=/root/.vault"],
        ["--become-password-file=/root/.pw", "-e", "@/root/secrets.yml", "-e@/root/secrets.yml", "-v", "-f", "8"],
        ["-e", "gpu_drift_mode=remediate ansible_ssh_private_key_file=/root/.ssh/id", "-e", '{"a": ["b", 1]}'],
    ],
)
def test_what_is_none_passes(value: t.Any) -> None:
    assert open_secrets(value, "cleanslate_environment") == []


def test_what_is_no_environment_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="cleanslate_environment is a str"):
        open_secrets("PATH=/x", "cleanslate_environment")


def test_the_filter_is_offered_by_its_name() -> None:
    assert FilterModule().filters() == {"open_secrets": open_secrets}
