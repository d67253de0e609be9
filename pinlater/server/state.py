"""The common state of a server's connections: which are admitted, what they hold in bytes, and how all must leave.

An answer is in an account from when it is made until its caller has taken it. Accounts are nested (a connection's in
its address's, that in the process's), and each has a bound. A small answer passes the bounds of a connection and an
address, and an account that holds nothing takes an answer of any size: so every caller who reads is answered.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from pinlater.background_tasks import BackgroundTasks
from pinlater.eager import EagerTask
from pinlater.errors import Overloaded
from pinlater.listener import RateLimitedLog
from pinlater.model.connection_ref import host_of
from pinlater.server.deliveries import Deliveries
from pinlater.server.handler import Handler
from pinlater.server.limits import ServerLimits

HandOver = Callable[[socket.socket], None]


@dataclass(slots=True)
class Drain:
    """How connections leave a server that ends: handed over, or closed (`close_idle`: also those that ask nothing).

    `refusing` answers calls on a connection that could not be handed over.
    """

    hand_over: HandOver | None
    refusing: Handler
    close_idle: bool = False


class ServerState:
    """Kept by all connections together. `now` is the loop's time, renewed by every sweep.

    In bytes: `buffered`, of half sent messages and of calls in flight; `answers`, of those that have not left.
    """

    def __init__(
        self, limits: ServerLimits, counters: Counter[str], log: RateLimitedLog, deliveries: Deliveries
    ) -> None:
        self.connections: dict[Drainable, None] = {}
        """In the order of their coming, as `calls`: what is done with all of them, is done in one order."""

        self.counters = counters
        self.log = log
        self.deliveries = deliveries
        self.accepts: Callable[[Sequence[str]], bool] | None = None
        """Of callers who speak TLS, by the names in their certificates; None: all are taken."""
        self.refusing: Handler | None = None
        """Answers the others."""
        self.buffered = 0
        self.peers = Peers(limits.peer_connections(), limits.max_peer_answers_bytes, limits.max_buffered_bytes)
        self.answers = self.peers.process
        self.drain: Drain | None = None
        self.calls: dict[EagerTask, None] = {}
        """Those that wait for something."""
        self.tasks = BackgroundTasks()
        self.loop = asyncio.get_running_loop()
        self.context = copy_context()
        """With whose variables every call begins."""
        self.now = self.loop.time()
        self.peer_bytes = limits.max_buffered_bytes // 2
        """What `buffered` may have of one address beside others, beyond which it is refused."""
        self._max_connections = limits.max_connections

    def admit(self, connection: Drainable, peer: Peer) -> bool:
        """Whether there is room for one more; one that is idle, or but waits, may be closed for it."""
        if self.peers.is_full(peer):
            if not self._close_one(peer):
                self.counters["peer_connections_refused"] += 1
                return False
            self.counters["idle_closed_for_peer"] += 1
        if len(self.connections) >= self._max_connections:
            largest = self.peers.largest()
            if largest is None or len(largest.connections) <= len(peer.connections) or not self._close_one(largest):
                self.counters["connections_refused"] += 1
                return False
            self.counters["idle_closed_for_others"] += 1
        peer.connections[connection] = None
        self.connections[connection] = None
        return True

    def _close_one(self, peer: Peer) -> bool:
        """Close the connection of an address that is missed least; False where all are at work."""
        idle = peer.most_dispensable()
        if idle is None:
            return False
        idle.abort()
        del peer.connections[idle]
        self.connections.pop(idle, None)
        return True

    def forget(self, connection: Drainable, peername: Any, peer: Peer) -> None:
        self.connections.pop(connection, None)
        self.peers.leave(peername, peer, connection)

    def close_largest(self) -> None:
        """Make room by closing the connection that holds the most of a half sent message."""
        self.counters["half_sent_over_buffer"] += 1
        max(self.connections, key=lambda connection: connection.partial).abort()

    def run_detached(self, work: Coroutine[Any, Any, None]) -> None:
        """A task that nobody waits for but the end of the server."""
        self.tasks.start(work)


SMALL_ANSWER_BYTES = 64 * 1024
ROOM_WITHIN_S = 5.0
"""So long a call that may bring a large answer waits for room that others hold."""

RECOUNT_S, FEW_CONNECTIONS = 0.01, 100
"""Bytes of an address with more connections are counted once in this time."""

_LOOKED_AT = 1_000
"""Connections among which the longest idle one is looked for."""


class Account:
    """Bytes of answers that have not left (`unsent`), and those that calls in the making may bring (`reserved`)."""

    __slots__ = ("bound", "limit", "parent", "reserved", "unsent")

    def __init__(self, bound: int, limit: str, parent: Account | None = None) -> None:
        """`limit` is the name under which metrics count the bound."""
        self.bound = bound
        self.limit = limit
        self.parent = parent
        self.unsent = self.reserved = 0

    def add(self, unsent: int, reserved: int = 0) -> None:
        account: Account | None = self
        while account is not None:
            account.unsent += unsent
            account.reserved += reserved
            account = account.parent

    def over(self, size: int) -> Account | None:
        """The first account that an answer of this size would bring over its bound."""
        account: Account | None = self
        while account is not None:
            is_bound = size > SMALL_ANSWER_BYTES or account.parent is None
            if is_bound and account.unsent and account.unsent + size > account.bound:
                return account
            account = account.parent
        return None

    def is_full_for(self, size: int) -> bool:
        """Whether a call that may bring so much has to wait for what this account itself holds."""
        held = self.unsent + self.reserved
        return bool(held) and held + size > self.bound

    def has_room(self, size: int) -> bool:
        """Whether a call that may bring so much can begin, beside those that are in the making."""
        account: Account | None = self
        while account is not None:
            if account.is_full_for(size):
                return False
            account = account.parent
        return True


class _Waiter(NamedTuple):
    account: Account
    size: int
    is_next: Callable[[], bool]
    begun: asyncio.Future[None]

    def has_room(self) -> bool:
        parent = self.account.parent
        return self.account.has_room(self.size) or (
            parent is not None and self.is_next() and parent.has_room(self.size)
        )


class Drainable(Protocol):
    """A connection, as its server sees it."""

    @property
    def socket(self) -> Any:
        """The server's end, or asyncio's view of it; None once it is closed."""

    @property
    def partial(self) -> int:
        """Bytes of a half sent message."""

    @property
    def idle_since(self) -> float | None:
        """None while anything is half read, in flight or unsent; else since when, in the loop's time."""

    @property
    def waits_since(self) -> float | None:
        """None while anything is carried out or unsent; else since when it is idle, waits for jobs, or is half read."""

    @property
    def buffered(self) -> int:
        """Bytes of its calls in flight, and of a message half sent."""

    @property
    def holder(self) -> str:
        """Whose share its last call took; "" where that is not known."""

    def leave(self) -> None:
        """Go as soon as nothing is half done."""

    def sweep(self, now: float) -> None:
        """Close what took too long."""

    def abort(self) -> None:
        """Close now, whatever is unsent."""


class Peer:
    """One address, and its connections, the longest connected first."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.connections: dict[Drainable, None] = {}
        self._counted = 0
        self._counted_at = -math.inf

    def buffered(self, now: float) -> int:
        """Bytes of its calls in flight, and of half sent messages, at this moment or RECOUNT_S before. They are counted
        when they are asked for, in a server that holds much, and not with each call.
        """
        if len(self.connections) <= FEW_CONNECTIONS or now - self._counted_at >= RECOUNT_S:
            self._counted, self._counted_at = sum(each.buffered for each in self.connections), now
        return self._counted

    def most_dispensable(self) -> Drainable | None:
        """Among some of its connections, one of the caller that has most of them: the longest idle one, else the one
        that has but waited for longest. Where that caller has none, the longest idle one of any. None: all are at work.
        """
        for _ in range(0, len(self.connections), _LOOKED_AT):
            some = [member for member, _ in zip(self.connections, range(_LOOKED_AT), strict=False)]
            [(holder, _)] = Counter([member.holder for member in some]).most_common(1)
            of_most = [member for member in some if member.holder == holder]
            found = _longest_idle(of_most) or _longest_waiting(of_most) or _longest_idle(some)
            if found is not None:
                return found
            for member in some:  # look at others next time
                self.connections[member] = self.connections.pop(member)
        return None


def _longest_idle(members: Sequence[Drainable]) -> Drainable | None:
    idle = [member for member in members if member.idle_since is not None]
    return min(idle, key=lambda member: member.idle_since or 0.0, default=None)


def _longest_waiting(members: Sequence[Drainable]) -> Drainable | None:
    waiting = [member for member in members if member.waits_since is not None]
    return min(waiting, key=lambda member: member.waits_since or 0.0, default=None)


class Peers:
    """All addresses that have connections. `max_answers` is of one address, in bytes, `max_total` of all."""

    def __init__(self, max_connections: int, max_answers: int, max_total: int) -> None:
        self.process = Account(max_total, "answers_over_buffer")
        self._max_connections = max_connections
        self._max_answers = max_answers
        self._peers: dict[str, Peer] = {}
        self._waiting: deque[_Waiter] = deque()

    def of(self, peername: Any) -> Peer:
        """The address of a connection, as sockets have it."""
        name = host_of(peername)
        peer = self._peers.get(name)
        if peer is None:
            peer = self._peers[name] = Peer(Account(self._max_answers, "answers_over_peer", self.process))
        return peer

    @property
    def are_several(self) -> bool:
        return len(self._peers) > 1

    def is_full(self, peer: Peer) -> bool:
        """Whether the address has all the connections that one may have."""
        return len(peer.connections) >= self._max_connections

    def largest(self) -> Peer | None:
        """The address with most connections."""
        return max(self._peers.values(), key=lambda peer: len(peer.connections), default=None)

    def leave(self, peername: Any, peer: Peer, member: Drainable) -> None:
        peer.connections.pop(member, None)
        if not peer.connections and not peer.account.unsent and not peer.account.reserved:
            self._peers.pop(host_of(peername), None)

    def freed(self) -> None:
        """Answers have left: let those begin, in their order, for which there is room now."""
        for waiter in tuple(self._waiting):
            if not waiter.begun.done() and waiter.has_room():
                waiter.account.add(0, waiter.size)
                waiter.begun.set_result(None)

    def abandon(self, account: Account) -> None:
        """Nobody waits for room in this account any more: the connection is gone."""
        for waiter in self._waiting:
            if waiter.account is account:
                waiter.begun.cancel()

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    async def reserve(self, account: Account, size: int, is_next: Callable[[], bool]) -> None:
        """Room for an answer of up to this size, now or as soon as there is. While it `is_next` in order, what the
        account itself holds does not count: that are later ones, which wait for it.

        Overloaded after ROOM_WITHIN_S where others hold the room; a connection that holds it itself has but to read.
        """
        waiter = _Waiter(account, size, is_next, asyncio.get_running_loop().create_future())
        if waiter.has_room():
            account.add(0, size)
            return
        self._waiting.append(waiter)
        is_given_back = False
        try:
            while not (await asyncio.wait([waiter.begun], timeout=ROOM_WITHIN_S))[0]:
                if not account.is_full_for(size):
                    raise no_room(account, size)
            await waiter.begun
        except asyncio.CancelledError:
            if waiter.begun.done() and not waiter.begun.cancelled():
                account.add(0, -size)
                is_given_back = True
            raise
        finally:
            self._waiting.remove(waiter)
            if is_given_back:
                self.freed()


def no_room(account: Account, size: int) -> Overloaded:
    """The error of a call whose answer no room is for: the first account that is full gives its name."""
    full: Account | None = account
    while full is not None and full.parent is not None and full.unsent + full.reserved + size <= full.bound:
        full = full.parent
    limit, bound = (full or account).limit, (full or account).bound
    whose = {"answers_over_connection": "this connection", "answers_over_peer": "callers at this address"}.get(limit)
    text = f"answers that {whose or 'callers'} did not take yet leave no room: at most {bound} bytes; read them first"
    return Overloaded.by(limit, text, retry_after_ms=100)
