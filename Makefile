# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# A thin layer over nox. All that must be there: a Python 3.9 or later as $(PYTHON), a Python 3.12 or later anywhere.
PYTHON ?= python3
NOX := .venv/bin/nox
SESSIONS := sanity molecule unit unit-oldest lint docs dist

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-ci test-slow simulator molecule-slow test-playbooks test-faults test-fleet test-lxc test-lxc-launch lint docs role-docs unit unit-oldest sanity molecule dist bench bench-fleet clean

help: ## show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)$$/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'

setup: .venv/ready ## make .venv with nox, and the link through which tools find this checkout

.venv/ready: tests/tooling/requirements/nox.txt tests/tooling/make_venv.py
	@$(PYTHON) tests/tooling/make_venv.py

demo: setup ## the main job on a simulated 8-GPU node: from a stuck GPU to a serving server
	@$(NOX) --session demo

test: setup ## lint, docs, unit tests, sanity, the quick scenarios, archive
	@.venv/bin/python tests/tooling/run_sessions.py $(SESSIONS)

test-slow: setup ## simulator, molecule-slow, test-faults, test-lxc and test-lxc-launch, one after the other (root)
	@.venv/bin/python tests/tooling/run_sessions.py --one-by-one simulator molecule-slow test-faults test-lxc test-lxc-launch

test-ci: setup ## what CI runs after test: test-faults, molecule-slow and test-lxc, one after the other (root)
	@.venv/bin/python tests/tooling/run_sessions.py --one-by-one test-faults molecule-slow test-lxc

simulator molecule-slow test-playbooks test-faults test-fleet test-lxc test-lxc-launch: setup
	@.venv/bin/python tests/tooling/run_sessions.py $@

lint docs role-docs unit unit-oldest sanity molecule dist bench bench-fleet: setup
	@$(NOX) --session $@

simulator: ## the simulated node against the recordings
molecule-slow: ## the scenarios in molecule/ that take long
test-playbooks: ## the playbooks as a whole on simulated nodes (slow)
test-faults: ## planted faults, and what must not happen then (slow)
test-fleet: ## slices of a fleet through ansible-runner
test-lxc: ## release on a played Proxmox host: real LXC, systemd, sshd (root)
test-lxc-launch: ## launch and drift on that host (root)
lint: ## ruff, mypy, yamllint, ansible-lint
docs: ## documentation of plugins and roles, changelog
role-docs: ## write the variables into the READMEs of the roles
unit: ## pytest
unit-oldest: ## unit tests on ansible-core 2.17 and the oldest Python
sanity: ## ansible-test sanity with every Python found
molecule: ## the other scenarios in molecule/
dist: ## build, install and load the archive
bench: ## measure against peers, write docs/benchmarks.md (15 minutes)
bench-fleet: ## the same for 32, 64 and 128 nodes (100 minutes at most)

clean: ## remove everything that these targets made
	rm -rf .venv .nox .demo .ansible .mypy_cache .ruff_cache .pytest_cache .hypothesis tests/output
