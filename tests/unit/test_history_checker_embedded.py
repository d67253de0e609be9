"""The checker of histories on what the real service answers: callers draw what they do, and time jumps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pinlater.client.async_client import AsyncClient
from pinlater.client.recorded_calls import RecordedCalls
from pinlater.embedded import EmbeddedServer, EmbeddedTransport
from pinlater.errors import RequestInvalid
from pinlater.history.call_events import CallEnd, Event
from pinlater.history.checker import check
from pinlater.history.history_files import events_in
from pinlater.history.recorder import Recorder, header
from pinlater.job_limits import JobLimits
from pinlater.model import (
    Ack,
    Checkpoint,
    DequeuedJob,
    DequeueRequest,
    ExtendedJob,
    Heartbeat,
    Job,
    JobFilter,
    JobState,
    KeyRef,
    OnDuplicate,
    ReplaceRunning,
    RescheduleJob,
)
from tests.conformance.served import HeldClock

QUEUE = "mail"
ROUNDS = 120
AT_ONCE = 3


class Callers:
    """Draw calls by chance, several at once."""

    def __init__(self, client: AsyncClient, clock: HeldClock, rng: random.Random) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._known: list[str] = []
        self._held: list[DequeuedJob] = []

    async def run(self) -> None:
        await self._client.create_queue(QUEUE)
        await self._client.get_queues()
        for _ in range(ROUNDS):
            await asyncio.gather(*[self._deed() for _ in range(self._rng.randint(1, AT_ONCE))])
            self._clock.tick(self._rng.choice((0, 0, 1, 500, 2_000, 20_000)))

    async def _deed(self) -> None:
        rng = self._rng
        deeds = [self._enqueue, self._enqueue, self._dequeue, self._dequeue, self._count]
        if self._held:
            deeds += [self._ack, self._ack, self._renew, self._checkpoint]
        if self._known:
            deeds += [self._look, self._cancel, self._reschedule]
        with suppress(RequestInvalid):  # a REPLACE of another priority
            await rng.choice(deeds)()

    def _job(self) -> Job:
        rng, body = self._rng, str(self._rng.random()).encode()
        run_after_ms = self._clock.now_ms() + rng.choice((1_000, 30_000)) if rng.random() < 0.2 else None
        kind = rng.random()
        if kind < 0.4:
            return Job(body, rng.randint(1, 2), run_after_ms, rng.randint(1, 3))
        replaces = kind < 0.7 and rng.random() < 0.5
        return ExtendedJob(
            body,
            run_after_ms=run_after_ms,
            attempts_allowed=rng.randint(1, 3),
            dedupe_key=f"key-{rng.randrange(4)}" if kind < 0.7 else "",
            on_duplicate=OnDuplicate.REPLACE if replaces else OnDuplicate.KEEP,
            dedupe_for_ms=rng.choice((0, 10_000)) if kind < 0.7 else 0,
            replace_running=rng.choice(tuple(ReplaceRunning)) if replaces else ReplaceRunning.KEEP,
            replace_within_ms=rng.choice((None, 5_000)) if replaces else None,
            serialize_key=f"chain-{rng.randrange(2)}" if kind >= 0.6 else "",
            expires_at_ms=self._clock.now_ms() + 60_000 if kind > 0.9 else None,
        )

    async def _enqueue(self) -> None:
        stored = await self._client.enqueue(QUEUE, self._job())
        self._known.append(stored)

    async def _dequeue(self) -> None:
        rng = self._rng
        acks = [self._success()] if self._held and rng.random() < 0.3 else []
        request = DequeueRequest(QUEUE, rng.randint(1, 3), succeeded=acks, claim_timeout_ms=rng.choice((None, 5_000)))
        self._held += await self._client.dequeue(request)

    def _success(self) -> Ack:
        job = self._rng.choice(self._held[-5:])
        result = str(self._rng.random()).encode() if self._rng.random() < 0.5 else None
        return Ack(job.descriptor, claim_descriptor=job.claim_descriptor, result=result)

    async def _ack(self) -> None:
        rng, ack = self._rng, self._success()
        if rng.random() < 0.5:
            await self._client.ack(QUEUE, [ack])
            return
        failed = Ack(
            ack.descriptor,
            claim_descriptor=ack.claim_descriptor,
            retry_delay_ms=rng.choice((0, 3_000)),
            permanent=rng.random() < 0.2,
        )
        await self._client.ack(QUEUE, [], [failed])

    async def _renew(self) -> None:
        job = self._rng.choice(self._held[-5:])
        await self._client.heartbeat(QUEUE, [Heartbeat(job.descriptor, job.claim_descriptor)])

    async def _checkpoint(self) -> None:
        job, rng = self._rng.choice(self._held[-5:]), self._rng
        named = Checkpoint(
            job.descriptor,
            claim_descriptor=job.claim_descriptor,
            new_body=str(rng.random()).encode(),
            move_to_pending=rng.random() < 0.5,
        )
        await self._client.checkpoint(QUEUE, [named])

    async def _look(self) -> None:
        names = self._rng.sample(self._known, min(3, len(self._known)))
        keys = [KeyRef("key-1")] if self._rng.random() < 0.3 else []
        await self._client.lookup(names, include_body=True, include_result=True, keys=keys, queue=QUEUE)

    async def _count(self) -> None:
        await self._client.count(JobFilter(QUEUE, JobState.PENDING, future=self._rng.random() < 0.5))

    async def _cancel(self) -> None:
        await self._client.cancel(QUEUE, [self._rng.choice(self._known[-8:])], running=self._rng.random() < 0.5)

    async def _reschedule(self) -> None:
        change = RescheduleJob(self._rng.choice(self._known[-8:]), body=str(self._rng.random()).encode())
        await self._client.reschedule(QUEUE, [change])


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def server(clock: HeldClock) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(clock, JobLimits(), lambda: (), lambda *_: None, lambda *_: None)
    yield server
    server.close()


@pytest.mark.parametrize("seed", range(3))
async def test_what_the_service_answers_is_explained(server: EmbeddedServer, clock: HeldClock, seed: int) -> None:
    lines = [header(0.0)]
    recorder = Recorder(lines.append, clock.now_ms)
    transport = RecordedCalls(EmbeddedTransport(server), recorder)
    async with AsyncClient(transport=transport, source="callers", tls=False, token="") as client:
        await Callers(client, clock, random.Random(seed)).run()
    events: list[Event] = list(events_in(lines, Path("recorded")))
    verdict = check(events)
    assert verdict.is_explained, list(verdict.lines())
    assert verdict.calls > ROUNDS
    assert not verdict.passed_over
    assert verdict.unjudged_jobs == 0
    assert sum(isinstance(event, CallEnd) for event in events) == verdict.calls
