"""What is Redis' own of jobs with keys: versions of the store, memory, what is left, notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import redis

from pinlater.backends.base import (
    NO_RULES,
    AckRequest,
    ConfigEntry,
    DeadLetterTarget,
    EndRules,
    ExpiryCounts,
    ExpiryRequest,
    Notification,
    PerQueue,
)
from pinlater.backends.extended import SEND_ID_KEPT_MS, OfferOutcome
from pinlater.backends.redis import RedisShard
from pinlater.backends.redis.store_version import LAST_VERSION
from pinlater.errors import StoreFull, StoreRefused
from pinlater.model import AckOutcome, CancelOutcome, ClaimOutcome, Job, JobState, OnDuplicate, ReplaceRunning
from pinlater.model.body_reference import BodyReference, BodyRule
from tests.conformance.extended_subject import found, offer, offer_all, offer_of, stop, store, with_result
from tests.conformance.subject import DAY_MS, START_MS, TIMEOUT_MS, Subject, claim_key_of, key_of
from tests.queues import drop_queue, make_queue
from tests.stores.places import Places
from tests.stores.process import StoreServer

BYTES_PER_KEYED_JOB = 850
"""A job of 200 bytes with a dedupe key and a serialize key of 20 bytes each."""


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
    """On a server of its own, to be filled."""
    yield from _opened(RedisShard(durable_redis_server.url(), "1"), runner)


@pytest.fixture
def own_admin(durable_redis_server: StoreServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(durable_redis_server.url(), decode_responses=True) as client:
        yield client


def _opened(shard: RedisShard, runner: asyncio.Runner) -> Iterator[Subject]:
    runner.run(shard.open())
    runner.run(make_queue(shard, "mail", START_MS))
    yield Subject(shard)
    runner.run(shard.close())


# -- versions ----------------------------------------------------------------------------------------------------------


async def test_the_first_extended_job_shuts_older_versions_out(subject: Subject, url: str, admin: redis.Redis) -> None:
    running = await subject.job()
    await subject.claimed()
    await stop(subject, running)
    assert admin.hget("{pinlater}", "shard") == "1"
    await store(subject, dedupe_key="d")
    assert admin.hget("{pinlater}", "shard") == "1 (version 2)"
    await subject.shard.ping()
    for shard_id in ("1", ""):
        other = RedisShard(url, shard_id)
        await other.open()
        assert other.shard_id == "1"
        await other.close()
    other = RedisShard(url, "2")
    with pytest.raises(StoreRefused, match="is shard '1', not '2'"):
        await other.open()
    await other.close()


async def test_a_store_has_the_version_of_references_while_it_has_some(
    subject: Subject, url: str, admin: redis.Redis
) -> None:
    reference = BodyReference.new("files", "mail", b"x" * 300, subject.now_ms, BodyRule.SIZE)
    descriptor = await subject.job(reference)
    assert admin.hget("{pinlater}", "shard") == "1 (version 3)"
    await store(subject, dedupe_key="d")
    await subject.shard.ping()
    await subject.cancel(descriptor)
    for expected in ("1 (version 3)", "1 (version 2)"):
        other = RedisShard(url, "1")
        await other.open()
        await other.close()
        assert admin.hget("{pinlater}", "shard") == expected
        await subject.shard.forget_references([reference])
    assert admin.keys("*tiered*") == admin.keys("*shared*") == admin.keys("*dropped*") == []


async def test_a_store_has_the_version_of_groups_until_they_are_taken_off(
    subject: Subject, url: str, admin: redis.Redis
) -> None:
    await store(subject, group="a", run_after_ms=subject.now_ms + 5)
    await store(subject, group="b")
    steps = [False, True]
    for is_cleared in steps:
        if is_cleared:
            assert await subject.shard.clear_groups(subject.queue, "", 100, False) == (2, "")
        other = RedisShard(url, "1")
        await other.open()
        await other.close()
        assert admin.hget("{pinlater}", "shard") == ("1 (version 2)" if is_cleared else "1 (version 4)")
    assert admin.keys("*:turn*") == admin.keys("*:lines*") == admin.keys("*:ahead*") == []


async def test_the_first_successor_shuts_further_versions_out(subject: Subject, url: str, admin: redis.Redis) -> None:
    """Whether or not there are references to bodies, which raise the version too."""
    fields = {"dedupe_key": "d", "on_duplicate": OnDuplicate.REPLACE, "replace_running": ReplaceRunning.ENQUEUE}
    await store(subject, b"1", **fields)
    await subject.claimed()
    reference = BodyReference.new("files", "mail", b"x" * 300, subject.now_ms, BodyRule.SIZE)
    await subject.job(reference)
    assert admin.hget("{pinlater}", "shard") == "1 (version 3)"
    await store(subject, b"2", **fields)
    assert admin.hget("{pinlater}", "shard") == "1 (version 5)"
    await subject.job(reference)
    await store(subject, dedupe_key="e")
    other = RedisShard(url, "1")
    await other.open()
    await other.close()
    assert admin.hget("{pinlater}", "shard") == "1 (version 5)"


async def test_a_store_of_a_newer_version_is_refused(subject: Subject, url: str, admin: redis.Redis) -> None:
    admin.hset("{pinlater}", "shard", f"1 (version {LAST_VERSION + 1})")
    other = RedisShard(url, "1")
    with pytest.raises(StoreRefused, match="newer PinLater"):
        await other.open()
    await other.close()


# -- memory ------------------------------------------------------------------------------------------------------------


async def test_a_job_with_keys_takes_little_memory(subject: Subject, admin: redis.Redis) -> None:
    await store(subject, dedupe_key="d", serialize_key="k")
    before = admin.info("memory")["used_memory_dataset"]
    batches, batch = 10, 2_000
    for number in range(batches):
        names = [f"{number * batch + each:020}" for each in range(batch)]
        offers = [offer_of(b"x" * 200, dedupe_key=name, serialize_key=name, slot=int(name) % 4096) for name in names]
        await offer_all(subject, *offers)
    used = admin.info("memory")["used_memory_dataset"] - before
    assert used / (batches * batch) <= BYTES_PER_KEYED_JOB


async def test_in_a_redis_out_of_memory_nothing_is_stored_and_jobs_end(own: Subject, own_admin: redis.Redis) -> None:
    first = await store(own, b"1", dedupe_key="d", serialize_key="k", send_id="s")
    second = await store(own, b"2", dedupe_key="e", serialize_key="k", expires_at_ms=START_MS + 5)
    third = await store(own, b"3", serialize_key="k")
    fourth = await store(own, b"4", serialize_key="k", run_after_ms=START_MS + DAY_MS)
    last = await own.job()
    follow = {"dedupe_key": "g", "on_duplicate": OnDuplicate.REPLACE, "replace_running": ReplaceRunning.ENQUEUE}
    await store(own, b"g1", priority=2, **follow)
    followed = await own.claimed(priorities=(2,))
    own_admin.config_set("maxmemory", "1mb")
    with pytest.raises(StoreFull):
        await offer(own, b"never", priority=2, **follow)
    assert (await own.info(followed.descriptor)).custom_status == ""
    own_admin.config_set("maxmemory", "0")
    newer = await store(own, b"g2", priority=2, **follow)
    own_admin.config_set("maxmemory", "1mb")
    assert await own.fail(followed.descriptor) is AckOutcome.CANCELLED
    assert (await own.claimed(priorities=(2,))).descriptor == newer
    replace = {"dedupe_key": "e", "on_duplicate": OnDuplicate.REPLACE}
    for fields in ({"dedupe_key": "f"}, replace, {}):
        with pytest.raises(StoreFull):
            await offer(own, b"never", serialize_key="k", **fields)
    assert (await offer(own, dedupe_key="d", serialize_key="k")).outcome is OfferOutcome.KEPT
    job = await own.claimed()
    assert job.descriptor == first
    assert await stop(own, first) is CancelOutcome.REQUESTED
    assert await own.fail(first) is AckOutcome.CANCELLED
    own.tick(5)
    assert await own.shard.expire_jobs(9, own.now_ms, PerQueue(NO_RULES)) == {"mail": 1}
    assert (await own.info(second)).state is JobState.FAILED
    assert await own.requeue(await own.claimed()) == 1
    assert await own.cancel(third) == [CancelOutcome.CANCELLED]
    named = [key_of(last)]
    (answer,) = await own.shard.claim_listed(own.queue, named, own.request(timeout_ms=10), own.now_ms)
    assert answer.outcome is ClaimOutcome.CLAIMED
    own.tick(11)
    (claim,) = (await own.shard.expired_claims([own.queue], 9, own.now_ms))[own.queue]
    assert await own.shard.expire_listed(own.queue, [ExpiryRequest(*claim[:4])], own.now_ms) == [AckOutcome.RETRIED]
    assert await own.shard.expired_claims([own.queue], 9, own.now_ms + 1) == {}
    own_admin.config_set("maxmemory", "0")
    assert (await own.info(second)).body == b"2"
    assert await found(own, serialize_key="k") == fourth


async def test_more_queues_with_claims_that_are_left_alone_than_one_step_looks_at(subject: Subject) -> None:
    listed = {f"listed{number}": EndRules(lists_expired=True) for number in range(1_010)}
    entries = [ConfigEntry(name, f"{10**15 + place}-00000000") for place, name in enumerate(listed)]
    await subject.shard.put_config(entries, subject.now_ms)

    async def claim_one(name: str) -> None:
        await subject.shard.enqueue(name, [Job(b"")], subject.now_ms)
        await subject.shard.claim(name, [subject.request(timeout_ms=10)], subject.now_ms)

    await asyncio.gather(*map(claim_one, listed))
    await subject.job()
    await subject.claimed(timeout_ms=20)
    subject.tick(21)
    assert await subject.expire(limit=1, of=listed) == {subject.queue: ExpiryCounts(1, 0)}
    found = await subject.shard.expired_claims([*listed, subject.queue], 2_000, subject.now_ms)
    assert {name: len(claims) for name, claims in found.items()} == dict.fromkeys(listed, 1)


async def test_a_queue_whose_claims_have_ended_is_not_looked_at_again(subject: Subject, admin: redis.Redis) -> None:
    await subject.enqueue(Job(b"1"), Job(b"2"))
    first, second = await subject.claimed(timeout_ms=10), await subject.claimed(timeout_ms=500)
    bound = "{pinlater}:claimed"
    await subject.succeed(first.descriptor)
    subject.tick(11)
    assert await subject.shard.expired_claims([subject.queue], 9, subject.now_ms) == {}
    assert admin.zscore(bound, subject.queue) == second.claim_expires_at_ms
    await subject.succeed(second.descriptor)
    subject.tick(500)
    assert await subject.shard.expired_claims([subject.queue], 9, subject.now_ms) == {}
    assert admin.zscore(bound, subject.queue) is None


async def test_10_000_jobs_are_claimed_by_name_and_expire_by_a_list(subject: Subject) -> None:
    descriptors = await subject.enqueue(*[Job(b"%d" % number, 1 + number % 2) for number in range(10_000)])
    keys = [key_of(each) for each in descriptors]
    request = subject.request(timeout_ms=10)
    answers = await subject.shard.claim_listed(subject.queue, keys, request, subject.now_ms)
    assert [each.job and each.job.descriptor for each in answers] == descriptors
    subject.tick(11)
    (claims,) = (await subject.shard.expired_claims([subject.queue], 10_000, subject.now_ms)).values()
    ends = [ExpiryRequest(*claim[:4]) for claim in claims]
    assert await subject.shard.expire_listed(subject.queue, ends, subject.now_ms) == [AckOutcome.RETRIED] * 10_000


async def test_nothing_is_left_of_jobs_that_ended(subject: Subject, admin: redis.Redis) -> None:
    before = set(admin.keys("*"))
    await subject.beside("letters")
    for way in range(8):
        fields = {"dedupe_key": f"d{way}", "serialize_key": "k", "send_id": f"s{way}", "dedupe_for_ms": 1000}
        descriptor, *_ = [
            each.descriptor
            for each in await offer_all(
                subject, offer_of(**fields, expires_at_ms=subject.now_ms + 500), offer_of(serialize_key="k")
            )
        ]
        await subject.shard.watch_ends("mail", [key_of(descriptor)], subject.now_ms + 50, subject.now_ms)
        if way == 0:
            await subject.cancel(descriptor)
        elif way < 6:
            job = await subject.claimed()
            if way == 1:
                ack = AckRequest(*key_of(job.descriptor), True, result=b"42")
                await subject.ack(ack, rules=EndRules(keep_succeeded=False))
                assert await with_result(subject, descriptor) is not None
            elif way == 2:
                await subject.ack_with(descriptor, False, permanent=True, dead_letters=True)
                await subject.dead_letter({"mail": DeadLetterTarget("letters", 1)})
            elif way == 3:
                await stop(subject, descriptor)
                await subject.requeue(job)
            elif way == 4:
                subject.tick(TIMEOUT_MS + 1)
                await subject.expire(budget=1)
            else:
                await subject.shard.mark_moved("mail", [(claim_key_of(job), "mail:s2:p1:7")], subject.now_ms)
        elif way == 6:
            subject.tick(500)
            await subject.shard.expire_jobs(9, subject.now_ms, PerQueue(NO_RULES))
        else:
            await drop_queue(subject.shard, "letters", subject.tick(1))
            await subject.delete(JobState.PENDING, limit=1)
        await subject.succeed((await subject.claimed()).descriptor)
    subject.tick(SEND_ID_KEPT_MS + 60 * 60_000)
    while await subject.prune(succeeded_ttl_ms=0, failed_ttl_ms=0):
        pass
    await subject.shard.expire_jobs(9, subject.now_ms, PerQueue(NO_RULES))
    await subject.expire()
    for name in ("last", "orphaned", "marks", "ends:2", "q:mail:undelivered"):
        before.add("{pinlater}:" + name)
    admin.delete("{pinlater}:q:mail:watched")
    assert set(admin.keys("*")) <= before


# -- cost --------------------------------------------------------------------------------------------------------------


def commands(admin: redis.Redis) -> int:
    """How many commands ran, those of scripts included."""
    return sum(each["calls"] for name, each in admin.info("commandstats").items() if "config" not in name)


async def test_a_step_of_a_long_chain_takes_no_more_commands_than_one_of_a_short_one(
    own: Subject, own_admin: redis.Redis
) -> None:
    taken = []
    for waiting in (1_000, 1_000, 9_000):
        key = f"of {waiting}"
        for _ in range(0, waiting, 1_000):
            await offer_all(own, *[offer_of(serialize_key=key)] * 1_000)
        before = commands(own_admin)
        await own.succeed((await own.claimed()).descriptor)
        taken.append(commands(own_admin) - before)
        own_admin.config_resetstat()
        await own.shard.delete_jobs("mail", JobState.PENDING, 1, 10_000, own.now_ms)
    assert taken[2] <= taken[1]


async def test_many_keys_with_one_job_each_have_no_keys_of_redis_of_their_own(
    subject: Subject, admin: redis.Redis
) -> None:
    await store(subject, serialize_key="first", dedupe_key="first")
    before = admin.dbsize()
    await offer_all(subject, *[offer_of(serialize_key=str(each), dedupe_key=str(each)) for each in range(100)])
    assert admin.dbsize() == before


# -- notifications -----------------------------------------------------------------------------------------------------


async def test_a_job_that_is_freed_is_told_to_those_who_wait_for_its_queue(subject: Subject) -> None:
    other = await subject.beside("post")
    first = await store(subject, serialize_key="k")
    await store(other, serialize_key="k")
    heard: asyncio.Queue[Notification | None] = asyncio.Queue()
    assert await subject.shard.subscribe("post", heard.put_nowait)
    await subject.claimed()
    await subject.succeed(first)
    async with asyncio.timeout(60):
        assert await heard.get() == Notification(1, None)
    await subject.shard.subscribe("post", None)
