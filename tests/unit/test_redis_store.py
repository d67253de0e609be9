"""What is Redis' own: scripts it forgot, memory it lacks, writes it refuses, connections that break, keys it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import redis

from pinlater.backends.base import AckOutcome, AckRequest, ClaimKey, ConfigEntry, ExpiryCounts, ScanPosition
from pinlater.backends.permit_store import FreedPermits, Permit, PermitAnswer, PermitKey, PermitRequest
from pinlater.backends.redis import RedisShard
from pinlater.backends.redis.connection import PipelinedConnection
from pinlater.errors import NothingStored, OutcomeUnknown, QueueNotFound, StoreFull, StoreRefused
from pinlater.model import Job, JobState, new_version
from pinlater.model.status_text import append_at, append_status
from tests.conformance.subject import START_MS, TIMEOUT_MS, Subject, key_of
from tests.faults.proxy import Proxy
from tests.queues import drop_queue, make_queue, names_of
from tests.stores.places import Places
from tests.stores.process import StoreServer

BYTES_PER_JOB = 400
EMPTY = {"{pinlater}" + key for key in ("", ":last", ":records", ":revisions", ":revision")}


@pytest.fixture
def url(redis_places: Places) -> str:
    return redis_places.fresh()


@pytest.fixture
def admin(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        yield client


@pytest.fixture
def subject(url: str, runner: asyncio.Runner) -> Iterator[Subject]:
    yield from _opened(RedisShard(url, "1"), runner)


@pytest.fixture
def own(durable_redis_server: StoreServer, runner: asyncio.Runner) -> Iterator[Subject]:
    """On a server of its own, to be broken."""
    yield from _opened(
        RedisShard(durable_redis_server.url(), "1", call_timeout_ms=1_000, connect_timeout_ms=500), runner
    )


@pytest.fixture
def own_admin(durable_redis_server: StoreServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(durable_redis_server.url(), decode_responses=True) as client:
        yield client


def _opened(shard: RedisShard, runner: asyncio.Runner) -> Iterator[Subject]:
    runner.run(shard.open())
    runner.run(make_queue(shard, "mail", START_MS))
    yield Subject(shard)
    runner.run(shard.close())


# -- what it keeps -----------------------------------------------------------------------------------------------------


async def test_a_pending_delayed_job_of_200_bytes_takes_little_memory(subject: Subject, admin: redis.Redis) -> None:
    await subject.job(run_after_ms=START_MS + 1)
    before = admin.info("memory")["used_memory_dataset"]
    batches, batch = 20, 2_500
    for number in range(batches):
        first = START_MS + 1_000 + number * batch
        await subject.enqueue(*[Job(b"x" * 200, run_after_ms=first + each) for each in range(batch)])
    used = admin.info("memory")["used_memory_dataset"] - before
    assert used / (batches * batch) <= BYTES_PER_JOB


async def test_a_job_never_claimed_has_two_entries_and_no_more(subject: Subject, admin: redis.Redis) -> None:
    await subject.job(run_after_ms=START_MS + 1_000, priority=2)
    base = "{pinlater}:q:mail"
    assert set(admin.scan_iter(match=base + "*")) == {f"{base}:jobs", f"{base}:s:0:2"}


async def test_jobs_that_come_by_the_dozen_lie_in_trees_that_hold_nothing_else(
    subject: Subject, admin: redis.Redis
) -> None:
    for count in (15, 15, 70, 1):
        await subject.enqueue(*[Job(b"x")] * count)
        pending = "{pinlater}:q:mail:s:0:1"
        assert admin.object("encoding", pending) == ("listpack" if admin.zcard(pending) == 15 else "skiplist")
    jobs = await subject.claim(50)
    ended = await subject.claim(50)
    assert await subject.ack_all([job.descriptor for job in ended]) == 50
    left = {name.rpartition("mail:")[2]: admin.zcard(name) for name in admin.scan_iter(match="*:mail:*", _type="zset")}
    assert left == {"s:0:1": 1, "s:1:1": 50, "s:2:1": 50, "expiry": 50, "ended:2": 50}
    assert {admin.object("encoding", "{pinlater}:q:mail:" + name) for name in left if name != "s:0:1"} == {"skiplist"}
    assert len(jobs) == 50


async def test_a_deleted_queue_leaves_no_key(subject: Subject, admin: redis.Redis) -> None:
    for state in reversed(JobState):
        await subject.job_in(state, custom_status="first")
    await subject.job()
    dead = await subject.claimed()
    await subject.ack_with(dead.descriptor, False, permanent=True, dead_letters=True)
    await subject.job()
    gone = await subject.claimed()
    keys = [(ClaimKey(*key_of(gone.descriptor), gone.claim_descriptor), "mail:s2:p1:1790000000000000")]
    assert await subject.shard.mark_moved("mail", keys, subject.now_ms) == [True]
    await subject.shard.set_quota("mail", 5, 1, subject.now_ms)
    await subject.shard.take_tokens("mail", 1, 1.0, 1.0, subject.now_ms)
    assert len(set(admin.scan_iter(match="*:q:mail:*"))) == 12
    assert await drop_queue(subject.shard, "mail", START_MS)
    assert set(admin.scan_iter()) == {*EMPTY, "{pinlater}:marks"}


async def test_removed_jobs_leave_no_key(subject: Subject, admin: redis.Redis) -> None:
    for state in JobState:
        descriptor = await subject.job_in(state, custom_status="first")
        assert await subject.delete_listed(state, descriptor) == 1
    subject.tick(10**9)
    assert not await subject.expire()
    assert not await subject.prune()
    assert set(admin.scan_iter()) == {*EMPTY, "{pinlater}:queues"}


async def test_jobs_pruned_with_their_claims_leave_no_key(subject: Subject, admin: redis.Redis) -> None:
    await subject.job_in(JobState.SUCCEEDED)
    await subject.job_in(JobState.FAILED)
    subject.tick(10**9)
    assert not await subject.expire()
    assert await subject.prune() == {"mail": 2}
    assert set(admin.scan_iter()) == {*EMPTY, "{pinlater}:queues"}


async def test_shards_with_different_prefixes_share_a_database(url: str) -> None:
    shards = [RedisShard(f"{url}?prefix=p{number}", str(number)) for number in (1, 2)]
    stores = {await shard.open() for shard in shards}
    assert len(stores) == 2
    await make_queue(shards[0], "mail", START_MS)
    assert await names_of(shards[1]) == set()
    for shard in shards:
        await shard.close()


# -- calls at their bound ----------------------------------------------------------------------------------------------


async def test_calls_of_10_000_jobs_go_through_every_script(subject: Subject) -> None:
    count = 10_000
    descriptors = await subject.enqueue(*[Job(b"%d" % number, priority=1 + number % 2) for number in range(count)])
    claimed = await subject.claim(count)
    assert len(claimed) == count
    assert await subject.requeue(*claimed) == count
    claimed = await subject.claim(count)
    keys = [key_of(descriptor) for descriptor in descriptors]
    found = await subject.shard.lookup("mail", keys, with_body=True, max_bytes=2**30)
    assert [info.body for info in found if info] == [b"%d" % number for number in range(count)]
    assert len(await subject.scan(JobState.IN_PROGRESS, limit=count)) == count
    failed = await subject.ack(*[AckRequest(*key, False, permanent=True, append_status="x") for key in keys])
    assert failed == [AckOutcome.FAILED] * count
    retried = [await subject.retry_failed(priority=priority, limit=count) for priority in (1, 2)]
    assert retried == [count // 2] * 2
    assert len(await subject.claim(count)) == count
    subject.tick(10**6)
    (expired,) = (await subject.expire(limit=count)).values()
    assert expired.failed == count
    subject.tick(10**9)
    assert await subject.prune(limit=count) == {"mail": count}


@pytest.mark.parametrize("piece", ["a", "ä", "€", "😀", "aä€😀"])
async def test_the_script_cuts_a_status_at_whole_characters(subject: Subject, piece: str) -> None:
    descriptor = await subject.job(custom_status="1")
    await subject.claimed()
    await subject.succeed(descriptor, append_status=piece * 6_000)
    assert (await subject.info(descriptor)).custom_status == append_status("1", *append_at(piece * 6_000))


async def test_pages_of_claims_and_scans_keep_order_and_first_statuses(subject: Subject) -> None:
    jobs = [
        Job(b"%03d" % n, priority=1 + n % 2, custom_status="s" * (n % 3), attempts_allowed=1 + n % 4)
        for n in range(700)
    ]
    descriptors = await subject.enqueue(*jobs)
    expected = [*range(0, 700, 2), *range(1, 700, 2)]
    peeked = await subject.shard.peek("mail", (1, 2, 3), 700, 2**30, subject.now_ms)
    claimed = await subject.claim(700)
    assert [job.descriptor for job in claimed] == [job.descriptor for job in peeked]
    assert [job.descriptor for job in claimed] == [descriptors[n] for n in expected]
    assert [job.attempts_remaining for job in claimed] == [1 + n % 4 for n in expected]
    assert (await subject.fail(descriptors[5], append_status="!")) is AckOutcome.RETRIED
    assert (await subject.info(descriptors[5])).custom_status == "ss!"
    scanned = await subject.scan(JobState.IN_PROGRESS, limit=700)
    assert [info.descriptor for info in scanned] == [each for each in descriptors if each != descriptors[5]]


async def test_large_bodies_are_handed_out_as_far_as_they_fit(subject: Subject) -> None:
    size = 2**20
    descriptors = await subject.enqueue(
        *[Job(bytes([n]) * size) for n in range(12)], *[Job(b"small") for _ in range(200)]
    )
    room = 3 * size + 5
    peeked = await subject.shard.peek("mail", (1,), 300, room, subject.now_ms)
    assert [job.descriptor for job in peeked] == descriptors[:3]
    scanned = await subject.scan(limit=300, with_body=True, max_bytes=room)
    assert [info.descriptor for info in scanned] == descriptors[:3]
    assert len(await subject.scan(limit=300)) == 212
    assert [job.descriptor for job in await subject.claim(300, max_bytes=room)] == descriptors[:3]
    assert [job.descriptor for job in await subject.claim(300)] == descriptors[3:]


@pytest.mark.parametrize("future", [False, True])
async def test_a_scan_goes_on_from_a_place_outside_its_range(subject: Subject, future: bool) -> None:
    now = await subject.job()
    later = await subject.job(run_after_ms=START_MS + 5)
    before = await subject.scan(future=future, after=ScanPosition(START_MS, 1))
    behind = await subject.scan(future=future, after=ScanPosition(START_MS + 9, 1))
    assert [info.descriptor for info in before] == ([] if future else [now])
    assert [info.descriptor for info in behind] == ([later] if future else [now])


# -- what Redis refuses ------------------------------------------------------------------------------------------------


async def test_scripts_that_redis_forgot_are_sent_again(subject: Subject, admin: redis.Redis) -> None:
    admin.script_flush()
    calls = [subject.job() for _ in range(5)]
    assert len(set(await asyncio.gather(*calls))) == 5
    assert await subject.count(JobState.PENDING) == 5


async def test_a_redis_out_of_memory_stores_nothing_and_can_be_emptied(own: Subject, own_admin: redis.Redis) -> None:
    first = await own.job()
    failing = await own.job()
    assert (await own.shard.ping()).full == ""
    own_admin.config_set("maxmemory", "1mb")
    with pytest.raises(StoreFull, match="raise maxmemory"):
        await own.enqueue(Job(b"never"), Job(b"never", priority=2))
    assert "raise maxmemory" in (await own.shard.ping()).full
    assert await own.count(JobState.PENDING) == 2
    claimed = await own.claim(2)
    assert [job.descriptor for job in claimed] == [first, failing]
    assert await own.checkpoint(first, prepend_status="alive")
    assert await own.succeed(first) is AckOutcome.SUCCEEDED
    assert await own.fail(failing, append_status="later") is AckOutcome.RETRIED
    own_admin.config_set("maxmemory", "0")
    assert (await own.shard.ping()).full == ""
    assert own_admin.hlen("{pinlater}:q:mail:jobs") == 2


async def test_in_a_redis_out_of_memory_claims_of_groups_get_their_permits_and_give_them_back(
    own: Subject, own_admin: redis.Redis
) -> None:
    first, second = (PermitKey("1", 1, number, "claim") for number in (1, 2))
    own_admin.config_set("maxmemory", "1mb")
    requests = [PermitRequest("a", [first, second], 1, 10.0)]
    assert await own.shard.take_permits(own.queue, requests, START_MS, START_MS) == [PermitAnswer(1)]
    assert await own.shard.await_permits(own.queue, "2", {"a": 1}, own.now_ms) == {"a": 0}
    assert await own.shard.due_permits(own.queue, 1, START_MS, START_MS + 1) == [Permit("a", first)]
    assert await own.shard.end_permits(own.queue, [first]) == {"a": FreedPermits(1, ["2"])}
    assert await own.shard.await_permits(own.queue, "2", {"a": 0}, 0) == {}
    own.now_ms += 10_000
    assert await own.shard.due_permits(own.queue, 1, own.now_ms, own.now_ms) == []
    own_admin.config_set("maxmemory", "0")
    assert list(own_admin.scan_iter("*:permits*")) == []


async def test_a_redis_that_evicts_what_expires_is_full_all_the_same(own: Subject, own_admin: redis.Redis) -> None:
    """What counts is whether a write is refused, whatever the policy says of keys that expire: ours do not."""
    own_admin.config_set("maxmemory-policy", "volatile-lru")
    own_admin.config_set("maxmemory", "1mb")
    assert "raise maxmemory" in (await own.shard.ping()).full
    own_admin.config_set("maxmemory-policy", "noeviction")
    own_admin.config_set("maxmemory", "0")


async def test_a_ping_writes_nothing(own: Subject, own_admin: redis.Redis) -> None:
    before = own_admin.info("persistence")["rdb_changes_since_last_save"]
    for _ in range(5):
        await own.shard.ping()
    assert own_admin.info("persistence")["rdb_changes_since_last_save"] == before


async def test_in_a_redis_out_of_memory_claims_expire_and_ended_jobs_are_pruned(
    own: Subject, own_admin: redis.Redis
) -> None:
    late = Subject(own.shard, "late")
    await make_queue(own.shard, "late", START_MS)
    alive, lost, ended, kept = await own.job(), await late.job(), await own.job(), await own.job()
    await own.claim(3)
    await own.succeed(ended)
    own.tick(1_000)
    await own.checkpoint(alive)
    await own.succeed(kept)
    late.now_ms = START_MS + 500
    await late.claimed()
    await own.delete_listed(JobState.SUCCEEDED, ended)
    own.tick(TIMEOUT_MS - 200)
    own_admin.config_set("maxmemory", "1mb")
    assert await own.expire() == {"late": ExpiryCounts(1, 0)}
    assert not await own.prune(succeeded_ttl_ms=TIMEOUT_MS)
    own_admin.config_set("maxmemory", "0")
    assert (await late.info(lost)).state is JobState.PENDING
    own.tick(201)
    assert await own.prune(succeeded_ttl_ms=TIMEOUT_MS) == {"mail": 1}


async def test_a_replica_stores_nothing_and_does_not_pass_for_healthy(own: Subject, own_admin: redis.Redis) -> None:
    own_admin.replicaof("127.0.0.1", 1)
    with pytest.raises(NothingStored, match="READONLY"):
        await own.job()
    with pytest.raises(NothingStored, match="READONLY"):
        await own.shard.ping()
    own_admin.replicaof("no", "one")
    await own.shard.ping()
    assert await own.count(JobState.PENDING) == 0


async def test_a_redis_that_became_a_replica_is_left_for_where_its_address_leads_now(
    own: Subject, own_admin: redis.Redis
) -> None:
    def connections() -> set[str]:
        return {client["addr"] for client in own_admin.client_list() if client["cmd"] != "client|list"}

    before = connections()
    own_admin.replicaof("127.0.0.1", 1)
    look = asyncio.ensure_future(own.count(JobState.PENDING))
    with pytest.raises(NothingStored, match="READONLY"):
        await own.job()
    assert await look == 0
    assert await own.count(JobState.PENDING) == 0
    assert connections().isdisjoint(before)
    own_admin.replicaof("no", "one")
    await own.job()


@pytest.mark.parametrize(
    ("policy", "maxmemory", "warned"),
    [("allkeys-lru", "100mb", True), ("allkeys-lru", "0", False), ("noeviction", "100mb", False)],
)
async def test_a_redis_that_would_remove_jobs_is_told_of_once(
    own: Subject,
    own_admin: redis.Redis,
    caplog: pytest.LogCaptureFixture,
    policy: str,
    maxmemory: str,
    warned: bool,
) -> None:
    own_admin.config_set("maxmemory-policy", policy)
    own_admin.config_set("maxmemory", maxmemory)
    for _ in range(2):
        await own.shard.open()
    assert caplog.text.count("set maxmemory-policy noeviction") == warned
    own_admin.config_set("maxmemory", "0")


async def test_a_password_is_needed_and_used(durable_redis_server: StoreServer, own_admin: redis.Redis) -> None:
    own_admin.config_set("requirepass", "s3cret")
    address = durable_redis_server.url().removeprefix("redis://")
    without = RedisShard(f"redis://{address}", "1")
    with pytest.raises(NothingStored, match="NOAUTH"):
        await without.open()
    wrong = RedisShard(f"redis://:wrong@{address}", "1")
    with pytest.raises(NothingStored, match="WRONGPASS") as refused:
        await wrong.open()
    assert "wrong@" not in str(refused.value)
    right = RedisShard(f"redis://:s3cret@{address}", "1")
    assert await right.open()
    for shard in (without, wrong, right):
        await shard.close()


async def test_a_store_wiped_behind_our_back_is_refused(own: Subject, own_admin: redis.Redis) -> None:
    own_admin.flushall()
    with pytest.raises(StoreRefused, match="and is nothing now: it was wiped or replaced"):
        await own.shard.ping()
    with pytest.raises(StoreRefused):
        await own.shard.put_config([ConfigEntry("mail", new_version(START_MS))], START_MS)
    with pytest.raises(StoreRefused):
        await own.shard.list_config(0, 1)
    with pytest.raises(QueueNotFound):
        await own.job()


# -- connections that break --------------------------------------------------------------------------------------------


async def test_a_redis_killed_during_a_call_leaves_its_outcome_unknown(
    own: Subject, durable_redis_server: StoreServer
) -> None:
    durable_redis_server.pause()
    calls = [asyncio.ensure_future(own.job()) for _ in range(3)]
    await asyncio.sleep(0)
    durable_redis_server.kill()
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(outcome, OutcomeUnknown)
    with pytest.raises(NothingStored):
        await own.job()
    durable_redis_server.start()
    await own.job()
    assert await own.count(JobState.PENDING) == 1


async def test_a_redis_that_does_not_answer_is_waited_for_so_long_only(
    own: Subject, durable_redis_server: StoreServer
) -> None:
    durable_redis_server.pause()
    with pytest.raises(OutcomeUnknown, match="no answer within"):
        await own.job()
    refused = await asyncio.gather(*(own.job() for _ in range(20)), return_exceptions=True)
    assert {type(error) for error in refused} == {NothingStored}
    durable_redis_server.resume()
    assert len(await own.claim(10)) <= 1


async def test_a_redis_that_came_back_empty_is_refused(own: Subject, durable_redis_server: StoreServer) -> None:
    with redis.Redis.from_url(durable_redis_server.url()) as client:
        client.flushall()
        client.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises((StoreRefused, OutcomeUnknown)):
        await own.job()
    with pytest.raises(StoreRefused, match="wiped"):
        await own.job()


async def test_a_caller_that_leaves_takes_nobody_elses_answer(subject: Subject) -> None:
    first, second = await subject.job(b"first"), await subject.job(b"second")
    leaving = asyncio.ensure_future(subject.find(first))
    staying = asyncio.ensure_future(subject.find(second))
    await asyncio.sleep(0)
    leaving.cancel()
    info = await staying
    assert info is not None
    assert info.body == b"second"


async def test_a_call_that_cannot_be_written_shifts_nobodys_answer(subject: Subject) -> None:
    first, second = await subject.job(b"first"), await subject.job(b"second")
    with pytest.raises(UnicodeEncodeError):
        await subject.succeed(first, append_status="\ud800")
    assert (await subject.info(second)).body == b"second"
    assert await subject.count(JobState.PENDING) == 2


async def test_a_caller_that_fails_as_it_goes_on_shifts_nobodys_answer(
    redis_server: StoreServer, redis_places: Places
) -> None:
    """It is told of, and those behind it get the answers that are theirs."""
    redis_places.fresh()
    loop = asyncio.get_running_loop()
    failed: list[str] = []
    loop.set_exception_handler(lambda _, about: failed.append(str(about.get("exception"))))
    link = PipelinedConnection(5.0)
    await loop.create_connection(lambda: link, "127.0.0.1", redis_server.port)
    first, second = link.send(("ECHO", "first")), link.send(("ECHO", "second"))
    first.add_done_callback(lambda _: 1 // 0)
    assert await second == b"second"
    assert len(failed) == 1
    assert "division" in failed[0]
    assert await link.send(("ECHO", "third")) == b"third"
    await link.close()


async def test_a_connection_cut_while_idle_is_made_anew(redis_server: StoreServer, redis_places: Places) -> None:
    url = redis_places.fresh()
    with Proxy(redis_server.port) as proxy:
        shard = RedisShard(url.replace(f":{redis_server.port}", f":{proxy.port}"), "1")
        await shard.open()
        await make_queue(shard, "mail", START_MS)
        proxy.cut()
        with pytest.raises((NothingStored, OutcomeUnknown)):
            await names_of(shard)
        proxy.heal()
        assert await names_of(shard) == {"mail"}
        await shard.close()


async def test_closing_lets_calls_end_and_refuses_new_ones(url: str) -> None:
    shard = RedisShard(url, "1")
    await shard.open()
    await make_queue(shard, "mail", START_MS)
    under_way = asyncio.ensure_future(shard.enqueue("mail", [Job(b"x")] * 1_000, START_MS))
    await asyncio.sleep(0)
    await shard.close()
    assert len(await under_way) == 1_000
    with pytest.raises(NothingStored, match="closed"):
        await names_of(shard)
    await shard.close()
