"""Hooks and fixtures of every test: `async def` tests, real stores, `--fast`, `--slow`, `--release`, `--without STORE`.

A coroutine test runs on the event loop of the fixture `runner` (an asyncio.Runner), which a plain fixture can use too:
`runner.run(thing.open())`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.parallel import ByFile, Worker, is_worker, turn_of
from tests.parts import FAST_PATHS, SOAKS, is_fast, is_for_release
from tests.stores.needs import NEEDS

pytest_plugins = ["tests.stores.fixtures", "tests.cluster.proof_stores", "tests.conformance.report"]
LEFT_OUT = pytest.StashKey[dict[str, int]]()
"""How many tests, by what left them out."""

NO_RELEASE = "without --release"

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")  # how long an example takes says how busy the machine is


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of one test; a task that is still there at the end is a leak."""
    with asyncio.Runner() as loop_runner:
        yield loop_runner
        left = asyncio.all_tasks(loop_runner.get_loop())
        assert not left, f"tasks left at the end: {left}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--without",
        action="append",
        default=[],
        metavar="STORE",
        choices=sorted(NEEDS),
        help="leave out the tests that need this store or program; repeatable",
    )
    parser.addoption("--fast", action="store_true", help="only what needs no store server and is not marked slow")
    parser.addoption("--slow", action="store_true", help="what CI runs, as without an option")
    parser.addoption("--release", action="store_true", help="also what tests/parts.py leaves to a release")


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer() -> bool | None:
    """What was asked to go on for longer may."""
    return True if any(name in os.environ for name in SOAKS) else None


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell leaves it to what it runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # else the programs that tests start ignore Ctrl-C too
    config.addinivalue_line("markers", "store(name): the test needs this store")
    config.stash[LEFT_OUT] = {}
    if config.getoption("--fast") and config.args_source is config.ArgsSource.TESTPATHS:
        config.args[:] = FAST_PATHS


def pytest_itemcollected(item: pytest.Item) -> None:
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        item.fixturenames.append("runner")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    pyfuncitem.funcargs["runner"].run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def stores_of(item: pytest.Item) -> set[str]:
    """The stores that a test needs, by its marks and its fixtures."""
    marked = {name for mark in item.iter_markers("store") for name in mark.args}
    fixtures = set(getattr(item, "fixturenames", ()))
    return marked | {store for store, names in NEEDS.items() if names & fixtures}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if is_worker(config):
        items.sort(key=lambda item: turn_of(item.nodeid))
    without = set(config.getoption("--without"))
    left_out, chosen = [], []
    for item in items:
        stores = stores_of(item)
        reasons = {f"by --without {store}" for store in stores & without}
        if not config.getoption("--release") and is_for_release(item):
            reasons.add(NO_RELEASE)
        if config.getoption("--fast") and not is_fast(item, stores):
            left_out.append(item)  # which is what was asked for
        elif reasons:
            left_out.append(item)
            for reason in reasons:
                config.stash[LEFT_OUT][reason] = config.stash[LEFT_OUT].get(reason, 0) + 1
        else:
            chosen.append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = chosen


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if is_worker(session.config):
        session.config.workeroutput["left_out"] = session.config.stash[LEFT_OUT]  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Worker) -> None:
    """Every worker collects all tests, and leaves out the same."""
    node.config.stash[LEFT_OUT].update(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for reason, tests in sorted(config.stash[LEFT_OUT].items()):
        terminalreporter.write_line(f"LEFT OUT {reason}: {tests} tests", yellow=True)
