"""Marks of stores: what a version must not open it refuses, whether it was told the shard's id or not.

The versions are commits of this repository, taken out of it: 7ab42ca0, from which on upgrades are promised, and one
from before keys. A checkout without its history cannot have them, and the summary says so; how 7ab42ca0 reads a mark
is data of this test as well.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import redis

from pinlater import Client, ExtendedJob
from pinlater.backends.redis.store_version import LAST_VERSION as LAST_REDIS_VERSION
from pinlater.backends.sql.schema_version import LAST_VERSION
from tests.server.running import WITHIN_S, running
from tests.stores.places import Places
from tests.unit.test_sql_servers import client as sql_client

ROOT = Path(__file__).parents[2]
PROMISED, BEFORE_KEYS = "7ab42ca0", "8bd71f4"
pytestmark = pytest.mark.slow
READ_AS_MARK, LAST_READ = re.compile(r"([A-Za-z0-9]*)(?: \(version ([0-9]+)\))?"), 3
"""By 7ab42ca0, of the shard id in Redis; it refuses a later version."""

LAST_SCHEMA_READ = 4
SERVE = "from pinlater.cli import main; main()"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with the packages of a commit."""

    def make(commit: str) -> Path:
        folder = tmp_path_factory.getbasetemp() / f"commit-{commit}"
        if not folder.exists():
            git = shutil.which("git")
            archive = [git or "git", "-C", str(ROOT), "archive", commit, "pinlater", "thrift"]
            done = subprocess.run(archive, capture_output=True, check=False) if git else None
            if done is None or done.returncode != 0:
                pytest.skip(f"commit {commit} is not in this checkout: git fetch --unshallow brings it")
            folder.mkdir()
            subprocess.run(["tar", "-x", "-C", str(folder)], input=done.stdout, check=True)
        return folder

    return make


def refusal(code: Path, folder: Path, store: str) -> str:
    """The last line of `pinlater serve` of that code, which must not serve."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
    environment |= {"PYTHONPATH": str(code), "PINLATER_HTTP": "none"}
    arguments = ["serve", "--port", "0", "--processes", "1", "--store", store]
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", SERVE, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"it serves a store that it must not open: {store}")
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]


def served(folder: Path, store: str) -> None:
    """A server of this version has had a job with a key."""
    with running(folder, "--store", store, "--processes", "1") as server, Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("mail")
        client.enqueue("mail", ExtendedJob(b"x", dedupe_key="k"))


@contextmanager
def shard_in_redis(url: str) -> Iterator[Callable[[], str]]:
    with redis.Redis.from_url(url, decode_responses=True) as admin:
        yield lambda: str(admin.hget("{pinlater}", "shard"))


def mark_redis(url: str) -> None:
    with redis.Redis.from_url(url) as admin:
        admin.hset("{pinlater}", "shard", f"1 (version {LAST_REDIS_VERSION + 1})")


def mark_sqlite(url: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as store, store:
        store.execute("UPDATE pinlater_meta SET value = ? WHERE name = 'schema_version'", (LAST_VERSION + 1,))


def mark_sql(url: str) -> None:
    with sql_client(url) as store, store.cursor() as cursor:
        cursor.execute(f"UPDATE pinlater_meta SET value = '{LAST_VERSION + 1}' WHERE name = 'schema_version'")


MARK = {"redis": mark_redis, "sqlite": mark_sqlite, "postgres": mark_sql}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.store(kind)) for kind in MARK])
def test_the_next_mark_is_refused_with_an_id_and_without(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, checkout: Callable[[str], Path]
) -> None:
    """By this version and by 7ab42ca0, each with a data folder that knows nothing."""
    places: Places = request.getfixturevalue(f"{kind}_places")
    url = places.fresh()
    served(tmp_path, f"1={url}")
    MARK[kind](url)
    before = checkout(PROMISED)
    for place, (code, store) in enumerate([(ROOT, url), (before, url), (before, f"1={url}")]):
        folder = tmp_path / str(place)
        folder.mkdir()
        line = refusal(code, folder, store)
        assert "newer PinLater" in line
        assert code != ROOT or "accept-new-store" not in line


def test_marks_are_such_that_they_were_read_as_marks(redis_places: Places, tmp_path: Path) -> None:
    url = redis_places.fresh()
    with shard_in_redis(url) as shard:
        served(tmp_path, url)
        now = READ_AS_MARK.fullmatch(shard())
        assert now is not None
        assert now[1] == "1"
        assert int(now[2]) <= LAST_READ
        mark_redis(url)
        after = READ_AS_MARK.fullmatch(shard())
        assert after is not None
        assert int(after[2]) > LAST_READ
    assert LAST_VERSION >= LAST_SCHEMA_READ


def test_a_version_before_keys_refuses_a_marked_redis_by_the_record_of_this_one(
    redis_places: Places, tmp_path: Path, checkout: Callable[[str], Path]
) -> None:
    """It takes `1 (version 2)` for the shard's id where none is given, and serves it in another folder."""
    url = redis_places.fresh()
    served(tmp_path, url)
    assert "newer PinLater" in refusal(checkout(BEFORE_KEYS), tmp_path, url)
    assert "'1 (version 2)', not '1'" in refusal(checkout(BEFORE_KEYS), tmp_path, f"1={url}")
    with running(tmp_path, "--store", url, "--processes", "1") as server:
        assert list(server.wait_for("ready")["shards"]) == ["1"]
        assert [event for event in server.events if event["event"] == "shard_not_configured"] == []
