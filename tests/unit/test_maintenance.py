"""What runs in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from pinlater.errors import NothingStored
from pinlater.maintenance import Every, Maintenance, MaintenanceSettings
from pinlater.model import Ack, Job, JobFilter, JobState
from tests.unit.stand import Stand, acks, stand

PENDING = JobFilter("mail", JobState.PENDING)
FAST = 10


@dataclass
class Woken:
    """What the long polls were told."""

    queues: list[tuple[str, int]] = field(default_factory=list)

    def __call__(self, queue: str, jobs: int) -> None:
        self.queues.append((queue, jobs))


def maintenance(at: Stand, woken: Woken, **settings: int) -> Maintenance:
    return Maintenance(at.members, at.clock, MaintenanceSettings(**settings), woken)


@asynccontextmanager
async def running(at: Stand, **settings: int) -> AsyncIterator[Maintenance]:
    background = Maintenance(at.members, at.clock, MaintenanceSettings(interval_ms=FAST, **settings), at.service.wake)
    background.start()
    try:
        yield background
    finally:
        await background.close()
        await background.close()


async def test_expired_claims_go_back_in_steps_until_none_is_left_and_the_long_polls_hear_of_it() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x")] * 7)
        assert len(await at.dequeue()) == 7
        at.clock.tick(300_001)
        woken = Woken()
        await maintenance(at, woken, step_limit=3).expire(at.members.all[0])
        assert await at.service.count(PENDING) == 7
        assert sum(jobs for _, jobs in woken.queues) == 7
        assert at.stores[0].begun["expire_claims"] == 4


async def test_the_crash_budget_is_applied() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x", attempts_allowed=9)])
        await at.dequeue()
        at.clock.tick(300_001)
        await maintenance(at, Woken(), crash_budget=1).expire(at.members.all[0])
        assert await at.service.count(JobFilter("mail", JobState.FAILED)) == 1


async def test_ended_jobs_are_removed_when_their_time_is_over_each_state_by_its_own() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x"), Job(b"y")])
        good, bad = await at.dequeue()
        await at.service.ack("mail", acks([good]), [Ack(bad.descriptor, permanent=True)])
        at.clock.tick(1_001)
        task = maintenance(at, Woken(), succeeded_ttl_ms=1_000, failed_ttl_ms=2_000)
        await task.collect(at.members.all[0])
        assert await at.service.count(JobFilter("mail", JobState.SUCCEEDED)) == 0
        assert await at.service.count(JobFilter("mail", JobState.FAILED)) == 1


async def test_nothing_due_costs_one_call() -> None:
    async with stand() as at:
        await maintenance(at, Woken()).expire(at.members.all[0])
        assert at.stores[0].begun["expire_claims"] == 1


async def test_a_shard_that_is_out_is_left_alone() -> None:
    async with stand(2) as at:
        at.members.all[0].health.trip(at.clock.now_ms())
        for member in at.members.all:
            await maintenance(at, Woken()).expire(member)
        assert [store.begun["expire_claims"] for store in at.stores] == [0, 1]


async def test_a_shard_whose_clock_disagrees_is_left_alone_and_the_server_is_not_ready() -> None:
    async with stand(2) as at:
        background = maintenance(at, Woken(), clock_tolerance_ms=1_000)
        at.members.all[0].skew_ms = -1_000
        at.members.all[1].skew_ms = 0
        assert background.clocks_agree()
        at.members.all[0].skew_ms = -1_001
        assert not background.clocks_agree()
        await background.expire(at.members.all[0])
        await background.collect(at.members.all[0])
        assert at.stores[0].begun["expire_claims"] == at.stores[0].begun["collect"] == 0
        at.members.all[0].skew_ms = 0
        assert background.clocks_agree()
        await background.expire(at.members.all[0])
        assert at.stores[0].begun["expire_claims"] == 1


async def test_the_schedule_runs_both_tasks_on_every_shard_again_and_again() -> None:
    async with stand(2) as at, running(at):
        for store in at.stores:
            await store.until_begun("expire_claims", 3)
            await store.until_begun("collect", 3)


async def test_a_clock_that_is_set_back_does_not_stop_the_schedule() -> None:
    async with stand() as at, running(at) as background:
        assert background._scheduler is not None
        for job in background._scheduler.get_jobs():
            job.modify(next_run_time=datetime.now(UTC) + timedelta(hours=1))
        begun = at.stores[0].begun["expire_claims"]
        await asyncio.wait_for(at.stores[0].until_begun("expire_claims", begun + 3), 5)


def test_runs_that_a_leap_of_the_clock_left_out_are_not_made_up_for() -> None:
    second = timedelta(seconds=1)
    now = datetime.now(UTC)
    assert Every(second).get_next_fire_time(now - timedelta(days=7), now) == now + second


async def test_an_error_of_a_shard_does_not_stop_the_schedule() -> None:
    async with stand() as at:
        at.stores[0].failures["expire_claims"] = [NothingStored("refused"), ValueError("a surprise")]
        async with running(at):
            await at.stores[0].until_begun("expire_claims", 4)


async def test_an_expired_claim_ends_a_wait() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x", attempts_allowed=9)])
        await at.dequeue()
        waiting = asyncio.create_task(at.dequeue(wait_ms=60_000))
        at.clock.tick(300_001)
        async with running(at):
            (job,) = await asyncio.wait_for(waiting, 5)
            assert job.attempts_remaining == 8


async def test_a_step_that_takes_long_is_not_begun_twice_nor_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async with stand() as at:
        gate = at.stores[0].hold("expire_claims")
        async with running(at):
            await at.stores[0].until_begun("collect", 5)
            gate.set()
        assert at.stores[0].begun["expire_claims"] == 1
        assert caplog.records == []


async def test_closing_waits_for_the_step_under_way() -> None:
    async with stand() as at:
        gate = at.stores[0].hold("expire_claims")
        async with running(at) as background:
            await at.stores[0].until_begun("expire_claims")
            closing = asyncio.create_task(background.close())
            for _ in range(5):
                await asyncio.sleep(0)
            assert not closing.done()
            gate.set()
            await closing
            assert at.stores[0].begun["expire_claims"] == 1
