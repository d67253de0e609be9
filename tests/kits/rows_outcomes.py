"""Rows of how a job ends: retries, failures, snoozes, results, progress, log lines, being told to stop."""

from __future__ import annotations

import time

from pinlater.model import Ack, AttemptOutcome, JobInfo, JobState
from pinlater_workers.envelope import Envelope, write_envelope
from tests.kits.ledger import most_at_once, spent, until
from tests.kits.site import ATTEMPTS, PASSWORD
from tests.kits.trial import Stand, row

DELAYS_S = (10, 20, 30, 40, 50, 100)
"""Of the default policy, after the first failure, the second, and so on; each with 10 % of jitter."""


def waits_again(stand: Stand, job: str, attempts: int) -> JobInfo:
    """What is known of a job after so many attempts that failed."""
    until(
        lambda: stand.site.info(job).state is JobState.PENDING and spent(stand.site.info(job)) == attempts,
        lambda: f"{attempts} attempts have failed: {stand.site.info(job)}",
    )
    return stand.site.info(job)


def delay_of(stand: Stand, job: str) -> float:
    """Seconds from the end of the last attempt until the next."""
    info = stand.site.info(job, include_trail=True)
    ends = [each.ended_at_ms for each in info.attempts or () if each.ended_at_ms is not None]
    return (info.run_after_ms - max(ends)) / 1000


@row("A job that fails spends one attempt, its status says why, and its next attempt comes after about 10 s.")
def fails_once(stand: Stand) -> None:
    job = stand.site.enqueue("kits_a", "trial.fail_once")
    info = waits_again(stand, job, 1)
    assert "the first attempt fails" in info.custom_status or "fail" in info.custom_status.lower()
    assert 8 <= delay_of(stand, job) <= 12
    stand.site.hasten(job)
    stand.worker.ledger.has_each(stand.site.ended([job]), {job: 2})
    assert [each["attempt"] for each in stand.worker.ledger.begins(job)] == [1, 2]
    stand.worker.ledger.wait_for("end", job=job, outcome="succeeded")
    assert stand.worker.ledger.outcomes(job) == ["retry", "succeeded"]


@row("Delays grow as the default policy says: linear five times, then twice as long each time.")
def delays_grow(stand: Stand) -> None:
    job = stand.site.enqueue("kits_a", "trial.raise", {"message": "again"})
    for attempt, wanted in enumerate(DELAYS_S, 1):
        waits_again(stand, job, attempt)
        assert 0.88 * wanted <= delay_of(stand, job) <= 1.12 * wanted, f"after attempt {attempt}"
        stand.site.hasten(job)
    stand.site.client.cancel([job])


@row("An argument that is marked as a secret is masked in what an error says of it.")
def secret_is_masked(stand: Stand) -> None:
    envelope = Envelope(
        job="trial.raise", kwargs={"message": "hunter22 of 4711"}, headers={"pinlater-secret": "message"}
    )
    info = waits_again(stand, stand.site.enqueue_body("kits_a", write_envelope(envelope)), 1)
    assert "hunter22" not in info.custom_status
    assert "***" in info.custom_status


@row("A hook for metrics that throws is logged, and changes nothing of its job, nor of its worker.")
def hook_fails(stand: Stand) -> None:
    queue = stand.site.queue()
    with stand.site.worker(queue, failing_hooks=True) as worker:
        fails, succeeds = stand.site.enqueue(queue, "trial.fail_once"), stand.site.enqueue(queue, "trial.noop")
        waits_again(stand, fails, 1)
        stand.site.hasten(fails)
        worker.ledger.has_each(stand.site.ended([fails, succeeds]), {fails: 2, succeeds: 1})
        assert "this hook fails" in worker.text()
        worker.terminate()
        worker.ends()


@row("A job whose attempts are used up is FAILED, and each attempt has its line in the status.")
def attempts_are_used_up(stand: Stand) -> None:
    job = stand.producer.enqueue("kits_a", "trial.raise", {"message": "for ever"}, attempts=2)
    waits_again(stand, job, 1)
    stand.site.hasten(job)
    info = stand.site.ended([job])[job]
    assert (info.state, info.attempts_allowed, info.attempts_remaining) == (JobState.FAILED, 2, 0)
    assert info.custom_status.count("for ever") == 2, info.custom_status
    assert len(stand.worker.ledger.begins(job)) == 2


@row("A job fails for good when its handler says so, whatever attempts are left.")
def fails_for_good(stand: Stand) -> None:
    job = stand.producer.enqueue("kits_a", "trial.fail", {"message": "no such customer"})
    info = stand.site.ended([job])[job]
    assert info.state is JobState.FAILED
    assert "no such customer" in info.custom_status
    stand.worker.ledger.wait_for("end", job=job)
    assert (len(stand.worker.ledger.begins(job)), stand.worker.ledger.outcomes(job)) == (1, ["failed"])


@row("A job chooses when its next attempt comes, exactly, and that attempt is spent.")
def retry_after(stand: Stand) -> None:
    job = stand.site.enqueue("kits_a", "trial.retry_after", {"ms": 600_000})
    waits_again(stand, job, 1)
    assert 599 <= delay_of(stand, job) <= 601
    stand.site.hasten(job)
    stand.worker.ledger.has_each(stand.site.ended([job]), {job: 2})


@row(
    "An attempt over the time limit of its type fails by the retry policy, and its status says so; "
    "its handler is asked to stop."
)
def over_its_time_limit(stand: Stand) -> None:
    job = stand.site.enqueue("kits_a", "trial.limited", {"ms": 90_000})
    info = waits_again(stand, job, 1)
    assert "attempt 1 of 11: TimeLimitExceeded: it ran longer than 1 s" in info.custom_status
    assert 8 <= delay_of(stand, job) <= 12
    assert stand.worker.ledger.wait_for("returned", job=job)["why"] == "time_limit"
    assert stand.worker.ledger.wait_for("end", job=job)["outcome"] == "retry"
    stand.site.client.cancel([job])


@row(
    "A handler that goes on after its time limit has failed all the same: what it returns counts for nothing, "
    "and its slot is taken until then."
)
def stubborn_over_its_time_limit(stand: Stand) -> None:
    queue = stand.site.queue()
    late = stand.site.enqueue(queue, "trial.limited_stubborn", {"ms": 8_000}, attempts_allowed=1)
    with stand.site.worker(queue, slots=3) as worker:
        assert "attempt 1 of 1: TimeLimitExceeded" in stand.site.ended([late])[late].custom_status
        others = [stand.site.enqueue(queue, "trial.sleep", {"ms": 200}) for _ in range(6)]
        worker.ledger.has_once(stand.site.ended(others))
        returned_ms = worker.ledger.wait_for("returned", job=late)["at_ms"]
        after = stand.site.enqueue(queue, "trial.noop")  # the worker has seen what the handler returned
        worker.ledger.has_once(stand.site.ended([after]))
        events = worker.ledger.events()
    info = stand.site.info(late, include_trail=True)
    (attempt,) = info.attempts or ()
    assert (info.state, attempt.outcome) == (JobState.FAILED, AttemptOutcome.FAILED)
    assert (attempt.ended_at_ms or 0) < returned_ms
    assert most_at_once([each for each in events if each["at_ms"] < returned_ms and each.get("job") in others]) <= 2


@row("A job that snoozes comes back after its time, and spends no attempt.")
def snooze(stand: Stand) -> None:
    job = stand.site.enqueue("kits_a", "trial.snooze", {"ms": 300_000})
    stand.worker.ledger.wait_for("end", job=job, outcome="snoozed")
    until(lambda: stand.site.info(job).state is JobState.PENDING, lambda: f"it snoozes: {stand.site.info(job)}")
    info = stand.site.info(job)
    assert (info.state, spent(info)) == (JobState.PENDING, 0)
    assert info.run_after_ms > time.time() * 1000 + 250_000
    stand.site.hasten(job)
    stand.worker.ledger.has_each(stand.site.ended([job]), {job: 2})
    assert [each["attempt"] for each in stand.worker.ledger.begins(job)] == [1, 1]


@row("A result travels with the success, and both this producer and the Python client read it.")
def result(stand: Stand) -> None:
    value = {"cents": 1250, "who": "ädä", "list": [1, 2.5, None, True]}
    job = stand.producer.enqueue("kits_a", "trial.result", {"value": value}, keep_result_ms=60_000)
    info = stand.site.ended([job])[job]
    assert (info.result or b"").startswith(b"PINLATER/1 application/json\n"), info
    with stand.site.producer() as producer:
        answer = producer.ask({"wait": {"descriptor": job, "timeout_ms": 30_000}})
    assert answer == {"state": "succeeded", "result": value}


@row("A caller waits for a job that has not ended yet, and gets its result when it has.")
def waits_for_the_end(stand: Stand) -> None:
    with stand.site.producer() as producer:
        job = producer.enqueue("kits_a", "trial.result", {"value": "later"}, keep_result_ms=60_000, delay_ms=1000)
        answer = producer.ask({"wait": {"descriptor": job, "timeout_ms": 60_000}})
    assert answer == {"state": "succeeded", "result": "later"}


@row("A caller that waits for a job that fails learns that it failed.")
def waits_for_a_failure(stand: Stand) -> None:
    with stand.site.producer() as producer:
        job = producer.enqueue("kits_a", "trial.fail", {"message": "no"})
        assert producer.ask({"wait": {"descriptor": job, "timeout_ms": 60_000}})["state"] == "failed"


@row("A wait that is over before the job has ended says no end, and the job goes on.")
def wait_is_over(stand: Stand) -> None:
    with stand.site.producer() as producer:
        job = producer.enqueue("kits_a", "trial.noop", delay_ms=3_000)
        answer = producer.ask({"wait": {"descriptor": job, "timeout_ms": 300}})
        assert "error" in answer or answer["state"] in {"pending", "in_progress"}, answer
    stand.worker.ledger.has_once(stand.site.ended([job]))


@row("A job without a result that anyone wants leaves none.")
def no_result(stand: Stand) -> None:
    job = stand.site.enqueue("kits_a", "trial.noop")
    assert not stand.site.ended([job])[job].result


@row("Progress shows while the job runs, and the last of it afterwards.")
def progress(stand: Stand) -> None:
    job = stand.site.enqueue("kits_a", "trial.progress", {"percent": 40, "message": "page 4 of 10", "ms": 4_000})
    until(lambda: stand.site.info(job).progress is not None, lambda: f"progress of {stand.site.info(job)}")
    info = stand.site.info(job)
    assert info.progress is not None
    assert (info.progress.fraction, info.progress.text) == (0.4, "page 4 of 10")
    stand.worker.ledger.has_once(stand.site.ended([job]))


@row("Lines that a job logs are in the job's log, in their order.")
def log_lines(stand: Stand) -> None:
    job = stand.site.enqueue("kits_a", "trial.log", {"lines": ["one", "zwei ä", "three"]})
    stand.worker.ledger.has_once(stand.site.ended([job]))
    lines = stand.site.info(job, include_trail=True).log_lines or ()
    assert [each.text for each in lines] == ["one", "zwei ä", "three"]


@row("A running job that is cancelled is told so, and ends as cancelled: no retry.")
def cancel(stand: Stand) -> None:
    job = stand.site.enqueue("kits_a", "trial.sleep", {"ms": 90_000})
    stand.worker.ledger.wait_for("begin", job=job)
    stand.site.client.cancel([job], running=True)
    stand.worker.ledger.wait_for("cancel", job=job)
    info = stand.site.ended([job])[job]
    assert (info.state, info.cancelled) == (JobState.FAILED, True)
    assert stand.worker.ledger.wait_for("end", job=job)["outcome"] == "cancelled"
    assert len(stand.worker.ledger.begins(job)) == 1


@row("A success of a job that was cancelled counts.")
def success_after_cancel(stand: Stand) -> None:
    job = stand.site.enqueue("kits_a", "trial.stubborn", {"ms": 3_000})
    stand.worker.ledger.wait_for("begin", job=job)
    stand.site.client.cancel([job], running=True)
    stand.worker.ledger.has_once(stand.site.ended([job]))


@row("A job whose claim was taken away is told so, and what it makes of that changes nothing.")
def claim_taken_away(stand: Stand) -> None:
    queue = stand.site.queue()
    job = stand.site.enqueue(queue, "trial.sleep", {"ms": 90_000})
    with stand.site.worker(queue) as worker:
        worker.ledger.wait_for("begin", job=job)
        info = stand.site.info(job)
        assert info.claim_descriptor is not None
        # an ack by the right claim, from elsewhere: the job's next attempt is another one's
        stand.site.client.ack(queue, failed=[Ack(job, retry_delay_ms=600_000, claim_descriptor=info.claim_descriptor)])
        worker.ledger.wait_for("lost", job=job)
        assert worker.ledger.wait_for("end", job=job)["outcome"] == "lost"
        after = stand.site.enqueue(queue, "trial.noop")
        worker.ledger.has_once(stand.site.ended([after]))
    info = stand.site.info(job, include_trail=True)
    assert (info.state, info.attempts_remaining) == (JobState.PENDING, ATTEMPTS - 1)
    assert [each.outcome for each in info.attempts or ()] == [AttemptOutcome.FAILED]


@row("A job whose queue is deleted is told that its claim is lost, and the worker goes on with its other queues.")
def queue_deleted_while_it_runs(stand: Stand) -> None:
    gone, other = stand.site.queue(), stand.site.queue()
    job = stand.site.enqueue(gone, "trial.sleep", {"ms": 90_000})
    with stand.site.worker(gone, other) as worker:
        worker.ledger.wait_for("begin", job=job)
        stand.site.client.delete_queue(gone, PASSWORD)
        worker.ledger.wait_for("lost", job=job)
        after = stand.site.enqueue(other, "trial.noop")
        worker.ledger.has_once(stand.site.ended([after]))
