# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: wrong_options
author: cleanslate.gpu contributors (@cleanslate-gpu)
version_added: 0.1.0
short_description: What is wrong with the variables of a role of this collection
description:
  - Compares the variables of a host with the role's argument specification, and returns a sentence about each that is
    misspelt, of another type than the option's, or has a value that could not stand where the role writes it.
  - It is for all roles of a playbook in one task, where a task for each role and each kind of fault costs a multiple.
options:
  _terms:
    description: The name of the role, without that of the collection.
    type: list
    elements: str
    required: true
  like:
    description:
      - How names begin among which misspelt ones are looked for. Without it those that begin as the role's name does.
    type: str
  known:
    description: Names that are right although they look like an option.
    type: list
    elements: str
    default: []
  only:
    description: Look only at these options, and not for misspelt names.
    type: list
    elements: str
    default: []
  programs:
    description: Options of type C(path) that may name a program without its path.
    type: list
    elements: str
    default: []
  units:
    description: Options that name units of systemd, with or without their suffix.
    type: list
    elements: str
    default: []
  idle_mib:
    description: Options that are the MiB which a GPU may hold and still be called idle.
    type: list
    elements: str
    default: []
seealso:
  - plugin: cleanslate.gpu.misspelt_options
    plugin_type: filter
  - plugin: cleanslate.gpu.odd_options
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Refuse variables that are misspelt or cannot be meant
  ansible.builtin.fail:
    msg: "{{ __wrong | join(' ') }}"
  when: __wrong | length > 0
  vars:
    __wrong: "{{ query('cleanslate.gpu.wrong_options', 'sglang_stop', units=['sglang_stop_unit']) }}"
"""

RETURN = r"""
_raw:
  description: The sentences; none where nothing is wrong.
  type: list
  elements: str
"""

import functools
import pathlib
import typing as t

import yaml
from ansible.errors import AnsibleLookupError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.lookup import LookupBase

from ansible_collections.cleanslate.gpu.plugins.filter.misspelt_options import misspelt_options
from ansible_collections.cleanslate.gpu.plugins.filter.odd_options import odd_options

ROLES = pathlib.Path(__file__).resolve().parents[2] / "roles"


@functools.cache
def specification(role: str) -> dict[str, t.Any]:
    """The role's argument_specs.yml. Kept: it is a file of the collection, and every host of a run asks for it."""
    try:
        text = (ROLES / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    except OSError as error:
        raise AnsibleLookupError(f"wrong_options: there is no role {role} in this collection: {error}") from error
    return t.cast("dict[str, t.Any]", yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


class LookupModule(LookupBase):
    def run(
        self,
        terms: list[str],
        variables: dict[str, t.Any] | None = None,
        *,
        like: str | None = None,
        known: t.Sequence[str] = (),
        only: t.Sequence[str] = (),
        programs: t.Sequence[str] = (),
        units: t.Sequence[str] = (),
        idle_mib: t.Sequence[str] = (),
    ) -> list[str]:
        variables = variables or {}
        found: list[str] = []
        for role in terms:
            specs = specification(role)
            options = specs["argument_specs"]["validate"]["options"]
            given = {name: self._templar.template(variables[name]) for name in only or options if name in variables}
            if not only:
                names = [name for name in variables if name.startswith(like or f"{role}_")]
                found += misspelt_options(names, specs, known)
            odd = odd_options(given, specs, programs, units, idle_mib)
            # Without the others, whose defaults are the role's and templates. What is no list would be told by both.
            told = odd or ArgumentSpecValidator({name: options[name] for name in given}).validate(given).error_messages
            found += [f"{sentence.rstrip('.')}." for sentence in told]
        return found
