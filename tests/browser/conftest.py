"""One browser for all tests of the dashboard, and a server on each kind of store with something to show."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import BrowserMissing, chromium
from tests.browser.stand import Stand, standing

AXE = Path(__file__).parent / "axe"
STORES = [
    "sqlite",
    pytest.param("redis", marks=pytest.mark.store("redis")),
    pytest.param("mysql", marks=pytest.mark.store("mysql")),
]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    try:
        with chromium() as browser:
            yield browser
    except BrowserMissing as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(scope="package")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The checks of accessibility, as a script."""
    if shutil.which("npm") is None:
        pytest.fail("npm is not installed: apt-get install npm (or leave it out: --without browser)", pytrace=False)
    folder = tmp_path_factory.mktemp("axe")
    for file in AXE.iterdir():
        shutil.copy(file, folder)
    command = ["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


class Stands:
    """A server with rules and something to show on each kind of store, started when a test asks for it first."""

    def __init__(self, request: pytest.FixtureRequest, folders: pytest.TempPathFactory, ending: ExitStack) -> None:
        self._request = request
        self._folders = folders
        self._ending = ending
        self._stands: dict[str, Stand] = {}

    def on(self, kind: str) -> Stand:
        if kind not in self._stands:
            store = self._request.getfixturevalue(f"{kind}_places").fresh()
            folder = self._folders.mktemp(f"dashboard-{kind}")
            self._stands[kind] = self._ending.enter_context(standing(folder, kind, store))
        return self._stands[kind]


@pytest.fixture(scope="package")
def stands(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stands]:
    with ExitStack() as ending:
        yield Stands(request, tmp_path_factory, ending)


@pytest.fixture(params=STORES)
def stand(request: pytest.FixtureRequest, stands: Stands) -> Stand:
    """On each kind of store."""
    return stands.on(request.param)


@pytest.fixture
def sqlite_stand(stands: Stands) -> Stand:
    """For what is the same on each kind of store."""
    return stands.on("sqlite")


@pytest.fixture(scope="package")
def open_stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """The embedded default: SQLite, no rules, and the admin password for changes."""
    folder = tmp_path_factory.mktemp("dashboard-open")
    with standing(folder, "open", f"sqlite:///{folder}/shard.db", rules=False) as stand:
        yield stand
