"""The circuit breaker of a queue: what opens it, the one job that is tried, and what closes it, over two servers."""

from __future__ import annotations

import pytest

from pinlater.errors import DequeueRateLimited
from pinlater.maintenance.tasks import ExpireClaims, Summary
from pinlater.model import (
    Ack,
    AuditEntry,
    Checkpoint,
    DequeuedJob,
    DequeueFromQueuesRequest,
    DequeueRequest,
    Job,
    JobState,
    QueueShare,
)
from pinlater.queues.breaker_record import TAKEN_MS
from pinlater.queues.settings import BREAKER
from tests.conformance.conftest import Serve
from tests.conformance.served import CLAIM_TIMEOUT_MS, Served
from tests.conformance.subject import new_name

RULE = "50%/4/1m/30s"
PROBE_EVERY_MS = 30_000
Servers = tuple[Served, Served]


@pytest.fixture
def servers(serve: Serve) -> Servers:
    """Two services over two shards, and a queue of a name of its own: the entries of its breaker outlast a test."""
    queue = new_name("breaker")
    return serve(queue=queue), serve(queue=queue)


@pytest.fixture
def served(servers: Servers) -> Served:
    """One of them."""
    return servers[0]


def everything(_shard_id: str) -> bool:
    return True


def nothing(_shard_id: str) -> bool:
    return False


async def look(*servers: Served, ms: int = 1_000) -> None:
    """So much later each server has worked on its breakers; the first one owns all shards."""
    for each in servers:
        each.clock.tick(ms)
    for each in servers:
        await each.api.queues.poll()
        await each.api.breakers.tick(everything if each is servers[0] else nothing)
    for each in servers:
        await each.api.queues.poll()


async def set_up(*servers: Served, **more: str) -> None:
    """The queue has a breaker, and all servers know it."""
    await servers[0].change(pause_on_failures=RULE, **more)
    await look(*servers)


async def fail(served: Served, jobs: int) -> None:
    """So many attempts fail at one server."""
    await served.enqueue(*[Job(b"", attempts_allowed=100)] * jobs)
    await nack(served, await served.dequeue(jobs))


async def expire(served: Served) -> None:
    """Maintenance ends the claims whose time is over."""
    api = served.api
    task = ExpireClaims(api.queues, served.clock, api.metrics, api.events.ready)
    for shard in served.shards:
        await task.step(shard, 1_000, Summary())


async def nack(served: Served, jobs: list[DequeuedJob]) -> None:
    await served.api.ack(served.queue, [], [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs])


async def ack(served: Served, jobs: list[DequeuedJob]) -> None:
    await served.api.ack(served.queue, [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs], [])


async def opened(*servers: Served, jobs: int = 4, **more: str) -> None:
    """The breaker is open, with so many jobs in the queue, and the first try is to come."""
    await set_up(*servers, **more)
    await fail(servers[0], jobs)
    await look(*servers)
    assert all(is_open(each) for each in servers)


def is_open(served: Served) -> bool:
    return served.api.queues.settings(served.queue).paused_by == BREAKER


async def refused(served: Served) -> DequeueRateLimited:
    with pytest.raises(DequeueRateLimited) as refusal:
        await served.dequeue(10)
    assert refusal.value.reason == "QUEUE_PAUSED"
    return refusal.value


async def latest_change(served: Served) -> AuditEntry:
    return next(each for each in await served.api.audit() if each.target == served.queue)


async def test_it_opens_by_the_attempts_of_all_servers_and_says_why(servers: Servers) -> None:
    await set_up(*servers)
    first, other = servers
    await fail(first, 1)
    await other.enqueue(Job(b"", attempts_allowed=100), Job(b""))
    good = await other.dequeue(3)
    await nack(other, good[:1])
    await ack(other, good[1:2])
    await look(*servers)
    assert not is_open(first)
    await ack(first, good[2:])
    await look(*servers)
    assert is_open(first)
    assert is_open(other)
    (view,) = await other.api.get_queues([other.queue])
    assert view.settings["paused"] == ("true", "breaker")
    assert view.settings["paused_why"].value.startswith("2 of 4 attempts failed in 1m")
    assert view.settings["pause_on_failures"] == (RULE, "queue")
    entry = await latest_change(first)
    assert (entry.who, entry.action, entry.detail) == (BREAKER, "open_breaker", view.settings["paused_why"].value)
    assert "2 of 4 attempts failed" in (await refused(first)).message


async def test_a_share_below_the_rule_or_too_few_attempts_open_nothing(served: Served) -> None:
    await set_up(served)
    await fail(served, 3)
    await look(served)
    assert not is_open(served)
    await ack(served, await served.dequeue(1))
    await served.enqueue(*[Job(b"")] * 4)
    await ack(served, await served.dequeue(4))
    await look(served)
    assert not is_open(served)


async def test_claims_that_expire_are_failures(served: Served) -> None:
    await set_up(served, crash_budget="0")
    await served.enqueue(*[Job(b"", attempts_allowed=9)] * 4)
    await served.dequeue(4)
    served.clock.tick(CLAIM_TIMEOUT_MS + 1)
    await expire(served)
    await look(served)
    assert is_open(served)


async def test_snoozes_requeues_and_cancels_are_no_attempts(served: Served) -> None:
    await set_up(served)
    await fail(served, 3)
    await served.enqueue(*[Job(b"")] * 9)
    snoozed, requeued, cancelled = [await served.dequeue(3) for _ in range(3)]
    snoozes = [
        Checkpoint(job.descriptor, move_to_pending=True, claim_descriptor=job.claim_descriptor) for job in snoozed
    ]
    await served.api.checkpoint(served.queue, snoozes, context=served.context)
    await served.api.requeue(requeued)
    await served.api.cancel(served.queue, [job.descriptor for job in cancelled], running=True)
    await nack(served, cancelled)
    await look(served)
    assert not is_open(served)


async def test_while_it_is_open_one_job_is_out_in_the_whole_cluster(servers: Servers) -> None:
    await opened(*servers)
    first, other = servers
    await look(*servers, ms=PROBE_EVERY_MS - 2_000)
    assert (await refused(first)).retry_after_ms == 2_000
    await look(*servers, ms=2_000)
    (probe,) = await other.dequeue(10)
    await refused(first)
    await refused(other)
    await look(*servers, ms=2 * PROBE_EVERY_MS)
    await refused(first)
    await refused(other)
    assert probe.attempts_remaining == 99


async def test_two_servers_that_try_at_once_hand_out_one_job(servers: Servers) -> None:
    await opened(*servers)
    await look(*servers, ms=PROBE_EVERY_MS)
    first, other = servers
    assert await first.api.breakers.probes.take(first.queue, "a claim") is not None
    assert await other.api.breakers.probes.take(other.queue, "another claim") is None


async def test_a_job_that_succeeds_at_another_server_closes_it_and_counts_begin_anew(servers: Servers) -> None:
    await opened(*servers)
    first, other = servers
    await look(*servers, ms=PROBE_EVERY_MS)
    await ack(other, await first.dequeue(10))
    await look(*servers)
    assert not is_open(first)
    assert not is_open(other)
    entry = await latest_change(first)
    assert (entry.who, entry.action) == (BREAKER, "close_breaker")
    jobs = await other.dequeue(10)
    assert len(jobs) == 3
    await nack(other, jobs)
    await look(*servers)
    assert not is_open(first)
    await nack(first, await first.dequeue(1))
    await look(*servers)
    assert is_open(first)


async def test_a_job_that_is_removed_with_its_success_closes_it(servers: Servers) -> None:
    await opened(*servers, succeeded_ttl="0s", failed_ttl="0s")
    await look(*servers, ms=PROBE_EVERY_MS)
    first, other = servers
    await ack(other, await first.dequeue(1))
    await look(*servers)
    assert not is_open(first)


async def test_a_job_that_was_removed_otherwise_is_followed_by_another(served: Served) -> None:
    await opened(served, failed_ttl="0s")
    await look(served, ms=PROBE_EVERY_MS)
    (job,) = await served.dequeue(1)
    await served.api.ack(served.queue, [], [Ack(job.descriptor, permanent=True)])
    for _ in range(6):
        await refused(served)
        await look(served)
    await look(served, ms=PROBE_EVERY_MS)
    assert len(await served.dequeue(10)) == 1
    assert is_open(served)


async def test_the_success_of_a_server_that_died_at_once_is_seen_by_the_others(servers: Servers) -> None:
    await opened(*servers)
    await look(*servers, ms=PROBE_EVERY_MS)
    first, other = servers
    await ack(other, await other.dequeue(1))
    await look(first)
    assert not is_open(first)


async def test_a_job_that_fails_keeps_it_open_and_the_next_comes_a_while_later(servers: Servers) -> None:
    await opened(*servers)
    first, other = servers
    await look(*servers, ms=PROBE_EVERY_MS)
    for _ in range(3):
        await nack(other, await first.dequeue(1))
        await look(*servers)
        await refused(first)
        await refused(other)
        await look(*servers, ms=PROBE_EVERY_MS)
    assert is_open(first)
    assert len(await other.dequeue(10)) == 1


async def test_a_job_whose_claim_expires_or_which_is_requeued_is_followed_by_another(served: Served) -> None:
    await opened(served)
    await look(served, ms=PROBE_EVERY_MS)
    await served.dequeue(1)
    served.clock.tick(CLAIM_TIMEOUT_MS + 1)
    await expire(served)
    await look(served)
    (lost,) = await served.dequeue(10)
    await served.api.requeue([lost])
    await look(served)
    await refused(served)
    await look(served, ms=PROBE_EVERY_MS)
    assert len(await served.dequeue(10)) == 1


async def test_a_server_that_dies_before_it_hands_out_the_job_holds_nothing_up(servers: Servers) -> None:
    await opened(*servers)
    await look(*servers, ms=PROBE_EVERY_MS)
    first, other = servers
    probe = await first.api.breakers.probes.take(first.queue, "a claim")
    assert probe is not None
    await look(*servers, ms=TAKEN_MS - 1_000)
    await refused(other)
    await look(*servers)
    (job,) = await other.dequeue(10)
    assert not await first.api.breakers.probes.hand_out(probe, job.descriptor, "a claim")


async def test_where_there_is_no_job_the_next_one_is_tried_at_once(served: Served) -> None:
    await opened(served)
    jobs = [each.descriptor for each in (await served.api.scan(served.filter(JobState.PENDING))).jobs]
    await served.api.cancel(served.queue, jobs)
    await look(served, ms=PROBE_EVERY_MS)
    assert await served.dequeue(10) == []
    await served.enqueue(Job(b""))
    await look(served, ms=2_000)
    assert len(await served.dequeue(10)) == 1


async def test_a_dequeue_from_several_queues_gets_the_job_as_well(served: Served) -> None:
    await opened(served)
    await served.api.create_queue("other")
    request = DequeueFromQueuesRequest([QueueShare(served.queue), QueueShare("other")], 10)
    answer = await served.api.dequeue_from_queues(request, context=served.context)
    assert answer.queue_errors[served.queue].reason == "QUEUE_PAUSED"
    await look(served, ms=PROBE_EVERY_MS)
    assert len(await served.api.dequeue_from_queues(request, context=served.context)) == 1


async def test_acks_that_ride_on_the_dequeue_of_an_open_breaker_are_carried_out(served: Served) -> None:
    await set_up(served)
    await served.enqueue(Job(b"running"))
    (running,) = await served.dequeue(1)
    await fail(served, 4)
    await look(served)
    with pytest.raises(DequeueRateLimited) as refusal:
        await served.api.dequeue(
            DequeueRequest(served.queue, 1, succeeded=[Ack(running.descriptor)]), context=served.context
        )
    assert refusal.value.acks_applied
    await look(served)
    assert is_open(served)


async def test_a_pause_by_hand_holds_whatever_the_breaker_does(servers: Servers) -> None:
    await opened(*servers)
    first, other = servers
    await look(*servers, ms=PROBE_EVERY_MS)
    probe = await first.dequeue(1)
    await other.change(paused="true", paused_why="the provider is down")
    await ack(first, probe)
    await look(*servers, ms=PROBE_EVERY_MS)
    for each in servers:
        assert each.api.queues.settings(each.queue).paused_why == "the provider is down"
        await refused(each)
    await other.api.update_queue(other.queue, other.password, unset=["paused"])
    await look(*servers)
    assert not first.api.queues.settings(first.queue).paused
    assert len(await first.dequeue(10)) == 3


async def test_a_queue_that_is_paused_by_hand_is_not_opened(served: Served) -> None:
    await set_up(served)
    await served.enqueue(*[Job(b"", attempts_allowed=9)] * 4)
    jobs = await served.dequeue(4)
    await served.change(paused="true")
    await nack(served, jobs)
    await look(served)
    await served.change(paused="false")
    await look(served)
    assert not served.api.queues.settings(served.queue).paused


async def test_a_pause_that_ends_by_itself_leaves_an_open_breaker(served: Served) -> None:
    await opened(served)
    await served.change(paused="true", paused_until=str(served.clock.now_ms() + PROBE_EVERY_MS))
    assert not is_open(served)
    served.clock.tick(PROBE_EVERY_MS)
    assert is_open(served)
    await look(served)
    assert len(await served.dequeue(10)) == 1
    await refused(served)


@pytest.mark.parametrize("change", [{"set": {"paused": "false"}}, {"unset": ["paused"]}])
async def test_an_operator_who_resumes_the_queue_resets_it(
    servers: Servers, change: dict[str, dict[str, str] | list[str]]
) -> None:
    await opened(*servers)
    first, other = servers
    await other.api.update_queue(other.queue, other.password, context=other.context, **change)  # type: ignore[arg-type]
    assert not is_open(other)
    await look(*servers)
    assert not is_open(first)
    assert ("update_queue", "worker", "paused") in {
        (each.action, each.who, each.detail.partition(" ")[0].partition("=")[0])
        for each in await other.api.audit()
        if each.target == other.queue
    }
    await nack(first, (await first.dequeue(10))[:3])
    await look(*servers)
    assert not is_open(first)


async def test_without_the_setting_it_is_closed_at_once_and_for_good(served: Served) -> None:
    await opened(served)
    await served.api.update_queue(served.queue, served.password, unset=["pause_on_failures"])
    assert len(await served.dequeue(1)) == 1
    await look(served)
    await served.change(pause_on_failures=RULE)
    assert not served.api.queues.settings(served.queue).paused


async def test_a_queue_that_is_made_anew_has_no_open_breaker(served: Served) -> None:
    await opened(served)
    served.clock.tick(1_000)
    await served.api.delete_queue(served.queue, served.password)
    await served.api.create_queue(served.queue)
    await served.change(pause_on_failures=RULE)
    assert not served.api.queues.settings(served.queue).paused
    await look(served)
    await served.enqueue(Job(b""))
    assert len(await served.dequeue(10)) == 1


async def test_a_server_that_comes_later_knows_that_it_is_open(servers: Servers) -> None:
    first, late = servers
    await opened(first)
    await look(late, ms=3_000)
    assert is_open(late)
    await refused(late)
    await look(late, ms=PROBE_EVERY_MS)
    await ack(late, await late.dequeue(1))
    await look(late)
    assert not is_open(late)
