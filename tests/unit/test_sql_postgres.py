"""PostgreSQL's own: texts with a NUL character, what its codes mean, and a transaction whose server stands still."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pinlater.backends.base import UNKNOWN_CHANGE, CheckpointRequest, ClaimRequest, Notification
from pinlater.backends.sql.postgres import STAND_IN, PostgresShard, shard_error
from pinlater.backends.sql.postgres_notifications import PostgresNotifications
from pinlater.backends.sql.server_pool import Timeouts
from pinlater.errors import (
    NothingStored,
    OutcomeUnknown,
    PinLaterError,
    StoreConflict,
    StoreFull,
    StoreRefused,
    StoreReplaced,
)
from pinlater.model import Job
from tests.queues import make_queue
from tests.server.serving import until
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
        ("57P01", "terminating connection", NothingStored, OutcomeUnknown, "pg_terminate_backend"),
        ("57P03", "the database system is starting up", NothingStored, OutcomeUnknown, "starting"),
        (None, "server closed the connection unexpectedly", NothingStored, OutcomeUnknown, "lost"),
        (None, "connection failed: FATAL:  sorry, too many clients already", NothingStored, OutcomeUnknown, "max_conn"),
        (None, "connection failed: Connection refused", NothingStored, OutcomeUnknown, "cannot be reached"),
        ("42P01", 'relation "pinlater_jobs" does not exist', StoreReplaced, StoreReplaced, "wiped or replaced"),
        ("3F000", "no schema has been selected to create in", StoreRefused, StoreRefused, "search_path"),
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


async def test_a_store_without_the_table_of_subscribers_gets_it(url: str) -> None:
    """As one has that was made before there were any."""
    shard = PostgresShard(url, "1")
    await shard.open()
    await shard.close()
    with client(url) as other:
        other.execute("DROP TABLE pinlater_subscribers")
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    assert await shard.subscribe("mail", lambda event: None)
    await shard.close()


# -- notifications -----------------------------------------------------------------------------------------------------


@pytest.fixture
def other(url: str, shard: PostgresShard, runner: asyncio.Runner) -> Iterator[PostgresShard]:
    """The shard in another process, as far as the store can tell."""
    made = PostgresShard(url, "1", timeouts=QUICK)
    runner.run(made.open())
    yield made
    runner.run(made.close())


async def test_a_subscriber_is_told_of_what_other_processes_bring_and_not_of_its_own_enqueues(
    shard: PostgresShard, other: PostgresShard
) -> None:
    heard: asyncio.Queue[Notification | None] = asyncio.Queue()
    await make_queue(other, "post", NOW_MS)
    assert await shard.subscribe("mail", heard.put_nowait)
    await enqueued(shard)
    await other.enqueue("post", [Job(b"x")], NOW_MS)
    await asyncio.sleep(0.3)
    assert heard.empty()
    await other.enqueue("mail", [Job(b"x")] * 30, NOW_MS)
    assert await asyncio.wait_for(heard.get(), 60) == UNKNOWN_CHANGE
    assert not await shard.subscribe("mail", None)


async def test_a_process_with_subscribers_of_its_own_tells_the_others_too(
    shard: PostgresShard, other: PostgresShard
) -> None:
    heard: asyncio.Queue[Notification | None] = asyncio.Queue()
    assert await shard.subscribe("mail", heard.put_nowait)
    assert await other.subscribe("mail", lambda event: None)
    for _ in range(3):
        await other.enqueue("mail", [Job(b"x")], NOW_MS)
        assert await asyncio.wait_for(heard.get(), 60) == UNKNOWN_CHANGE


async def test_nobody_is_notified_where_nobody_subscribes(shard: PostgresShard, other: PostgresShard, url: str) -> None:
    with client(url) as listener:
        store_id = listener.execute("SELECT value FROM pinlater_meta WHERE name = 'store_id'").fetchone()[0]
        listener.execute(f'LISTEN "pinlater_{store_id}"')
        await enqueued(other)
        await asyncio.sleep(0.3)
        assert list(listener.notifies(timeout=0)) == []
        assert await shard.subscribe("mail", lambda event: None)
        for _ in range(5):
            await enqueued(other)
        await asyncio.sleep(0.3)
        found = [each.payload.split(" ")[1] for each in listener.notifies(timeout=0)]
        assert 1 <= len(found) <= 5
        assert set(found) == {"mail"}
        await shard.subscribe("mail", None)
        await enqueued(other)
        await asyncio.sleep(0.3)
        assert list(listener.notifies(timeout=0)) == []


async def test_a_subscriber_whose_connection_breaks_is_told_and_may_subscribe_again(
    shard: PostgresShard, other: PostgresShard, url: str
) -> None:
    heard: asyncio.Queue[Notification | None] = asyncio.Queue()
    assert await shard.subscribe("mail", heard.put_nowait)
    with client(url) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    assert await asyncio.wait_for(heard.get(), 60) is None
    assert await shard.subscribe("mail", heard.put_nowait)
    await enqueued(other)
    assert await asyncio.wait_for(heard.get(), 60) == UNKNOWN_CHANGE


async def test_others_are_notified_of_jobs_that_a_process_with_subscribers_has_not_claimed(url: str) -> None:
    ours, other = PostgresShard(url, "1"), PostgresShard(url, "1")
    heard: list[str] = []
    for shard in (ours, other):
        await shard.open()
    for queue in ("mail", "behind"):
        await make_queue(ours, queue, NOW_MS)
        assert await other.subscribe(queue, lambda event, queue=queue: heard.append(queue))  # type: ignore[misc]
    assert await ours.subscribe("mail", lambda event: None)
    request = ClaimRequest("h:1:1:1:me", 1, (1, 2, 3), 60_000, 2**20)
    for _ in range(20):  # on a busy machine a claim may come too late
        heard.clear()
        await ours.enqueue("mail", [Job(b"claimed")], NOW_MS)
        ((job,),) = await ours.claim("mail", [request], NOW_MS)
        assert job.body == b"claimed"
        for times in (1, 2):  # the second goes out behind all that was to be said before
            await ours.enqueue("behind", [Job(b"x")], NOW_MS)
            await until(lambda times=times: heard.count("behind") == times)  # type: ignore[misc]
        if "mail" not in heard:
            break
    assert "mail" not in heard
    await ours.enqueue("mail", [Job(b"left")], NOW_MS)
    await until(lambda: "mail" in heard)
    for shard in (ours, other):
        await shard.close()


async def test_a_connection_that_is_made_while_its_shard_closes_is_closed(url: str) -> None:
    shard = PostgresShard(url, "1", timeouts=QUICK)
    made: list[psycopg.Connection[Any]] = []
    begun, go_on = threading.Event(), threading.Event()

    def connect() -> psycopg.Connection[Any]:
        begun.set()
        go_on.wait(10)
        made.append(client(url).thing)
        return made[0]

    await shard.open()
    notifications = PostgresNotifications("news", connect, shard.write)
    subscribing = asyncio.create_task(notifications.subscribe("mail", lambda event: None))
    await asyncio.to_thread(begun.wait, 10)
    notifications.close()
    assert not await subscribing
    go_on.set()
    await until(lambda: bool(made) and made[0].closed)
    await shard.close()
