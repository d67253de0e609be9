"""Dequeues: one under way at a time, for all queues of the worker, with the acks so far riding.

A worker with one queue sends dequeueJobs, whose acks join the claim; one with several sends dequeueFromQueues. The next
leaves when one returns, or later, when a slot is free that no job here will take: then it may wait for jobs. While
there are jobs at hand, it leaves when half of them have begun, keeps one slot for what it brings, and does not wait.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pinlater.client.async_client import AsyncClient
from pinlater.errors import Forbidden, PinLaterError, QueueNotFound
from pinlater.model import (
    AckOutcome,
    DequeuedJob,
    DequeueFromQueuesRequest,
    DequeueRequest,
    QueueAcks,
    QueueShare,
)
from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.observability.metrics import QueueSummary
from pinlater_workers.worker.ack_batches import AckBatch, acks
from pinlater_workers.worker.ack_sender import REFUSED, AckSender
from pinlater_workers.worker.batches import BatchQueues
from pinlater_workers.worker.prefetch import PrefetchPlan
from pinlater_workers.worker.queue_state import LOOK_AGAIN_S, UNANSWERED, IncidentLog, QueueStates, log

LAST_ANSWERS_S = 2.0
MAX_LIMIT = 10_000
"""The server cuts a dequeue to so many jobs."""

FULL_SHARE = 0.5
"""With so much of what was asked for beyond the limit there is more: the parts of queues are rounded."""

REFUSED_PAUSE_S = 2.0
"""Between the two refusals of a token that end a worker."""

REFUSED_TIMEOUT_S = 60.0
"""Servers hold back answers to wrong tokens."""

CREATED_PAUSE_S = 0.5
"""After a queue was created: a server that does not know it yet is not asked in a loop. All do within 2 s."""


class Slots(Protocol):
    """The jobs that run and those at hand, as the fetcher sees them."""

    reserved: int
    """Free slots that are kept for jobs on their way; the fetcher counts them."""

    def free(self) -> int:
        """How many slots have no job; those that are reserved count as free. Below 0: so many jobs wait in the pool."""

    @property
    def at_hand(self) -> int:
        """How many jobs wait here for a slot, those in the pool left out."""

    @property
    def leads(self) -> bool:
        """A slot will be free in a moment, if none is now."""

    def at_hand_of(self) -> Counter[str]:
        """How many jobs wait, here or in the pool, by queue."""

    def gathering(self, queue: str) -> int:
        """How many jobs of the queue wait for others of their batch."""

    def take(self, jobs: Mapping[str, Sequence[DequeuedJob]]) -> None:
        """Jobs that have just been claimed, by queue: they begin, or wait at hand."""

    def refill(self, now_s: float) -> None:
        """Slots are reserved no more: jobs at hand begin in them."""


class Fetch(NamedTuple):
    """One dequeue. So many slots as its limit are reserved until it is answered, or has failed. `prefetch`: by queue.
    `planned`: the most that the plan wants of a queue, batches left out. `wait_s` 0: answered at once.
    """

    limit: int
    prefetch: Mapping[str, int]
    planned: int
    wait_s: float


class Fetched(NamedTuple):
    """The answer. `ack_outcomes`: of each batch that rode, in order; empty where all had an effect."""

    jobs: Mapping[str, Sequence[DequeuedJob]]
    queue_errors: Mapping[str, PinLaterError]
    ack_outcomes: Sequence[Sequence[AckOutcome]]


class Fetcher:
    """Dequeues jobs for the slots of a worker. `done` gets the task of each dequeue at its end."""

    def __init__(
        self,
        client: AsyncClient,
        settings: WorkerSettings,
        ack_sender: AckSender,
        incidents: IncidentLog,
        jobs: Slots,
        prefetch: PrefetchPlan,
        done: Callable[[asyncio.Task[None]], None],
        batch_queues: BatchQueues | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._acks = ack_sender
        self._jobs = jobs
        self._prefetch = prefetch
        self._batch_queues = batch_queues
        self._done = done
        self._lease_ms = int(settings.lease_s * 1000)
        self._weights = settings.queues
        self._sole = next(iter(settings.queues)) if len(settings.queues) == 1 else ""
        self._half = min((settings.concurrency + 1) // 2, MAX_LIMIT)
        self._loop = asyncio.get_running_loop()
        self._states = QueueStates(settings.queues, incidents, random.Random())
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_under_way = False
        self._not_before_s = float("-inf")
        self._arriving: Counter[str] = Counter()
        """Jobs that have been claimed and are about to be taken, by queue."""
        self._arriving_slots = 0
        """The slots that are reserved for them."""
        self._creating: set[str] = set()
        self._first_look = not self._sole
        """Which queues are paused, or not there, is asked before anything is waited for."""
        self._stopped = self._is_quiet = False
        self._checks_token = False
        self.good_s = time.monotonic()
        """When a server last answered."""

    def go_on(self) -> None:
        """Sends the dequeue that there are free slots for, if none is under way. Called whenever something changed."""
        if self._stopped or self._is_quiet or self._is_under_way:
            return
        jobs = self._jobs
        free = jobs.free()
        waiting = jobs.at_hand + max(0, -free) + self._slots_of(self._arriving) - self._arriving_slots
        if free <= jobs.reserved and (jobs.reserved or not waiting or not jobs.leads):
            return
        spare = free - jobs.reserved - waiting
        if spare <= 0 and not self._prefetch.wants_more(waiting):
            return
        now_s = time.monotonic()
        if now_s < self._not_before_s:
            return
        # quick jobs of several queues: the server shares a limit by weight, and by it what comes beyond
        limit = min(max(spare, self._half if jobs.leads and not self._sole else 1), self._half)
        prefetch = self._prefetch.next(self._jobs.at_hand_of() + self._arriving)
        planned = max(prefetch.values(), default=0)
        if self._batch_queues is not None:
            prefetch |= self._batch_queues.extra(limit, self._weights, self._jobs.gathering)
        fetch = Fetch(limit, prefetch, planned, self._wait_s() if spare > 0 else 0.0)
        self._is_under_way = True
        self._jobs.reserved += fetch.limit
        riding = self._acks.piggyback(self._sole)
        self._start(self._fetch(fetch, riding))

    @property
    def is_fetching(self) -> bool:
        """Jobs may come by a dequeue that is under way."""
        return bool(self._tasks)

    def rest(self) -> None:
        """No more jobs until `resume`, but for those that are on their way already."""
        self._is_quiet = True

    def cancel_wait(self) -> None:
        """The dequeue that waits is answered soon, while the fetcher rests."""
        if self._is_quiet:
            self._client.cancel_long_polls()

    def resume(self) -> None:
        self._is_quiet = False
        self._client.resume_long_polls()
        self.go_on()

    async def stop(self) -> None:
        """No more jobs, but for those that are on their way already; they come before this returns."""
        self._stopped = True
        self._client.cancel_long_polls()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_ANSWERS_S)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def view(self) -> Mapping[str, QueueSummary]:
        return self._states.view()

    # -- one dequeue -----------------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._done)

    def _wait_s(self) -> float:
        """The news that a trouble is over is not kept waiting for: it comes at once where there is nothing but trouble,
        and in a while where other queues are waited for.
        """
        if self._first_look:
            return 0.0
        troubled = len(self._states.troubled) + len(self._creating)
        if troubled >= len(self._weights):
            return 0.0
        return min(self._settings.poll_s, LOOK_AGAIN_S) if troubled else self._settings.poll_s

    async def _fetch(self, fetch: Fetch, riding: Sequence[AckBatch]) -> None:
        """Acks that ride are not kept waiting for their answer."""
        try:
            fetched = await self._call(fetch, riding, 0 if riding else int(fetch.wait_s * 1000))
        except PinLaterError as error:
            self._end(fetch.limit)
            for batch in riding:
                self._settle(batch, error)
            self._failed(error)
        except asyncio.CancelledError:
            for batch in riding:
                self._acks.not_acked(batch, "the worker stops")
            raise
        else:
            for number, batch in enumerate(riding):
                self._acks.acked(batch, fetched.ack_outcomes[number] if fetched.ack_outcomes else ())
            self.good_s = time.monotonic()
            await self._answered(fetch, fetched)

    async def _call(self, fetch: Fetch, riding: Sequence[AckBatch], wait_ms: int) -> Fetched:
        if self._sole:
            return await self._call_sole(fetch, riding, wait_ms)
        found = await self._client.dequeue_from_queues(
            DequeueFromQueuesRequest(
                [QueueShare(queue, weight, fetch.prefetch.get(queue, 0)) for queue, weight in self._weights.items()],
                fetch.limit,
                [QueueAcks(batch.queue, *acks(batch.results)) for batch in riding],
                wait_ms=wait_ms,
                claim_timeout_ms=self._lease_ms,
                release_on_disconnect=True,
                confirms_receipt=True,
            )
        )
        jobs: dict[str, list[DequeuedJob]] = {}
        for job in found:
            jobs.setdefault(job.descriptor.partition(":")[0], []).append(job)
        return Fetched(jobs, found.queue_errors, found.ack_outcomes)

    async def _call_sole(self, fetch: Fetch, riding: Sequence[AckBatch], wait_ms: int) -> Fetched:
        limit, prefetch = fetch.limit, fetch.prefetch.get(self._sole, 0)
        if self._batch_queues is not None and self._batch_queues.is_whole(self._sole):
            limit, prefetch = limit + prefetch, 0  # they all have their slots: also under a rate, and for a long poll
        request = DequeueRequest(
            self._sole,
            limit,
            wait_ms=wait_ms,
            claim_timeout_ms=self._lease_ms,
            release_on_disconnect=True,
            confirms_receipt=True,
            prefetch=prefetch,
        )
        for batch in riding:
            request.succeeded, request.failed = acks(batch.results)
            request.ack_queue = batch.queue
        jobs = await self._client.dequeue(request)
        return Fetched({self._sole: jobs} if jobs else {}, {}, [jobs.ack_outcomes] if jobs.ack_outcomes else ())

    def _slots_of(self, jobs: Mapping[str, int]) -> int:
        if self._batch_queues is None:
            return sum(jobs.values())
        return sum(self._batch_queues.slots(queue, count) for queue, count in jobs.items())

    def _end(self, slots: int) -> None:
        self._is_under_way = False
        self._jobs.reserved -= slots

    async def _answered(self, fetch: Fetch, fetched: Fetched) -> None:
        """The next dequeue leaves first, in the loop's next turn: the server works on it while these jobs are read and
        run.

        It is their receipt too, or the client sends another in that turn: so a job that kills this worker has been
        received. They are taken whatever happens meanwhile, as they are claimed.
        """
        jobs = fetched.jobs
        came = {queue: len(of_queue) for queue, of_queue in jobs.items()}
        count = sum(came.values())
        slots = min(self._slots_of(came), fetch.limit)
        self._end(fetch.limit - slots)
        self._note_states(fetched)
        if self._slots_of(came) < fetch.limit + fetch.planned * FULL_SHARE:
            self._prefetch.ran_dry()
        if not count:
            self._jobs.refill(self.good_s)
            self.go_on()
            return
        self._arriving.update(came)
        self._arriving_slots += slots
        self.go_on()
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            self._arriving.subtract(came)
            self._arriving += Counter()
            self._arriving_slots -= slots
            self._jobs.reserved -= slots
            self._jobs.take(jobs)

    def _settle(self, riding: AckBatch, error: PinLaterError) -> None:
        """Where some are invalid the others were carried out; which ones are found out by sending them again."""
        if error.acks_applied and not isinstance(error, REFUSED):
            self._acks.acked(riding)
        else:
            self._acks.not_acked(riding, str(error))

    # -- queues in trouble -----------------------------------------------------------------------------------------

    def _note_states(self, fetched: Fetched) -> None:
        """A queue that gave nothing but an error is asked again with the others. Where there are no others, a while is
        left to them.
        """
        if self._stopped or self._is_quiet:
            return  # a wait that was cut short says nothing of the queues
        errors, self._first_look = fetched.queue_errors, False
        if not errors:
            self._states.answered(self._weights)
            return
        self._states.answered(self._weights.keys() - errors.keys())
        hold_s = min(self._queue_failed(queue, error) for queue, error in errors.items())
        if len(errors) == len(self._weights):
            self._hold(hold_s)

    def _failed(self, error: PinLaterError) -> None:
        """A dequeue as a whole."""
        if self._stopped or self._is_quiet:
            return
        if not isinstance(error, UNANSWERED):
            self.good_s = time.monotonic()
        if isinstance(error, Forbidden) and not self._checks_token:
            self._checks_token = True
            self._start(self._check_token())
        self._hold(max(self._queue_failed(queue, error) for queue in self._weights))
        self._jobs.refill(time.monotonic())

    async def _check_token(self) -> None:
        """Rules may change, and the dequeues go on. Forbidden: the token is not known, and the worker ends."""
        try:
            if not await self._is_known():
                await asyncio.sleep(REFUSED_PAUSE_S)
                await self._client.get_access(timeout=REFUSED_TIMEOUT_S)
        except Forbidden as error:
            raise Forbidden(f"the worker ends, as the servers do not know its token: {error.message}") from error
        except PinLaterError:  # the dequeues say what is wrong
            pass
        finally:
            self._checks_token = False

    async def _is_known(self) -> bool:
        try:
            await self._client.get_access(timeout=REFUSED_TIMEOUT_S)
        except Forbidden:
            return False
        return True

    def _queue_failed(self, queue: str, error: PinLaterError) -> float:
        """The seconds to leave it alone."""
        if not (self._settings.create_queues and isinstance(error, QueueNotFound)):
            return self._states.failed(queue, error)
        if queue not in self._creating:
            self._creating.add(queue)
            self._start(self._create(queue))
        return CREATED_PAUSE_S

    async def _create(self, queue: str) -> None:
        try:
            await self._client.create_queue(queue)
        except PinLaterError as error:
            self._states.failed(queue, error)
        else:
            log.info("queue %s was not there: created", queue)
        self._loop.call_later(CREATED_PAUSE_S, self._creating.discard, queue)

    def _hold(self, seconds: float) -> None:
        """No dequeue for so long."""
        self._not_before_s = time.monotonic() + seconds
        self._go_on_at(self._not_before_s)

    def _go_on_at(self, until_s: float) -> None:
        """Not before that moment: a timer may fire a little early, by another clock, and nothing may come after it."""
        left_s = until_s - time.monotonic()
        if left_s > 0:
            self._loop.call_later(left_s, self._go_on_at, until_s)
        else:
            self.go_on()
