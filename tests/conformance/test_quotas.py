"""Shares: how many jobs of a queue may be in progress on one shard."""

from __future__ import annotations

from functools import partial

from pinlater.backends.base import Quota
from pinlater.model import Job, JobState
from tests.conformance.crowd import Crowd, at_once, settled
from tests.conformance.subject import Subject
from tests.queues import drop_queue, make_queue


async def test_a_queue_without_a_quota_hands_out_nothing_to_a_capped_claim(subject: Subject) -> None:
    await subject.job()
    assert await subject.quota() == Quota(0, 0, 0)
    assert await subject.claim_within_quota(5) == []
    assert await subject.count(JobState.PENDING) == 1


async def test_a_claim_that_is_not_capped_does_not_ask_for_the_quota(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"")] * 5)
    await subject.quota(1, 1)
    assert len(await subject.claim(4)) == 4
    assert await subject.quota() == Quota(1, 1, 4)
    assert await subject.claim_within_quota(5) == []


async def test_capped_claims_go_up_to_the_quota_and_no_further(subject: Subject) -> None:
    descriptors = await subject.enqueue(*[Job(b"")] * 10)
    assert await subject.quota(4, 1) == Quota(4, 1, 0)
    assert len(await subject.claim_within_quota(3)) == 3
    assert [job.descriptor for job in await subject.claim_within_quota(3)] == descriptors[3:4]
    assert await subject.claim_within_quota(3) == []
    assert await subject.quota() == Quota(4, 1, 4)


async def test_the_requests_of_a_call_share_the_room_in_their_order(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"", 1 + number % 3) for number in range(9)])
    await subject.quota(5, 1)
    requests = [subject.request(2, priorities=(3,)), subject.request(2), subject.request(9), subject.request(1)]
    answers = await subject.shard.claim(subject.queue, requests, subject.now_ms, enforce_quota=True)
    assert [[job.priority for job in jobs] for jobs in answers] == [[3, 3], [1, 1], [1], []]
    assert await subject.count(JobState.IN_PROGRESS) == 5


async def test_jobs_of_every_priority_count_for_the_one_quota(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"", priority) for priority in (1, 2, 3) for _ in range(2)])
    await subject.quota(3, 1)
    assert len(await subject.claim_within_quota(2, priorities=(3,))) == 2
    assert len(await subject.claim_within_quota(9, priorities=(2,))) == 1
    assert await subject.claim_within_quota(9, priorities=(1,)) == []


async def test_whatever_ends_a_claim_makes_room(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"", attempts_allowed=9) for _ in range(12)])
    await subject.quota(7, 1)
    jobs = await subject.claim_within_quota(9, timeout_ms=10)
    acked, failed, given_back, released, moved_back, moved, _ = jobs
    await subject.succeed(acked.descriptor)
    await subject.fail(failed.descriptor)
    await subject.requeue(given_back)
    await subject.expire_disconnected(released)
    await subject.checkpoint(moved_back.descriptor, move_to_pending=True)
    await subject.move(moved, "mail:s9:p1:1790000000000000")
    assert (await subject.quota()).in_progress == 1
    subject.tick(11)
    assert len(await subject.claim_within_quota(9)) == 6
    await subject.expire()
    assert len(await subject.claim_within_quota(9)) == 1
    assert await subject.delete(JobState.IN_PROGRESS) == 7
    assert await subject.quota() == Quota(7, 1, 0)


async def test_a_claim_that_expired_counts_until_it_is_expired_in_the_store(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"")] * 2)
    await subject.quota(1, 1)
    assert len(await subject.claim_within_quota(1, timeout_ms=10)) == 1
    subject.tick(1_000)
    assert await subject.claim_within_quota(1) == []
    await subject.expire()
    assert len(await subject.claim_within_quota(1)) == 1


async def test_an_older_version_is_ignored_and_version_zero_only_reads(subject: Subject) -> None:
    assert await subject.quota(5, 3) == Quota(5, 3, 0)
    for version in (0, 1, 2, 3):
        assert await subject.quota(9, version) == Quota(5, 3, 0)
    assert await subject.quota(2, 4) == Quota(2, 4, 0)


async def test_a_smaller_quota_takes_no_claim_away_and_lets_no_new_one_in(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"")] * 10)
    await subject.quota(6, 1)
    jobs = await subject.claim_within_quota(4)
    assert await subject.quota(5, 2) == Quota(5, 2, 4)
    assert await subject.quota(1, 3) == Quota(1, 3, 4)
    await subject.ack_all([job.descriptor for job in jobs[:3]])
    assert await subject.claim_within_quota(9) == []
    await subject.succeed(jobs[3].descriptor)
    assert len(await subject.claim_within_quota(9)) == 1


async def test_quotas_of_queues_are_apart(subject: Subject) -> None:
    other = await subject.beside("other")
    await subject.enqueue(*[Job(b"")] * 3)
    await other.enqueue(*[Job(b"")] * 3)
    await subject.quota(1, 1)
    assert await other.quota() == Quota(0, 0, 0)
    await other.quota(2, 7)
    assert len(await subject.claim_within_quota(9)) == 1
    assert len(await other.claim_within_quota(9)) == 2


async def test_a_queue_made_anew_has_no_quota(subject: Subject) -> None:
    await subject.job()
    await subject.quota(5, 9)
    await subject.claim_within_quota()
    await drop_queue(subject.shard, subject.queue, subject.now_ms)
    await make_queue(subject.shard, subject.queue, subject.now_ms)
    assert await subject.quota() == Quota(0, 0, 0)
    assert await subject.quota(1, 1) == Quota(1, 1, 0)


async def test_claimers_at_once_never_hold_more_than_the_quota(crowd: Crowd) -> None:
    share, jobs = 7, 80
    await crowd[0].enqueue(*[Job(b"%d" % number, 1 + number % 3) for number in range(jobs)])
    await crowd[0].quota(share, 1)
    surely_held: set[str] = set()

    async def work(subject: Subject) -> int:
        """Claim and end jobs until none is pending; look at each step how many are in progress."""
        done = 0
        while await settled(partial(subject.count, JobState.PENDING)):
            taken = await settled(partial(subject.claim_within_quota, 3))
            surely_held.update(job.descriptor for job in taken)
            assert len(surely_held) <= share
            if subject.counts_at_once:
                assert await settled(partial(subject.count, JobState.IN_PROGRESS)) <= share
            for job in taken:
                surely_held.discard(job.descriptor)
                await settled(partial(subject.succeed, job.descriptor))
            done += len(taken)
        return done

    assert sum(await at_once(*[partial(work, subject) for subject in crowd for _ in range(3)])) == jobs


async def test_claims_at_once_fill_the_quota_exactly(crowd: Crowd) -> None:
    await crowd[0].enqueue(*[Job(b"")] * 60)
    await crowd[0].quota(10, 1)
    answers = await at_once(*[partial(subject.claim_within_quota, 2) for subject in crowd for _ in range(5)])
    assert sum(map(len, answers)) == 10
    assert await crowd[0].quota() == Quota(10, 1, 10)


async def test_a_quota_that_shrinks_while_jobs_are_claimed_tells_all_that_are_in_progress(crowd: Crowd) -> None:
    """What the answer says may only fall: the rest can be given to another shard."""
    await crowd[0].enqueue(*[Job(b"")] * 100)
    for version in range(1, 9, 2):
        await crowd[0].quota(20, version)
        claims = [partial(subject.claim_within_quota, 2) for subject in crowd for _ in range(2)]
        *answers, shrunk = await at_once(*claims, partial(crowd[0].quota, 0, version + 1))
        taken = [job.descriptor for jobs in answers for job in jobs]
        assert shrunk == Quota(0, version + 1, len(taken))
        assert await crowd[0].claim_within_quota(9) == []
        assert await crowd[0].ack_all(taken) == len(taken)
