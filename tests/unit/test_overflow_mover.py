"""Jobs leave an overflow shard for the shards: all of them, as they are, and none is lost however it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields

from pinlater.backends.base import NO_RULES, AckRequest, ClaimRequest, JobKey, PerQueue
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import NothingStored, OutcomeUnknown, QueueNotFound
from pinlater.homes.job_mover import BATCH_JOBS, UNSURE_MS, JobMover
from pinlater.model import AttemptOutcome, DequeuedJob, Job, JobInfo, JobState, parse_descriptor
from pinlater.overflow.store import CLAIMED_BY
from pinlater.service import ClaimTokens
from pinlater.shards.handle import ShardHandle
from pinlater.shards.router import Router
from pinlater.shards.shard_set import ShardSet
from tests.conformance.subject import key_of
from tests.queues import make_queue
from tests.unit.breaking import Breaking, HeldClock

HOUR_MS = 3_600_000
NEVER_MS = 1000 * HOUR_MS


@dataclass
class Move:
    """An overflow shard, one shard that its jobs go to, and the mover between them."""

    kept: Breaking
    shard: Breaking
    member: ShardHandle
    clock: HeldClock
    mover: JobMover
    told: list[tuple[str, int, bool]] = field(default_factory=list)

    async def keep(self, *jobs: Job) -> list[str]:
        descriptors = await self.kept.enqueue("mail", jobs, self.clock.now_ms())
        self.mover.jobs_arrived("mail")
        return descriptors

    async def claimed(self, shard: Breaking, limit: int = 10_000) -> list[DequeuedJob]:
        request = ClaimRequest("test:1:1:1:me", limit, (1, 2, 3), HOUR_MS, 2**40)
        (jobs,) = await shard.claim("mail", [request], self.clock.now_ms())
        return jobs

    async def infos(self, descriptors: list[str], shard: Breaking | None = None) -> list[JobInfo | None]:
        refs = [parse_descriptor(each) for each in descriptors]
        keys = [JobKey(ref.priority, ref.id) for ref in refs if ref is not None]
        return await (shard or self.kept).lookup("mail", keys, with_body=True, max_bytes=2**40)

    async def states(self, descriptors: list[str]) -> set[JobState | None]:
        return {each and each.state for each in await self.infos(descriptors)}

    def mover_anew(self) -> JobMover:
        """As the next process makes it."""
        return _mover(self, 2)


def _mover(move: Move, process: int) -> JobMover:
    names = ClaimTokens(f"{CLAIMED_BY}-S", process, 1)
    router = Router(ShardSet([move.member], move.clock))
    return JobMover(move.kept, router, move.clock, names, lambda *each: move.told.append(each))


@asynccontextmanager
async def moving() -> AsyncIterator[Move]:
    clock = HeldClock()
    kept = Breaking(SqliteShard("sqlite://", "oABCDEFGH01"))
    shard = Breaking(SqliteShard("sqlite://", "1"))
    member = ShardHandle(shard, clock)
    move = Move(kept, shard, member, clock, None)  # type: ignore[arg-type]
    move.mover = _mover(move, 1)
    for each in (kept, shard):
        await each.open()
        await make_queue(each, "mail", clock.now_ms())
    member.readmit()
    try:
        yield move
    finally:
        await kept.close()
        await shard.close()


async def test_jobs_move_as_they_are_and_their_old_descriptors_know_where() -> None:
    async with moving() as move:
        later_ms = move.clock.now_ms() + HOUR_MS
        old = await move.keep(
            Job(b"plain"), Job(b"urgent", priority=2, attempts_allowed=7, custom_status="so far"), Job(b"", 3, later_ms)
        )
        (jobs,) = await move.kept.claim(
            "mail", [ClaimRequest("test:1:1:1:me", 1, (2,), HOUR_MS, 99)], move.clock.now_ms()
        )
        ref = parse_descriptor(jobs[0].descriptor)
        assert ref is not None
        await move.kept.ack("mail", [AckRequest(2, ref.id, False, append_status=", and on")], move.clock.now_ms())
        assert await move.mover.move() == 3
        moved = await move.infos(old)
        assert [each and each.state for each in moved] == [JobState.SUCCEEDED] * 3
        new = [each.moved_to or "" for each in moved if each is not None]
        plain, urgent, later = await move.infos(new, move.shard)
        assert plain is not None
        assert urgent is not None
        assert later is not None
        assert (plain.body, plain.priority, plain.attempts_remaining, plain.custom_status) == (b"plain", 1, 2, "")
        assert (urgent.priority, urgent.attempts_allowed, urgent.attempts_remaining) == (2, 6, 6)
        assert urgent.custom_status == "so far, and on"
        assert (later.body, later.run_after_ms, later.state) == (b"", later_ms, JobState.PENDING)
        assert sorted(move.told) == [("mail", 1, False), ("mail", 2, True)]
        trails = await move.shard.read_trails("mail", [key_of(each) for each in new])
        assert [[(each.number, each.outcome) for each in trail.attempts] for trail in trails if trail] == [
            [],
            [(1, AttemptOutcome.FAILED)],
            [],
        ]
        assert len(await move.claimed(move.shard)) == 2
        assert await move.mover.move() == 0


def test_a_store_tells_every_field_of_a_job_so_that_none_is_lost_when_it_moves() -> None:
    told = {each.name for kind in (DequeuedJob, JobInfo) for each in fields(kind)}
    assert {each.name for each in fields(Job)} - told == set()


async def test_many_jobs_move_in_batches() -> None:
    async with moving() as move:
        await move.keep(*[Job(b"x")] * (2 * BATCH_JOBS + 1))
        assert await move.mover.move() == 2 * BATCH_JOBS + 1
        assert move.shard.begun["enqueue"] == 3
        assert len(await move.claimed(move.shard)) == 2 * BATCH_JOBS + 1


async def test_nothing_is_touched_while_no_shard_takes_jobs() -> None:
    async with moving() as move:
        old = await move.keep(Job(b""))
        move.member.configured_dequeue_only = True
        assert await move.mover.move() == 0
        move.member.configured_dequeue_only = False
        move.member.eject("gone")
        assert await move.mover.move() == 0
        assert move.kept.begun["claim"] == 0
        assert await move.states(old) == {JobState.PENDING}


async def test_what_a_shard_surely_did_not_store_is_requeued_at_once() -> None:
    async with moving() as move:
        old = await move.keep(Job(b""), Job(b""))
        move.shard.failures["enqueue"] = [NothingStored("full")]
        assert await move.mover.move() == 0
        assert await move.states(old) == {JobState.PENDING}
        assert await move.mover.move() == 2


async def test_what_a_shard_may_have_stored_is_moved_again_a_while_later_without_losing_an_attempt() -> None:
    async with moving() as move:
        old = await move.keep(Job(b"", attempts_allowed=1))
        move.shard.losses["enqueue"] = [OutcomeUnknown("cut")]
        assert await move.mover.move() == 0
        assert await move.mover.move() == 0
        assert await move.states(old) == {JobState.IN_PROGRESS}
        move.clock.tick(UNSURE_MS)
        assert await move.mover.move() == 1
        copies = await move.claimed(move.shard)
        assert [each.attempts_remaining for each in copies] == [1, 1], "at least once"


async def test_the_claim_of_the_mover_never_expires() -> None:
    async with moving() as move:
        old = await move.keep(Job(b"", attempts_allowed=1), Job(b"", run_after_ms=move.clock.now_ms() + HOUR_MS))
        move.shard.losses["enqueue"] = [OutcomeUnknown("cut")]
        await move.mover.move()
        move.clock.tick(1000 * NEVER_MS)
        assert not await move.kept.expire_claims(100, move.clock.now_ms(), PerQueue(NO_RULES))
        info = (await move.infos(old))[0]
        assert info is not None
        assert (info.state, info.attempts_remaining, info.crashes) == (JobState.IN_PROGRESS, 1, 0)


async def test_what_could_not_be_marked_as_moved_is_marked_later_and_not_moved_again() -> None:
    async with moving() as move:
        old = await move.keep(Job(b""))
        move.kept.failures["mark_moved"] = [NothingStored("disk full")]
        await move.mover.move()
        assert await move.states(old) == {JobState.IN_PROGRESS}
        await move.mover.move()
        assert await move.states(old) == {JobState.SUCCEEDED}
        assert len(await move.claimed(move.shard)) == 1


async def test_the_next_process_requeues_what_a_mover_that_died_had_claimed() -> None:
    async with moving() as move:
        later_ms = move.clock.now_ms() + HOUR_MS
        old = await move.keep(*[Job(b"")] * 3, Job(b"", 1, later_ms))
        (busy,) = await move.claimed(move.kept, 1)
        move.shard.losses["enqueue"] = [OutcomeUnknown("cut")]
        await move.mover.move()
        move.shard.losses["enqueue"] = [OutcomeUnknown("cut")]
        await move.mover.move()
        heir = move.mover_anew()
        assert await heir.recover(["mail"], lambda claim: claim.startswith(CLAIMED_BY)) == 3
        left = [each for each in old if each != busy.descriptor]
        assert await move.states(left) == {JobState.PENDING}
        assert await move.states([busy.descriptor]) == {JobState.IN_PROGRESS}, "a worker's claim stands"
        assert await heir.move() == 3


async def test_a_queue_that_the_shards_do_not_have_keeps_no_other_one_waiting() -> None:
    async with moving() as move:
        await make_queue(move.kept, "gone", move.clock.now_ms())
        await move.kept.enqueue("gone", [Job(b"")], move.clock.now_ms())
        move.mover.jobs_arrived("gone")
        await move.keep(Job(b""))
        assert await move.mover.move() == 1
        move.kept.failures["claim"] = [QueueNotFound.of("gone")]
        assert await move.mover.move() == 0
