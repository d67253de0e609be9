"""Notifications of queues while somebody is subscribed: what is published when jobs become pending.

A message on the channel of a queue is `PUBLISHER READY DUE`: READY jobs are eligible now, and the earliest of the
others will be at DUE (0: there are no others). PUBLISHER is the process that enqueued them, which knows already, or
"-". They come on a connection of their own, since one with channels takes no calls.

A message on the channel of ends is `QUEUE:IDS`, eight bytes each: jobs whose end somebody waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pinlater.backends.base import JobKey, NoEvents, Notification, OnNotification, ShardEvents
from pinlater.backends.deferred_notifications import DeferredNotifications, can_wait
from pinlater.backends.redis.conditions import warn_of_channels
from pinlater.backends.redis.connection import ReplyError
from pinlater.backends.redis.pubsub_connection import PubSubConnection
from pinlater.backends.redis.records import ID, base_key
from pinlater.backends.redis.scripts import RedisStore, ScriptCaller
from pinlater.background_tasks import BackgroundTasks
from pinlater.errors import PinLaterError
from pinlater.model import Job

UNCLEAR = Notification(1, None)
"""What a message of another form is taken for."""


ENDS = b":ends"
"""Behind the root: the channel of ends."""

_MANY_WATCHED = 10_000

LEFT_WITHIN_S = 1.0
"""The time that the end of a shard leaves for notifications of jobs that are left."""

CALLS_FAIL_WITHIN_S = 0.1
"""The time in which calls fail that were under way at the former primary."""


def channel_of(base: bytes) -> bytes:
    """The channel of the queue whose keys begin with `base`."""
    return base + b":news"


def announcement(publisher_id: bytes, jobs: Sequence[Job], now_ms: int) -> bytes:
    """What to publish of new jobs."""
    ready = due_ms = 0
    for job in jobs:
        run_after_ms = job.run_after_ms
        if run_after_ms is None or run_after_ms <= now_ms:
            ready += 1
        elif not due_ms or run_after_ms < due_ms:
            due_ms = run_after_ms
    return b"%s %d %d" % (publisher_id, ready, due_ms)


def left_over(publisher_id: bytes, jobs: int) -> bytes:
    """What to publish of jobs that were enqueued a moment ago and are still there."""
    return b"%s %d 0" % (publisher_id, jobs)


def parse(message: bytes) -> tuple[bytes, Notification]:
    """The publisher, and what it tells. ValueError for what is not of this form."""
    publisher_id, ready, due_ms = message.split(b" ")
    return publisher_id, Notification(int(ready), int(due_ms) or None)


class PubSub(ScriptCaller):
    """The subscriptions of a shard in Redis. Connects with the first one, and again after a break."""

    events: ShardEvents

    def __init__(self, shard_id: str, store: RedisStore) -> None:
        super().__init__(shard_id, store)
        self.events = NoEvents()
        self._many_watched = _MANY_WATCHED
        self._watched: dict[tuple[str, int], int] = {}
        """Until when each job is watched, by queue and id. A break of the connection may hide the ends of these."""
        self._ends_subscription: asyncio.Future[Any] | None = None
        self._connection: PubSubConnection | None = None
        self._connecting: asyncio.Task[PubSubConnection | None] | None = None
        self._listeners: dict[bytes, OnNotification] = {}
        self._are_closed = False
        self.deferred = DeferredNotifications(self.publish)
        """Of jobs that callers of this process are about to claim."""
        self._publishing = BackgroundTasks()
        store.on_failover = self._on_failover

    async def subscribe(self, queue: str, on_event: OnNotification | None) -> bool:
        channel = channel_of(base_key(self._store.root, queue))
        if on_event is None:
            self._listeners.pop(channel, None)
            if self._connection is not None:
                self._connection.unsubscribe(channel)
            return False
        connection = await self._connected()
        if connection is None:
            return False
        self._listeners[channel] = on_event
        try:
            await connection.subscribe(channel)
        except (ReplyError, OSError) as error:
            if isinstance(error, ReplyError) and error.code == "NOPERM":
                warn_of_channels(self._store.address, self._store.root)
            if self._listeners.get(channel) is on_event:
                del self._listeners[channel]
            return False
        return True

    def defers(self, queue: str, jobs: Sequence[Job], now_ms: int) -> bool:
        """Whether others need not be notified of these jobs yet: callers of this process are about to claim them."""
        if not self._listeners or not can_wait(jobs, now_ms):
            return False
        return self.events.claims_at_once(queue, len(jobs))

    def publish(self, queue: str, jobs: int) -> None:
        """Notify others of so many jobs, without waiting for it."""
        if not self._are_closed:
            self._publishing.start(self._publish(queue, left_over(self._store.publisher_id, jobs)))

    async def _publish(self, queue: str, message: bytes) -> None:
        """A failure is nobody's: those who wait poll as well."""
        with suppress(PinLaterError):
            await self._store.call_queue("publish", queue, (message,))

    async def watch_ends(self, queue: str, jobs: Sequence[JobKey], until_ms: int, now_ms: int) -> bool:
        """The channel is subscribed to before the jobs are watched; a break reports all whose ends it may hide."""
        if not await self._subscribed_to_ends():
            return False
        if len(self._watched) > self._many_watched:
            self._watched = {job: until for job, until in self._watched.items() if until > now_ms}
            self._many_watched = max(_MANY_WATCHED, 2 * len(self._watched))
        for _, job_id in jobs:
            self._watched[queue, job_id] = max(until_ms, self._watched.get((queue, job_id), 0))
        await self._store.call_queue("watch_ends", queue, [now_ms, until_ms, *(ID.pack(each.id) for each in jobs)])
        return True

    async def _subscribed_to_ends(self) -> bool:
        connection = await self._connected()
        if connection is None:
            return False
        if self._ends_subscription is None:
            self._ends_subscription = connection.subscribe(self._store.root + ENDS)
        subscription = self._ends_subscription
        try:
            await asyncio.shield(subscription)
        except (ReplyError, OSError):
            if self._ends_subscription is subscription:
                self._ends_subscription = None
            return False
        return self._ends_subscription is subscription

    def _on_ends(self, message: bytes) -> None:
        queue, _, ids = message.partition(b":")
        name, own = queue.decode(), []
        for (job_id,) in ID.iter_unpack(ids[: len(ids) // ID.size * ID.size]):
            if self._watched.pop((name, job_id), None) is not None:
                own.append(job_id)
        if own:
            self.events.jobs_ended(name, own)

    async def _connected(self) -> PubSubConnection | None:
        """The connection, made anew where it has to be; None where there is none to be had."""
        if self._connection is not None or self._are_closed:
            return self._connection
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> PubSubConnection | None:
        try:
            if await self._store.may_publish():
                address, endpoint = self._store.address, await self._store.endpoint()
                self._connection = await PubSubConnection.connect(
                    *(endpoint, address.login, self._on_message, self._on_close),
                    tls=address.tls,
                    timeout_s=self._store.connect_timeout_s,
                )
        except (PinLaterError, ReplyError, OSError):
            self._connection = None
        finally:
            self._connecting = None
        return self._connection

    def _on_message(self, channel: bytes, message: bytes) -> None:
        """What is not of the right form is worth a look all the same."""
        on_event = self._listeners.get(channel)
        if on_event is None:
            if channel.endswith(ENDS):
                self._on_ends(message)
            return
        try:
            publisher_id, notification = parse(message)
        except ValueError:
            publisher_id, notification = b"", UNCLEAR
        if publisher_id != self._store.publisher_id:
            on_event(notification)

    def _on_close(self) -> None:
        self._connection = None
        listeners, self._listeners = self._listeners, {}
        for on_event in listeners.values():
            on_event(None)
        self._ends_subscription = None
        watched, self._watched = self._watched, {}
        if not self._are_closed:
            ids_of: dict[str, list[int]] = {}
            for queue, job_id in watched:
                ids_of.setdefault(queue, []).append(job_id)
            for queue, ids in ids_of.items():
                self.events.jobs_ended(queue, ids)

    def _on_failover(self) -> None:
        """Leave the channels of the former primary, and tell the process once the calls to it have failed."""
        if self._connection is not None:
            self._connection.close()
        asyncio.get_running_loop().call_later(CALLS_FAIL_WITHIN_S, lambda: self.events.store_moved())

    async def close_pubsub(self) -> None:
        self.deferred.publish_left()
        self._are_closed = True
        await self._publishing.drain(LEFT_WITHIN_S)
        await self._publishing.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._connection is not None:
            self._connection.close()
