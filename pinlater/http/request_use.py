"""The use that requests make of this process: places, turns, room for their bodies, and places of those that wait.

A request counts for its owner: the token, which a server has called right by then, the certificate, the admin password
of a session, or the address where nobody knows the caller.

    take a place ─ read the body ─ wait for a turn ─ the handler ─┬─ the answer
                                                                  └─ waits for jobs: its turn ends, and it has one of
                                                                     the places of those that wait
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

from pinlater.access.fair_use import CallUse, FairUse, UseLimits
from pinlater.errors import Overloaded
from pinlater.http.fair_shares import FairEntries, FairPlaces
from pinlater.model import Caller, ConnectionRef

MAX_TURNS = 256
"""Requests of one owner that are carried out at a time; others wait for their turn, whoever has the places."""

MAX_WAITS = 1_024
"""Requests that wait for jobs, for ends of jobs or of flows."""

TURN_WITHIN_S = 10.0
"""As long as a call may take: where the servers are away, who has no turn by then is told so, too."""

MAX_KNOWN_TOKENS = 10_000
_NO_CONNECTION = ConnectionRef()


class KnownTokens:
    """Tokens that a server has called right, by their hashes. That one is right now is for the servers to say: here it
    says only whom its caller counts as.
    """

    def __init__(self) -> None:
        self.kept: FairEntries[bool] = FairEntries("http_known_tokens", MAX_KNOWN_TOKENS)
        """Each has one place, so they are nobody's: the one that was used least lately makes room."""

    def __contains__(self, token: str) -> bool:
        return self.kept.get(_hash(token)) is not None

    def add(self, token: str) -> None:
        self.kept.put("", _hash(token), True)


def _hash(token: str) -> bytes:
    return sha256(token.encode("utf-8", "replace")).digest()


class RequestPools:
    """Those of one process."""

    def __init__(self, max_requests: int, max_body_bytes: int, max_waits: int) -> None:
        self.places = FairPlaces("http_requests", max_requests, "requests under way", "send fewer at a time")
        self.waits = FairPlaces("http_waits", max_waits, "requests that wait", "let fewer wait, each for more queues")
        self.bodies = FairPlaces("http_bodies", max_body_bytes, "bytes of requests on their way", "send less at once")
        self.turns = FairUse(UseLimits(running=MAX_TURNS))


class RequestUse:
    """What one request has of them, until it is ended."""

    def __init__(self, pools: RequestPools, owner: str) -> None:
        """Overloaded: the owner has its share of places already."""
        pools.places.take(owner)
        self.owner = owner
        self._pools = pools
        self._turn: CallUse | None = None
        self._body_bytes = 0

    def take_body(self, size: int) -> None:
        """Room for so many bytes more, until the end. Overloaded."""
        self._pools.bodies.take(self.owner, size)
        self._body_bytes += size

    async def turn(self) -> None:
        """Until the handler may begin. Overloaded: others of the owner have had all turns for long."""
        turns = self._pools.turns
        self._turn = turns.begin(Caller(self.owner), _NO_CONNECTION, 0)
        waits_for = turns.turn(self._turn)
        if waits_for is None:
            return
        try:
            async with asyncio.timeout(TURN_WITHIN_S):
                await turns.wait(self._turn, waits_for)
        except TimeoutError:
            self._pools.places.hits += 1
            text = f"this caller has so many requests under way that this one had no turn in {TURN_WITHIN_S:g} s"
            raise Overloaded.by(self._pools.places.name, f"{text}: send fewer", retry_after_ms=1_000) from None

    def end_turn(self) -> None:
        """It goes on without one: others may begin."""
        if self._turn is not None:
            self._turn.end()

    @contextmanager
    def waiting(self, wait_ms: int) -> Iterator[None]:
        """While it waits for so long, or does not wait at all. Overloaded: the owner has its share of waits."""
        if wait_ms <= 0:
            yield
            return
        self._pools.waits.take(self.owner)
        self.end_turn()
        try:
            yield
        finally:
            self._pools.waits.give_back(self.owner)

    def end(self) -> None:
        self.end_turn()
        if self._body_bytes:
            self._pools.bodies.give_back(self.owner, self._body_bytes)
        self._pools.places.give_back(self.owner)
