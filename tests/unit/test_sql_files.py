"""SQLite's own: files that are no store, a full disk, a lock that another process holds, two processes on one file."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater.backends.base import ClaimRequest, ConfigEntry, JobKey
from pinlater.backends.sql.session import Row
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.backends.sql.sqlite_connection import SqliteSession
from pinlater.errors import NothingStored, StoreConflict, StoreRefused
from pinlater.model import Job, JobState, new_version, parse_descriptor
from tests.queues import make_queue

NOW_MS = 1_790_000_000_000
LIMITLESS = 2**30


@pytest.fixture
def shard(tmp_path: Path, runner: asyncio.Runner) -> Iterator[SqliteShard]:
    """An open shard with one queue, on a file in a folder that was not there."""
    made = SqliteShard(f"sqlite:///{tmp_path}/new/folder/a.db", "1", busy_timeout_ms=50)
    runner.run(made.open())
    runner.run(make_queue(made, "mail", NOW_MS))
    yield made
    runner.run(made.close())


def file_of(shard: SqliteShard) -> Path:
    return Path(shard.path)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear reader, this is not a database. " * 100)
    with pytest.raises(StoreRefused, match="not an SQLite database"):
        await SqliteShard(str(path), "1").open()
    assert path.read_text().startswith("Dear reader")


async def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(NothingStored, match="cannot be opened"):
        await SqliteShard(str(tmp_path), "1").open()


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NothingStored, match=r"folder cannot be made.*--data"):
        await SqliteShard(str(tmp_path / "file" / "deeper" / "a.db"), "1").open()


async def test_without_an_id_no_file_is_made(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="no store here"):
        await SqliteShard(str(tmp_path / "a.db")).open()
    assert not list(tmp_path.iterdir())


async def test_claims_made_at_once_keep_their_descriptors_to_the_letter(shard: SqliteShard) -> None:
    """Whatever a worker calls itself: JSON would end it at a NUL."""
    descriptors = [f'{number}:w\0"\\ü' for number in range(3)]
    await shard.enqueue("mail", [Job(b"x")] * len(descriptors), NOW_MS)
    requests = [ClaimRequest(each, 1, (1,), 1_000, LIMITLESS) for each in descriptors]
    claimed = await shard.claim("mail", requests, NOW_MS)
    refs = [parse_descriptor(job.descriptor) for (job,) in claimed]
    keys = [JobKey(ref.priority, ref.id) for ref in refs if ref is not None]
    found = await shard.lookup("mail", keys, with_body=False, max_bytes=0)
    assert [info.claim_descriptor for info in found if info is not None] == descriptors


async def test_a_file_deleted_or_replaced_under_the_server_is_noticed(shard: SqliteShard) -> None:
    await shard.ping()
    file_of(shard).rename(file_of(shard).with_suffix(".away"))
    with pytest.raises(StoreRefused, match="deleted or replaced"):
        await shard.ping()
    sqlite3.connect(file_of(shard)).close()
    file_of(shard).touch()
    with pytest.raises(StoreRefused, match="deleted or replaced"):
        await shard.ping()


async def test_a_store_of_a_newer_version_is_refused(shard: SqliteShard) -> None:
    other = sqlite3.connect(file_of(shard))
    other.execute("UPDATE pinlater_meta SET value = '99' WHERE name = 'schema_version'")
    other.commit()
    other.close()
    with pytest.raises(StoreRefused, match="newer PinLater"):
        await SqliteShard(str(file_of(shard)), "1").open()


async def test_a_full_disk_stores_nothing_and_passes(shard: SqliteShard) -> None:
    def bound(session: Any, pages: int) -> None:
        session.cursor.execute(f"PRAGMA max_page_count = {pages}").fetchall()

    await shard.write(bound, 40)
    with pytest.raises(NothingStored, match="disk is full"):
        await shard.enqueue("mail", [Job(b"x" * 1000)] * 500, NOW_MS)
    assert await shard.count_ready("mail", [1], 10, NOW_MS) == [0]
    await shard.write(bound, 10**6)
    assert len(await shard.enqueue("mail", [Job(b"x" * 1000)] * 500, NOW_MS)) == 500


async def test_a_lock_that_another_process_holds_is_a_conflict_once_the_time_is_over(shard: SqliteShard) -> None:
    other = sqlite3.connect(file_of(shard), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreConflict, match="locked"):
        await shard.enqueue("mail", [Job(b"x")], NOW_MS)
    assert await shard.count_ready("mail", [1], 10, NOW_MS) == [0]
    other.execute("COMMIT")
    other.close()
    assert len(await shard.enqueue("mail", [Job(b"x")], NOW_MS)) == 1


async def test_a_long_read_keeps_no_writer_waiting(shard: SqliteShard) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def read(session: Any) -> int:
        before = session.rows("config_entries", (0, 9))
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        return len(session.rows("config_entries", (0, 9))) - len(before)

    reading = asyncio.ensure_future(shard.read(read))
    await begun.wait()
    assert await shard.put_config([ConfigEntry("another", new_version(NOW_MS))], NOW_MS) == [True]
    go_on.set()
    assert await reading == 0  # and what it sees is one moment


async def test_two_processes_take_turns_on_one_file_and_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    first = SqliteShard(str(path), "1")
    await first.open()
    await make_queue(first, "mail", NOW_MS)
    command = (sys.executable, "-c", _OTHER, str(path))
    runs = [await asyncio.create_subprocess_exec(*command, str(n), stdout=subprocess.PIPE) for n in range(2)]
    claimed = [line for run in runs for line in (await run.communicate())[0].decode().split()]
    assert [run.returncode for run in runs] == [0, 0]
    assert len(set(claimed)) == len(claimed)
    left = await first.count("mail", JobState.PENDING, (1,), False, NOW_MS)
    assert len(claimed) + left == 2 * 40 * 5
    await first.close()
    check = sqlite3.connect(path)
    assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check.close()


_OTHER = f"""
import asyncio, sys
from pinlater.backends.base import ClaimRequest
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.model import Job

async def main(path, name):
    shard = SqliteShard(path, "1")
    await shard.open()
    for turn in range(40):
        await shard.enqueue("mail", [Job(b"x")] * 5, {NOW_MS})
        request = ClaimRequest(f"{{name}}:1:2:{{turn}}:w", 4, (1, 2, 3), 60_000, {LIMITLESS})
        for job in (await shard.claim("mail", [request], {NOW_MS}))[0]:
            print(job.descriptor)
    await shard.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_many_open_one_new_file_at_once_and_agree(tmp_path: Path) -> None:
    for turn in range(20):  # SQLite refuses some of them in one of fifteen turns, if it is asked only once
        shards = [SqliteShard(str(tmp_path / f"{turn}.db"), "1") for _ in range(8)]
        ids = await asyncio.gather(*[shard.open() for shard in shards])
        assert len(set(ids)) == 1
        for shard in shards:
            await shard.close()


async def test_large_bodies_are_read_only_for_what_is_handed_out(shard: SqliteShard) -> None:
    await shard.enqueue("mail", [Job(os.urandom(100_000)) for _ in range(20)], NOW_MS)
    (jobs,) = await shard.claim("mail", [ClaimRequest("a:b:c:d:e", 20, (1,), 1000, 250_000)], NOW_MS)
    assert [len(job.body) for job in jobs] == [100_000, 100_000]
    assert await shard.count_ready("mail", [1], 100, NOW_MS) == [18]


@pytest.mark.parametrize(
    ("body_bytes", "limit", "looks", "handed_out"),
    [(200, 100, [100], 100), (200, 300, [128, 300], 300), (10_000, 300, [128], 25), (1_500, 300, [128, 256], 166)],
)
async def test_no_more_is_looked_at_and_so_locked_than_may_fit(
    shard: SqliteShard,
    monkeypatch: pytest.MonkeyPatch,
    body_bytes: int,
    limit: int,
    looks: list[int],
    handed_out: int,
) -> None:
    looked: list[int] = []
    candidates = SqliteSession.candidates

    def recorded(session: SqliteSession, *arguments: Any) -> list[Row]:
        looked.append(arguments[2])
        return candidates(session, *arguments)

    monkeypatch.setattr(SqliteSession, "candidates", recorded)
    await shard.enqueue("mail", [Job(bytes(body_bytes))] * 400, NOW_MS)
    peeked = await shard.peek("mail", (1,), limit, 250_000, NOW_MS)
    assert (len(peeked), looked) == (handed_out, looks)
    (jobs,) = await shard.claim("mail", [ClaimRequest("a:b:c:d:e", limit, (1,), 1000, 250_000)], NOW_MS)
    assert (len(jobs), looked) == (handed_out, looks * 2)


async def test_callers_that_each_take_one_body_beyond_their_bound_are_all_served(shard: SqliteShard) -> None:
    await shard.enqueue("mail", [Job(bytes(100))] * 300, NOW_MS)
    requests = [ClaimRequest(f"a:b:c:{number}:e", 1, (1,), 1000, 1) for number in range(300)]
    assert [len(jobs) for jobs in await shard.claim("mail", requests, NOW_MS)] == [1] * 300
