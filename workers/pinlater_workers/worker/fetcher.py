"""Dequeues: one under way per queue; the next when one returns and slots are free, with the acks so far riding."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pinlater.client.async_client import AsyncClient
from pinlater.errors import PinLaterError, QueueNotFound
from pinlater.model import DequeuedJob, DequeueRequest
from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.observability.metrics import QueueSummary
from pinlater_workers.worker.ack_batches import AckBatch, acks
from pinlater_workers.worker.ack_sender import REFUSED, AckSender
from pinlater_workers.worker.queue_state import UNANSWERED, IncidentLog, QueueStates, log
from pinlater_workers.worker.scheduler import Fetch, FetchScheduler

LAST_ANSWERS_S = 2.0

CREATED_PAUSE_S = 0.5
"""After a queue was created: a server that does not know it yet is not asked in a loop. All do within 2 s."""


class Slots(Protocol):
    """The jobs that run, as the fetcher sees them."""

    def free(self) -> int:
        """How many slots are free; those that are reserved for dequeues under way count as free."""

    def take(self, queue: str, jobs: Sequence[DequeuedJob]) -> None:
        """Jobs that have just been claimed: they take up slots, and begin."""


class Fetcher:
    """Dequeues jobs for the free slots of a worker. `done` gets the task of each dequeue at its end."""

    def __init__(
        self,
        client: AsyncClient,
        settings: WorkerSettings,
        ack_sender: AckSender,
        incidents: IncidentLog,
        jobs: Slots,
        done: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._client = client
        self._settings = settings
        self._acks = ack_sender
        self._jobs = jobs
        self._done = done
        self._lease_ms = int(settings.lease_s * 1000)
        self._loop = asyncio.get_running_loop()
        self._states = QueueStates(settings.queues, incidents, random.Random())
        self._scheduler = FetchScheduler(settings.queues, settings.concurrency, settings.poll_s)
        self._fetches: set[asyncio.Task[None]] = set()
        self._claimed = 0
        """Jobs that have been claimed, and are about to be taken."""
        self._stopped = False
        self.good_s = time.monotonic()
        """When a server last answered."""

    def go_on(self) -> None:
        """Sends the dequeues that there are free slots for. Called whenever something has changed."""
        if self._stopped:
            return
        for fetch in self._scheduler.next(
            self._jobs.free() - self._claimed - self._scheduler.reserved, time.monotonic()
        ):
            riding = self._acks.piggyback(fetch.queue)
            task = self._loop.create_task(self._fetch(fetch, riding))
            self._fetches.add(task)
            task.add_done_callback(self._fetches.discard)
            task.add_done_callback(self._done)

    async def stop(self) -> None:
        """No more jobs, but for those that are on their way already; they come before this returns."""
        self._stopped = True
        self._client.cancel_long_polls()
        if self._fetches:
            await asyncio.wait(self._fetches, timeout=LAST_ANSWERS_S)
        left = list(self._fetches)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def view(self) -> Mapping[str, QueueSummary]:
        return self._states.view()

    # -- one dequeue -----------------------------------------------------------------------------------------------

    async def _fetch(self, fetch: Fetch, riding: AckBatch | None) -> None:
        """Acks that ride are not kept waiting for their answer; nor is the news that a trouble is over."""
        queue = fetch.queue
        request = DequeueRequest(
            queue, fetch.limit, claim_timeout_ms=self._lease_ms, release_on_disconnect=True, confirms_receipt=True
        )
        if riding is None and not self._states.is_troubled(queue):
            request.wait_ms = int(fetch.wait_s * 1000)
        if riding is not None:
            request.succeeded, request.failed = acks(riding.results)
            request.ack_queue = riding.queue
        try:
            jobs = await self._client.dequeue(request)
        except PinLaterError as error:
            if riding is not None:
                self._settle(riding, error)
            await self._failed(fetch, error)
        except asyncio.CancelledError:
            if riding is not None:
                self._acks.not_acked(riding, "the worker stops")
            raise
        else:
            if riding is not None:
                self._acks.acked(riding, jobs.ack_outcomes)
            self.good_s = time.monotonic()
            self._states.answered(queue)
            self._scheduler.answered(fetch, len(jobs), self.good_s)
            if jobs:
                await self._taken(queue, jobs)
                return
        self.go_on()

    async def _taken(self, queue: str, jobs: list[DequeuedJob]) -> None:
        """The next dequeue leaves first, in the loop's next turn: the server works on it while these are read and run.

        It is their receipt too, or the client sends another in that turn: so a job that kills this worker has been
        received. They are taken whatever happens meanwhile, as they are claimed.
        """
        self._claimed += len(jobs)
        self.go_on()
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            self._claimed -= len(jobs)
            self._jobs.take(queue, jobs)

    def _settle(self, riding: AckBatch, error: PinLaterError) -> None:
        """Where some are invalid the others were carried out; which ones are found out by sending them again."""
        if error.acks_applied and not isinstance(error, REFUSED):
            self._acks.acked(riding)
        else:
            self._acks.not_acked(riding, str(error))

    async def _failed(self, fetch: Fetch, error: PinLaterError) -> None:
        """The queue's slots are free for others while it is not asked."""
        if self._stopped:
            return
        if not isinstance(error, UNANSWERED):
            self.good_s = time.monotonic()
        if self._settings.create_queues and isinstance(error, QueueNotFound):
            failure = await self._create(fetch.queue)
        else:
            failure = error
        hold_s = CREATED_PAUSE_S if failure is None else self._states.failed(fetch.queue, failure)
        until_s = time.monotonic() + hold_s
        self._scheduler.failed(fetch, until_s)
        self._go_on_at(until_s)

    def _go_on_at(self, until_s: float) -> None:
        """Not before that moment: a timer may fire a little early, by another clock, and nothing may come after it."""
        left_s = until_s - time.monotonic()
        if left_s > 0:
            self._loop.call_later(left_s, self._go_on_at, until_s)
        else:
            self.go_on()

    async def _create(self, queue: str) -> PinLaterError | None:
        try:
            await self._client.create_queue(queue)
        except PinLaterError as error:
            return error
        log.info("queue %s was not there: created", queue)
        return None
