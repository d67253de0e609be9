"""The trails of jobs: their attempts, with the waits, run times, workers and outcomes of these, and their log lines."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.base import DeadLetterTarget, EndRules, ExpiryCounts, ExpiryRequest, JobKey
from pinlater.backends.extended import HeartbeatAnswer, HeartbeatRequest
from pinlater.model import (
    MAX_ATTEMPTS_KEPT,
    MAX_LOG_BYTES,
    MAX_LOG_LINES,
    AttemptOutcome,
    DequeuedJob,
    HeartbeatOutcome,
    JobAttempt,
    JobProgress,
    JobState,
    JobTrail,
    LogLine,
)
from tests.conformance.extended_subject import stop
from tests.conformance.subject import START_MS, TIMEOUT_MS, Subject, claim_key_of, key_of

SUCCEEDED, FAILED, EXPIRED, CANCELLED = AttemptOutcome


async def attempts(subject: Subject, descriptor: str) -> Sequence[JobAttempt]:
    """Those that the store tells."""
    (trail,) = await subject.shard.read_trails(subject.queue, [key_of(descriptor)])
    assert trail is not None
    return trail.attempts


def an_attempt(
    number: int, outcome: AttemptOutcome | None, wait: int = 0, run: int = 0, at: int = 0, by: str = "worker"
) -> JobAttempt:
    """One that was claimed so long after the start; None: it runs."""
    claimed_at_ms = START_MS + at
    ended_at_ms = None if outcome is None else claimed_at_ms + run
    return JobAttempt(number, claimed_at_ms - wait, claimed_at_ms, ended_at_ms, outcome, by)


async def test_the_attempt_that_runs_and_the_one_that_succeeded(subject: Subject) -> None:
    descriptor = await subject.job()
    assert await attempts(subject, descriptor) == ()
    subject.tick(30)
    await subject.claimed(source="host-1:w:7")
    assert await attempts(subject, descriptor) == (an_attempt(1, None, wait=30, at=30, by="host-1:w:7"),)
    subject.tick(5)
    await subject.succeed(descriptor)
    assert await attempts(subject, descriptor) == (an_attempt(1, SUCCEEDED, 30, 5, at=30, by="host-1:w:7"),)


async def test_attempts_that_failed_before_are_kept_with_their_times_and_workers(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=3)
    await subject.claimed(source="one")
    subject.tick(10)
    await subject.fail(descriptor, retry_delay_ms=100)
    assert await attempts(subject, descriptor) == (an_attempt(1, FAILED, run=10, by="one"),)
    subject.tick(150)
    await subject.claimed(source="two")
    subject.tick(20)
    await subject.fail(descriptor)
    await subject.claimed(source="three")
    subject.tick(7)
    await subject.fail(descriptor)
    assert (await subject.info(descriptor)).state is JobState.FAILED
    assert await attempts(subject, descriptor) == (
        an_attempt(1, FAILED, run=10, by="one"),
        an_attempt(2, FAILED, 50, 20, at=160, by="two"),
        an_attempt(3, FAILED, 0, 7, at=180, by="three"),
    )


async def test_attempts_whose_claims_expired_or_were_released(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=3)
    await subject.claimed(source="gone")
    subject.tick(TIMEOUT_MS + 1)
    assert await subject.expire() == {subject.queue: ExpiryCounts(1, 0)}
    released = await subject.claimed(source="cut")
    subject.tick(9)
    assert (await subject.expire_disconnected(released)).retried == 1
    listed = await subject.claimed(source="told")
    subject.tick(TIMEOUT_MS + 1)
    claim = ExpiryRequest(*claim_key_of(listed), listed.claim_expires_at_ms)
    await subject.shard.expire_listed(subject.queue, [claim], subject.now_ms)
    assert (await subject.info(descriptor)).state is JobState.FAILED
    first = TIMEOUT_MS + 1
    expected = (
        an_attempt(1, EXPIRED, run=first, by="gone"),
        an_attempt(2, EXPIRED, run=9, at=first, by="cut"),
        an_attempt(3, EXPIRED, run=first, at=first + 9, by="told"),
    )
    assert await attempts(subject, descriptor) == expected
    await subject.retry_listed(descriptor, attempts=1)
    assert await attempts(subject, descriptor) == expected
    subject.tick(3)
    await subject.claimed(source="last")
    await subject.fail(descriptor)
    assert await attempts(subject, descriptor) == (
        *expected,
        an_attempt(4, FAILED, wait=3, at=2 * first + 12, by="last"),
    )


async def test_an_operators_retry_keeps_the_attempt_that_failed(subject: Subject) -> None:
    one, two = await subject.job(attempts_allowed=1), await subject.job(attempts_allowed=1)
    await subject.claim(2)
    subject.tick(4)
    for descriptor in (one, two):
        await subject.fail(descriptor)
    assert await subject.retry_failed() == 2
    assert await attempts(subject, one) == await attempts(subject, two) == (an_attempt(1, FAILED, run=4),)
    subject.tick(2)
    await subject.claim(2, source="again")
    await subject.succeed(one)
    assert await attempts(subject, one) == (an_attempt(1, FAILED, run=4), an_attempt(2, SUCCEEDED, 2, at=6, by="again"))


async def test_a_hand_out_that_was_requeued_is_no_attempt(subject: Subject) -> None:
    descriptor = await subject.job()
    await subject.requeue(await subject.claimed())
    await subject.requeue_undelivered(await subject.claimed())
    await subject.claimed()
    await subject.checkpoint(descriptor, move_to_pending=True, run_after_ms=subject.now_ms)
    assert await attempts(subject, descriptor) == ()
    await subject.claimed()
    assert await attempts(subject, descriptor) == (an_attempt(1, None),)


async def test_an_attempt_of_a_job_that_was_to_stop_ended_as_cancelled(subject: Subject) -> None:
    acked, expired = await subject.job(), await subject.job()
    await subject.claim(2)
    await stop(subject, acked)
    await stop(subject, expired)
    subject.tick(8)
    await subject.fail(acked)
    subject.tick(TIMEOUT_MS)
    await subject.expire()
    assert await attempts(subject, acked) == (an_attempt(1, CANCELLED, run=8),)
    assert await attempts(subject, expired) == (an_attempt(1, CANCELLED, run=TIMEOUT_MS + 8),)
    await subject.retry_listed(acked, attempts=1)
    assert await attempts(subject, acked) == (an_attempt(1, CANCELLED, run=8),)


async def test_the_last_attempts_are_kept_and_numbered_on(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=40)
    for number in range(MAX_ATTEMPTS_KEPT + 5):
        await subject.claimed(source=f"worker {'é' * number}")
        await subject.fail(descriptor)
    kept = await attempts(subject, descriptor)
    assert [each.number for each in kept] == list(range(6, MAX_ATTEMPTS_KEPT + 6))
    assert [each.worker for each in kept] == [f"worker {'é' * (each.number - 1)}" for each in kept]
    await subject.claimed()
    assert [each.number for each in await attempts(subject, descriptor)] == list(range(7, MAX_ATTEMPTS_KEPT + 7))


async def test_a_worker_with_a_long_name_is_kept_in_part(subject: Subject) -> None:
    descriptor = await subject.job()
    await subject.claimed(source="é" * 100)
    await subject.fail(descriptor)
    assert [each.worker for each in await attempts(subject, descriptor)] == ["é" * 64]


async def test_copies_begin_with_no_attempts(subject: Subject) -> None:
    letters = await subject.beside("letters")
    descriptor = await subject.job(attempts_allowed=2)
    await subject.claimed()
    await subject.fail(descriptor)
    await subject.claimed()
    await subject.ack_with(descriptor, False, dead_letters=True)
    await subject.dead_letter({subject.queue: DeadLetterTarget(letters.queue, 1)})
    letter = (await subject.info(descriptor)).moved_to
    assert letter is not None
    assert len(await attempts(subject, descriptor)) == 2
    assert await attempts(letters, letter) == ()


async def test_trails_go_with_their_jobs(subject: Subject) -> None:
    """Whatever removes them; a job of the same queue keeps its own."""
    names = [await subject.job(attempts_allowed=2) for _ in range(5)]
    _, acked, deleted, pruned, cancelled = names
    await subject.claim(5)
    for each in names:
        await subject.fail(each)
    await subject.cancel(cancelled)
    await subject.delete_listed(JobState.PENDING, deleted)
    await subject.claim(3)
    await subject.ack_with(acked, True, keep_succeeded=False)
    await subject.succeed(pruned)
    subject.tick(10)
    await subject.prune(succeeded_ttl_ms=5)
    keys = [key_of(each) for each in names]
    trails = await subject.shard.read_trails(subject.queue, keys)
    assert [trail is not None for trail in trails] == [True, False, False, False, False]
    assert await subject.shard.put_trails(subject.queue, [(key, JobTrail()) for key in keys]) == [False] * 5


async def test_the_trails_of_what_is_not_there(subject: Subject) -> None:
    descriptor = await subject.job()
    key = key_of(descriptor)
    other = JobKey(key.priority + 1, key.id)
    assert await subject.shard.read_trails(subject.queue, [other, key, key]) == [None, JobTrail(), JobTrail()]
    assert await subject.shard.read_trails("none", [key]) == [None]
    assert await subject.shard.read_trails(subject.queue, []) == []


async def test_a_job_that_came_from_another_store_goes_on_with_its_trail(subject: Subject) -> None:
    descriptor, other = await subject.job(attempts_allowed=3), await subject.job()
    before = (an_attempt(6, FAILED, 1, 2, at=-50, by="é"), an_attempt(7, EXPIRED, at=-10, by=""))
    runs = an_attempt(8, None)
    keys = [key_of(descriptor), JobKey(2, key_of(other).id)]
    assert await subject.shard.put_trails(subject.queue, [(key, JobTrail((*before, runs))) for key in keys]) == [
        True,
        False,
    ]
    assert await attempts(subject, descriptor) == before
    assert await attempts(subject, other) == ()
    await subject.claimed()
    await subject.fail(descriptor)
    assert await attempts(subject, descriptor) == (*before, an_attempt(8, FAILED))
    assert await subject.shard.put_trails(subject.queue, [(keys[0], JobTrail(before))]) == [False]


async def test_an_acks_rules_decide_what_of_its_attempts_is_left(subject: Subject) -> None:
    """A claim that expires ends the job as a letter to be; its retry counts it once."""
    descriptor = await subject.job(attempts_allowed=1)
    job = await subject.claimed()
    subject.tick(3)
    rules = EndRules(dead_letters=True)
    await subject.shard.expire_disconnected(subject.queue, [subject.silent(job)], subject.now_ms, rules)
    assert await attempts(subject, descriptor) == (an_attempt(1, EXPIRED, run=3),)
    await subject.retry_listed(descriptor)
    assert await attempts(subject, descriptor) == (an_attempt(1, EXPIRED, run=3),)


# -- log lines ---------------------------------------------------------------------------------------------------------


async def log(subject: Subject, job: DequeuedJob, *lines: tuple[int, str], **progress: object) -> HeartbeatAnswer:
    """A heartbeat with lines: when each was logged, after the start, and its text."""
    said = [LogLine(text, START_MS + at) for at, text in lines]
    request = HeartbeatRequest(*claim_key_of(job), log_lines=said, **progress)  # type: ignore[arg-type]
    (answer,) = await subject.shard.heartbeat(subject.queue, [request], subject.now_ms)
    return answer


async def logged(subject: Subject, descriptor: str) -> list[tuple[int, int, str]]:
    """The lines that the store tells: when each was logged, after the start, its attempt and its text."""
    (trail,) = await subject.shard.read_trails(subject.queue, [key_of(descriptor)])
    assert trail is not None
    return [(line.at_ms - START_MS, line.attempt, line.text) for line in trail.log]


async def test_lines_are_kept_with_their_times_and_attempts(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=3)
    job = await subject.claimed()
    assert await logged(subject, descriptor) == []
    assert (await log(subject, job, (1, "begun"), (2, "Grüße: 1"))).outcome is HeartbeatOutcome.OK
    await log(subject, job, (3, ""), fraction=0.5)
    await subject.fail(descriptor)
    first = [(1, 1, "begun"), (2, 1, "Grüße: 1"), (3, 1, "")]
    assert await logged(subject, descriptor) == first
    assert (await subject.info(descriptor)).progress == JobProgress(0.5, "", START_MS)
    await log(subject, await subject.claimed(), (9, "again"))
    await subject.succeed(descriptor)
    assert await logged(subject, descriptor) == [*first, (9, 2, "again")]


async def test_a_line_that_is_sent_twice_is_there_once(subject: Subject) -> None:
    descriptor = await subject.job()
    job = await subject.claimed()
    await log(subject, job, (1, "one"), (2, "two"))
    await log(subject, job, (2, "two"), (2, "two more"), (3, "two"), (3, "two"))
    assert await logged(subject, descriptor) == [(1, 1, "one"), (2, 1, "two"), (2, 1, "two more"), (3, 1, "two")]


async def test_lines_of_a_lost_claim_are_not_kept(subject: Subject) -> None:
    descriptor = await subject.job()
    job = await subject.claimed()
    await subject.requeue(job)
    assert (await log(subject, job, (1, "late"))).outcome is HeartbeatOutcome.LOST
    assert await logged(subject, descriptor) == []
    now = await subject.claimed()
    await stop(subject, descriptor)
    assert (await log(subject, now, (2, "stops"))).outcome is HeartbeatOutcome.CANCEL
    assert await logged(subject, descriptor) == [(2, 1, "stops")]


async def test_only_the_last_lines_are_kept(subject: Subject) -> None:
    descriptor = await subject.job()
    job = await subject.claimed()
    for start in range(0, MAX_LOG_LINES + 30, 13):
        await log(subject, job, *((at, f"line {at}") for at in range(start, start + 13)))
    lines = await logged(subject, descriptor)
    assert len(lines) == MAX_LOG_LINES
    assert [at for at, *_ in lines] == list(range(lines[-1][0] - MAX_LOG_LINES + 1, lines[-1][0] + 1))
    await log(subject, job, *((1_000 + at, "é" * 500) for at in range(20)))
    lines = await logged(subject, descriptor)
    assert sum(len(text.encode()) for *_, text in lines) <= MAX_LOG_BYTES
    assert [at for at, *_ in lines] == list(range(1_004, 1_020))


async def test_a_log_moves_with_its_job_and_is_not_written_over(subject: Subject) -> None:
    descriptor, other = await subject.job(), await subject.job()
    trail = JobTrail((an_attempt(1, FAILED),), (LogLine("é", START_MS, 1), LogLine("", START_MS + 1, 1)))
    assert await subject.shard.put_trails(subject.queue, [(key_of(descriptor), trail)]) == [True]
    jobs = {each.descriptor: each for each in await subject.claim(2)}
    await log(subject, jobs[descriptor], (5, "here"))
    assert await logged(subject, descriptor) == [(0, 1, "é"), (1, 1, ""), (5, 2, "here")]
    await log(subject, jobs[other], (5, "there"))
    assert await subject.shard.put_trails(subject.queue, [(key_of(other), trail)]) == [False]
    assert await logged(subject, other) == [(5, 1, "there")]


async def test_a_log_stays_beside_the_attempts_and_goes_with_the_job(subject: Subject) -> None:
    descriptor = await subject.job(attempts_allowed=1)
    await log(subject, await subject.claimed(), (1, "one"))
    await subject.fail(descriptor)
    await subject.retry_listed(descriptor, attempts=1)
    await log(subject, await subject.claimed(), (2, "two"))
    assert await logged(subject, descriptor) == [(1, 1, "one"), (2, 2, "two")]
    assert await attempts(subject, descriptor) == (an_attempt(1, FAILED), an_attempt(2, None))
    await subject.succeed(descriptor)
    await subject.delete_listed(JobState.SUCCEEDED, descriptor)
    assert await subject.shard.read_trails(subject.queue, [key_of(descriptor)]) == [None]
