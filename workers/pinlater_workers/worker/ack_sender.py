"""Results on their way to the server, until it has them or their claims have surely expired.

Acks ride on dequeues (polling.py takes them). Those that nothing took in `ack_delay_s` go by a call of their own, as do
moves; and so does what failed once: it is sent again with backoff, shard by shard, and its claims are kept alive.
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
from pinlater_workers.jobs.context import Running, Why
from pinlater_workers.observability.metrics import Metrics
from pinlater_workers.worker.ack_batches import Outbox, Parcel, Result, acks, in_order, moves
from pinlater_workers.worker.claims import Keeping
from pinlater_workers.worker.queue_state import Troubles, log, pause_s

CALL_TIMEOUT_S = 5.0
REFUSED = (RequestInvalid, BodyTooLarge)
"""One result of a parcel can cause these for all."""


class Delivery:
    """`done` gets the task of each call when it has ended."""

    def __init__(
        self,
        client: AsyncClient,
        keeping: Keeping,
        ack_delay_s: float,
        clock: Clock,
        troubles: Troubles,
        metrics: Metrics,
        done: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._client = client
        self._keeping = keeping
        self._ack_delay_s = ack_delay_s
        self._clock = clock
        self._troubles = troubles
        self._metrics = metrics
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._rng = random.Random()
        self._outbox = Outbox()
        self._on_way = 0
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._moving: set[str] = set()
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def unacked(self) -> int:
        """Results that the server has not confirmed."""
        return self._outbox.count + self._on_way

    def put(self, results: Sequence[Result]) -> None:
        self._outbox.put(results, time.monotonic())
        if self._timer is None and self._outbox.has_acks:
            self._timer = self._loop.call_later(self._ack_delay_s, self._send_waiting)
        self._send_moves()

    # -- riding on a dequeue ---------------------------------------------------------------------------------------

    def ride(self, queue: str) -> Parcel | None:
        """Acks for a dequeue of this queue to carry; the caller says what became of them."""
        parcel = self._outbox.take_for(queue)
        if parcel is not None:
            self._on_way += len(parcel.results)
        return parcel

    def delivered(self, parcel: Parcel, outcomes: Sequence[AckOutcome] = ()) -> None:
        """`outcomes`: of each result in the order of `acks`, where the server says them."""
        self._on_way -= len(parcel.results)
        self._keeping.end(parcel.results)
        if not parcel.is_copy and AckOutcome.IGNORED in outcomes:
            self._say_ignored(parcel, outcomes)

    def _say_ignored(self, parcel: Parcel, outcomes: Sequence[AckOutcome]) -> None:
        """A claim was lost, or somebody else has ended the job: what was done may be done again, or was done twice."""
        ended = [
            running
            for running, outcome in zip(in_order(parcel.results), outcomes, strict=False)
            if outcome is AckOutcome.IGNORED
        ]
        for running in ended:
            if running.type is not None:
                self._metrics.ignored(running.type.name)
        log.warning(
            "the results of %d jobs of queue %s had no effect: their claims had ended; the first is %s",
            len(ended),
            parcel.queue,
            ended[0].job.descriptor,
        )

    def undelivered(self, parcel: Parcel, why: str) -> None:
        """They may not have been carried out."""
        self._spawn(self._deliver_again(parcel, why))

    # -- calls of their own ----------------------------------------------------------------------------------------

    def _send_waiting(self) -> None:
        """By the timer: acks that nothing took. It runs on while there are acks at all."""
        self._timer = None
        for parcel in self._outbox.take_waiting(time.monotonic() - self._ack_delay_s):
            self._start(parcel)
        oldest_s = self._outbox.oldest_s()
        if oldest_s is not None:
            pause = max(0.0, oldest_s + self._ack_delay_s - time.monotonic())
            self._timer = self._loop.call_later(pause, self._send_waiting)

    def _send_moves(self) -> None:
        """One call at a time for each queue; what comes meanwhile makes the next batch."""
        for queue in self._outbox.moving():
            if queue not in self._moving:
                parcel = self._outbox.take_moves(queue)
                if parcel is not None:
                    self._moving.add(queue)
                    self._start(parcel)

    def _start(self, parcel: Parcel) -> None:
        self._on_way += len(parcel.results)
        self._spawn(self._deliver(parcel))

    def _spawn(self, delivering: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(delivering)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        task.add_done_callback(self._done)

    async def _deliver(self, parcel: Parcel) -> None:
        """The first try; then as often as it takes."""
        why = await self._try(parcel)
        if parcel.moves:
            self._moving.discard(parcel.queue)
            self._send_moves()
        if why:
            await self._deliver_again(parcel, why)

    async def _deliver_again(self, parcel: Parcel, why: str) -> None:
        parcel.is_copy = True
        self._keeping.keep(parcel.results)
        await asyncio.gather(*(self._until_through(part, why) for part in parcel.by_shard()))

    async def _until_through(self, parcel: Parcel, why: str) -> None:
        name = f"{id(parcel):x}"
        self._troubles.begin("results", f"results of jobs are not delivered, and are kept meanwhile: {why}", name)
        failures = 1
        while True:
            await asyncio.sleep(pause_s(failures, self._rng))
            if not await self._try(parcel):
                break
            self._give_up(parcel)
            if not parcel.results:
                break
            failures += 1
        self._troubles.over("results", "no results wait for a server any more", name)

    def _give_up(self, parcel: Parcel) -> None:
        """What it would be useless to send again: claims that are lost, and those that have surely expired.

        A claim also counts as lost when its ack was carried out and only the answer was not heard: so every result is
        sent again at least once.
        """
        useless = parcel.take(self._is_useless)
        if useless:
            log.warning(
                "no server confirmed the results of %d jobs of queue %s while their claims held; they may run again",
                len(useless),
                parcel.queue,
            )
            self._end(useless)

    def _is_useless(self, running: Running) -> bool:
        return running.told is Why.CLAIM_LOST or self._keeping.has_expired(running)

    async def _try(self, parcel: Parcel) -> str:
        """Why it is to be sent again; "": the server has them, or they go on in smaller parcels."""
        try:
            outcomes = await self._call(parcel)
        except REFUSED as error:
            self._refused(parcel, error)
        except PinLaterError as error:
            return str(error)
        else:
            self.delivered(parcel, outcomes)
        return ""

    async def _call(self, parcel: Parcel) -> Sequence[AckOutcome]:
        if parcel.moves:
            listed = moves(parcel.results, self._clock.now_ms())
            await self._client.checkpoint(parcel.queue, listed, timeout=CALL_TIMEOUT_S)
            return ()
        return await self._client.ack(parcel.queue, *acks(parcel.results), timeout=CALL_TIMEOUT_S)

    def _refused(self, parcel: Parcel, error: PinLaterError) -> None:
        """The one that causes it is found by halving; it cannot be delivered at all. The others may have been carried
        out already.
        """
        parcel.is_copy = True
        if len(parcel.results) > 1:
            for half in parcel.halves():
                self._spawn(self._deliver(half))
            return
        descriptor = parcel.results[0][0].job.descriptor
        log.error("the result of job %s is refused; it runs again when its claim expires: %s", descriptor, error)
        self._end(parcel.results)

    def _end(self, results: Sequence[Result]) -> None:
        """Without having been delivered."""
        self._on_way -= len(results)
        self._keeping.end(results)
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
        for parcel in self._outbox.take_waiting(time.monotonic()):
            self._start(parcel)
        end_s = time.monotonic() + within_s
        while self._calls and time.monotonic() < end_s:
            await asyncio.wait(self._calls, timeout=end_s - time.monotonic())
        left = list(self._calls)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        if self.unacked:
            log.error("the worker ends with %d results that no server took; those jobs run again", self.unacked)
