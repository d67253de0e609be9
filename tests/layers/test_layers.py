"""What the bare store takes each layer over it takes, and answers alike: a table for each call, of combinations of what
may be there, be missing or be odd.

A table is carried out on the bare store and through chain, tier, overflow and gate. What each call says, and what
became of each job, must be the same; a row names the combination that differs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest

from pinlater.model import (
    Ack,
    Checkpoint,
    DequeuedJob,
    DequeueFromQueuesRequest,
    DequeueRequest,
    ExtendedJob,
    Heartbeat,
    Job,
    JobFilter,
    JobState,
    KeyRef,
    OnDuplicate,
    QueueAcks,
    QueueShare,
    RequestContext,
    RescheduleJob,
    WorkerReport,
    is_descriptor,
)
from pinlater.model.job_selection import JobSelection, TextCondition
from tests.layers.layers import LAYERS, QUEUE, WORKER, Layer, layer

Rows = list[tuple[Any, Any]]
"""Each combination, and what came of it."""

Table = Callable[[Layer], Awaitable[Rows]]

LARGE = bytes(range(256)) * 16
BODIES = (b"", b"x" * 255, b"x" * 256, LARGE)
RESULTS = (None, *BODIES, b"r" * 70_000)
CLAIMS = ("", "own", "outdated", "odd", "odd:claim", ":::::", "here:1:0:99:worker:7")
STATUSES = ("", "said \u2026\n" * 900)
REPORT = WorkerReport("w1", "worker 7", 5_000, queues={QUEUE: 1})
ODD_DESCRIPTORS = ("other:s9:p1:1790000000000000", f"{QUEUE}:s9:p1:1790000000000000", "", "odd", ":::", "\0")


def combined(*options: Iterable[Any]) -> list[tuple[Any, ...]]:
    return list(product(*options))


async def outdated(at: Layer, amount: int) -> list[tuple[DequeuedJob, str]]:
    """Running jobs with their second claim, and the first claim of each."""
    before = await at.running(*[b"%d" % number for number in range(amount)])
    back = [Checkpoint(job.descriptor, move_to_pending=True, claim_descriptor=job.claim_descriptor) for job in before]
    await at.api.checkpoint(QUEUE, back, context=WORKER)
    claims = {job.descriptor: job.claim_descriptor for job in before}
    again = [(await at.api.dequeue(DequeueRequest(QUEUE, 1), context=WORKER))[0] for _ in before]
    return [(job, claims[job.descriptor]) for job in again]


def claim_of(word: str, job: DequeuedJob, before: str) -> str:
    return {"own": job.claim_descriptor, "outdated": before}.get(word, word)


async def infos(at: Layer, *descriptors: str) -> Any:
    return await at.answer(at.api.lookup(descriptors, include_body=True, include_result=True, context=WORKER))


async def with_jobs(
    at: Layer, rows: list[tuple[Any, ...]], call: Callable[[tuple[Any, ...], DequeuedJob, str], Awaitable[Any]]
) -> Rows:
    """One call for each row, about a running job of its own, and the job behind it."""
    jobs = await outdated(at, len(rows))
    said = [await at.answer(call(row, job, before)) for row, (job, before) in zip(rows, jobs, strict=True)]
    now = [await infos(at, job.descriptor) for job, _ in jobs]
    return list(zip(rows, zip(said, now, strict=True), strict=True))


# -- acks --------------------------------------------------------------------------------------------------------------

ENDS = [
    *[("succeeded", claim, result, "", 0, False) for claim, result in product(CLAIMS, RESULTS)],
    *[
        ("failed", claim, result, status, delay_ms, permanent)
        for claim, result, status, delay_ms, permanent in product(
            CLAIMS[:4], (None, LARGE), STATUSES, (-5, 0, 60_000), (False, True)
        )
    ][::5],
    ("succeeded", "own", LARGE, STATUSES[1], 60_000, True),
    ("failed", "own", None, "", 2**62, False),
]


def an_ack(row: tuple[Any, ...], job: DequeuedJob, before: str) -> tuple[list[Ack], list[Ack]]:
    end, claim, result, status, delay_ms, permanent = row
    ack = Ack(job.descriptor, status, delay_ms, claim_of(claim, job, before), permanent, result)
    return ([ack], []) if end == "succeeded" else ([], [ack])


async def acks(at: Layer) -> Rows:
    return await with_jobs(at, ENDS, lambda row, *job: at.api.ack(QUEUE, *an_ack(row, *job), context=WORKER))


async def riding_acks(at: Layer) -> Rows:
    async def call(row: tuple[Any, ...], job: DequeuedJob, before: str) -> Any:
        await at.api.enqueue(QUEUE, [Job(LARGE)], context=WORKER)
        return await at.api.dequeue(DequeueRequest(QUEUE, 2, *an_ack(row, job, before)), context=WORKER)

    return await with_jobs(at, ENDS, call)


async def acks_on_a_dequeue_from_many(at: Layer) -> Rows:
    async def call(row: tuple[Any, ...], job: DequeuedJob, before: str) -> Any:
        await at.api.enqueue(QUEUE, [Job(LARGE)], context=WORKER)
        request = DequeueFromQueuesRequest([QueueShare(QUEUE)], 2, [QueueAcks(QUEUE, *an_ack(row, job, before))])
        return await at.api.dequeue_from_queues(request, context=WORKER)

    return await with_jobs(at, ENDS, call)


async def many_acks_in_one(at: Layer) -> Rows:
    """What is odd keeps none of the others from being carried out."""
    jobs = await outdated(at, len(ENDS))
    some = [an_ack(row, *job) for row, job in zip(ENDS, jobs, strict=True)]
    odd = [Ack(text, result=LARGE) for text in ODD_DESCRIPTORS]
    succeeded, failed = [*odd, *[ack for good, _ in some for ack in good]], [ack for _, bad in some for ack in bad]
    said = await at.answer(at.api.ack(QUEUE, succeeded, failed, context=WORKER))
    now = [await infos(at, job.descriptor) for job, _ in jobs]
    return [("all", said), *zip(ENDS, now, strict=True)]


# -- checkpoints and heartbeats ----------------------------------------------------------------------------------------


async def checkpoints(at: Layer) -> Rows:
    now_ms = at.clock.now_ms()
    rows = [
        *combined((WORKER, RequestContext(""), RequestContext("other")), CLAIMS, (None, *BODIES))[::2],
        *combined((None, b"new", LARGE), (False, True), (None, 0, now_ms + 60_000, 2**53 - 1), (None, 0, 7), STATUSES)[
            ::5
        ],
        ((None, b"x" * 2**21), False, -5, 2**31 - 1, ""),
    ]

    def call(row: tuple[Any, ...], job: DequeuedJob, before: str) -> Awaitable[Any]:
        if len(row) == 3:
            source, claim, body = row
            one = Checkpoint(job.descriptor, body, claim_descriptor=claim_of(claim, job, before))
            return at.api.checkpoint(QUEUE, [one], context=source)
        body, moves, run_after_ms, attempts, status = row
        bodies = body if isinstance(body, tuple) else (body,)
        some = [Checkpoint(job.descriptor, each, moves, run_after_ms, attempts, status) for each in bodies]
        return at.api.checkpoint(QUEUE, some, worker=REPORT, context=WORKER)

    return await with_jobs(at, rows, call)


async def heartbeats(at: Layer) -> Rows:
    rows = combined(
        CLAIMS, (None, "0.0", "0.5", "1.0", "-0.1", "nan", "inf"), (None, "", "half", "\u2026" * 300), (None, REPORT)
    )[::5]

    def call(row: tuple[Any, ...], job: DequeuedJob, before: str) -> Awaitable[Any]:
        claim, fraction, text, worker = row
        done = None if fraction is None else float(fraction)
        beat = Heartbeat(job.descriptor, claim_of(claim, job, before), done, text)
        return at.api.heartbeat(QUEUE, [beat], worker=worker, context=WORKER)

    return await with_jobs(at, rows, call)


# -- jobs that come ----------------------------------------------------------------------------------------------------


async def stored(at: Layer, rows: list[tuple[Any, ...]], job: Callable[[tuple[Any, ...]], list[Job]]) -> Rows:
    """Each row is enqueued twice, and claimed with one job more."""
    answers: Rows = []
    for row in rows:
        descriptors = set[str]()

        async def enqueue(row: tuple[Any, ...], descriptors: set[str]) -> Any:
            stored = await at.api.enqueue(QUEUE, job(row), context=WORKER)
            descriptors.update(stored)
            return stored

        said = [await at.answer(enqueue(row, descriptors)) for _ in range(2)]
        await at.api.enqueue(QUEUE, [Job(b"beside")], context=WORKER)
        claimed = await at.answer(at.api.dequeue(DequeueRequest(QUEUE, 10), context=WORKER))
        answers.append((row, (said, claimed, await infos(at, *sorted(descriptors)))))
    return answers


async def plain_jobs(at: Layer) -> Rows:
    now_ms = at.clock.now_ms()
    times = (None, 0, -1, now_ms - 5, now_ms + 60_000, 2**53 - 1, 2**53)
    rows = combined((*BODIES, b"x" * (2**20 + 1)), (0, 1, 3), times, (-1, 0, 2, 2**31 - 1), STATUSES)
    return await stored(at, rows[::11], lambda row: [Job(*row)])


async def extended_jobs(at: Layer) -> Rows:
    now_ms = at.clock.now_ms()
    names = count()
    rows = [
        (next(names), *row)
        for row in combined(
            ("", "d", "k" * 256),
            ("", "s") if at.over != "overflow" else ("",),
            (None, 0, 60_000, 2**31 - 1),
            (OnDuplicate.KEEP, OnDuplicate.REPLACE, OnDuplicate.REJECT)
            if at.over != "overflow"
            else (OnDuplicate.KEEP,),
            (0, -1, 60_000),
            (None, 0, now_ms + 60_000),
            ("", "again") if at.over != "overflow" else ("",),
            (b"", LARGE),
        )[::31]
    ]

    def made(row: tuple[Any, ...]) -> list[Job]:
        number, dedupe, serialize, timeout_ms, on_duplicate, dedupe_for_ms, expires_at_ms, send_id, body = row
        keys = [f"{each}{number}" if len(each) == 1 else each for each in (dedupe, serialize, send_id)]
        return [
            ExtendedJob(
                body,
                dedupe_key=keys[0],
                serialize_key=keys[1],
                claim_timeout_ms=timeout_ms,
                on_duplicate=on_duplicate,
                dedupe_for_ms=dedupe_for_ms,
                expires_at_ms=expires_at_ms,
                send_id=f"{keys[2]}{number}" if send_id else "",
            )
        ]

    return await stored(at, rows, made)


# -- dequeues ----------------------------------------------------------------------------------------------------------


async def dequeues(at: Layer) -> Rows:
    rows = combined(
        (1, 3, 0, 2**31 - 1),
        (False, True),
        (1.0, 0.0, 1.5),
        (None, 0, 1, 2**31 - 1),
        (False, True),
        (0, 2, -1),
        (None, REPORT),
    )[::17]
    answers = []
    for row in rows:
        limit, is_dry, coverage, timeout_ms, binds, prefetch, worker = row
        await at.api.enqueue(QUEUE, [Job(b"x"), Job(LARGE, priority=2), Job(b"z", priority=2)], context=WORKER)
        request = DequeueRequest(
            QUEUE,
            limit,
            dry_run=is_dry,
            coverage=coverage,
            claim_timeout_ms=timeout_ms,
            prefetch=prefetch,
            worker=worker,
            release_on_disconnect=binds,
        )
        said = await at.answer(at.api.dequeue(request, context=WORKER))
        answers.append((row, said))
        left = await at.api.dequeue(DequeueRequest(QUEUE, 1_000), context=WORKER) if is_dry else []
        answers.append((row, len(left)))
    return answers


# -- jobs that are named -----------------------------------------------------------------------------------------------


async def reschedules(at: Layer) -> Rows:
    now_ms = at.clock.now_ms()
    rows = combined((None, 0, now_ms + 60_000, 2**53), (None, *BODIES), (None, 0, 7), (None, now_ms, 5))[::5]
    (descriptors, said) = [], []
    for number, (run_after_ms, body, attempts, updated_at_ms) in enumerate(rows):
        (descriptor,) = await at.api.enqueue(QUEUE, [ExtendedJob(LARGE, dedupe_key=f"r{number}")], context=WORKER)
        descriptors.append(descriptor)
        key = KeyRef(f"r{number}") if number % 3 == 0 and at.over != "overflow" else None
        change = RescheduleJob("" if key else descriptor, key, run_after_ms, body, attempts, updated_at_ms)
        said.append(await at.answer(at.api.reschedule(QUEUE, [change], context=WORKER)))
    odd = [RescheduleJob(text, body=LARGE) for text in ODD_DESCRIPTORS]
    told = [await at.answer(at.api.reschedule(QUEUE, [each], context=WORKER)) for each in odd]
    now = [await infos(at, descriptor) for descriptor in descriptors]
    return [*zip(rows, zip(said, now, strict=True), strict=True), *zip(ODD_DESCRIPTORS, told, strict=True)]


async def lookups_and_cancels(at: Layer) -> Rows:
    answers: Rows = []
    for number, (running, state) in enumerate(combined((False, True), ("pending", "running", "ended"))):
        (job,) = await at.running(LARGE)
        if state == "ended":
            await at.api.ack(QUEUE, [Ack(job.descriptor, result=LARGE)], [], context=WORKER)
        named = [job.descriptor, *filter(is_descriptor, ODD_DESCRIPTORS)]
        if state == "pending":
            named += await at.api.enqueue(QUEUE, [Job(LARGE, run_after_ms=at.clock.now_ms() + number)], context=WORKER)
        for with_body, with_result in combined((False, True), (False, True)):
            looking = at.api.lookup(named, include_body=with_body, include_result=with_result, context=WORKER)
            answers.append(((running, state, with_body, with_result), await at.answer(looking)))
        cancelling = at.api.cancel(QUEUE, named, running=running, context=WORKER)
        answers.append(((running, state), await at.answer(cancelling)))
        answers.append(((running, state), await infos(at, *named)))
    return answers


async def queries_and_changes(at: Layer) -> Rows:
    """What operators ask of jobs on shards, where bodies may lie in a tier."""
    if at.over == "overflow":  # which has no part in it
        return []
    answers: Rows = []
    selection = JobSelection(QUEUE, body_conditions=[TextCondition("x{3}")])
    calls: dict[str, Callable[[JobState], Awaitable[Any]]] = {
        "scan": lambda state: at.api.scan(JobFilter(QUEUE, state), limit=3, context=WORKER),
        "scan by body": lambda state: at.api.scan(JobFilter(QUEUE, state, body_regex="^x{255}"), context=WORKER),
        "scan by no pattern": lambda state: at.api.scan(JobFilter(QUEUE, state, body_regex="("), context=WORKER),
        "count": lambda state: at.api.count(JobFilter(QUEUE, state, 1), context=WORKER),
        "count by body": lambda state: at.api.count(JobFilter(QUEUE, state, body_regex="x$"), context=WORKER),
        "search": lambda state: at.api.search_jobs(selection, include_body=True, context=WORKER),
        "peek": lambda state: at.api.dequeue(DequeueRequest(QUEUE, 9, dry_run=True), context=WORKER),
        "retry": lambda state: at.api.retry_failed(QUEUE, attempts=2, limit=1, context=WORKER),
        "delete by body": lambda state: at.api.delete_jobs(JobFilter(QUEUE, state, 1, body_regex="x"), context=WORKER),
        "delete": lambda state: at.api.delete_jobs(JobFilter(QUEUE, state, 1), limit=1, context=WORKER),
    }
    jobs = await at.running(*BODIES, *BODIES, *BODIES)
    ends = [Ack(job.descriptor, permanent=True, result=LARGE) for job in jobs]
    await at.api.ack(QUEUE, ends[:4], ends[4:8], context=WORKER)
    await at.api.enqueue(QUEUE, [Job(body) for body in BODIES], context=WORKER)
    for state, (name, call) in product(JobState, calls.items()):
        answers.append(((state, name), await at.answer(call(state))))
    return answers


TABLES: dict[str, Table] = {
    table.__name__: table
    for table in (
        acks,
        riding_acks,
        acks_on_a_dequeue_from_many,
        many_acks_in_one,
        checkpoints,
        heartbeats,
        plain_jobs,
        extended_jobs,
        dequeues,
        reschedules,
        lookups_and_cancels,
        queries_and_changes,
    )
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("table", TABLES)
async def test_what_the_bare_store_takes_a_layer_takes(table: str, name: str, tmp_path: Path) -> None:
    async with layer("bare", tmp_path, over=name) as bare, layer(name, tmp_path) as at:
        expected, found = await TABLES[table](bare), await TABLES[table](at)
    assert [row for row, _ in expected] == [row for row, _ in found]
    differ = [(row, one, other) for (row, one), (_, other) in zip(expected, found, strict=True) if one != other]
    assert not differ, f"{len(differ)} of {len(expected)} rows differ; the first: {bare.shown(differ[0])}"
