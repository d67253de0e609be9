"""Rows of a producer: many jobs at once, keys, groups, and errors that say whether to try again."""

from __future__ import annotations

import base64
import hashlib
from concurrent.futures import ThreadPoolExecutor

from pinlater.model import JobFilter, JobState
from tests.faults.proxy import Proxy
from tests.kits.ledger import WITHIN_S, until
from tests.kits.programs import TrialProducer, job_command
from tests.kits.trial import Stand, row


@row("Many jobs are enqueued by one call, and their descriptors come in order.")
def enqueue_many(stand: Stand) -> None:
    commands = [job_command("kits_a", "trial.text", {"text": f"number {number}"}) for number in range(300)]
    answer = stand.producer.ask({"enqueue_many": commands})
    jobs = answer["descriptors"]
    assert len(set(jobs)) == 300
    stand.worker.ledger.has_once(stand.site.ended(jobs))
    texts = [stand.worker.ledger.begins(job)[0]["arguments"]["text"] for job in jobs]
    assert texts == [f"number {number}" for number in range(300)]


@row("A raw body is enqueued as it is.")
def enqueue_raw(stand: Stand) -> None:
    body = bytes(reversed(range(256)))
    command = {"queue": "kits_raw", "body_base64": base64.b64encode(body).decode(), "options": {}}
    job = stand.producer.ask({"enqueue": command})["descriptor"]
    assert stand.site.info(job, include_body=True).body == body
    stand.worker.ledger.has_once(stand.site.ended([job]))
    assert stand.worker.ledger.begins(job)[0]["sha256"] == hashlib.sha256(body).hexdigest()


@row("While a job of a dedupe key lives, a second enqueue answers that job, and it runs once.")
def dedupe_key(stand: Stand) -> None:
    first = stand.producer.enqueue("kits_a", "trial.noop", dedupe_key="report-11", delay_ms=800)
    assert stand.producer.enqueue("kits_a", "trial.noop", dedupe_key="report-11") == first
    assert (stand.site.info(first).dedupe_key or "").endswith("report-11")
    stand.worker.ledger.has_once(stand.site.ended([first]))


@row("A job has the group that its producer gives it.")
def group(stand: Stand) -> None:
    job = stand.producer.enqueue("kits_b", "trial.noop", group="tenant-7", delay_ms=800)
    assert stand.site.info(job).group == "tenant-7"
    stand.worker.ledger.has_once(stand.site.ended([job]))


@row("Priority, attempts and delay are those that the producer gives, and else the defaults.")
def options(stand: Stand) -> None:
    job = stand.producer.enqueue("kits_b", "trial.noop", priority=2, attempts=4, delay_ms=60_000)
    info = stand.site.info(job)
    assert (info.priority, info.attempts_allowed) == (2, 4)
    assert 59_000 <= info.run_after_ms - info.created_at_ms <= 61_000
    stand.site.client.cancel([job])


@row("An enqueue to a queue that does not exist is an error that says so, and not one to try again.")
def no_such_queue(stand: Stand) -> None:
    error = stand.producer.ask({"enqueue": job_command("kits_nowhere", "trial.noop")})["error"]
    assert "kits_nowhere" in error["message"]
    assert error["retryable"] is False
    assert stand.producer.enqueue("kits_b", "trial.noop")


@row("A body that is too large is refused, by an error that is not one to try again.")
def body_too_large(stand: Stand) -> None:
    error = stand.producer.ask({"enqueue": job_command("kits_a", "trial.text", {"text": "a" * 1_200_000})})["error"]
    assert error["retryable"] is False
    assert stand.producer.enqueue("kits_b", "trial.noop")


@row("A priority that the servers do not have is refused, by an error that is not one to try again.")
def no_such_priority(stand: Stand) -> None:
    error = stand.producer.ask({"enqueue": job_command("kits_a", "trial.noop", priority=9)})["error"]
    assert error["retryable"] is False


@row("An enqueue whose answer is lost is sent again, and the job is stored once.")
def answer_is_lost(stand: Stand) -> None:
    queue = stand.site.queue()
    with stand.site.proxy() as (proxy, address), stand.site.producer(servers=[address]) as producer:
        producer.enqueue(queue, "trial.noop", delay_ms=600_000)
        loses_the_answer(stand, queue, proxy, producer)
    assert stored(stand, queue) == 2


@row("Many jobs whose answer is lost are sent again, and each is stored once.")
def answer_about_many_is_lost(stand: Stand) -> None:
    queue = stand.site.queue()
    with stand.site.proxy() as (proxy, address), stand.site.producer(servers=[address]) as producer:
        producer.enqueue(queue, "trial.noop", delay_ms=600_000)
        loses_the_answer(stand, queue, proxy, producer, jobs=20)
    assert stored(stand, queue) == 21


@row("A producer ends with 0 at the end of its work.")
def producer_ends(stand: Stand) -> None:
    with stand.site.producer() as producer:
        producer.enqueue("kits_b", "trial.noop")
        assert producer.close() == 0


def stored(stand: Stand, queue: str) -> int:
    """Jobs that wait in a queue, whatever their time."""
    filters = [JobFilter(queue, JobState.PENDING), JobFilter(queue, JobState.PENDING, future=True)]
    return sum(stand.site.client.counts(filters))


def loses_the_answer(stand: Stand, queue: str, proxy: Proxy, producer: TrialProducer, jobs: int = 0) -> None:
    """An enqueue of so many jobs (0: of one alone) is carried out, and its connection breaks before the answer."""
    command = job_command(queue, "trial.noop", delay_ms=600_000)
    proxy.black_hole(answers_only=True)
    with ThreadPoolExecutor(1) as other:
        answer = other.submit(producer.ask, {"enqueue_many": [command] * jobs} if jobs else {"enqueue": command})
        until(lambda: stored(stand, queue) == 1 + max(1, jobs), "the jobs are stored")
        proxy.drop_connections()
        proxy.heal()
        assert "error" not in answer.result(WITHIN_S), answer.result()
