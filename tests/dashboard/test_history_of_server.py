"""The history of a real server: real jobs that work and fail, processes that are rolled and killed, rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.running import RunningServer, running

LATER_MS = 60_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running(tmp_path, "--api", "127.0.0.1:0", "--data", "data", "--lease", "1s") as started:
        yield started
