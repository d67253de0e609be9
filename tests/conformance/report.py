"""How many cases ran on each store, bare and through the chain; a whole run with an empty cell fails.

A plugin of tests/conftest.py: where workers run the tests, the counts are those of the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conformance.bindings import DEPTHS, KINDS, binding_of, depth_of
from tests.parallel import is_worker
from tests.parts import ABOVE_IN_CI
from tests.stores.needs import SERVERS

HERE = Path(__file__).parent


def cell_of(item: pytest.Item) -> tuple[str, str] | None:
    """The store and depth of a case."""
    binding = binding_of(item)
    if binding is None:
        return None
    chained = depth_of(item) == "service" or "outage" in getattr(item, "fixturenames", ())
    return binding.kind, "chain" if chained else depth_of(item)


class Cells:
    """Counts of cases that ran, by store and depth; a plugin that is told of every test."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cell = getattr(report, "conformance_cell", None)
        if cell is not None:
            kind, depth = cell
            self.counts[kind, depth] += 1

    def empty(self, without: Sequence[str], *, release: bool = True) -> list[tuple[str, str]]:
        """The cells in which nothing ran, but for stores and depths that were left out on purpose."""
        return [
            (kind, depth)
            for kind in KINDS
            for depth in DEPTHS
            if kind not in without and not self.counts[kind, depth] and (release or _in_ci(kind, depth))
        ]

    def table(self, without: Sequence[str] = (), *, release: bool = True) -> str:
        lines = ["{:<10}".format("") + "".join(f"{depth:>10}" for depth in DEPTHS)]
        for kind in KINDS:
            cells = []
            for depth in DEPTHS:
                left_out = kind in without or not (release or _in_ci(kind, depth))
                cells.append(self.counts[kind, depth] or ("left out" if left_out else "EMPTY"))
            lines.append(f"{kind:<10}" + "".join(f"{cell:>10}" for cell in cells))
        return "\n".join(lines) + "\n"


def _in_ci(kind: str, depth: str) -> bool:
    """The rest is left to `--release`."""
    return depth == "bare" or kind in ABOVE_IN_CI


def suite_is_whole(session: pytest.Session) -> bool:
    """Whether the whole suite was asked for and ran to its end: no -k, -m, single file or early stop."""
    config = session.config
    if config.option.keyword or config.option.markexpr or config.option.collectonly or session.shouldstop:
        return False
    asked = [Path(config.invocation_params.dir, argument.split("::")[0]).resolve() for argument in config.args]
    return any(path == HERE or path in HERE.parents for path in asked)


def left_out(config: pytest.Config) -> list[str]:
    """The stores that were left out on purpose."""
    return [*config.getoption("--without"), *(SERVERS if config.getoption("--fast") else ())]


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
    cells, release = session.config.stash[CELLS], session.config.getoption("--release")
    if suite_is_whole(session) and cells.empty(left_out(session.config), release=release):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    cells = config.stash[CELLS]
    if cells.counts:
        terminalreporter.section("conformance: cases by store, bare or through the chain")
        terminalreporter.write(cells.table(left_out(config), release=config.getoption("--release")))
