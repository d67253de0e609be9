"""Circuit breakers of one server: who waits, what a shard that is out or gone does to them, and what they cost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from pinlater.backends.base import ClaimRequest, ConfigEntry, JobKey
from pinlater.errors import BreakersNotYet, DequeueRateLimited, ShardConnectionFailed
from pinlater.metrics import Metrics
from pinlater.model import Ack, ClaimOutcome, ExtendedJob, Job, RequestContext, parse_descriptor
from pinlater.queues.breaker_record import BREAKER_PREFIX, TAKEN_MS, read_open_breaker
from pinlater.queues.breakers import Breakers
from pinlater.queues.gone_shards import GONE_MS
from pinlater.queues.settings import BREAKER
from pinlater.service import ClaimTokens
from pinlater.service.queue_limits import QueueLimits
from tests.unit.breaking import HeldTime, settled
from tests.unit.stand import Stand, acks, stand

RULE = "50%/4/1m/30s"
PROBE_EVERY_MS = 30_000
VERSION = "1790000003000000-00000000"
"""Of an entry that is written later than all others."""


OPERATOR = RequestContext("me", "", is_granted=True)


async def set_queue(at: Stand, set: Mapping[str, str] | None = None, unset: Sequence[str] = ()) -> None:
    await at.service.update_queue("mail", "", set=set, unset=unset, context=OPERATOR)


def everything(_shard_id: str) -> bool:
    return True


async def look(at: Stand, ms: int = 1_000) -> None:
    at.clock.tick(ms)
    await at.service.breakers.tick(everything)


async def opened(at: Stand, jobs: int = 4) -> None:
    """The breaker is open, and the first try is to come."""
    await set_queue(at, set={"pause_on_failures": RULE})
    await look(at)
    await at.service.enqueue("mail", [Job(b"", attempts_allowed=100)] * jobs)
    await at.service.ack("mail", [], acks(await at.dequeue(jobs)))
    await look(at)
    assert is_open(at)


def is_open(at: Stand) -> bool:
    return at.service.queues.settings("mail").paused_by == BREAKER


async def test_the_setting_waits_for_servers_of_earlier_versions_and_none_opens_meanwhile() -> None:
    behind = ["b/1"]
    async with stand(unaware_of=lambda feature: behind if feature == "breakers" else ()) as at:
        with pytest.raises(BreakersNotYet, match="b/1") as refused:
            await set_queue(at, set={"pause_on_failures": RULE})
        assert (refused.value.reason, refused.value.retryable) == ("BREAKERS_NOT_YET", True)
        await set_queue(at, set={"pause_on_failures": "none"})
        behind.clear()
        await set_queue(at, set={"pause_on_failures": RULE})
        await look(at)
        await at.service.enqueue("mail", [Job(b"")] * 4)
        await at.service.ack("mail", [], acks(await at.dequeue(4)))
        behind.append("b/1")
        await look(at)
        assert not is_open(at)
        behind.clear()
        await look(at)
        assert is_open(at)


async def test_a_queue_without_the_setting_costs_no_store_command() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"")] * 4)
        await at.service.ack("mail", [], acks(await at.dequeue(4)))
        before = at.stores[0].begun.copy()
        await look(at)
        assert at.stores[0].begun == before


async def test_who_waits_gets_the_job_that_is_tried_and_all_others_when_it_has_closed() -> None:
    async with stand() as at:
        await opened(at)
        time = HeldTime(*at.stores)
        waiting = [asyncio.create_task(at.dequeue(1, wait_ms=600_000)) for _ in range(2)]
        while at.service.waiting < 2:
            await asyncio.sleep(0)
        await settled()
        assert not any(task.done() for task in waiting)
        at.clock.tick(PROBE_EVERY_MS)
        await time.leap(PROBE_EVERY_MS / 1000)
        done, others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        (probe,) = [job for task in done for job in task.result()]
        await settled()
        assert len(others) == 1
        await at.service.ack("mail", [Ack(probe.descriptor)], [])
        await look(at)
        (last,) = others
        assert len(await asyncio.wait_for(last, 60)) == 1


async def test_who_waits_to_the_end_is_told_why_nothing_came() -> None:
    async with stand() as at:
        await opened(at)
        with pytest.raises(DequeueRateLimited, match="4 of 4 attempts failed in 1m") as refused:
            await at.dequeue(1, wait_ms=1)
        assert (refused.value.reason, refused.value.retry_after_ms) == ("QUEUE_PAUSED", PROBE_EVERY_MS)


async def test_who_waits_while_it_opens_goes_on_waiting() -> None:
    async with stand() as at:
        await set_queue(at, set={"pause_on_failures": RULE})
        await look(at)
        await at.service.enqueue("mail", [Job(b"", attempts_allowed=9, run_after_ms=1)] * 4)
        jobs = await at.dequeue(4)
        waiting = asyncio.create_task(at.dequeue(1, wait_ms=600_000))
        while not at.service.waiting:
            await asyncio.sleep(0)
        await at.service.ack("mail", [], [Ack(job.descriptor, retry_delay_ms=5_000) for job in jobs])
        await look(at)
        assert is_open(at)
        await settled()
        assert not waiting.done()
        await set_queue(at, unset=["paused"])
        at.clock.tick(5_000)
        assert len(await asyncio.wait_for(waiting, 60)) == 1


async def test_why_a_job_waits_says_when_the_next_one_is_tried() -> None:
    async with stand() as at:
        await opened(at)
        (held, *_) = (await at.service.enqueue("mail", [Job(b"")]),)
        (hold,) = await at.service.explain_jobs(held)
        assert hold.text == (
            "The circuit breaker of its queue is open since 2026-09-21T14:13:22Z: 4 of 4 attempts failed in 1m; one "
            "job is tried every 30s until one succeeds; next try at 2026-09-21T14:13:52Z."
        )
        await look(at, PROBE_EVERY_MS)
        (probe,) = await at.dequeue(1)
        (hold,) = await at.service.explain_jobs(held)
        assert f"; {probe.descriptor} is tried since 2026-09-21T14:13:52Z." in hold.text


async def test_while_the_shard_of_the_slot_is_out_nothing_is_tried() -> None:
    async with stand(2) as at:
        await opened(at)
        opened_on = at.service.queues.open_breakers["mail"].place
        handle = at.members.by_id(opened_on)
        assert handle is not None
        handle.health.trip(at.clock.now_ms())
        await look(at, PROBE_EVERY_MS)
        with pytest.raises(DequeueRateLimited):
            await at.dequeue(10)


async def test_a_claim_that_fails_leaves_the_slot_to_the_next_one() -> None:
    async with stand() as at:
        await opened(at)
        await look(at, PROBE_EVERY_MS)
        at.stores[0].failures["claim"] = [ShardConnectionFailed("cut")] * 3
        with pytest.raises(ShardConnectionFailed):
            await at.dequeue(1)
        at.stores[0].heal()
        await settled()
        await look(at, TAKEN_MS)
        assert len(await at.dequeue(10)) == 1


async def test_a_job_that_a_slower_server_claimed_goes_back() -> None:
    async with stand() as at:
        await opened(at)
        await look(at, PROBE_EVERY_MS)
        gate = at.stores[0].hold_answer("claim")
        slow = asyncio.create_task(at.dequeue(1))
        await at.stores[0].until_begun("claim", at.stores[0].begun["claim"] + 1)
        await at.stores[0].until_quiet()
        await look(at, TAKEN_MS)
        other = await at.service.breakers.probes.take("mail", "a quicker one")
        assert other is not None
        gate.set()
        with pytest.raises(DequeueRateLimited):
            await slow
        assert at.stores[0].begun["requeue"] == 1
        assert await at.service.breakers.probes.hand_out(other, "mail:s1:p1:1790000000000000", "a claim")


async def unaudited(_action: str, _queue: str, _detail: str) -> None:
    pass


async def test_a_job_that_is_named_may_be_the_one_that_is_tried() -> None:
    async with stand() as at:
        await opened(at)
        ref = parse_descriptor((await at.service.enqueue("mail", [Job(b"")]))[0])
        assert ref is not None
        queues = at.service.queues
        limits = QueueLimits(at.router, at.clock, queues, Metrics(), ClaimTokens("other", 1, 0))
        other = Breakers(limits.probes, at.members, queues, at.clock, Metrics(), "other", unaudited, list)
        key, request = JobKey(ref.priority, ref.id), ClaimRequest("claim", 1, (1, 2, 3), 60_000, 1_000_000)
        assert (await limits.claim_listed("mail", ref.shard, key, request))[0] is ClaimOutcome.LIMITED
        await look(at, PROBE_EVERY_MS)
        await other.tick(everything)
        assert (await limits.claim_listed("mail", ref.shard, key, request))[0] is ClaimOutcome.CLAIMED
        with pytest.raises(DequeueRateLimited):
            await at.dequeue(1)
        await at.service.ack("mail", [Ack(f"mail:s{ref.shard}:p1:{ref.id}", claim_descriptor="claim")], [])
        await look(at)
        assert not is_open(at)


async def test_a_job_that_may_not_be_the_probe_gives_the_permit_of_its_group_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stand() as at:
        await opened(at)
        await set_queue(at, set={"group_concurrency": "1"})
        ref = parse_descriptor((await at.service.enqueue("mail", [ExtendedJob(b"", group="acme")]))[0])
        assert ref is not None
        await look(at, PROBE_EVERY_MS)
        limits = at.service.limits

        async def is_taken_by_another(*_: object) -> bool:
            return False

        monkeypatch.setattr(limits.probes, "hand_out", is_taken_by_another)
        request = ClaimRequest("host:1:1:1:me", 1, (1, 2, 3), 60_000, 1_000_000)
        outcome, _ = await limits.claim_listed("mail", ref.shard, JobKey(ref.priority, ref.id), request)
        assert outcome is ClaimOutcome.LIMITED
        await limits.drain()
        assert await limits.groups.running("mail", ["acme"]) == {"acme": 0}


@pytest.mark.parametrize("lose", [True, False])
async def test_a_slot_whose_shard_is_gone_gets_another_place(lose: bool) -> None:
    async with stand(2) as at:
        await opened(at)
        place = at.service.queues.open_breakers["mail"].place
        if lose:
            await at.service.update_shard(place, "", dequeue_only=True, give_up=True, context=OPERATOR)
        handle = at.members.by_id(place)
        assert handle is not None
        at.members.all.remove(handle)
        await look(at)
        await look(at, 0 if lose else GONE_MS + 1)
        assert is_open(at)
        assert at.service.queues.open_breakers["mail"].place != place
        await look(at, PROBE_EVERY_MS)
        at.members.all.append(handle)


async def test_a_reset_while_counts_are_judged_stands() -> None:
    async with stand() as at:
        await set_queue(at, set={"pause_on_failures": RULE})
        await look(at)
        await at.service.enqueue("mail", [Job(b"")] * 4)
        await at.service.ack("mail", [], acks(await at.dequeue(4)))
        gate = at.stores[0].hold_answer("kv_list")
        judging = asyncio.create_task(look(at))
        await at.stores[0].until_begun("kv_list", at.stores[0].begun["kv_list"] + 1)
        await at.stores[0].until_quiet()
        config = at.stores[0].hold("list_config")
        gate.set()
        await at.stores[0].until_begun("list_config", at.stores[0].begun["list_config"] + 1)
        await at.service.queues.entries.put(ConfigEntry(f"{BREAKER_PREFIX}mail", VERSION, "{}", VERSION))
        config.set()
        await judging
        assert not is_open(at)


async def test_a_caller_that_calls_itself_a_breaker_is_none() -> None:
    async with stand() as at:
        who = RequestContext(BREAKER, "", is_granted=True)
        await at.service.update_queue("mail", "", set={"paused": "true"}, context=who)
        assert not is_open(at)
        assert at.service.queues.settings("mail").paused_by == f"anonymous ({BREAKER})"


async def test_an_entry_that_this_version_does_not_know_counts_as_closed() -> None:
    async with stand() as at:
        await opened(at)
        await at.service.queues.change_record(f"{BREAKER_PREFIX}mail", lambda _: '{"later": 1}', "me")
        assert not is_open(at)
        entry = at.service.queues.entries.latest[f"{BREAKER_PREFIX}mail"]
        assert read_open_breaker(entry) is None


async def test_counts_that_cannot_be_published_are_published_later() -> None:
    async with stand() as at:
        await set_queue(at, set={"pause_on_failures": RULE})
        await look(at)
        await at.service.enqueue("mail", [Job(b"")] * 4)
        await at.service.ack("mail", [], acks(await at.dequeue(4)))
        at.stores[0].failures["kv_put"] = [ShardConnectionFailed("cut")] * 9
        await look(at)
        assert not is_open(at)
        at.stores[0].heal()
        await look(at)
        assert is_open(at)
