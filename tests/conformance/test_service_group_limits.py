"""The limits of groups through the service: two servers over two shards."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from pinlater.backends.base import AckRequest
from pinlater.backends.permit_store import PermitKey, PermitRequest
from pinlater.errors import RequestInvalid
from pinlater.model import Ack, DequeuedJob, DequeueRequest, ExtendedJob, Job, JobState, parse_descriptor
from pinlater.model.job_holds import HoldReason
from pinlater.model.job_selection import JobPhase, JobSelection
from pinlater.queues.gone_shards import GONE_MS
from pinlater.queues.group_limits import CHECK_AGAIN_MS, CHECK_MS, HELD_MS
from tests.conformance.bindings import BINDINGS
from tests.conformance.conftest import Serve
from tests.conformance.served import CLAIM_TIMEOUT_MS, Served
from tests.conformance.subject import new_name
from tests.conformance.test_service_breakers import PROBE_EVERY_MS, fail, look, refused, set_up
from tests.conformance.test_service_searches import found

pytestmark = pytest.mark.parametrize("binding", [each.param() for each in BINDINGS if each.has_groups], indirect=True)

Servers = tuple[Served, Served]


@pytest.fixture
def servers(serve: Serve) -> Servers:
    """Two services over two shards, and a queue of a name of its own: the entry of its home outlasts a test."""
    queue = new_name("limits")
    return serve(queue=queue), serve(queue=queue)


@pytest.fixture
def served(servers: Servers) -> Served:
    """One of them."""
    return servers[0]


async def stored(served: Served, group: str, count: int) -> None:
    """One call each, so that they are spread over the shards."""
    for number in range(count):
        await served.enqueue(ExtendedJob(f"{group}{number}".encode(), group=group))


async def settle(*servers: Served) -> None:
    for each in servers:
        await each.api.limits.drain()


async def know(*servers: Served) -> None:
    for each in servers:
        await each.api.queues.poll()


async def dequeue(served: Served, limit: int, **more: int) -> list[DequeuedJob]:
    jobs = await served.api.dequeue(DequeueRequest(served.queue, limit, **more), context=served.context)
    await settle(served)
    return jobs


async def succeed(served: Served, jobs: Iterable[DequeuedJob], *, names_claims: bool = True) -> None:
    acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor if names_claims else "") for job in jobs]
    await served.api.ack(served.queue, acks, (), context=served.context)
    await settle(served)


async def check(served: Served, ms: int) -> None:
    """So much later the home's owner has checked permits."""
    served.clock.tick(ms)
    await served.api.limits.groups.tick(lambda shard_id: True)


def groups_of(jobs: Sequence[DequeuedJob]) -> Counter[str]:
    return Counter(bytes(job.body).decode().rstrip("0123456789") for job in jobs)


async def test_a_group_has_no_more_jobs_in_progress_than_its_limit(served: Served) -> None:
    await served.change(group_concurrency="3")
    await stored(served, "flood", 20)
    await stored(served, "calm", 2)
    await served.enqueue(*[Job(b"none")] * 5)
    jobs = await dequeue(served, 100)
    assert groups_of(jobs) == {"flood": 3, "calm": 2, "none": 5}
    assert await dequeue(served, 100) == []
    await succeed(served, [job for job in jobs if job.body.startswith(b"flood")][:2])
    again = await dequeue(served, 100)
    assert groups_of(again) == {"flood": 2}
    assert await served.count(JobState.IN_PROGRESS) == 10


async def test_the_limit_holds_over_two_servers(servers: Servers) -> None:
    first, second = servers
    await first.change(group_concurrency="5")
    await know(*servers)
    await stored(first, "a", 40)
    claims = await asyncio.gather(*[each.dequeue(3) for each in servers * 5])
    await settle(*servers)
    jobs = [job for some in claims for job in some]
    assert len(jobs) <= 5
    jobs += await dequeue(first, 10) + await dequeue(second, 10)
    done = 0
    while jobs:
        assert len(jobs) <= 5
        assert await first.count(JobState.IN_PROGRESS) == len(jobs)
        await succeed(servers[done % 2], jobs[:2])
        done += len(jobs[:2])
        jobs = [*jobs[2:], *await dequeue(servers[done // 2 % 2], 10)]
        await settle(*servers)
    assert done == 40


async def test_acks_that_name_no_claims_free_permits_too(served: Served) -> None:
    await served.change(group_concurrency="1")
    await stored(served, "a", 3)
    for _ in range(3):
        (job,) = await dequeue(served, 5)
        await succeed(served, [job], names_claims=False)
    assert await dequeue(served, 5) == []


async def test_one_group_has_a_limit_of_its_own(served: Served) -> None:
    await served.change(group_concurrency="2")
    await served.api.update_group(served.queue, "big", served.password, set={"concurrency": "6"})
    await served.api.update_group(served.queue, "free*", served.password, set={"concurrency": "none"})
    for group in ("big", "small", "free"):
        await stored(served, group, 10)
    assert groups_of(await dequeue(served, 100)) == {"big": 6, "small": 2, "free": 10}


async def test_a_limit_by_name_alone_leaves_others_without(served: Served) -> None:
    await served.api.update_group(served.queue, "a", served.password, set={"concurrency": "1"})
    for group in "ab":
        await stored(served, group, 5)
    assert groups_of(await dequeue(served, 100)) == {"a": 1, "b": 5}
    await served.api.update_group(served.queue, "a", served.password, unset=["concurrency"])
    served.clock.tick(HELD_MS)
    assert groups_of(await dequeue(served, 100)) == {"a": 4}


async def test_a_rate_of_groups_is_kept_over_shards(served: Served) -> None:
    await served.change(group_rate="10/s")
    await stored(served, "a", 30)
    await stored(served, "b", 1)
    assert groups_of(await dequeue(served, 100)) == {"a": 1, "b": 1}
    handed_out = 0
    for _ in range(200):
        served.clock.tick(10)
        handed_out += len(await dequeue(served, 100))
    assert 19 <= handed_out <= 25


async def test_a_slow_rate_that_is_taken_back_holds_no_group_for_long(served: Served) -> None:
    await served.change(group_rate="1/h")
    await stored(served, "a", 12)
    assert len(await dequeue(served, 100)) == 1
    assert await dequeue(served, 100) == []
    await served.change(group_rate="none")
    served.clock.tick(HELD_MS)
    assert len(await dequeue(served, 100)) == 11


async def test_a_dequeue_that_waits_gets_the_job_that_a_permit_is_free_for(servers: Servers) -> None:
    first, second = servers
    await first.change(group_concurrency="1")
    await know(*servers)
    await stored(first, "a", 8)
    (job,) = await dequeue(first, 1)
    waiting = asyncio.create_task(second.api.dequeue(DequeueRequest(second.queue, 1, wait_ms=20_000)))
    while not second.api.long_polls.has_waiters(second.queue):
        await asyncio.sleep(0.01)
    await succeed(first, [job])
    (next_job,) = await asyncio.wait_for(waiting, 5)
    assert next_job.descriptor != job.descriptor


async def test_a_claim_that_expires_gives_its_permit_back(served: Served) -> None:
    await served.change(group_concurrency="1")
    await stored(served, "a", 2)
    await dequeue(served, 1)
    await check(served, CHECK_MS)
    assert await dequeue(served, 1) == [], "its claim stands"
    served.clock.tick(CLAIM_TIMEOUT_MS)
    await served.maintain()
    await check(served, CHECK_AGAIN_MS)
    assert len(await dequeue(served, 5)) == 1


async def test_a_requeued_job_gives_its_permit_back(served: Served) -> None:
    await served.change(group_concurrency="1")
    await stored(served, "a", 1)
    jobs = await dequeue(served, 1)
    await served.api.long_polls.requeuer.requeue(jobs)
    await settle(served)
    assert len(await dequeue(served, 1)) == 1


async def test_permits_of_claims_whose_server_stopped_are_checked(servers: Servers) -> None:
    first, second = servers
    await first.change(group_concurrency="2")
    await know(*servers)
    await stored(first, "a", 4)
    jobs = await dequeue(first, 2)
    for job in jobs:  # as a server that stops behind the store's answer
        ref = parse_descriptor(job.descriptor)
        assert ref is not None
        ack = AckRequest(ref.priority, ref.id, True)
        (shard,) = [each for each in first.shards if each.shard_id == ref.shard]
        await shard.ack(first.queue, [ack], first.clock.now_ms())
    assert await dequeue(second, 2) == []
    second.clock.tick(CHECK_MS)
    await check(second, 0)
    assert len(await dequeue(second, 5)) == 2


async def test_groups_wait_while_their_limits_cannot_be_counted(served: Served) -> None:
    await served.change(group_concurrency="5")
    await stored(served, "a", 10)
    assert len(await dequeue(served, 1)) == 1
    home = served.api.queues.group_rules.home(served.queue)
    await served.api.queues.move_permits(served.queue, home, "gone")
    await served.enqueue(*[Job(b"none")] * 2)
    assert groups_of(await dequeue(served, 100)) == {"none": 2}
    (ready, *_) = await found(served, JobSelection(served.queue, [JobPhase.READY]), limit=1)
    (hold,) = await served.api.explain_jobs([ready.descriptor])
    assert hold.text == (
        "The limits of its group 'a' cannot be counted: shard gone, where that is done, does not answer."
    )
    served.clock.tick(GONE_MS)
    assert groups_of(await dequeue(served, 100)) == {"a": 4}, "the home is where it was, and knows of the first job"


async def test_the_probe_of_a_breaker_that_is_found_behind_a_full_group_is_followed(served: Served) -> None:
    await set_up(served, group_concurrency="1")
    await fail(served, 4)
    await look(served)
    holder = PermitKey("gone", 1, 1, "another claim")
    await served.api.limits.groups.running(served.queue, ["a"])
    home = served.api.queues.group_rules.home(served.queue)
    (shard,) = [each for each in served.shards if each.shard_id == home]
    now_ms = served.clock.now_ms()
    await shard.take_permits(served.queue, [PermitRequest("a", [holder], 1)], now_ms + GONE_MS, now_ms)
    failed = (await served.api.scan(served.filter(JobState.PENDING))).jobs
    await served.api.cancel(served.queue, [each.descriptor for each in failed])
    await stored(served, "a", 12)
    await stored(served, "b", 12)
    await look(served, ms=PROBE_EVERY_MS)
    (job,) = await served.dequeue(10)
    assert groups_of([job]) == {"b": 1}
    await stored(served, "c", 1)
    for _ in range(3):
        await look(served, ms=PROBE_EVERY_MS)
        await refused(served)


async def test_limits_are_refused_that_are_none(served: Served) -> None:
    for text in ("0", "-1", "many", "1.5"):
        with pytest.raises(RequestInvalid):
            await served.change(group_concurrency=text)
        with pytest.raises(RequestInvalid):
            await served.api.update_group(served.queue, "a", served.password, set={"concurrency": text})
    for text in ("0/s", "fast"):
        with pytest.raises(RequestInvalid):
            await served.change(group_rate=text)
        with pytest.raises(RequestInvalid):
            await served.api.update_group(served.queue, "a", served.password, set={"rate": text})


async def test_a_job_says_that_its_group_is_at_its_limit(served: Served) -> None:
    await served.change(group_concurrency="1")
    await stored(served, "a", 2)
    (job,) = await dequeue(served, 1)
    (other,) = [info.descriptor for info in await found(served, JobSelection(served.queue, [JobPhase.READY]))]
    (hold,) = await served.api.explain_jobs([other])
    assert hold.reason is HoldReason.MAX_IN_PROGRESS
    assert hold.text == "Its group 'a' has reached its maximum of 1 job in progress."
    await succeed(served, [job])
    (hold,) = await served.api.explain_jobs([other])
    assert hold.reason is not HoldReason.MAX_IN_PROGRESS
