"""Results on their way to the server, until it has them or their claims have surely expired.

Acks ride on dequeues (the fetcher takes them). Those that no dequeue took in `ack_delay_s` go by a call of their own,
as do requeues. What failed once is sent again with backoff, shard by shard, and its claims are kept alive.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from pinlater.client.async_client import AsyncClient
from pinlater.clock import Clock
from pinlater.errors import BodyTooLarge, PinLaterError, RequestInvalid
from pinlater.model import AckOutcome
from pinlater_workers.execution.acknowledgements import ACKS
from pinlater_workers.execution.decision import decide_refused
from pinlater_workers.jobs.context import StopReason
from pinlater_workers.jobs.running_job import RunningJob
from pinlater_workers.observability.metrics import WorkerMetrics
from pinlater_workers.worker.ack_batches import AckBatch, AckQueue, Result, acks, in_order, requeues
from pinlater_workers.worker.claims import ClaimKeeper
from pinlater_workers.worker.queue_state import IncidentLog, log, pause_s
from pinlater_workers.worker.unknown_jobs import UnknownJobs

CALL_TIMEOUT_S = 5.0
REFUSED = (RequestInvalid, BodyTooLarge)
"""One result of a batch can cause these for all."""


class AckSender:
    """Sends results to the servers, several per call, until one has them. `done` gets each call's task at its end."""

    def __init__(
        self,
        client: AsyncClient,
        unknown: UnknownJobs,
        claims: ClaimKeeper,
        ack_delay_s: float,
        clock: Clock,
        incidents: IncidentLog,
        metrics: WorkerMetrics,
        done: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._client = client
        self._unknown = unknown
        self._claims = claims
        self._ack_delay_s = ack_delay_s
        self._clock = clock
        self._incidents = incidents
        self._metrics = metrics
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._rng = random.Random()
        self._queue = AckQueue()
        self._in_flight = 0
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._requeuing: set[str] = set()
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def unacked(self) -> int:
        """Results that the server has not confirmed."""
        return self._queue.count + self._in_flight

    def put(self, results: Sequence[Result]) -> None:
        self._queue.put(results, time.monotonic())
        if self._timer is None and self._queue.has_acks:
            self._timer = self._loop.call_later(self._ack_delay_s, self._send_waiting)
        self._send_requeues()

    # -- riding on a dequeue ---------------------------------------------------------------------------------------

    def piggyback(self, queue: str) -> list[AckBatch]:
        """Acks for a dequeue of this queue to carry, or for one of all queues ("" ); the caller says what became of
        them.
        """
        batches = self._queue.take_riding(queue)
        self._in_flight += sum(len(batch.results) for batch in batches)
        return batches

    def acked(self, batch: AckBatch, outcomes: Sequence[AckOutcome] = ()) -> None:
        """`outcomes`: of each result in the order of `acks`, where the server says them."""
        self._in_flight -= len(batch.results)
        self._claims.end(batch.results)
        if not batch.may_repeat and AckOutcome.IGNORED in outcomes:
            self._say_ignored(batch, outcomes)

    def _say_ignored(self, batch: AckBatch, outcomes: Sequence[AckOutcome]) -> None:
        """A claim was lost, or somebody else has ended the job: what was done may be done again, or was done twice."""
        ended = [
            running
            for running, outcome in zip(in_order(batch.results), outcomes, strict=False)
            if outcome is AckOutcome.IGNORED
        ]
        for running in ended:
            if running.type is not None:
                self._metrics.ignored(running.type.name)
        log.warning(
            "the results of %d jobs of queue %s had no effect: their claims had ended; the first is %s",
            len(ended),
            batch.queue,
            ended[0].job.descriptor,
        )

    def not_acked(self, batch: AckBatch, why: str) -> None:
        """They may not have been carried out."""
        self._spawn(self._send_again(batch, why))

    # -- calls of their own ----------------------------------------------------------------------------------------

    def _send_waiting(self) -> None:
        """By the timer: acks that nothing took. It runs on while there are acks at all."""
        self._timer = None
        for batch in self._queue.take_waiting(time.monotonic() - self._ack_delay_s):
            self._start(batch)
        oldest_s = self._queue.oldest_s()
        if oldest_s is not None:
            pause = max(0.0, oldest_s + self._ack_delay_s - time.monotonic())
            self._timer = self._loop.call_later(pause, self._send_waiting)

    def _send_requeues(self) -> None:
        """One call at a time for each queue; what comes meanwhile makes the next batch."""
        for queue in self._queue.queues_to_requeue():
            if queue not in self._requeuing:
                batch = self._queue.take_requeues(queue)
                if batch is not None:
                    self._requeuing.add(queue)
                    self._start(batch)

    def _start(self, batch: AckBatch) -> None:
        self._in_flight += len(batch.results)
        self._spawn(self._send(batch))

    def _spawn(self, sending: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(sending)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        task.add_done_callback(self._done)

    async def _send(self, batch: AckBatch) -> None:
        """The first try; then as often as it takes."""
        why = await self._try(batch)
        if batch.requeues:
            self._requeuing.discard(batch.queue)
            self._send_requeues()
        if why:
            await self._send_again(batch, why)

    async def _send_again(self, batch: AckBatch, why: str) -> None:
        batch.may_repeat = True
        self._claims.keep(batch.results)
        await asyncio.gather(*(self._until_through(part, why) for part in batch.by_shard()))

    async def _until_through(self, batch: AckBatch, why: str) -> None:
        name = f"{id(batch):x}"
        self._incidents.begin("results", f"results of jobs are not delivered, and are kept meanwhile: {why}", name)
        failures = 1
        while True:
            await asyncio.sleep(pause_s(failures, self._rng))
            if not await self._try(batch):
                break
            self._give_up(batch)
            if not batch.results:
                break
            failures += 1
        self._incidents.over("results", "no results wait for a server any more", name)

    def _give_up(self, batch: AckBatch) -> None:
        """What it would be useless to send again: claims that are lost, and those that have surely expired.

        A claim also counts as lost when its ack was carried out and only the answer was lost: so every result is
        sent again at least once.
        """
        useless = batch.take(self._is_useless)
        if useless:
            log.warning(
                "no server confirmed the results of %d jobs of queue %s while their claims held; they may run again",
                len(useless),
                batch.queue,
            )
            self._end(useless)

    def _is_useless(self, running: RunningJob) -> bool:
        return running.stop_reason is StopReason.CLAIM_LOST or self._claims.has_expired(running)

    async def _try(self, batch: AckBatch) -> str:
        """Why it is to be sent again; "": the server has them, or they go on in smaller batches."""
        try:
            outcomes = await self._call(batch)
        except REFUSED as error:
            self._refused(batch, error)
        except PinLaterError as error:
            return str(error)
        else:
            self.acked(batch, outcomes)
        return ""

    async def _call(self, batch: AckBatch) -> Sequence[AckOutcome]:
        if batch.requeues:
            batch.results = await self._unknown.decide(batch.results, CALL_TIMEOUT_S)
            ended = [result for result in batch.results if result[1].action in ACKS]
            if ended:
                await self._client.ack(batch.queue, *acks(ended), timeout=CALL_TIMEOUT_S)
            back = [result for result in batch.results if result[1].action not in ACKS]
            if back:
                listed = requeues(back, self._clock.now_ms())
                await self._client.checkpoint(batch.queue, listed, timeout=CALL_TIMEOUT_S)
            return ()
        return await self._client.ack(batch.queue, *acks(batch.results), timeout=CALL_TIMEOUT_S)

    def _refused(self, batch: AckBatch, error: PinLaterError) -> None:
        """The one that causes it is found by halving; it cannot be delivered at all. The others may have been carried
        out already. A job whose new body or result is refused has failed: another attempt would end likewise.
        """
        batch.may_repeat = True
        if len(batch.results) > 1:
            for half in batch.halves():
                self._spawn(self._send(half))
            return
        running, outcome = batch.results[0]
        descriptor = running.job.descriptor
        if outcome.body is not None or outcome.result is not None:
            log.error("the result of job %s is refused; it has failed, and no attempt follows: %s", descriptor, error)
            if running.type is not None:
                self._metrics.dropped(running.type.name)
            batch.results = [(running, decide_refused(running.job, error))]
            self._spawn(self._send(batch))
            return
        log.error("the result of job %s is refused; it runs again when its claim expires: %s", descriptor, error)
        self._end(batch.results)

    def _end(self, results: Sequence[Result]) -> None:
        """Without having been delivered."""
        self._in_flight -= len(results)
        self._claims.end(results)
        for running, _ in results:
            if running.type is not None:
                self._metrics.dropped(running.type.name)

    # -- the end ---------------------------------------------------------------------------------------------------

    async def close(self, within_s: float) -> None:
        """Sends all at once, and again as often as that time allows. Once."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for batch in self._queue.take_waiting(time.monotonic()):
            self._start(batch)
        end_s = time.monotonic() + within_s
        while self._calls and time.monotonic() < end_s:
            await asyncio.wait(self._calls, timeout=end_s - time.monotonic())
        left = list(self._calls)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        if self.unacked:
            log.error("the worker ends with %d results that no server took; those jobs run again", self.unacked)
