"""Notifications of queues in PostgreSQL while somebody subscribes to them: LISTEN and NOTIFY, behind the commits.

A process that subscribes to a queue has a row in `pinlater_subscribers`, for SUBSCRIBED_S at a time. A process whose
commits made jobs pending notifies the other subscribers in a transaction of its own: one for all commits of GAP_S, and
none where nobody subscribes. So no commit of a job waits for the lock that notifying commits of a database share. The
first goes out at once, unless the process has subscribers of its own: they claim the jobs first, with nothing beside
them, and others are notified of what is left. A notification that is lost with its process costs the subscribers a wait
until they poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from threading import Lock, Thread
from typing import Any

import psycopg

from pinlater.backends.base import UNKNOWN_CHANGE, OnNotification
from pinlater.backends.sql.session import Session
from pinlater.errors import PinLaterError

SUBSCRIBED_S = 15
RENEW_S = 5.0
GAP_S = 0.01
"""The pause between two notifications of one process: what is committed meanwhile goes together."""


def subscribe(session: Session, process: str, queues: list[str]) -> dict[int, str]:
    """Add or renew the rows of a process; the names of the queues that exist, by id."""
    session.run("subscribe", (process, SUBSCRIBED_S, queues))
    session.run("prune_subscribers", (SUBSCRIBED_S,))
    return dict(session.rows("ids_of_queues", (queues,)))


def unsubscribe(session: Session, process: str, queue: str) -> None:
    session.run("unsubscribe", (process, queue))


def notify(session: Session, channel: str, process: str, queue_ids: list[int]) -> None:
    """Without BEGIN and COMMIT, which would be two more round trips."""
    connection = session.cursor.connection
    connection.autocommit = True
    try:
        session.rows("notify", (channel, f"{process} ", queue_ids, process))
    finally:
        connection.autocommit = False


class PostgresNotifications:
    """The notifications of one shard. `connect` opens a connection in autocommit; `write` runs a transaction."""

    def __init__(
        self, channel: str, connect: Callable[[], psycopg.Connection[Any]], write: Callable[..., asyncio.Future[Any]]
    ) -> None:
        self._channel = channel
        self._connect = connect
        self._write = write
        self._process = secrets.token_hex(6)
        self._listeners: dict[str, OnNotification] = {}
        self._names: dict[int, str] = {}
        self._connection: psycopg.Connection[Any] | None = None
        self._connecting: asyncio.Future[bool] | None = None
        self._unpublished: set[int] = set()
        self.left: dict[int, int] = {}
        """Jobs that are to be notified of where they are not claimed by then: their queues, by their ids."""
        self._is_publishing = False
        self._is_closed = False
        self._opening = Lock()

    async def subscribe(self, queue: str, on_event: OnNotification | None) -> bool:
        """See Shard.subscribe."""
        if on_event is None:
            if self._listeners.pop(queue, None) is not None and not self._is_closed:
                with contextlib.suppress(PinLaterError):
                    await self._write(unsubscribe, self._process, queue)
            return False
        if not await self._is_listening():
            return False
        self._listeners[queue] = on_event
        try:
            self._names |= await self._write(subscribe, self._process, [queue])
        except PinLaterError:
            if self._listeners.get(queue) is on_event:
                del self._listeners[queue]
            return False
        return self._listeners.get(queue) is on_event

    def committed(
        self, enqueued: Iterable[int], freed: Iterable[int], stored: Mapping[int, int], claimed: Iterable[int]
    ) -> None:
        """Jobs of the queues with these ids were enqueued, or became pending otherwise; few were `stored`, each in its
        queue, by their ids; and some were claimed.
        """
        for queue_id in freed:
            self._notify(self._names.get(queue_id, ""))
        self._unpublished.update(enqueued, freed)
        for job_id in claimed:
            self.left.pop(job_id, None)
        for job_id, queue_id in stored.items():
            if self._names.get(queue_id) in self._listeners:
                self.left[job_id] = queue_id
            else:
                self._unpublished.add(queue_id)
        if self._is_publishing:
            return
        if self.left or any(self._names.get(queue_id) in self._listeners for queue_id in self._unpublished):
            self._publish_later()
        else:
            self._publish()

    def close(self) -> None:
        """Notify nobody any more. A connection that is just being made is closed by its thread."""
        with self._opening:
            self._is_closed = True
        self._listeners.clear()
        self._connected(False)
        self._disconnect()

    def _publish(self) -> None:
        queue_ids = sorted(self._unpublished.union(self.left.values()))
        self._unpublished, self.left = set(), {}
        self._is_publishing = bool(queue_ids) and not self._is_closed
        if self._is_publishing:
            done = self._write(notify, self._channel, self._process, queue_ids)
            done.add_done_callback(self._published)

    def _published(self, done: asyncio.Future[None]) -> None:
        """A failure is nobody's: subscribers poll as well."""
        if not done.cancelled():
            done.exception()
        self._publish_later()

    def _publish_later(self) -> None:
        self._is_publishing = True
        asyncio.get_running_loop().call_later(GAP_S, self._publish)

    async def _is_listening(self) -> bool:
        if self._connection is not None or self._is_closed:
            return not self._is_closed
        if self._connecting is None:
            loop = asyncio.get_running_loop()
            self._connecting = loop.create_future()
            Thread(target=self._listen, args=(loop,), name="pinlater-postgres-listen", daemon=True).start()
        return await asyncio.shield(self._connecting)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connect and listen, in a thread of its own, until the connection breaks or nobody wants it; then close it."""
        call = partial(_call_soon, loop)
        try:
            with (
                contextlib.suppress(psycopg.Error, PinLaterError, OSError),
                contextlib.closing(self._connect()) as mine,
            ):
                mine.execute(f'LISTEN "{self._channel}"')
                with self._opening:
                    if self._is_closed:
                        return
                    self._connection = mine
                call(self._connected, True)
                while True:
                    for notification in mine.notifies(timeout=RENEW_S):
                        call(self._on_message, notification.payload)
                    call(self._renew)
                    mine.execute("SELECT 1")  # within its bound: a host that is gone answers nothing
        finally:
            call(self._on_disconnect)

    def _connected(self, is_listening: bool) -> None:
        connecting, self._connecting = self._connecting, None
        if connecting is not None and not connecting.done():
            connecting.set_result(is_listening)

    def _renew(self) -> None:
        if self._listeners and not self._is_closed:
            self._write(subscribe, self._process, sorted(self._listeners)).add_done_callback(self._renewed)

    def _renewed(self, renewed: asyncio.Future[dict[int, str]]) -> None:
        if renewed.cancelled() or renewed.exception() is not None:
            self._disconnect()  # nobody notifies a process whose rows have expired
        else:
            self._names |= renewed.result()

    def _on_message(self, payload: str) -> None:
        process, _, queue = payload.partition(" ")
        if process != self._process:
            self._notify(queue)

    def _notify(self, queue: str) -> None:
        on_event = self._listeners.get(queue)
        if on_event is not None:
            on_event(UNKNOWN_CHANGE)

    def _disconnect(self) -> None:
        """The thread ends at once, and `_on_disconnect` follows."""
        if self._connection is None:
            return
        with contextlib.suppress(psycopg.Error, OSError):
            peer = socket.socket(fileno=os.dup(self._connection.fileno()))
            with peer:
                peer.shutdown(socket.SHUT_RDWR)

    def _on_disconnect(self) -> None:
        self._connection = None
        self._connected(False)
        listeners, self._listeners = self._listeners, {}
        for on_event in listeners.values():
            on_event(None)


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(function, *arguments)
