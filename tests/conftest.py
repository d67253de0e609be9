"""Hooks and fixtures of every test: `async def` tests, real stores, `--fast`, and `--without STORE`, told aloud.

A coroutine test runs on the event loop of the fixture `runner` (an asyncio.Runner), which a plain fixture can use too:
`runner.run(thing.open())`.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Iterator

import pytest

from tests.fast import FAST_PATHS, is_fast
from tests.parallel import ByFile, Worker, is_worker, turn_of
from tests.stores.needs import NEEDS

pytest_plugins = ["tests.stores.fixtures", "tests.cluster.proof_stores", "tests.conformance.report"]
LEFT_OUT = pytest.StashKey[dict[str, int]]()


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
    if config.getoption("--fast"):
        fast = [is_fast(item, stores_of(item)) for item in items]
        config.hook.pytest_deselected(items=[item for item, chosen in zip(items, fast, strict=True) if not chosen])
        items[:] = [item for item, chosen in zip(items, fast, strict=True) if chosen]
    without = set(config.getoption("--without"))
    left_out = [item for item in items if stores_of(item) & without]
    if not left_out:
        return
    for item in left_out:
        for store in stores_of(item) & without:
            config.stash[LEFT_OUT][store] = config.stash[LEFT_OUT].get(store, 0) + 1
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not stores_of(item) & without]


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
    for store, tests in sorted(config.stash[LEFT_OUT].items()):
        terminalreporter.write_line(f"LEFT OUT by --without {store}: {tests} tests that need it", yellow=True)
