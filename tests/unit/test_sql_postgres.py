"""PostgreSQL's own: texts with a NUL character, what its codes mean, and a transaction whose server stands still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pinlater.backends.base import CheckpointRequest
from pinlater.backends.sql.postgres import STAND_IN, PostgresShard, shard_error
from pinlater.backends.sql.server_pool import Timeouts
from pinlater.errors import NothingStored, OutcomeUnknown, PinLaterError, StoreConflict, StoreFull, StoreRefused
from pinlater.model import Job
from tests.queues import make_queue
from tests.stores.places import Places
from tests.unit.test_sql_servers import NOW_MS, QUICK, claimed, client, enqueued, info


@pytest.fixture
def url(postgres_places: Places) -> str:
    return postgres_places.fresh()


@pytest.fixture
def shard(url: str, runner: asyncio.Runner) -> Iterator[PostgresShard]:
    """An open shard with one queue."""
    made = PostgresShard(url, "1", timeouts=QUICK)
    runner.run(made.open())
    runner.run(make_queue(made, "mail", NOW_MS))
    yield made
    runner.run(made.close())


async def test_a_text_keeps_its_nul_characters_however_it_comes_in(shard: PostgresShard, url: str) -> None:
    """One job is inserted, many are copied, and a status is put behind and before another."""
    one = await enqueued(shard, custom_status="a\0b")
    await shard.enqueue("mail", [Job(b"x", custom_status="c\0d")] * 20, NOW_MS)
    jobs = await claimed(shard, "a:b:c:\0:e", 30)
    assert await shard.checkpoint("mail", [CheckpointRequest(*one, "e", prepend_status="\0")], NOW_MS) == [True]
    assert {(await info(shard, job)).custom_status for job in jobs} == {"\0a\0b", "c\0d"}
    assert {(await info(shard, job)).claim_descriptor for job in jobs} == {"a:b:c:\0:e"}
    with client(url) as other:
        stored = other.execute("SELECT custom_status FROM pinlater_jobs WHERE id = %s", [one.id]).fetchone()
    assert stored == (f"{STAND_IN}a{STAND_IN}b",)


class Refused(psycopg.OperationalError):
    def __init__(self, code: str | None, text: str) -> None:
        super().__init__(text)
        self.sqlstate = code


@pytest.mark.parametrize(
    ("code", "text", "kind", "committing", "advice"),
    [
        ("40P01", "deadlock detected", StoreConflict, StoreConflict, "refused"),
        ("40001", "could not serialize access", StoreConflict, StoreConflict, "refused"),
        ("53100", "could not extend file: No space left on device", StoreFull, StoreFull, "free some space"),
        ("53200", "out of memory", NothingStored, NothingStored, "memory"),
        ("57P01", "terminating connection", NothingStored, OutcomeUnknown, "shutting down"),
        (None, "server closed the connection unexpectedly", NothingStored, OutcomeUnknown, "lost"),
        (None, "connection failed: FATAL:  sorry, too many clients already", NothingStored, OutcomeUnknown, "max_conn"),
        (None, "connection failed: Connection refused", NothingStored, OutcomeUnknown, "cannot be reached"),
        ("42P01", 'relation "pinlater_jobs" does not exist', StoreRefused, StoreRefused, "wiped or replaced"),
    ],
)
def test_what_its_codes_mean(
    code: str | None, text: str, kind: type[PinLaterError], committing: type[PinLaterError], advice: str
) -> None:
    """An answer to a COMMIT that is an error is one of a transaction that was rolled back."""
    error = Refused(code, text)
    assert type(shard_error(error, "db-1", committing=False)) is kind
    assert type(shard_error(error, "db-1", committing=True)) is committing
    assert advice in shard_error(error, "db-1", committing=False).message


async def test_a_server_that_stands_still_in_a_transaction_loses_its_locks(url: str) -> None:
    """Else the jobs that it looked at would be out of reach until its host notices."""
    shard = PostgresShard(url, "1", timeouts=Timeouts(connect_s=2, read_s=1, write_s=1, lock_wait_s=1))
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    await enqueued(shard)
    with client(url) as other:

        def stands_still(session: Any) -> None:
            session.cursor.execute("SELECT id FROM pinlater_jobs FOR UPDATE")
            time.sleep(4)
            assert other.execute("SELECT id FROM pinlater_jobs FOR UPDATE NOWAIT").fetchall()
            session.rows("store_id")

        with pytest.raises(NothingStored, match="stood still"):
            await shard.write(stands_still)
    await enqueued(shard)
    await shard.close()
