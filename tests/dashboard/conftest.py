"""One browser for all tests of the dashboard, and a server on each kind of store with something to show."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.dashboard.chromium import chromium
from tests.dashboard.stand import Stand, standing

AXE = Path(__file__).parent / "axe"
STORES = [
    "sqlite",
    pytest.param("redis", marks=pytest.mark.store("redis")),
    pytest.param("mysql", marks=pytest.mark.store("mysql")),
]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


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


@pytest.fixture(scope="package", params=STORES)
def stand(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """With rules, on each kind of store in turn."""
    store = request.getfixturevalue(f"{request.param}_places").fresh()
    with standing(tmp_path_factory.mktemp("dashboard"), request.param, store) as stand:
        yield stand
