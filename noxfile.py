# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be checked and run in a checkout. `nox --list` shows it; `make` is a thin layer over it.

Virtual environments are this project's own (tests/tooling/environments.py), one for each group of tools, kept between
runs. Every session refuses to pass when it found nothing to check.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import sys
import tempfile
import time

import nox

ROOT = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tests" / "tooling"))

import environments  # noqa: E402
import find_python  # noqa: E402
import results  # noqa: E402
import stage  # noqa: E402

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "docs", "unit"]

PYTHON_OF_MODULES = ((3, 9), (3, 13))
# ansible-core 2.17 runs on these, and tests modules with nothing newer than the last.
PYTHON_OF_OLDEST = ((3, 10), (3, 12))
# What of the plugins runs where.
ON_TARGETS = ("module_utils", "modules")
ON_CONTROLLER = ("action", "filter", "lookup")
UNIT_FOLDERS = (
    "tests/unit",
    "tests/tooling",
    "tests/benchmarks",
    "tests/integration/privileged",
    "tests/integration/status_page",
)
EXAMPLE = ROOT / "inventory" / "example"
# The cases of the played Proxmox host that are about a launch and what follows it; the others are about releasing.
LXC_LAUNCH = ("dead_man", "drift", "host_lost", "leftovers", "port", "rollback", "schedule", "start_guard")
SLOW_SCENARIOS = ("drift", "mitogen")
DEMO_NODE = ROOT / ".demo" / "node"


class Tools:
    """The programs of one group of tools, run with this checkout's settings."""

    def __init__(self, session: nox.Session, group: str, python: str = sys.executable) -> None:
        self.session = session
        self.collections = stage.link(ROOT)
        self.binaries = environments.ensure(ROOT, group, python)
        self.environment = environments.variables(ROOT, self.binaries, self.collections)

    def run(self, *command: str, **variables: str | None) -> None:
        program = str(self.binaries / command[0])
        environment = {**self.environment, **variables}
        self.session.run(program, *command[1:], env=environment, external=True)


def reports(session: nox.Session) -> pathlib.Path:
    """An empty folder for the junit files of one session."""
    folder = ROOT / ".nox" / "reports" / session.name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.rglob("*.xml"):
        old.unlink()
    return folder


def refuse_nothing(session: nox.Session, folder: pathlib.Path) -> None:
    """No test, no pass."""
    counted = results.count(folder)
    if counted.passed == 0 or counted.failed:
        session.error(f"{counted.passed} tests passed and {counted.failed} failed according to {folder}")
    session.log(f"{counted.passed} tests passed, {counted.skipped} skipped")


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, mypy, yamllint and ansible-lint (profile production)."""
    tools = Tools(session, "lint")
    # ansible-lint checks the syntax of each playbook, the scenarios' too, which needs inventories with their hosts.
    inventories = [EXAMPLE, *sorted((ROOT / "molecule").glob("*/inventory"))]
    known = {"ANSIBLE_INVENTORY": ",".join(map(str, inventories))}
    failed = []
    for command in (
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "--quiet", "."),
        ("mypy",),
        ("yamllint", "--strict", "."),
        ("ansible-lint", "--offline", "--nocolor", *session.posargs),
    ):
        try:
            tools.run(*command, **known)
        except nox.command.CommandFailed:
            failed.append(" ".join(command[:2]))
    if failed:
        session.error(f"{', '.join(failed)} found something.")


@nox.session
def docs(session: nox.Session) -> None:
    """Documentation of modules, filters and roles, every reference in it, and the changelog."""
    tools = Tools(session, "docs")
    check = ("--plugin-docs", "--validate-collection-refs", "self", "--check-extra-docs-refs", "--skip-rstcheck")
    tools.run("antsibull-docs", "lint-collection-docs", *check, ".")
    tools.run("antsibull-changelog", "lint")
    with tempfile.TemporaryDirectory(prefix="cleanslate-docs-") as name:
        fresh = pathlib.Path(name) / "roles"
        shutil.copytree(ROOT / "roles", fresh)
        write_role_docs(tools, fresh)
        stale = [
            role.name
            for role in fresh.iterdir()
            if (role / "README.md").read_bytes() != (ROOT / "roles" / role.name / "README.md").read_bytes()
        ]
    if stale:
        session.error(
            f"README.md and meta/argument_specs.yml differ in {', '.join(sorted(stale))}: run `make role-docs`"
        )


def write_role_docs(tools: Tools, roles: pathlib.Path) -> None:
    """Each role's table of variables, between the markers in its README."""
    for role in sorted(path for path in roles.iterdir() if path.is_dir()):
        tools.run("aar-doc", "--output-template", str(ROOT / "docs" / "role_readme.md.j2"), str(role), "markdown")


@nox.session(name="role-docs")
def role_docs(session: nox.Session) -> None:
    """Write the tables of variables in the roles' READMEs from their meta/argument_specs.yml."""
    write_role_docs(Tools(session, "docs"), ROOT / "roles")


@nox.session
def unit(session: nox.Session) -> None:
    """Every pytest test that needs no scenario, on this Python; arguments go to pytest."""
    tools = Tools(session, "runtime")
    folder = reports(session)
    # Two files at a time: many tests wait for something most of the time.
    spread = ("-n", "2", "--dist", "loadfile")
    words = session.posargs or [*spread, *(place for place in UNIT_FOLDERS if (ROOT / place).is_dir())]
    tools.run("pytest", "-q", f"--junit-xml={folder / 'pytest.xml'}", *words)
    refuse_nothing(session, folder)


def ansible_test(session: nox.Session, tools: Tools, name: str) -> tuple[pathlib.Path, dict[str, str | None]]:
    """A copy of the project where ansible-test accepts it, and the environment to run it in."""
    place = stage.copy(ROOT, ROOT / ".nox" / "stage" / name)
    shutil.rmtree(place / "tests" / "output" / "junit", ignore_errors=True)
    home = environments.ansible_test_home(ROOT, tools.binaries / "python")
    path = os.pathsep.join((str(tools.binaries), find_python.path_with(find_python.search())))
    session.chdir(place)
    # ansible-test finds the collection by the folder it is started in.
    return place, {"HOME": str(home), "PATH": path, "ANSIBLE_CONFIG": None, "ANSIBLE_COLLECTIONS_PATH": None}


def versions(oldest: tuple[int, int], newest: tuple[int, int]) -> list[str]:
    return [find_python.text(version) for version in find_python.search().within(oldest, newest)]


@nox.session
def sanity(session: nox.Session) -> None:
    """ansible-test sanity on the newest ansible-core, with every Python from 3.9 to 3.13 on this machine."""
    tools = Tools(session, "sanity")
    folder = reports(session)
    promised = versions(*PYTHON_OF_MODULES)
    place, environment = ansible_test(session, tools, session.name)
    try:
        tools.run("ansible-test", "sanity", "--venv", "--junit", "--color", "no", *session.posargs, **environment)
    finally:
        shutil.copytree(place / "tests" / "output" / "junit", folder, dirs_exist_ok=True)
    if not session.posargs:
        complaints = results.missing_pythons(folder, promised)
        if complaints or not promised:
            session.error(" ".join(complaints) or "No Python from 3.9 to 3.13 was found to test modules with.")
        session.log(f"compile and import ran with Python {', '.join(promised)}")
    refuse_nothing(session, folder)


@nox.session(name="unit-oldest")
def unit_oldest(session: nox.Session) -> None:
    """The unit tests and the playbooks' syntax on ansible-core 2.17; what runs on targets with the oldest Python."""
    controllers = find_python.search().within(*PYTHON_OF_OLDEST)
    if not controllers:
        session.skip("ansible-core 2.17 needs Python 3.10, 3.11 or 3.12, and none was found")
    controller = max(controllers)
    tools = Tools(session, "oldest", controllers[controller])
    folder = reports(session)
    for playbook in sorted((ROOT / "playbooks").glob("*.yml")):
        tools.run("ansible-playbook", "--syntax-check", "-i", str(EXAMPLE), str(playbook))
    place, environment = ansible_test(session, tools, session.name)
    oldest = min(versions(PYTHON_OF_MODULES[0], PYTHON_OF_OLDEST[1]), key=find_python.parse)
    runs = {oldest: ON_TARGETS, find_python.text(controller): ON_CONTROLLER}
    for version, kinds in runs.items():
        tests = session.posargs or [f"tests/unit/plugins/{kind}/" for kind in kinds]
        units = ("units", "--venv", "--python", version, "--color", "no", *tests)
        tools.run("ansible-test", *units, **environment)
        found = list((place / "tests" / "output" / "junit").glob(f"python{version}-*.xml"))
        if sum((results.count_file(path) for path in found), results.Count()).passed == 0:
            session.error(f"No unit test ran with Python {version}.")
    shutil.copytree(place / "tests" / "output" / "junit", folder, dirs_exist_ok=True)
    refuse_nothing(session, folder)


@nox.session
def molecule(session: nox.Session) -> None:
    """The molecule scenarios but the slow ones, or those named: `nox -s molecule -- stuck_gpu`."""
    there = sorted(path.parent.name for path in (ROOT / "molecule").glob("*/molecule.yml"))
    play_scenarios(session, session.posargs or [name for name in there if name not in SLOW_SCENARIOS])


@nox.session(name="molecule-slow")
def molecule_slow(session: nox.Session) -> None:
    """The slow molecule scenarios."""
    play_scenarios(session, list(SLOW_SCENARIOS))


def play_scenarios(session: nox.Session, scenarios: list[str]) -> None:
    """Molecule's whole sequence for each; one whose verify step ran no test fails."""
    tools = Tools(session, "runtime")
    folder = reports(session)
    if not scenarios:
        session.error("There is no scenario below molecule/.")
    for name in scenarios:
        report = folder / f"{name}.xml"
        began = time.monotonic()
        ephemeral = ROOT / ".nox" / "molecule" / name
        shutil.rmtree(ephemeral, ignore_errors=True)
        tools.run(
            "molecule", "test", "--scenario-name", name,
            MOLECULE_EPHEMERAL_DIRECTORY=str(ephemeral), PYTEST_ADDOPTS=f"--junit-xml={report}",
            # Of a run that is killed no simulated server goes on.
            CLEANSLATE_SIMULATED_KEEPER=str(os.getpid()),
        )  # fmt: skip
        if results.count_file(report).passed == 0:
            session.error(f"Scenario {name} ended well, but its verify step ran no test.")
        session.log(f"Scenario {name}: {results.count_file(report).passed} tests, {time.monotonic() - began:.0f} s")
    refuse_nothing(session, folder)


@nox.session(name="test-playbooks")
def test_playbooks(session: nox.Session) -> None:
    """The playbooks as a whole, on simulated nodes: what they refuse, what they survive, what no tag leads past."""
    tools = Tools(session, "runtime")
    folder = reports(session)
    places = session.posargs or ["tests/integration/playbooks"]
    tools.run("pytest", "-q", f"--junit-xml={folder / 'pytest.xml'}", *places)
    refuse_nothing(session, folder)


@nox.session
def simulator(session: nox.Session) -> None:
    """The simulator against the recordings: most of it is waiting for servers that load."""
    tools = Tools(session, "runtime")
    folder = reports(session)
    tools.run("pytest", "-q", f"--junit-xml={folder / 'pytest.xml'}", *(session.posargs or ["tests/simulator"]))
    refuse_nothing(session, folder)


@nox.session(name="test-faults")
def test_faults(session: nox.Session) -> None:
    """Planted faults on simulated nodes: the verdict, and that nothing else happened."""
    tools = Tools(session, "runtime")
    folder = reports(session)
    # Three files at a time on two cores: most tests wait for something most of the time.
    spread = ("-n", "3", "--dist", "loadfile")
    words = session.posargs or [*spread, "tests/faults"]
    tools.run("pytest", "-q", f"--junit-xml={folder / 'pytest.xml'}", *words)
    refuse_nothing(session, folder)


@nox.session(name="test-fleet")
def test_fleet(session: nox.Session) -> None:
    """Where one controller is not enough: slices through ansible-runner, ansible-pull, the execution environment."""
    tools = Tools(session, "fleet")
    folder = reports(session)
    places = session.posargs or ["tests/integration/fleet"]
    tools.run("pytest", "-q", f"--junit-xml={folder / 'pytest.xml'}", *places)
    refuse_nothing(session, folder)


def play_lxc(session: nox.Session, files: list[str]) -> None:
    """Cases on a played Proxmox host: real LXC, systemd and sshd (root; tests/lxc/README.md)."""
    tools = Tools(session, "runtime")
    if os.geteuid() != 0:
        session.skip("it makes containers, device nodes and cgroups, and must be root")
    folder = reports(session)
    harness = ("python", "-B", str(ROOT / "tests" / "lxc" / "harness.py"))
    tools.run(*harness, "down")  # what a run that was cut off left
    try:
        tools.run(
            "pytest", "-q", "-p", "no:cacheprovider", "--durations=10", f"--junit-xml={folder / 'pytest.xml'}",
            *(session.posargs or files), CLEANSLATE_LXC_REPORT=str(folder),
        )  # fmt: skip
    finally:
        tools.run(*harness, "down")
    refuse_nothing(session, folder)


@nox.session(name="test-lxc")
def test_lxc(session: nox.Session) -> None:
    """Release on a played Proxmox host, by container: who is found, who is ended, who is left alone."""
    launch = {f"test_{name}.py" for name in LXC_LAUNCH}
    play_lxc(session, sorted(str(path) for path in (ROOT / "tests/lxc").glob("test_*.py") if path.name not in launch))


@nox.session(name="test-lxc-launch")
def test_lxc_launch(session: nox.Session) -> None:
    """Launch and drift on the played host: start guard, dead-man timer, left-overs, port, rollback, scheduled looks."""
    play_lxc(session, [f"tests/lxc/test_{name}.py" for name in LXC_LAUNCH])


@nox.session
def mutation(session: nox.Session) -> None:
    """Break the core on purpose and see which test notices; writes docs/mutation.md: `nox -s mutation -- _kinship`."""
    tools = Tools(session, "mutation")
    tools.run("python", str(ROOT / "tests" / "mutation" / "run_mutants.py"), *session.posargs)


def measure(session: nox.Session, parts: list[str]) -> None:
    """Run benchmarks, then write the page from all results that are there, those of a part that failed included."""
    tools, drawing = Tools(session, "runtime"), Tools(session, "bench")
    quick = "--quick" in parts
    results = ROOT / "tests" / ("output/benchmarks" if quick else "benchmarks/results")
    docs = results if quick else ROOT / "docs"
    try:
        tools.run("python", "-B", str(ROOT / "tests" / "benchmarks" / "bench.py"), "--results", str(results), *parts)
    finally:
        drawing.run("python", "-B", str(ROOT / "tests" / "benchmarks" / "page.py"), str(results), str(docs))


@nox.session
def bench(session: nox.Session) -> None:
    """Measure against peers, write docs/benchmarks.md; one part: `nox -s bench -- scan` (tests/benchmarks)."""
    measure(session, session.posargs)


@nox.session(name="bench-fleet")
def bench_fleet(session: nox.Session) -> None:
    """Measure 32, 64 and 128 simulated nodes, each once, in a hundred minutes at most."""
    measure(session, ["fleet-large", *session.posargs])


@nox.session
def demo(session: nox.Session) -> None:
    """Play the main job on a simulated 8-GPU node: a dead server, a stuck GPU, and the way back to `ready`."""
    tools = Tools(session, "runtime")
    simulate = ("python", str(ROOT / "tests" / "simulator" / "simulate.py"))
    tools.run(*simulate, "create", str(DEMO_NODE))
    tools.run(*simulate, "story", str(DEMO_NODE), "stuck_gpu")
    try:
        began = time.monotonic()
        playbook = str(ROOT / "playbooks" / "relaunch.yml")
        tools.run("ansible-playbook", "-i", str(ROOT / "inventory" / "demo"), playbook, *session.posargs)
        session.log(f"The relaunch took {time.monotonic() - began:.0f} s")
    finally:
        tools.run(*simulate, "stop", str(DEMO_NODE))


@nox.session
def dist(session: nox.Session) -> None:
    """Build the archive, install it into an empty place without network, and load a playbook of it by name."""
    tools = Tools(session, "runtime")
    with tempfile.TemporaryDirectory(prefix="cleanslate-dist-") as name:
        folder = pathlib.Path(name)
        tools.run("ansible-galaxy", "collection", "build", str(ROOT), "--output-path", name)
        archive = next(folder.glob("cleanslate-gpu-*.tar.gz"))
        installed = str(folder / "collections")
        install = ("collection", "install", "--offline", str(archive), "-p", installed)
        tools.run("ansible-galaxy", *install, ANSIBLE_COLLECTIONS_PATH=installed)
        place = folder / "collections" / stage.INSIDE
        strange = [
            path.name for path in place.iterdir() if re.match(r"\.|tests$|molecule$|noxfile|Makefile", path.name)
        ]
        if strange:
            session.error(f"The archive contains what an installation does not need: {', '.join(sorted(strange))}")
        session.chdir(folder)
        for playbook in sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml")):
            # Away from the checkout and its settings, as for somebody who installed it.
            check = ("--syntax-check", "-i", str(place / "inventory" / "example"), f"cleanslate.gpu.{playbook}")
            tools.run("ansible-playbook", *check, ANSIBLE_COLLECTIONS_PATH=installed, ANSIBLE_CONFIG=None)
        if not (place / "playbooks" / "relaunch.yml").is_file():
            session.error("The archive does not contain playbooks/relaunch.yml.")
