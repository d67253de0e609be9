"""An S3 interface for the tests: moto's server in a process of its own, behind a relay that breaks on demand."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.proxy import Proxy
from tests.stores.process import dies_with_us, free_port

WITHIN_S = 60.0
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
_buckets = itertools.count()


@dataclass
class Buckets:
    """An S3 server, and a relay to it."""

    port: int
    relay: Proxy

    def fresh(self, *, by_way_of_relay: bool = True) -> str:
        """The URL of an empty bucket."""
        name = f"bucket-{next(_buckets)}"
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=WITHIN_S):
            pass
        port = self.relay.port if by_way_of_relay else self.port
        return f"s3://{name}/jobs?endpoint=http://127.0.0.1:{port}&region=us-east-1"


@pytest.fixture(scope="session")
def s3_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port, folder = free_port(), tmp_path_factory.mktemp("s3")
    with (folder / "log").open("w") as log:
        program = str(Path(sys.executable).parent / "moto_server")
        process = subprocess.Popen(
            [*dies_with_us(), program, "-H", "127.0.0.1", "-p", str(port)], cwd=folder, stdout=log, stderr=log
        )
    try:
        until_s = time.monotonic() + WITHIN_S
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5):
                    break
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < until_s, "moto does not answer"
                time.sleep(0.1)
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def buckets(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Buckets]:
    """Credentials are in the environment, as of a server in the field."""
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with Proxy(s3_port) as relay:
        yield Buckets(s3_port, relay)


@pytest.fixture(params=["folder", "s3"])
def tier_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place for the bodies of one tier."""
    if request.param == "folder":
        return (tmp_path / "tier").as_uri()
    fresh: Callable[[], str] = request.getfixturevalue("buckets").fresh
    return fresh()
