"""One process with an overflow shard: what no shard takes is kept, answers, is handed out, and moves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pinlater.errors import (
    DequeueRateLimited,
    EnqueueRejected,
    NoHealthyShards,
    NothingStored,
    OutcomeUnknown,
    QueueNotFound,
    RequestInvalid,
    ShardConnectionFailed,
)
from pinlater.homes.job_mover import BATCH_JOBS
from pinlater.model import Ack, AckOutcome, CancelOutcome, Checkpoint, DequeuedJobs, Job, JobState
from pinlater.overflow.descriptors import overflow_of
from pinlater.overflow.store import OVERFLOW_FULL
from pinlater.service import ServiceSettings
from pinlater.wire.methods import METHODS
from tests.unit.breaking import settled
from tests.unit.overflow_stand import ME, Process, process

HOUR_MS = 3_600_000
OF_NOBODY = "mail:so0123456789:p1:1790000000000000"


async def kept_jobs(it: Process, *jobs: Job) -> list[str]:
    """Jobs that came while the shards were out; they still are."""
    it.lose_shards()
    return await it.api.enqueue("mail", jobs or [Job(b"x")], context=ME)


async def set_queue(it: Process, **settings: str) -> None:
    await it.queues.change("mail", settings, [], False, "me")


# -- taking ------------------------------------------------------------------------------------------------------------


async def test_with_shards_all_is_as_without(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        descriptors = await it.api.enqueue("mail", [Job(b"a"), Job(b"b")], context=ME)
        assert [overflow_of(each) for each in descriptors] == [None, None]
        jobs = await it.dequeue()
        await it.api.checkpoint("mail", [Checkpoint(jobs[0].descriptor)], context=ME)
        await it.api.requeue(jobs[1:])
        await it.api.ack("mail", [Ack(jobs[0].descriptor)], [], context=ME)
        found = await it.api.lookup(descriptors)
        assert {each.state for each in found.values()} == {JobState.SUCCEEDED, JobState.PENDING}
        assert await it.api.queue_names() == {"mail"}
        assert not it.kept.mover.holding


async def test_what_no_shard_takes_is_kept_and_answers(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        (descriptor,) = await kept_jobs(it, Job(b"body", 2, custom_status="new"))
        assert overflow_of(descriptor) == it.overflow.id
        info = (await it.api.lookup([descriptor], include_body=True))[descriptor]
        assert (info.state, info.body, info.priority, info.custom_status) == (JobState.PENDING, b"body", 2, "new")
        await it.kept.count_jobs()
        assert it.overflow.describe()["overflow_jobs"] == 1
        assert it.metrics.counters["overflow_jobs_taken", "mail"] == 1
        assert it.metrics.gauges["overflow_jobs",] == 1


async def test_a_shard_that_surely_stored_nothing_is_enough(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        it.stores[0].failures["enqueue"] = [NothingStored("disk full")]
        (descriptor,) = await it.api.enqueue("mail", [Job(b"")], context=ME)
        assert overflow_of(descriptor)


async def test_after_an_unknown_outcome_nothing_is_kept(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        it.stores[0].losses["enqueue"] = [OutcomeUnknown("cut")]
        with pytest.raises(OutcomeUnknown):
            await it.api.enqueue("mail", [Job(b"")], context=ME)
        assert not it.kept.mover.holding


async def test_what_is_wrong_with_a_request_is_refused_as_ever(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await set_queue(it, max_attempts="3")
        with pytest.raises(QueueNotFound):
            await it.api.enqueue("other", [Job(b"")], context=ME)
        it.lose_shards()
        with pytest.raises(RequestInvalid):
            await it.api.enqueue("mail", [Job(b"", attempts_allowed=4)], context=ME)
        with pytest.raises(NoHealthyShards, match="other"):
            await it.api.enqueue("other", [Job(b"")], context=ME)


async def test_a_bound_on_pending_jobs_counts_as_far_as_it_is_known(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await set_queue(it, max_pending="2")
        await kept_jobs(it, Job(b""), Job(b""))
        with pytest.raises(EnqueueRejected):
            await it.api.enqueue("mail", [Job(b"")] * 3, context=ME)


async def test_what_has_moved_is_pending_here_no_more(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await set_queue(it, max_pending="2")
        for _ in range(3):
            await kept_jobs(it, Job(b""), Job(b""))
            await it.find_shards()
            await it.overflow.move()
            await it.kept.tidy()
            assert len(await it.dequeue()) == 2


async def test_beyond_the_bound_jobs_are_refused_with_the_figures(tmp_path: Path) -> None:
    async with process(tmp_path, bound=400_000) as it:
        with pytest.raises(EnqueueRejected, match="allowed: 400000") as refused:
            await kept_jobs(it, Job(bytes(390_000)))
        assert refused.value.reason == OVERFLOW_FULL
        assert it.metrics.counters["limits_hit", "overflow_full"] == 1
        assert await it.api.enqueue("mail", [Job(bytes(1000))], context=ME)


async def test_without_a_bound_nothing_is_kept_and_no_file_is_made(tmp_path: Path) -> None:
    async with process(tmp_path, bound=0) as it:
        assert not it.overflow.is_owner
        assert it.overflow.describe() == {}
        it.lose_shards()
        with pytest.raises(NoHealthyShards):
            await it.api.enqueue("mail", [Job(b"")], context=ME)
        with pytest.raises(NoHealthyShards):
            await it.dequeue()
        assert not (tmp_path / "overflow.db").exists()


async def test_a_queue_that_came_later_is_known_when_it_is_needed(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await kept_jobs(it)
        await it.find_shards()
        await it.api.create_queue("later")
        it.lose_shards()
        it.kept.synced_s -= 2
        assert await it.api.enqueue("later", [Job(b"")], context=ME)


# -- handing out -------------------------------------------------------------------------------------------------------


async def test_while_no_shard_is_left_its_jobs_are_handed_out_and_acked(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        descriptors = await kept_jobs(it, Job(b"a"), Job(b"b"))
        assert [job.body for job in await it.dequeue(dry_run=True)] == [b"a", b"b"]
        (first,) = await it.dequeue(1)
        await it.api.checkpoint(
            "mail", [Checkpoint(first.descriptor, prepend_status="at work", claim_descriptor=first.claim_descriptor)]
        )
        (second,) = await it.dequeue(1, succeeded=[Ack(first.descriptor, claim_descriptor=first.claim_descriptor)])
        await it.api.requeue([second])
        found = await it.api.lookup(descriptors)
        assert [found[each].state for each in descriptors] == [JobState.SUCCEEDED, JobState.PENDING]
        assert found[descriptors[0]].custom_status == "at work"
        assert found[descriptors[1]].attempts_remaining == 2


async def test_with_nothing_kept_a_dequeue_says_that_there_are_no_shards(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        it.lose_shards()
        with pytest.raises(NoHealthyShards):
            await it.dequeue()
        with pytest.raises(NoHealthyShards):
            await it.dequeue(wait_ms=30)


async def test_a_long_poll_waits_at_the_overflow_shard(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        it.lose_shards()
        poll = asyncio.ensure_future(it.dequeue(wait_ms=20_000))
        await settled()
        await it.api.enqueue("mail", [Job(b"x")], context=ME)
        assert [job.body for job in await asyncio.wait_for(poll, 60)] == [b"x"]


async def test_a_long_poll_that_began_before_gets_jobs_when_its_time_is_over(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        poll = asyncio.ensure_future(it.dequeue(wait_ms=200))
        await settled()
        await kept_jobs(it)
        assert len(await asyncio.wait_for(poll, 60)) == 1


async def test_a_long_poll_ends_with_its_process(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        it.lose_shards()
        poll = asyncio.ensure_future(it.dequeue(wait_ms=50_000))
        await settled()
        it.api.start_draining()
        assert await asyncio.wait_for(poll, 60) == []


async def test_a_long_poll_goes_back_to_the_shards(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        it.lose_shards()
        poll = asyncio.ensure_future(it.dequeue(wait_ms=20_000))
        await settled()
        await it.find_shards()
        await it.service.enqueue("mail", [Job(b"there")])
        assert [job.body for job in await asyncio.wait_for(poll, 60)] == [b"there"]


@pytest.mark.parametrize("settings", [{"max_jobs_per_second": "100/s"}, {"max_in_progress": "5"}])
async def test_a_queue_with_a_limit_is_not_handed_out(tmp_path: Path, settings: dict[str, str]) -> None:
    async with process(tmp_path) as it:
        await set_queue(it, **settings)
        await kept_jobs(it)
        for wait_ms in (0, 20_000):
            with pytest.raises(NoHealthyShards):
                await it.dequeue(wait_ms=wait_ms)
        assert it.kept.mover.holding


async def test_a_paused_queue_is_not_handed_out(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await set_queue(it, paused="true")
        await kept_jobs(it)
        for wait_ms in (0, 20_000):
            with pytest.raises(DequeueRateLimited):
                await it.dequeue(wait_ms=wait_ms)
        await it.find_shards()
        await it.overflow.move()
        assert it.kept.waiting == 0, "a pause is not in the way of moving"


async def test_a_queue_with_a_paused_group_is_not_handed_out(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await it.service.queues.change_group("mail", "acme", {"paused": "true"}, [], "me")
        await kept_jobs(it)
        with pytest.raises(NoHealthyShards):
            await it.dequeue()


# -- riding acks -------------------------------------------------------------------------------------------------------


async def test_riding_acks_find_their_owners_whoever_hands_out_next(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        (there,) = await it.api.enqueue("mail", [Job(b"there")], context=ME)
        (on_shard,) = await it.dequeue()
        (here,) = await kept_jobs(it)
        (ours,) = await it.dequeue()
        await it.find_shards()
        acks = [Ack(on_shard.descriptor), Ack(ours.descriptor)]
        assert await it.dequeue(succeeded=acks) == []
        found = await it.api.lookup([here, there])
        assert {each.state for each in found.values()} == {JobState.SUCCEEDED}


async def test_an_invalid_dequeue_carries_out_its_riding_acks(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        (here,) = await kept_jobs(it)
        (job,) = await it.dequeue()
        with pytest.raises(RequestInvalid) as refused:
            await it.dequeue(0, succeeded=[Ack(job.descriptor)])
        assert refused.value.acks_applied is True
        assert (await it.api.lookup([here]))[here].state is JobState.SUCCEEDED


async def test_an_invalid_ack_keeps_no_other_from_being_carried_out_and_nothing_is_handed_out(tmp_path: Path) -> None:
    """Wherever it stands: the valid ones are for a shard and for the overflow shard."""
    async with process(tmp_path) as it:
        for invalid in ("no descriptor", "no descriptor:so", None):
            (there,) = await it.api.enqueue("mail", [Job(b"")], context=ME)
            (on_shard,) = await it.dequeue()
            here, more = await kept_jobs(it, Job(b"1"), Job(b"2"))
            (ours,) = await it.dequeue(1)
            await it.find_shards()
            bad = Ack(invalid) if invalid else Ack(OF_NOBODY.replace("o0123456789", it.overflow.id), "", 2**53)
            with pytest.raises(RequestInvalid, match=r"^1 of \d acks were not carried out") as refused:
                await it.dequeue(
                    succeeded=[Ack(ours.descriptor)], failed=[bad, Ack(on_shard.descriptor, permanent=True)]
                )
            assert refused.value.acks_applied is True
            found = await it.api.lookup([here, there, more])
            assert {found[ours.descriptor].state, found[there].state} == {JobState.SUCCEEDED, JobState.FAILED}
            assert JobState.IN_PROGRESS not in {info.state for info in found.values()}
            await it.api.cancel("mail", [here, more], context=ME)


async def test_acks_that_ride_for_both_say_what_became_of_each_in_their_order(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await it.api.enqueue("mail", [Job(b"")], context=ME)
        (there,) = await it.dequeue()
        await kept_jobs(it)
        (here,) = await it.dequeue()
        await it.find_shards()
        gone, ours, theirs = Ack(OF_NOBODY[:-1] + "1"), Ack(here.descriptor), Ack(there.descriptor)
        gone.descriptor = gone.descriptor.replace("o0123456789", it.overflow.id)
        jobs = await it.dequeue(succeeded=[ours, gone], failed=[theirs, ours])
        outcomes = [AckOutcome.SUCCEEDED, AckOutcome.IGNORED, AckOutcome.RETRIED, AckOutcome.IGNORED]
        assert isinstance(jobs, DequeuedJobs)
        assert jobs.ack_outcomes == outcomes
        assert [job.descriptor for job in jobs] == [there.descriptor]
        assert await it.api.ack("mail", [gone, theirs, ours], [], context=ME) == [
            AckOutcome.IGNORED,
            AckOutcome.SUCCEEDED,
            AckOutcome.IGNORED,
        ]


async def test_an_invalid_checkpoint_keeps_no_other_from_being_carried_out(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await it.api.enqueue("mail", [Job(b"")], context=ME)
        (there,) = await it.dequeue()
        await kept_jobs(it)
        (here,) = await it.dequeue()
        await it.find_shards()
        beats = [Checkpoint(each.descriptor, prepend_status="beat") for each in (here, there)]
        with pytest.raises(RequestInvalid, match="1 of 2 checkpoints"):
            await it.api.checkpoint("mail", [Checkpoint("none"), *beats], context=ME)
        found = await it.api.lookup([here.descriptor, there.descriptor])
        assert [info.custom_status for info in found.values()] == ["beat", "beat"]


async def test_riding_acks_are_carried_out_although_nothing_is_left_to_hand_out(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        (here,) = await kept_jobs(it)
        (job,) = await it.dequeue()
        with pytest.raises(NoHealthyShards) as refused:
            await it.dequeue(succeeded=[Ack(job.descriptor)])
        assert refused.value.acks_applied is True
        assert (await it.api.lookup([here]))[here].state is JobState.SUCCEEDED


async def test_an_ack_that_needs_a_shard_that_is_out_is_an_error_after_the_others(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await it.api.enqueue("mail", [Job(b"")], context=ME)
        (there,) = await it.dequeue()
        (here,) = await kept_jobs(it)
        (job,) = await it.dequeue()
        with pytest.raises((ShardConnectionFailed, NoHealthyShards)) as refused:
            await it.dequeue(succeeded=[Ack(there.descriptor), Ack(job.descriptor)])
        assert refused.value.acks_applied is False
        assert (await it.api.lookup([here]))[here].state is JobState.SUCCEEDED


# -- moving ------------------------------------------------------------------------------------------------------------


async def test_when_shards_are_back_jobs_move_and_are_answered_where_they_are(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        old = await kept_jobs(it, Job(b"now"), Job(b"later", run_after_ms=it.clock.now_ms() + HOUR_MS))
        await it.overflow.move()
        assert it.kept.mover.holding, "no shard is back yet"
        await it.find_shards()
        await it.overflow.move()
        assert not it.kept.mover.holding
        assert it.metrics.counters["overflow_jobs_moved", "mail"] == 2
        found = await it.api.lookup(old, include_body=True)
        assert [found[each].body for each in old] == [b"now", b"later"]
        assert {each.state for each in found.values()} == {JobState.PENDING}
        assert [each.descriptor for each in found.values()] == old
        new = [each.moved_to or "" for each in found.values()]
        assert [overflow_of(each) for each in new] == [None, None]
        (job,) = await it.dequeue()
        assert job.descriptor == new[0]
        await it.api.ack("mail", [Ack(job.descriptor, append_status="done")], [])
        info = (await it.api.lookup(old[:1]))[old[0]]
        assert (info.state, info.custom_status) == (JobState.SUCCEEDED, "done")


async def test_a_long_poll_at_the_shards_is_woken_by_what_moves_there(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await kept_jobs(it)
        await it.find_shards()
        poll = asyncio.ensure_future(it.dequeue(wait_ms=20_000))
        await settled()
        await it.overflow.move()
        assert len(await asyncio.wait_for(poll, 60)) == 1


async def test_a_job_that_moved_is_cancelled_where_it_is(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        old = await kept_jobs(it, Job(b"a"), Job(b"b"), Job(b"c"))
        (ended,) = await it.dequeue(1)
        await it.api.ack("mail", [Ack(ended.descriptor)], [])
        assert await it.api.cancel("mail", old[1:2]) == {old[1]: CancelOutcome.CANCELLED}
        await it.find_shards()
        await it.overflow.move()
        outcomes = await it.api.cancel("mail", [*old, "nonsense"], context=ME)
        assert dict(outcomes) == {
            old[0]: CancelOutcome.ENDED,
            old[1]: CancelOutcome.NOT_FOUND,
            old[2]: CancelOutcome.CANCELLED,
            "nonsense": CancelOutcome.NOT_FOUND,
        }
        assert await it.dequeue() == []
        assert (await it.api.lookup(old[2:]))[old[2]].moved_to, "the copy is gone: what the overflow shard knows"


async def test_a_moved_job_whose_shard_is_out_cannot_be_looked_up_now(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        old = await kept_jobs(it)
        await it.find_shards()
        await it.overflow.move()
        it.lose_shards()
        with pytest.raises((ShardConnectionFailed, NoHealthyShards)):
            await it.api.lookup(old)


async def test_what_moved_answers_for_an_hour_at_least_and_is_then_pruned(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await set_queue(it, succeeded_ttl="0s")
        old = await kept_jobs(it)
        await it.find_shards()
        await it.overflow.move()
        it.clock.tick(HOUR_MS)
        await it.overflow.tidy()
        assert await it.api.lookup(old)
        it.clock.tick(1)
        await it.overflow.tidy()
        assert await it.api.lookup(old) == {}


async def test_claims_on_the_overflow_shard_expire_and_the_job_moves(tmp_path: Path) -> None:
    async with process(tmp_path, settings=ServiceSettings(claim_timeout_ms=1000)) as it:
        (old,) = await kept_jobs(it)
        assert await it.dequeue(claim_timeout_ms=1000)
        it.clock.tick(1010)
        await it.overflow.tidy()
        await it.find_shards()
        await it.overflow.move()
        info = (await it.api.lookup([old]))[old]
        assert (info.state, info.attempts_remaining) == (JobState.PENDING, 1)
        assert "claim expired" in info.custom_status


async def test_a_dead_letter_is_copied_here_and_moves_to_its_queue(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await it.api.create_queue("dead")
        await set_queue(it, dead_letter_queue="dead")
        (old,) = await kept_jobs(it)
        (job,) = await it.dequeue()
        await it.api.ack("mail", [], [Ack(job.descriptor, permanent=True)])
        it.kept.synced_s -= 2
        await it.overflow.tidy()
        assert (await it.api.lookup([old]))[old].state is JobState.FAILED
        await it.find_shards()
        await it.overflow.move()
        (letter,) = await it.dequeue(queue="dead")
        assert overflow_of(letter.descriptor) is None


async def test_jobs_of_a_queue_that_is_deleted_meanwhile_are_gone(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        old = await kept_jobs(it)
        await it.find_shards()
        await it.queues.delete("mail", "me")
        it.kept.synced_s -= 2
        await it.overflow.tidy()
        assert await it.api.lookup(old) == {}
        assert not it.kept.mover.holding


# -- the end, and after ------------------------------------------------------------------------------------------------


async def test_at_the_end_jobs_move_or_it_is_said_how_many_are_left(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with process(tmp_path) as it:
            await kept_jobs(it, Job(b""), Job(b""), Job(b""))
            assert len(await it.dequeue(1)) == 1
            it.api.start_draining()
            await it.overflow.drain(5)
    (left,) = [each for each in logs if each["event"] == "overflow_left"]
    assert (left["jobs"], left["in_progress"], left["log_level"]) == (2, 1, "warning")
    assert left["file"] == str(tmp_path / "overflow.db")
    assert not (tmp_path / "overflow.json").exists()
    with capture_logs() as logs:
        async with process(tmp_path, bound=0) as it:
            assert it.overflow.is_owner, "the file is there, though nothing is taken any more"
            await it.overflow.drain(5)
            assert len(await it.dequeue()) == 2
    (left,) = [each for each in logs if each["event"] == "overflow_left"]
    assert (left["jobs"], left["in_progress"]) == (0, 1)


async def test_a_move_that_takes_too_long_ends_with_the_batch_that_is_under_way(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with process(tmp_path) as it:
            await kept_jobs(it, *[Job(b"")] * (2 * BATCH_JOBS))
            await it.find_shards()
            gate = it.stores[0].hold("enqueue")
            moving = asyncio.ensure_future(it.overflow.move())
            await it.stores[0].until_begun("enqueue")
            await it.overflow.drain(0.01)
            gate.set()
            await moving
    assert [each["event"] for each in logs].count("overflow_drain_not_ended") == 1
    assert [each["jobs"] for each in logs if each["event"] == "overflow_left"] == [BATCH_JOBS]


async def test_after_a_restart_without_shards_its_queues_and_jobs_are_known(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await set_queue(it, max_attempts="3")
        old = await kept_jobs(it)
        await it.kept.sync()
    async with process(tmp_path, queue="") as it:
        it.lose_shards()
        assert it.queues.settings("mail").max_attempts == 3
        assert list(await it.api.lookup(old)) == old
        assert len(await it.dequeue()) == 1
        assert await it.api.enqueue("mail", [Job(b"more")], context=ME)


async def test_a_file_of_another_server_is_left_alone(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        await kept_jobs(it)
    (tmp_path / "server.json").write_text('{"server": "0123456789"}')
    with capture_logs() as logs:
        async with process(tmp_path) as it:
            assert not it.overflow.is_owner
            await it.overflow.look()
            it.lose_shards()
            with pytest.raises(NoHealthyShards):
                await it.api.enqueue("mail", [Job(b"")], context=ME)
    assert [each["event"] for each in logs].count("overflow_not_opened") == 1


async def test_a_job_of_a_server_that_nobody_knows_is_an_error_and_not_lost(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        (there,) = await it.api.enqueue("mail", [Job(b"")], context=ME)
        await it.dequeue()
        with pytest.raises(ShardConnectionFailed, match="server 0123456789"):
            await it.api.ack("mail", [Ack(there), Ack(OF_NOBODY)], [], context=ME)
        assert (await it.api.lookup([there]))[there].state is JobState.SUCCEEDED, "the others are done first"


async def test_acks_in_slices_of_which_the_last_names_an_overflow_shard_are_each_told_once(tmp_path: Path) -> None:
    async with process(tmp_path, settings=ServiceSettings(max_jobs=2)) as it:
        there = [(await it.api.enqueue("mail", [Job(b"")], context=ME))[0] for _ in range(3)]
        jobs = [job for _ in range(3) for job in await it.dequeue(limit=1)]
        it.lose_shards()
        (here,) = await it.api.enqueue("mail", [Job(b"")], context=ME)
        (ours,) = await it.dequeue()
        await it.find_shards()
        assert sorted(job.descriptor for job in jobs) == sorted(there)
        acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in [*jobs, ours]]
        assert await it.api.ack("mail", acks, [], context=ME) == [AckOutcome.SUCCEEDED] * 4
        assert (await it.api.lookup([here]))[here].state is JobState.SUCCEEDED


async def test_its_owner_answers_every_call_of_the_interface(tmp_path: Path) -> None:
    async with process(tmp_path) as it:
        assert {method.api_name for method in METHODS.values()} <= set(dir(it.kept.api))
        assert await it.kept.api.queue_names() == {"mail"}
        await it.kept.api.create_queue("more")
        assert await it.api.queue_names() == {"mail", "more"}
