"""How many cases ran on each store, bare and through the chain; a whole run with an empty cell fails.

A plugin of tests/conftest.py: where workers run the tests, the counts are those of the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conformance.bindings import DEPTHS, KINDS, Binding
from tests.parallel import is_worker
from tests.stores.needs import SERVERS

SERVICES = {"served", "served_many", "servers", "tight", "fleeting", "outage", "alone"}
HERE = Path(__file__).parent


def cell_of(item: pytest.Item) -> tuple[str, str] | None:
    """The store and depth of a case."""
    spec = getattr(item, "callspec", None)
    if spec is None:
        return None
    binding = next((value for value in spec.params.values() if isinstance(value, Binding)), None)
    if binding is None:
        return None
    seen = "chain" if SERVICES & set(getattr(item, "fixturenames", ())) else "bare"  # a service sees the chain
    return binding.kind, spec.params.get("depth", seen)


class Cells:
    """Counts of cases that ran, by store and depth; a plugin that is told of every test."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cell = getattr(report, "conformance_cell", None)
        if cell is not None:
            kind, depth = cell
            self.counts[kind, depth] += 1

    def empty(self, without: Sequence[str]) -> list[tuple[str, str]]:
        """The cells in which nothing ran, but for stores that were left out on purpose."""
        return [
            (kind, depth) for kind in KINDS for depth in DEPTHS if kind not in without and not self.counts[kind, depth]
        ]

    def table(self, without: Sequence[str] = ()) -> str:
        lines = ["{:<10}".format("") + "".join(f"{depth:>10}" for depth in DEPTHS)]
        for kind in KINDS:
            nothing = "left out" if kind in without else "EMPTY"
            lines.append(f"{kind:<10}" + "".join(f"{self.counts[kind, depth] or nothing:>10}" for depth in DEPTHS))
        return "\n".join(lines) + "\n"


def suite_is_whole(session: pytest.Session) -> bool:
    """Whether the whole suite was asked for and ran to its end: no -k, -m, single file or early stop."""
    config = session.config
    if config.option.keyword or config.option.markexpr or config.option.collectonly or session.shouldstop:
        return False
    asked = [Path(config.invocation_params.dir, argument.split("::")[0]).resolve() for argument in config.args]
    return any(path == HERE or path in HERE.parents for path in asked)


CELLS = pytest.StashKey[Cells]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[CELLS] = Cells()
    config.pluginmanager.register(config.stash[CELLS], "conformance-cells")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    report = yield
    if call.when == "call":
        report.conformance_cell = cell_of(item)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if is_worker(session.config):
        return
    cells = session.config.stash[CELLS]
    if suite_is_whole(session) and cells.empty(session.config.getoption("--without")):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    cells = config.stash[CELLS]
    if cells.counts:
        terminalreporter.section("conformance: cases by store, bare or through the chain")
        servers = SERVERS if config.getoption("--fast") else ()
        terminalreporter.write(cells.table([*config.getoption("--without"), *servers]))
