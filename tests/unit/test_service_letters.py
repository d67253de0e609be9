"""One failure in one place, as callers of a service see it: what retries and replays answer, over several shards."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pinlater.cluster.lease import REPLAYED_JOBS
from pinlater.errors import ContinuationInvalid, QueueNotFound
from pinlater.model import Ack, DequeueRequest, Job, JobAction, JobChange, JobInfo, JobState
from pinlater.model.job_selection import FoundJobsChange, JobPhase, JobSelection
from tests.unit.stand import Stand, stand


async def dead_letters(at: Stand, amount: int, queue: str = "mail") -> tuple[list[str], list[JobInfo]]:
    """Jobs that failed for good, and their letters in the queue "dead"."""
    await at.service.queues.change(queue, {"dead_letter_queue": "dead"}, [], False, "me")
    jobs = list(await at.service.enqueue(queue, [Job(b"%d" % number) for number in range(amount)]))
    for job in await at.service.dequeue(DequeueRequest(queue, amount)):
        await at.service.ack(queue, [], [Ack(job.descriptor, permanent=True)])
    for store in at.stores:
        await store.dead_letter(1_000, at.clock.now_ms(), at.service.queues.dead_letter_targets())
    infos = await at.service.lookup(jobs)
    letters = await at.service.lookup([infos[job].moved_to or "" for job in jobs])
    return jobs, [letters[infos[job].moved_to or ""] for job in jobs]


async def fail_letter(at: Stand) -> None:
    (job,) = await at.service.dequeue(DequeueRequest("dead", 1))
    await at.service.ack("dead", [], [Ack(job.descriptor, permanent=True)])


def change(queue: str, action: JobAction, named: Sequence[str] | None = None) -> FoundJobsChange:
    return FoundJobsChange(JobSelection(queue, descriptors=named), action)


async def test_a_retry_says_of_each_job_that_stays_what_its_letter_does() -> None:
    async with stand(2) as at:
        await at.service.create_queue("dead")
        jobs, letters = await dead_letters(at, 4)
        running, done = sorted(await at.service.dequeue(DequeueRequest("dead", 2)), key=lambda job: job.descriptor)
        await at.service.ack("dead", [Ack(done.descriptor)], [])
        at.clock.tick(1)
        answer = await at.service.change_found_jobs(change("mail", JobAction.RETRY))
        job_of = {letter.descriptor: letter.origin for letter in letters}
        assert answer.changed == 2
        assert answer.refusals == {
            job_of[running.descriptor]: f"its dead letter runs now, {running.descriptor}",
            job_of[done.descriptor]: f"its dead letter has succeeded, {done.descriptor}",
        }
        found = await at.service.lookup(jobs)
        assert sum(info.state is JobState.PENDING for info in found.values()) == 2
        assert (await at.service.change_found_jobs(change("dead", JobAction.REPLAY))).changed == 0


async def test_no_retry_takes_a_job_whose_letter_was_replayed() -> None:
    async with stand(2) as at:
        await at.service.create_queue("dead")
        jobs, _ = await dead_letters(at, 3)
        await fail_letter(at)
        at.clock.tick(1)
        failed = await at.service.change_jobs(JobChange("dead", JobAction.REPLAY, JobState.FAILED))
        rest = await at.service.change_found_jobs(change("dead", JobAction.REPLAY))
        assert (failed.changed, rest.changed) == (1, 2)
        for named in (None, jobs):
            assert (await at.service.change_found_jobs(change("mail", JobAction.RETRY, named))).changed == 0
        assert await at.service.retry_failed("mail", limit=100) == 0
        found = await at.service.search_jobs(JobSelection("mail", (JobPhase.REPLAYED,)))
        new = await at.service.lookup([job.replayed_to or "" for job in found.jobs])
        assert sorted(job.descriptor for job in found.jobs) == sorted(jobs)
        assert sorted(job.state for job in new.values()) == [JobState.PENDING] * 3
        assert (await at.service.search_jobs(JobSelection("mail", (JobPhase.FAILED, JobPhase.CANCELLED)))).jobs == []


async def test_letters_are_found_and_sent_back_by_the_queue_that_they_came_from() -> None:
    async with stand(2) as at:
        for name in ("dead", "sms"):
            await at.service.create_queue(name)
        jobs, _ = await dead_letters(at, 3)
        await dead_letters(at, 2, "sms")
        await at.service.enqueue("dead", [Job(b"no letter")])
        at.clock.tick(1)
        of_mail = JobSelection("dead", origin_queue="mail")
        found = await at.service.search_jobs(of_mail)
        assert sorted(job.origin or "" for job in found.jobs) == sorted(jobs)
        dry = await at.service.change_found_jobs(FoundJobsChange(of_mail, JobAction.REPLAY, dry_run=True))
        done = await at.service.change_found_jobs(FoundJobsChange(of_mail, JobAction.REPLAY))
        assert (dry.changed, done.changed) == (3, 3)
        assert sum(job.origin is not None for job in (await at.service.search_jobs(JobSelection("dead"))).jobs) == 2
        assert (await at.service.search_jobs(JobSelection("dead", origin_queue=""))).jobs == []
        with pytest.raises(QueueNotFound):
            await at.service.search_jobs(JobSelection("dead", origin_queue="no queue"))


async def test_a_continuation_for_the_letters_of_one_queue_is_not_good_for_those_of_another() -> None:
    async with stand(1) as at:
        for name in ("dead", "sms"):
            await at.service.create_queue(name)
        await dead_letters(at, 3)
        page = await at.service.search_jobs(JobSelection("dead", origin_queue="mail"), limit=1)
        with pytest.raises(ContinuationInvalid):
            await at.service.search_jobs(
                JobSelection("dead", origin_queue="sms"), limit=1, continuation=page.continuation
            )


async def test_while_an_older_server_lives_a_replay_leaves_the_job_as_it_is() -> None:
    asked = []

    def unaware_of(feature: str) -> Sequence[str]:
        asked.append(feature)
        return ["s2/1"]

    async with stand(1, unaware_of=unaware_of) as at:
        await at.service.create_queue("dead")
        jobs, _ = await dead_letters(at, 1)
        at.clock.tick(1)
        assert (await at.service.change_found_jobs(change("dead", JobAction.REPLAY))).changed == 1
        info = (await at.service.lookup(jobs))[jobs[0]]
        assert (info.state, info.replayed_to) == (JobState.FAILED, None)
        assert info.moved_to is not None
        assert set(asked) == {REPLAYED_JOBS}
