"""What the connections of one server have in common: how many there are, what they hold, and whether all must leave."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from pinlater.eager import EagerTask
from pinlater.server.complaints import Complaints
from pinlater.server.deliveries import Deliveries
from pinlater.server.limits import ServerLimits
from pinlater.server.peers import Leaver, Peer, Peers

HandOver = Callable[[socket.socket], None]


@dataclass(slots=True)
class Leaving:
    """How connections leave a server that ends: handed over, or closed (`close_idle`: also those that ask nothing)."""

    hand_over: HandOver | None
    close_idle: bool = False


class Shared:
    """Kept by all connections together. `now` is the loop's time, renewed by every sweep.

    In bytes: `buffered`, of half sent messages and of calls in flight; `answers`, of those that have not left.
    """

    def __init__(
        self, limits: ServerLimits, counters: Counter[str], complaints: Complaints, deliveries: Deliveries
    ) -> None:
        self.connections: set[Leaver] = set()
        self.counters = counters
        self.complaints = complaints
        self.deliveries = deliveries
        self.buffered = 0
        self.peers = Peers(limits.peer_connections(), limits.max_peer_answers_bytes, limits.max_buffered_bytes)
        self.answers = self.peers.process
        self.leaving: Leaving | None = None
        self.calls: set[EagerTask] = set()
        """Those that wait for something."""
        self.tasks: set[asyncio.Task[None]] = set()
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time()
        self._max_connections = limits.max_connections

    def admit(self, connection: Leaver, peer: Peer) -> bool:
        """Whether there is room for one more; an idle one may be closed for it."""
        if self.peers.is_full(peer):
            if not self._close_idle(peer):
                self.counters["peer_connections_refused"] += 1
                return False
            self.counters["idle_closed_for_peer"] += 1
        if len(self.connections) >= self._max_connections:
            largest = self.peers.largest()
            if largest is None or len(largest.connections) <= len(peer.connections) or not self._close_idle(largest):
                self.counters["connections_refused"] += 1
                return False
            self.counters["idle_closed_for_others"] += 1
        peer.connections[connection] = None
        self.connections.add(connection)
        return True

    def _close_idle(self, peer: Peer) -> bool:
        """Close the connection of an address that has been idle for longest; False where none is."""
        idle = peer.longest_idle()
        if idle is None:
            return False
        idle.abort()
        del peer.connections[idle]
        self.connections.discard(idle)
        return True

    def forget(self, connection: Leaver, peername: Any, peer: Peer) -> None:
        self.connections.discard(connection)
        self.peers.leave(peername, peer, connection)

    def close_largest(self) -> None:
        """Make room by closing the connection that holds the most of a half sent message."""
        self.counters["half_sent_over_buffer"] += 1
        max(self.connections, key=lambda connection: connection.partial).abort()

    def run_detached(self, work: Coroutine[Any, Any, None]) -> None:
        """A task that nobody waits for but the end of the server."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
