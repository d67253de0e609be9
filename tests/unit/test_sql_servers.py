"""What database servers have in common, by each driver: exact text, conflicts, and servers that go away mid-call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from pinlater.backends.base import AckOutcome, AckRequest, CheckpointRequest, ClaimRequest, JobKey, PerQueue, Retention
from pinlater.backends.sql import ready_jobs
from pinlater.backends.sql.mysql import MysqlShard
from pinlater.backends.sql.postgres import PostgresShard
from pinlater.backends.sql.postgres_session import PostgresSession
from pinlater.backends.sql.server_pool import THREADS, ServerShard, Timeouts
from pinlater.backends.sql.session import Session
from pinlater.errors import NothingStored, OutcomeUnknown, QueueNotFound, StoreConflict, StoreRefused
from pinlater.flows.engines import make_engine
from pinlater.model import Job, JobInfo, JobState, parse_descriptor
from pinlater.model.flow_words import ItemState
from pinlater.model.status_text import append_at, append_status
from tests.queues import make_queue, names_of
from tests.stores.places import Places
from tests.stores.process import StoreServer

NOW_MS = 1_790_000_000_000
NO_BOUND = 2**30
REQUEST = ClaimRequest("a:b:c:d:e", 1, (1, 2, 3), 60_000, NO_BOUND)
QUICK = Timeouts(connect_s=2, read_s=2, write_s=2, lock_wait_s=1)


def _mysql(url: str) -> Any:
    parsed = make_url(url)
    return pymysql.connect(
        host=parsed.host,
        port=parsed.port or 3306,
        user=parsed.username or "",
        password=str(parsed.password or ""),
        database=parsed.database,
        autocommit=True,
    )


def _postgres(url: str) -> Any:
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)


def _end_mysql_sessions(cursor: Any) -> None:
    cursor.execute("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'root'")
    for (number,) in cursor.fetchall():
        cursor.execute(f"KILL {number}")


def _end_postgres_sessions(cursor: Any) -> None:
    cursor.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'pinlater'")


@dataclass(frozen=True)
class Kind:
    """A store by one driver, and how another client of it does things."""

    driver: str
    store: str
    make: Callable[..., ServerShard]
    connect: Callable[[str], Any]
    read_only: tuple[str, ...]
    writable: tuple[str, ...]
    end_sessions: Callable[[Any], None]
    flushes_later: str

    def by(self, url: str) -> str:
        return str(make_url(url).set(drivername=self.driver).render_as_string(hide_password=False))

    def param(self) -> object:
        return pytest.param(self, id=self.driver, marks=pytest.mark.store(self.store))


_MYSQL = (
    *("mysql", MysqlShard, _mysql, ("SET GLOBAL read_only = 1",), ("SET GLOBAL read_only = 0",)),
    *(_end_mysql_sessions, "innodb_flush_log_at_trx_commit is 0"),
)
_SET_READ_ONLY = "ALTER SYSTEM SET default_transaction_read_only = {}"
KINDS = (
    Kind("mysql+pymysql", *_MYSQL),
    Kind("mysql+mysqldb", *_MYSQL),
    Kind(
        *("postgresql+psycopg", "postgres", PostgresShard, _postgres),
        (_SET_READ_ONLY.format("on"), "SELECT pg_reload_conf()"),
        (_SET_READ_ONLY.format("off"), "SELECT pg_reload_conf()"),
        *(_end_postgres_sessions, "fsync is off"),
    ),
)


def kind_of(url: str) -> Kind:
    return next(each for each in KINDS if url.startswith(each.driver + ":"))


def client(url: str) -> contextlib.closing[Any]:
    """Another client of the same store."""
    return contextlib.closing(kind_of(url).connect(url))


@pytest.fixture(params=[each.param() for each in KINDS])
def url(request: pytest.FixtureRequest) -> str:
    """An empty place, by each driver."""
    places: Places = request.getfixturevalue(f"{request.param.store}_places")
    return str(request.param.by(places.fresh()))


@pytest.fixture
def shard(url: str, runner: asyncio.Runner) -> Iterator[ServerShard]:
    """An open shard with one queue."""
    made = kind_of(url).make(url, "1", timeouts=QUICK)
    runner.run(made.open())
    runner.run(make_queue(made, "mail", NOW_MS))
    yield made
    runner.run(made.close())


def key_of(descriptor: str) -> JobKey:
    ref = parse_descriptor(descriptor)
    assert ref is not None
    return JobKey(ref.priority, ref.id)


async def enqueued(shard: ServerShard, body: bytes = b"body", **fields: Any) -> JobKey:
    (descriptor,) = await shard.enqueue("mail", [Job(body, **fields)], NOW_MS)
    return key_of(descriptor)


async def claimed(shard: ServerShard, claim: str = "a:b:c:d:e", limit: int = 1) -> list[JobKey]:
    (jobs,) = await shard.claim("mail", [ClaimRequest(claim, limit, (1, 2, 3), 60_000, NO_BOUND)], NOW_MS)
    return [key_of(job.descriptor) for job in jobs]


async def info(shard: ServerShard, job: JobKey) -> JobInfo:
    (found,) = await shard.lookup("mail", [job], with_body=True, max_bytes=NO_BOUND)
    assert found is not None
    return found


# -- what is stored comes back exactly -------------------------------------------------------------------------------


async def test_bodies_are_any_bytes(shard: ServerShard) -> None:
    for body in (b"", bytes(range(256)) * 40, b"\\'\"%s%%\0\n\x1a", "é😀".encode(), os.urandom(70_000)):
        job = await enqueued(shard, body)
        assert (await info(shard, job)).body == body


@pytest.mark.parametrize("other", ["a:b:c:d:W", "a:b:c:d:w ", "a:b:c:d:ẃ", "a:b:c:d:w\0", "a:b:c:d:\uff57"])
async def test_a_claim_is_another_if_one_character_is(shard: ServerShard, other: str) -> None:
    """Collations hold upper and lower case, accents and blanks at the end for equal."""
    job = await enqueued(shard)
    await claimed(shard, "a:b:c:d:w")
    source = other.split(":")[-1]
    assert await shard.ack("mail", [AckRequest(*job, True, claim_descriptor=other)], NOW_MS) == [AckOutcome.IGNORED]
    assert await shard.checkpoint("mail", [CheckpointRequest(*job, source)], NOW_MS) == [False]
    assert await shard.ack("mail", [AckRequest(*job, True, claim_descriptor="a:b:c:d:w")], NOW_MS) == [
        AckOutcome.SUCCEEDED
    ]


async def test_status_keeps_nul_and_blanks_and_is_cut_between_characters(shard: ServerShard) -> None:
    job = await enqueued(shard, custom_status="a\0b \\'% ")
    await claimed(shard)
    assert await shard.checkpoint("mail", [CheckpointRequest(*job, "e", prepend_status="\0😀 ")], NOW_MS) == [True]
    await shard.ack("mail", [AckRequest(*job, True, append_status="é😀" * 3000)], NOW_MS)
    kept = append_status("\0😀 a\0b \\'% ", *append_at("é😀" * 3000))
    assert (await info(shard, job)).custom_status == kept


async def test_times_and_attempts_beyond_32_bits(shard: ServerShard) -> None:
    job = await enqueued(shard, run_after_ms=2**53 - 1, attempts_allowed=2**31 - 1)
    found = await info(shard, job)
    assert (found.run_after_ms, found.attempts_remaining) == (2**53 - 1, 2**31 - 1)


async def test_lists_of_thousands(shard: ServerShard) -> None:
    descriptors = await shard.enqueue("mail", [Job(b"x")] * 2500, NOW_MS)
    assert len(set(descriptors)) == 2500
    jobs = await claimed(shard, limit=3000)
    assert jobs == [key_of(descriptor) for descriptor in descriptors]
    outcomes = await shard.ack("mail", [AckRequest(*job, True) for job in jobs], NOW_MS)
    assert outcomes == [AckOutcome.SUCCEEDED] * 2500
    assert dict(await shard.prune(3000, NOW_MS + 2, PerQueue(Retention(1, 1)))) == {"mail": 2500}


async def test_joined_claims_each_get_their_own(shard: ServerShard) -> None:
    await shard.enqueue("mail", [Job(b"x")] * 300, NOW_MS)
    requests = [ClaimRequest(f"a:b:c:{n}:e", 3, (1, 2, 3), 1000 + n % 2, NO_BOUND) for n in range(60)]
    shares = await shard.claim("mail", requests, NOW_MS)
    for request, share in zip(requests, shares, strict=True):
        assert len(share) == 3
        for job in share:
            found = await info(shard, key_of(job.descriptor))
            assert found.claim_descriptor == request.claim_descriptor
            assert found.claim_expires_at_ms == NOW_MS + request.claim_timeout_ms
    assert await shard.count_ready("mail", [1], 1000, NOW_MS) == [120]


async def test_no_priorities_are_no_jobs(shard: ServerShard) -> None:
    await enqueued(shard)
    assert await shard.claim("mail", [ClaimRequest("a:b:c:d:e", 1, (), 1000, NO_BOUND)], NOW_MS) == [[]]
    assert await shard.peek("mail", (), 1, NO_BOUND, NOW_MS) == []
    assert await shard.count_ready("mail", (), 1, NOW_MS) == []


# -- conflicts and refusals ------------------------------------------------------------------------------------------


async def test_a_lock_that_is_not_had_in_time_is_a_conflict(shard: ServerShard, url: str) -> None:
    job = await enqueued(shard)
    await claimed(shard)
    with client(url) as other, other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT id FROM pinlater_jobs FOR UPDATE")
        with pytest.raises(StoreConflict):
            await shard.ack("mail", [AckRequest(*job, True)], NOW_MS)
        assert await claimed(shard) == []  # claims do not wait for what others hold
    assert await shard.ack("mail", [AckRequest(*job, True)], NOW_MS) == [AckOutcome.SUCCEEDED]


async def test_a_read_only_store_stores_nothing_and_says_so(shard: ServerShard, url: str) -> None:
    with client(url) as other, other.cursor() as cursor:
        for statement in kind_of(url).read_only:
            cursor.execute(statement)
        try:
            with pytest.raises(NothingStored, match="read-only"):
                await until_refused(shard)
        finally:
            for statement in kind_of(url).writable:
                cursor.execute(statement)
    await until_it_takes(shard)


async def until_refused(shard: ServerShard) -> None:
    """A server reads its configuration again in its own time."""
    for _ in range(200):
        await shard.ping()
        await asyncio.sleep(0.01)


async def until_it_takes(shard: ServerShard) -> None:
    for _ in range(200):
        with contextlib.suppress(NothingStored):
            await shard.ping()
            return
        await asyncio.sleep(0.01)
    await shard.ping()


async def test_a_transaction_that_may_only_read_stores_nothing(shard: ServerShard) -> None:
    def enqueue(session: Any) -> None:
        session.cursor.execute("SET TRANSACTION READ ONLY")
        session.run("create_queue", ("other", NOW_MS))

    with pytest.raises(NothingStored, match="read-only"):
        await shard.write(enqueue)


async def test_wiped_tables_are_refused(shard: ServerShard, url: str) -> None:
    with client(url) as other, other.cursor() as cursor:
        cursor.execute("UPDATE pinlater_meta SET value = 'another' WHERE name = 'store_id'")
        with pytest.raises(StoreRefused, match="wiped or replaced"):
            await shard.ping()
        cursor.execute("DROP TABLE pinlater_meta, pinlater_jobs")
    for call in (shard.ping(), shard.enqueue("mail", [Job(b"x")], NOW_MS)):
        with pytest.raises(StoreRefused, match="wiped or replaced"):
            await call


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"database": "no_such_place"}, "CREATE DATABASE"),
        ({"username": "nobody", "password": "x"}, "refused|does not exist"),
        ({"port": 1}, "cannot be reached"),
        ({"host": "no-such-host.invalid"}, "cannot be reached|host name"),
    ],
)
async def test_what_cannot_be_opened_says_what_to_do(url: str, change: dict[str, Any], advice: str) -> None:
    changed = make_url(url).set(**change)
    shard = kind_of(url).make(changed.render_as_string(hide_password=False), "1", timeouts=QUICK)
    with pytest.raises(NothingStored, match=advice) as refused:
        await shard.open()
    assert "nobody:x" not in str(refused.value)


async def test_many_open_one_new_store_at_once_and_agree(url: str) -> None:
    shards = [kind_of(url).make(url, "1", threads=1) for _ in range(6)]
    ids = await asyncio.gather(*[shard.open() for shard in shards])
    assert len(set(ids)) == 1
    for shard in shards:
        await shard.close()


async def test_a_store_that_flushes_later_than_it_answers_is_told_of_once(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinlater.backends.store_warnings._given", set())
    for _ in range(2):
        shard = kind_of(url).make(url, "1")
        await shard.open()
        await shard.close()
    assert caplog.text.count(kind_of(url).flushes_later) == 1


# -- a claim that is begun right behind an enqueue -----------------------------------------------------------------


class Together:
    """Begins an enqueue, whose transaction waits before its commit, and a claim behind it. `sessions`: of each run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, shard: ServerShard) -> None:
        self.shard = shard
        self.sessions: list[object] = []
        self.begun, self._enqueue = threading.Event(), ready_jobs.enqueue
        monkeypatch.setattr(ready_jobs, "enqueue", self._held)

    def _held(self, session: Session, *values: Any) -> list[str]:
        self.sessions.append(session)
        stored = self._enqueue(session, *values)
        assert self.begun.wait(60)
        return stored

    async def both(self, queue: str = "mail") -> tuple[Any, Any]:
        """What each returned or raised."""
        storing = self.shard.write(ready_jobs.enqueue, queue, [Job(b"body")], NOW_MS)
        claiming = self.shard.write(ready_jobs.claim, queue, [REQUEST], NOW_MS, False)
        self.begun.set()
        stored, jobs = await asyncio.gather(storing, claiming, return_exceptions=True)
        return stored, jobs


async def test_it_shares_the_transaction(shard: ServerShard, monkeypatch: pytest.MonkeyPatch) -> None:
    def noted(session: Session, *values: Any) -> Any:
        stand.sessions.append(session)
        return claim(session, *values)

    claim, stand = ready_jobs.claim, Together(monkeypatch, shard)
    monkeypatch.setattr(ready_jobs, "claim", noted)
    stored, ((job,),) = await stand.both()
    assert [job.descriptor] == stored
    enqueued_by, claimed_by = stand.sessions
    assert enqueued_by is claimed_by
    assert (await info(shard, key_of(job.descriptor))).state is JobState.IN_PROGRESS


@pytest.mark.parametrize("failures", [1, 9])
async def test_one_that_fails_fails_no_enqueue(
    shard: ServerShard, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    left = [StoreConflict("deadlock")] * failures

    def failing(*values: Any) -> Any:
        claimed = claim(*values)
        if left:
            raise left.pop()
        return claimed

    claim, stand = ready_jobs.claim, Together(monkeypatch, shard)
    monkeypatch.setattr(ready_jobs, "claim", failing)
    (descriptor,), jobs = await stand.both()
    assert await shard.count_ready("mail", [1], 100, NOW_MS) == [0 if failures == 1 else 1]
    if failures == 1:
        assert [[job.descriptor for job in each] for each in jobs] == [[descriptor]]
    else:
        assert isinstance(jobs, StoreConflict)


async def test_an_enqueue_that_fails_fails_none(shard: ServerShard, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await enqueued(shard)
    stand = Together(monkeypatch, shard)
    monkeypatch.setattr(Session, "queue_id", _fails_once(Session.queue_id, stand))
    monkeypatch.setattr(PostgresSession, "store_at_once", lambda *values: None)
    stored, ((job,),) = await stand.both()
    assert isinstance(stored, StoreConflict)
    assert key_of(job.descriptor) == before
    stored, jobs = await Together(monkeypatch, shard).both("nowhere")
    assert (type(stored), type(jobs)) == (QueueNotFound, QueueNotFound)


def _fails_once(queue_id: Callable[..., int], stand: Together) -> Callable[..., int]:
    """For the enqueue, which is the first to ask."""
    left = [StoreConflict("deadlock")]

    def failing(*values: Any) -> int:
        if left:
            raise left.pop()
        return queue_id(*values)

    return failing


async def test_behind_one_that_is_cancelled_it_may_be_made_again(
    shard: ServerShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand, held = Together(monkeypatch, shard), []
    for _ in range(THREADS):  # all threads are busy
        held.append(asyncio.ensure_future(shard.write(ready_jobs.enqueue, "mail", [Job(b"body")], NOW_MS)))
    storing = shard.write(ready_jobs.enqueue, "mail", [Job(b"never")], NOW_MS)
    claiming = shard.write(ready_jobs.claim, "mail", [REQUEST], NOW_MS, False)
    storing.cancel()
    with pytest.raises(NothingStored, match="cancelled"):
        await claiming
    stand.begun.set()
    await asyncio.gather(*held)
    assert await shard.count_ready("mail", [1], 100, NOW_MS) == [THREADS]


async def test_behind_one_whose_caller_has_left_it_is_answered(
    shard: ServerShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its thread has taken the claim along by then or not."""
    for _ in range(10):
        stand = Together(monkeypatch, shard)
        storing = shard.write(ready_jobs.enqueue, "mail", [Job(b"body")], NOW_MS)
        claiming = shard.write(ready_jobs.claim, "mail", [REQUEST], NOW_MS, False)
        async with asyncio.timeout(60):
            while not stand.sessions:
                await asyncio.sleep(0.001)
            storing.cancel()
            stand.begun.set()
            try:
                (jobs,) = await claiming
            except NothingStored:
                while not (jobs := await claimed(shard)):
                    await asyncio.sleep(0.001)
        assert len(jobs) == 1
        monkeypatch.undo()


async def test_one_that_comes_when_the_commit_has_begun_sees_the_jobs_too(
    shard: ServerShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, enqueue = threading.Event(), ready_jobs.enqueue

    def noted(*values: Any) -> list[str]:
        try:
            return enqueue(*values)
        finally:
            stored.set()

    monkeypatch.setattr(ready_jobs, "enqueue", noted)
    for _ in range(20):
        stored.clear()
        storing = shard.write(ready_jobs.enqueue, "mail", [Job(b"body")], NOW_MS)
        assert stored.wait(60)
        claiming = shard.write(ready_jobs.claim, "mail", [REQUEST], NOW_MS, False)
        descriptors, ((job,),) = await asyncio.gather(storing, claiming)
        assert descriptors == [job.descriptor]


# -- servers that go away --------------------------------------------------------------------------------------------


@pytest.fixture(params=[each.param() for each in KINDS])
def durable_server(request: pytest.FixtureRequest) -> StoreServer:
    """A server of its own, by each driver."""
    found: StoreServer = request.getfixturevalue(f"durable_{request.param.store}_server")
    found.empty(0)
    return found


@pytest.fixture
def mortal(
    request: pytest.FixtureRequest, durable_server: StoreServer, runner: asyncio.Runner
) -> Iterator[ServerShard]:
    """An open shard with one queue, on a server of its own."""
    kind: Kind = request.node.callspec.params["durable_server"]
    made = kind.make(kind.by(durable_server.url(0)), "1", timeouts=QUICK)
    runner.run(made.open())
    runner.run(make_queue(made, "mail", NOW_MS))
    yield made
    runner.run(made.close())


async def test_a_server_killed_at_rest_fails_one_call_with_nothing_stored(
    mortal: ServerShard, durable_server: StoreServer
) -> None:
    await asyncio.gather(*[enqueued(mortal) for _ in range(8)])  # so every connection of the pool is in use once
    durable_server.kill()
    with pytest.raises(NothingStored):
        await mortal.enqueue("mail", [Job(b"lost")], NOW_MS)
    with pytest.raises(NothingStored, match="cannot be reached"):
        await mortal.enqueue("mail", [Job(b"lost")], NOW_MS)
    durable_server.start()
    await asyncio.gather(*[enqueued(mortal) for _ in range(8)])
    assert await mortal.count_ready("mail", [1], 100, NOW_MS) == [16]


async def test_a_server_killed_before_the_commit_stored_nothing(
    mortal: ServerShard, durable_server: StoreServer
) -> None:
    def killed_amid(session: Any) -> None:
        session.run("put_config_entry", ("other", "1790000000000000-00000000", "", 99, "{}"))
        durable_server.kill()
        session.rows("store_id")

    with pytest.raises(NothingStored):
        await mortal.write(killed_amid)
    durable_server.start()
    assert await names_of(mortal) == {"mail"}


async def test_a_server_killed_during_the_commit_leaves_the_outcome_unknown(
    mortal: ServerShard, durable_server: StoreServer
) -> None:
    def killed_behind(session: Any) -> None:
        session.run("put_config_entry", ("other", "1790000000000000-00000000", "", 99, "{}"))
        durable_server.kill()

    with pytest.raises(OutcomeUnknown):
        await mortal.write(killed_behind)
    durable_server.start()
    await mortal.ping()


async def test_a_server_killed_during_the_commit_of_an_enqueue_and_a_claim_leaves_both_unknown(
    mortal: ServerShard, durable_server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed_behind(*values: Any) -> Any:
        claimed = claim(*values)
        durable_server.kill()
        return claimed

    claim, stand = ready_jobs.claim, Together(monkeypatch, mortal)
    monkeypatch.setattr(ready_jobs, "claim", killed_behind)
    stored, jobs = await stand.both()
    assert (type(stored), type(jobs)) == (OutcomeUnknown, OutcomeUnknown)
    durable_server.start()


async def test_a_server_that_hangs_is_given_up(mortal: ServerShard, durable_server: StoreServer) -> None:
    durable_server.pause()
    try:
        with pytest.raises(NothingStored, match=r"lost|in time"):
            await mortal.count_ready("mail", [1], 10, NOW_MS)
    finally:
        durable_server.resume()
    assert await mortal.count_ready("mail", [1], 10, NOW_MS) == [0]


async def test_connections_cut_by_the_server_are_replaced(mortal: ServerShard, durable_server: StoreServer) -> None:
    await asyncio.gather(*[enqueued(mortal) for _ in range(8)])
    with client(durable_server.url(0)) as other, other.cursor() as cursor:
        kind_of(durable_server.url(0)).end_sessions(cursor)
    with pytest.raises(NothingStored, match=r"an administrator did|the connection was lost"):
        await enqueued(mortal)
    await asyncio.gather(*[enqueued(mortal) for _ in range(8)])


def test_values_of_enums_are_sent_as_their_numbers(url: str) -> None:
    engine = make_engine(url)
    try:
        with engine.connect() as connection:
            sent = connection.execute(sa.text("SELECT :state + 1"), {"state": ItemState.FAILED}).scalar()
        assert sent == ItemState.FAILED + 1
    finally:
        engine.dispose()
