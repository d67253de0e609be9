"""What the connections of one server have in common: how many there are, what they hold, and whether all must leave."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from pinlater.server.complaints import Complaints
from pinlater.work import Work

HandOver = Callable[[socket.socket], None]


class Leaver(Protocol):
    """A connection, as its server sees it."""

    @property
    def partial(self) -> int:
        """Bytes of a half sent message."""

    def leave(self) -> None:
        """Go as soon as nothing is half done."""

    def sweep(self, now: float) -> None:
        """Close what took too long."""

    def abort(self) -> None:
        """Close now, whatever is unsent."""


@dataclass(slots=True)
class Leaving:
    """How connections leave a server that ends: handed over, or closed (`close_idle`: also those that ask nothing)."""

    hand_over: HandOver | None
    close_idle: bool = False


class Shared:
    """Kept by all connections together. `now` is the loop's time, renewed by every sweep.

    In bytes: `buffered`, of half sent messages and of calls in flight; `unsent`, of answers that cannot leave yet.
    """

    def __init__(self, max_connections: int, counters: Counter[str], complaints: Complaints) -> None:
        self.connections: set[Leaver] = set()
        self.counters = counters
        self.complaints = complaints
        self.buffered = self.unsent = 0
        self.leaving: Leaving | None = None
        self.calls: set[Work] = set()
        """Those that wait for something."""
        self.tasks: set[asyncio.Task[None]] = set()
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time()
        self._max_connections = max_connections

    def admit(self, connection: Leaver) -> bool:
        """Whether there is room for one more."""
        if len(self.connections) >= self._max_connections:
            self.counters["connections_refused"] += 1
            return False
        self.connections.add(connection)
        return True

    def forget(self, connection: Leaver) -> None:
        self.connections.discard(connection)

    def close_largest(self) -> None:
        """Make room by closing the connection that holds the most of a half sent message."""
        self.counters["half_sent_over_buffer"] += 1
        max(self.connections, key=lambda connection: connection.partial).abort()

    def run_detached(self, work: Coroutine[Any, Any, None]) -> None:
        """A task that nobody waits for but the end of the server."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
