"""The recipes of docs/backup.md, line by line as they stand there, with the addresses of this test's stores."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.clock import SystemClock
from pinlater.model import Job
from tests.queues import make_queue
from tests.stores.process import free_port
from tests.transfers.conftest import StoreOfKind, only
from tests.transfers.holdings import differences, holdings
from tests.transfers.population import populate

PAGE = (Path(__file__).parents[2] / "docs" / "backup.md").read_text(encoding="utf-8")
SSH = '#!/bin/sh\n# the other machine is this one\nshift\nexec sh -c "$*"\n'


class Recipes:
    """Runs lines of the page by a shell, in a folder, with other addresses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = folder / "programs"
        programs.mkdir()
        (programs / "ssh").write_text(SSH)
        (programs / "ssh").chmod(0o755)
        path = os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"]))
        self._environment = os.environ | {"PATH": path, "HOME": str(folder)}

    def run(self, line: str, places: Mapping[str, str], code: int = 0) -> str:
        """Run a line that stands on the page; what it said."""
        assert f"$ {line}\n" in PAGE or f"`{line}`" in PAGE, line
        for before, place in places.items():
            line = line.replace(before, place)
        ended = subprocess.run(
            line, shell=True, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=60
        )
        assert ended.returncode == code, ended
        return ended.stderr


@pytest.fixture
def recipes(tmp_path: Path) -> Recipes:
    return Recipes(tmp_path)


FIRST, STANDBY = "sqlite:////var/lib/pinlater/pinlater.db", "sqlite:////srv/standby.db"
SHIPPED = (
    f"pinlater export {FIRST} - | ssh standby "
    "'umask 077; cat > new.export && pinlater import --check new.export && mv new.export last.export'"
)


@only("redis")
@pytest.mark.slow
async def test_a_copy_of_a_redis_that_servers_use_is_exported(source: StoreOfKind, recipes: Recipes) -> None:
    url, now_ms = source.fresh(), SystemClock().now_ms()
    shard = await source.open(url)
    await make_queue(shard, "mail", now_ms)
    await shard.enqueue("mail", [Job(b"%d" % number) for number in range(30)], now_ms)
    await shard.kv_put("lease", "server/1", b"{}", SystemClock().now_ms() + 3_000, now_ms)
    first, port, backup = urlsplit(url), str(free_port()), recipes.folder / "backup"
    backup.mkdir()
    places = {
        "-h 10.0.0.7": f"-h {first.hostname} -p {first.port}",
        "/backup": str(backup),
        "7777/0": f"{port}{first.path}",
        "7777": port,
        "sleep 10": "sleep 4",
    }
    recipes.run("redis-cli -h 10.0.0.7 --rdb /backup/dump.rdb", places)
    recipes.run("redis-server --dir /backup --dbfilename dump.rdb --port 7777 --save '' --daemonize yes", places)
    try:
        recipes.run("sleep 10", places)
        said = recipes.run("pinlater export redis://127.0.0.1:7777/0 monday.export", places)
    finally:
        recipes.run("redis-cli -p 7777 shutdown nosave", places)
    assert "30 jobs" in said
    assert await shard.count_ready("mail", [1], 100, now_ms) == [30]


@only("sqlite-file")
@pytest.mark.slow
async def test_a_standby_is_ready_and_gives_back_what_it_did(source: StoreOfKind, recipes: Recipes) -> None:
    first, standby, early = source.fresh(), source.fresh(), source.fresh()
    shard = await source.open(first)
    now_ms = await populate(shard, 60)
    before = await holdings(shard, now_ms)
    places = {FIRST: first, STANDBY: standby}
    last = recipes.folder / "last.export"
    recipes.run(SHIPPED, places)
    assert last.stat().st_mode & 0o777 == 0o600
    shipped = last.read_bytes()
    recipes.run(SHIPPED, places | {" | ssh": " | head -c 5000 | ssh"}, code=1)
    assert last.read_bytes() == shipped
    for _ in range(2):
        recipes.run(f"pinlater import last.export {STANDBY} --replace", {STANDBY: early})
    recipes.run(f"pinlater import last.export {STANDBY}", places)
    await source.close()
    again = await source.open(standby)
    assert differences(before, await holdings(again, now_ms)) == {}
    await populate(again, 20, seed=4)
    before = await holdings(again, now_ms)
    await source.close()
    recipes.run(f"pinlater export {STANDBY} - | ssh first 'pinlater import - {FIRST} --replace'", places)
    assert differences(before, await holdings(await source.open(first), now_ms)) == {}


@only("redis", "mysql", "postgres", name="target")
@pytest.mark.slow
async def test_a_backup_and_a_pipe_lead_into_each_kind_of_store(
    target: StoreOfKind, recipes: Recipes, tmp_path: Path
) -> None:
    first = f"sqlite:///{tmp_path}/first.db"
    shard = SqliteShard(first, "1")
    await shard.open()
    now_ms = await populate(shard, 60)
    before = await holdings(shard, now_ms)
    file, pipe = target.fresh(), target.fresh()
    recipes.run(f"pinlater export {FIRST} monday.export", {FIRST: first})
    recipes.run("pinlater import monday.export redis://10.0.0.8/0", {"redis://10.0.0.8/0": file})
    postgres = "postgresql+psycopg://pinlater@db1/jobs"
    recipes.run(f"pinlater export {FIRST} - | pinlater import - {postgres}", {FIRST: first, postgres: pipe})
    await shard.close()
    for place in (file, pipe):
        assert differences(before, await holdings(await target.open(place), now_ms)) == {}
