"""The network between callers and servers: who listens, the connections there are, and what goes wrong on them.

A server is the product's own, and so is the client of a caller; the event loop gives both simulated connections
(sockets.py) in place of the system's. An address names both ends, `CALLER>SERVER`, so that a fault may be
one of some callers, or of some servers.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import random
import socket
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Any, Self, cast
from unittest.mock import patch

from pinlater.client.addresses import DEFAULT_PORT, Address
from tests.simulation.machines import PLACE
from tests.simulation.sockets import Connection, ConnectionEnd, SimulatedSocket

ONE_WAY_S = (0.000_1, 0.000_5)
"""What a packet takes, at least and at most; the same for all of a connection."""

KNOWN_FOR_S = 20.0
"""A server that was killed has its address for so long."""


class FaultKind(StrEnum):
    """What goes wrong with a request, an answer or a connection."""

    LATE = "late"
    """What is sent comes late."""

    LOST = "lost"
    """The connection falls silent: neither this nor anything else comes through any more."""

    CUT = "cut"
    """Nothing comes through while this lasts; then all does."""

    RESET = "reset"
    """The connection breaks as a request comes, before or after that has come."""

    HALF = "half"
    """The connection breaks after a part of an answer, which may be none of it."""

    REFUSED = "refused"
    """No new connection."""

    TWICE = "twice"
    """A call that may be sent again is sent once more."""


@dataclass(frozen=True)
class CallerFault:
    """A fault that befalls each request, answer or connection with a chance, from one time of the loop until another.

    `callers`, `servers`: how their names begin. `most_s`: how late something is at most.
    """

    kind: FaultKind
    from_s: float
    until_s: float
    chance: float = 1.0
    callers: str = ""
    servers: str = ""
    most_s: float = 3.0


class CallerNetwork:
    """Open while the event loop that it is entered on makes simulated connections."""

    def __init__(self, rng: random.Random) -> None:
        self.counts: dict[str, int] = {}
        """How often each kind of fault befell something."""
        self._rng = rng
        self._faults: list[CallerFault] = []
        self._listening: dict[str, Callable[[socket.socket], None]] = {}
        self._known_until_s: dict[str, float] = {}
        self._dead_callers: set[str] = set()
        self._addresses: dict[str, str] = {}
        self._connections: dict[Connection, None] = {}
        self._numbers = count(1)
        self._patches = ExitStack()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._patches.enter_context(patch.object(loop, "create_connection", self._connect))
        self._patches.enter_context(patch.object(loop, "connect_accepted_socket", self._accept))
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._patches.close()

    # -- servers -----------------------------------------------------------------------------------------------------

    def listen(self, name: str, adopt: Callable[[socket.socket], None]) -> None:
        """A server takes connections under this name from now on; under `NAME:PORT` those of other servers."""
        self._listening[name] = adopt
        self._known_until_s[name] = math.inf

    def leave(self, name: str) -> None:
        """It takes no new ones, and callers need not ask for it any more."""
        self._listening.pop(name, None)
        self._known_until_s.pop(name, None)

    def kill(self, name: str) -> None:
        """Its process was killed: its kernel closes its connections. Callers go on asking for it for a while."""
        for each in [each for each in self._listening if _is_of(name, each)]:
            self.leave(each)
        self._known_until_s[name] = asyncio.get_running_loop().time() + KNOWN_FOR_S
        for connection in [each for each in self._connections if _is_of(name, each.server)]:
            connection.server_end.die()
        for connection in [each for each in self._connections if each.caller == name]:
            connection.client_end.die()

    @property
    def known(self) -> list[str]:
        """The servers that have an address, whether or not they live."""
        now_s = asyncio.get_running_loop().time()
        return [name for name, until_s in self._known_until_s.items() if now_s < until_s and ":" not in name]

    # -- callers -----------------------------------------------------------------------------------------------------

    async def resolve(self, caller: str) -> Iterable[Address]:
        """The addresses of all servers, for a caller. OSError: there are none."""
        await asyncio.sleep(2 * ONE_WAY_S[0])
        return [Address(f"{caller}>{name}", DEFAULT_PORT) for name in self.known]

    def kill_caller(self, name: str) -> None:
        """As by kill -9: its kernel closes its connections, and it makes no new ones."""
        self._dead_callers.add(name)
        for each in [each for each in self._connections if each.caller == name]:
            each.client_end.abort()

    # -- faults ------------------------------------------------------------------------------------------------------

    def add(self, *faults: CallerFault) -> None:
        self._faults += faults

    def heal(self) -> None:
        """No fault from now on; what is late or lost remains so."""
        self._faults.clear()

    def befalls(self, kind: FaultKind, caller: str, server: str = "") -> CallerFault | None:
        """The fault of this kind that befalls what goes on between these now; None: there is none."""
        if not self._faults:
            return None
        now_s = asyncio.get_running_loop().time()
        for fault in self._faults:
            if fault.kind is kind and fault.from_s <= now_s < fault.until_s:
                is_of_these = caller.startswith(fault.callers) and server.startswith(fault.servers)
                if is_of_these and (fault.chance >= 1.0 or self._rng.random() < fault.chance):
                    self.counts[kind] = self.counts.get(kind, 0) + 1
                    return fault
        return None

    def late_s(self, fault: CallerFault) -> float:
        """How late something is."""
        return self._rng.uniform(0.0, fault.most_s)

    def _on_send(self, end: ConnectionEnd, data: bytes) -> float | None:
        if not self._faults:
            return 0.0
        connection = end.connection
        is_answer = end is connection.server_end

        def befalls(kind: FaultKind) -> CallerFault | None:
            return self.befalls(kind, connection.caller, connection.server)

        if befalls(FaultKind.LOST):
            connection.fall_silent()
            return None
        if is_answer and befalls(FaultKind.HALF):
            part = data[: self._rng.randrange(len(data))]
            if part:
                end.put_on_way(part, connection.one_way_s)
            connection.break_off()
            return None
        if not is_answer and befalls(FaultKind.RESET):
            if self._rng.random() < 0.5:
                end.put_on_way(data, connection.one_way_s)
            connection.break_off()
            return None
        late_s = 0.0
        if (cut := befalls(FaultKind.CUT)) is not None:
            late_s = cut.until_s - asyncio.get_running_loop().time()
        if (late := befalls(FaultKind.LATE)) is not None:
            late_s += self.late_s(late)
        return late_s

    # -- connections -------------------------------------------------------------------------------------------------

    async def _connect(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, **options: object
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """In the place of `loop.create_connection`. OSError."""
        caller, is_of_caller, name = host.rpartition(">")
        if not is_of_caller:  # a server calls the overflow shard of another one
            caller, name = PLACE.get().machine.name, f"{host}:{port}"
        one_way_s = self._rng.uniform(*ONE_WAY_S)
        await asyncio.sleep(2 * one_way_s)
        while (cut := self.befalls(FaultKind.CUT, caller, name)) is not None:
            await asyncio.sleep(cut.until_s - asyncio.get_running_loop().time())
        if self.befalls(FaultKind.LOST, caller, name):
            await asyncio.get_running_loop().create_future()
        adopt = self._listening.get(name)
        if adopt is None or caller in self._dead_callers or self.befalls(FaultKind.REFUSED, caller, name):
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        connection = Connection(
            caller,
            name,
            self._address(caller),
            one_way_s,
            self._on_send,
            lambda each: self._connections.pop(each, None),
        )
        self._connections[connection] = None
        adopt(cast(Any, SimulatedSocket(connection.server_end)))
        protocol = factory()
        connection.client_end.take(protocol)
        return connection.client_end, protocol

    async def _accept(
        self, factory: Callable[[], asyncio.Protocol], accepted: SimulatedSocket, **options: object
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """In the place of `loop.connect_accepted_socket`."""
        protocol = factory()
        accepted.end.take(protocol)
        return accepted.end, protocol

    def _address(self, caller: str) -> tuple[str, int]:
        """Of the machine of a caller, and of a connection of it."""
        number = len(self._addresses) + 1
        host = self._addresses.setdefault(caller, f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}")
        return host, 1024 + next(self._numbers) % 60_000


def _is_of(server: str, name: str) -> bool:
    """Whether this is the name of a server, or of a port of it."""
    return name.partition(":")[0] == server
