"""Completion callbacks: the maker of a flow is notified that it is over, at least once, with the same id each time.

A job on a queue of the caller's, or a POST of the flow's status, which is signed; tried again with growing pauses, and
given up visibly.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec
import structlog

from pinlater.background_tasks import BackgroundTasks, exponential_backoff_s
from pinlater.clock import Clock
from pinlater.errors import PinLaterError, QueueNotFound, RequestInvalid
from pinlater.flows.callback_job import callback_job, status_document
from pinlater.flows.callback_lanes import CallbackLanes
from pinlater.flows.connection import FlowConnection
from pinlater.flows.ends import DueCallback
from pinlater.flows.receivers import AllowedReceivers
from pinlater.metrics import Metrics
from pinlater.model import Job
from pinlater.model.flow_words import CompletionCallback
from pinlater.signed_post import SIGNATURE_HEADER, PostOutcome, mac, post_json, signature

_log = structlog.get_logger("pinlater.flows")

ID_HEADER, FLOW_ID_HEADER, OWNER_HEADER = "PinLater-Callback", "PinLater-Flow", "PinLater-Owner"
OLD_SIGNATURE_HEADER = "PinLater-Signature"
"""Of the body alone, for receivers of before: who goes by it takes what was meant for another one."""

TRIES = 36
"""Of a POST, and of a job whose queue is not there: with these pauses it is given up after about a day. A job that
no store takes now is tried for as long as it takes.
"""

FIRST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_AWAY_S = 1.0, 3_600.0, 60.0
POST_TIMEOUT_S = 15.0
TAKEN_AT_ONCE = 300
"""Callbacks that one turn of the keeper takes from the database."""

_TAKING = 16
"""Ends of flows whose callbacks are read from the database at a time."""

OTHERS_WAIT_MS = 2_000
"""So long a callback is left to the process that has seen the end of its flow."""

LOST_CALLBACKS = "callbacks_lost"
"""What a lease says: flows whose callback was given up, with their names, the queue of their first stage, why, and
when.
"""

MOST_DESCRIBED, DESCRIBED_FOR_MS, MOST_CHARS = 5, 3_600_000, 200
TAKEN_MS = 30_000
"""And so long a POST to the process that makes it."""


class EnqueueCall(Protocol):
    """Enqueues jobs that are not a caller's."""

    async def __call__(self, queue: str, jobs: Sequence[Job]) -> object:
        """All of them or an error. QueueNotFound and others."""


PostCall = Callable[[DueCallback], Awaitable[PostOutcome]]
"""Makes a POST."""


class FlowCallbacks:
    """Makes callbacks, for one process. `hosts`: where POSTs may go to (see AllowedReceivers); `secret`: signs them.
    `post`: makes POSTs in place of HTTP.
    """

    def __init__(
        self,
        connection: FlowConnection,
        enqueue: EnqueueCall,
        clock: Clock,
        metrics: Metrics,
        hosts: Collection[str] = (),
        secret: str = "",
        post: PostCall | None = None,
    ) -> None:
        self._post = post or self._post_over_http
        self._connection = connection
        self._enqueue = enqueue
        self._clock = clock
        self._metrics = metrics
        self._receivers = AllowedReceivers(hosts)
        self._secret = secret
        self._tasks = BackgroundTasks()
        self._turns = asyncio.Semaphore(_TAKING)
        self._posts, self._jobs = CallbackLanes(self._tasks), CallbackLanes(self._tasks)
        self._given_up: deque[tuple[str, str, str, str, int]] = deque(maxlen=MOST_DESCRIBED)
        self._begun: set[str] = set()
        """The ids of callbacks that are in a lane."""

    def check(self, callback: CompletionCallback) -> None:
        """RequestInvalid: it could never be made."""
        if not callback.url:
            return
        allowed = self._why_not(callback.url)
        if allowed:
            raise RequestInvalid.of("the URL of the callback", callback.url, allowed)

    def _why_not(self, url: str) -> str:
        """What is allowed instead; "" if it is."""
        if not self._secret:
            return "none: this server signs no callbacks (set flow-callback-secret), or a queue instead"
        return self._receivers.refusal(url)

    def describe(self) -> Mapping[str, Any]:
        """For the lease of this process: the last callbacks that it has given up in this hour."""
        least_ms = self._clock.now_ms() - DESCRIBED_FOR_MS
        lately = [each for each in self._given_up if each[-1] > least_ms]
        return {LOST_CALLBACKS: lately} if lately else {}

    # -- making them ---------------------------------------------------------------------------------------------------

    def make_soon(self, flow_ids: Sequence[str]) -> None:
        """Those of flows that are over."""
        for flow_id in flow_ids:
            self._tasks.start(self._make_of(flow_id))

    async def make_due(self) -> bool:
        """Begin with those that nobody has made; nobody waits for a receiver that is slow."""
        for each in await self._take(self._clock.now_ms() - OTHERS_WAIT_MS, TAKEN_AT_ONCE):
            self._begin(each)
        return False

    async def _take(self, before_ms: int, limit: int, flow_id: str = "") -> Sequence[DueCallback]:
        until_ms = self._clock.now_ms() + TAKEN_MS
        return await self._connection.call(
            lambda database: database.take_callbacks(before_ms, until_ms, limit, flow_id)
        )

    @property
    def is_busy(self) -> bool:
        """Some are under way."""
        return len(self._tasks) > 0

    async def drain(self) -> None:
        """Until none is under way."""
        await self._tasks.drain()

    async def close(self) -> None:
        """Those under way are broken off: the keeper makes them again."""
        self._posts.close()
        self._jobs.close()
        await self._tasks.cancel()

    async def _make_of(self, flow_id: str) -> None:
        try:
            async with self._turns:
                for each in await self._take(self._clock.now_ms(), 1, flow_id):
                    self._begin(each)
        except PinLaterError as error:
            _log.warning("flow_callback_put_off", flow=flow_id, error=error.message)

    def _begin(self, due: DueCallback) -> None:
        """In the lane of its receiver and of who made the flow; where nobody was known, of the queue in which it began:
        only who may enqueue there makes such flows. One for which there is no room is taken again later.
        """
        if due.id in self._begun:
            return
        callback, stages = due.callback, due.status.stages
        owner = due.owner or f"queue {stages[0].stage.queue}" if stages else due.owner
        lanes, receiver = self._jobs, callback.queue
        if callback.url:
            lanes, receiver = self._posts, urlsplit(callback.url).netloc.lower()
        if lanes.add(owner, receiver, partial(self._make_one, due, self._clock.now_ms() + TAKEN_MS)):
            self._begun.add(due.id)
        else:
            self._metrics.add(1, "limits_hit", "waiting_callbacks")

    async def _make_one(self, due: DueCallback, taken_until_ms: int) -> bool | None:
        """Whether its receiver has answered. None: it was not asked, as a POST that waited until another process may
        make it is left to that.
        """
        try:
            if due.callback.url and self._clock.now_ms() + POST_TIMEOUT_S * 1_000 > taken_until_ms:
                return None
            return await self._make(due)
        except PinLaterError as error:
            _log.warning("flow_callback_put_off", flow=due.status.id, error=error.message)
            return False
        finally:
            self._begun.discard(due.id)

    async def _make(self, due: DueCallback) -> bool:
        """Whether its receiver has answered, be it with an error."""
        failure, is_away, has_answered = "", False, True
        try:
            if due.callback.url:
                failure, has_answered = await self._post(due)
            else:
                await self._enqueue(due.callback.queue, [callback_job(due)])
        except PinLaterError as error:
            failure, is_away = error.message, not isinstance(error, QueueNotFound)
            has_answered = not is_away
        except Exception:
            _log.exception("flow_callback_failed", flow=due.status.id)
            failure = "a fault of the server, whose log has it (flow_callback_failed)"
        now_ms = self._clock.now_ms()
        if not failure:
            for each in [each for each in self._given_up if each[0] == due.status.id]:
                self._given_up.remove(each)  # the flow was resumed
            self._metrics.add(1, "flow_callbacks", "made")
            await self._connection.call(lambda database: database.callback_made(due, now_ms))
            return has_answered
        tries = due.tries + 1
        pause_s = exponential_backoff_s(tries, FIRST_PAUSE_S, LONGEST_AWAY_S if is_away else LONGEST_PAUSE_S)
        retry_ms = None if tries >= TRIES and not is_away else now_ms + round(pause_s * 1_000)
        self._metrics.add(1, "flow_callbacks", "given_up" if retry_ms is None else "failed")
        _log.warning("flow_callback_failed", flow=due.status.id, tries=tries, given_up=retry_ms is None, error=failure)
        if retry_ms is None:
            queue = due.status.stages[0].stage.queue if due.status.stages else ""
            self._given_up.append((due.status.id, due.status.name, queue, failure[:MOST_CHARS], now_ms))
        await self._connection.call(lambda database: database.callback_failed(due, failure, retry_ms, now_ms))
        return has_answered

    async def _post_over_http(self, due: DueCallback) -> PostOutcome:
        """See PostCall."""
        refused = self._why_not(due.callback.url)
        if refused:
            return PostOutcome(f"{due.callback.url} is not allowed; allowed: {refused}", True)
        body = msgspec.json.encode(status_document(due.status))
        signed_s = self._clock.now_ms() // 1_000
        signed = (due.id, due.status.id, due.owner, due.callback.url)
        headers = {
            ID_HEADER: due.id,
            FLOW_ID_HEADER: due.status.id,
            OWNER_HEADER: due.owner,
            SIGNATURE_HEADER: signature(self._secret, signed_s, signed, body),
            OLD_SIGNATURE_HEADER: body_signature(self._secret, signed_s, body),
        }
        return await post_json(due.callback.url, body, headers, POST_TIMEOUT_S)


def body_signature(secret: str, signed_s: int, body: bytes) -> str:
    """The header of before: the HMAC-SHA256 of the time, a dot and the body.

    >>> body_signature("s", 1, b"{}")[:24]
    't=1,v1=b253639bcd705ed1c'
    """
    return f"t={signed_s},v1={mac(secret, b'%d.' % signed_s + body)}"
