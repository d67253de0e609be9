"""Which servers there are: those whose addresses were given, and those that names in the DNS stand for just now."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence

from pinlater.client.address import Address, DnsName, Target
from pinlater.client.server import Server
from pinlater.errors import ServerUnreachable

AGAIN_S = 15.0
DOUBTED_S = 1.0
LOOK_UP_TIMEOUT_S = 5.0

Resolve = Callable[[str, int], Awaitable[Iterable[Address]]]
"""All addresses of a name. OSError: it has none, or nobody knows."""


async def look_up(name: str, port: int) -> Iterable[Address]:
    """What the system says, IPv6 and IPv4."""
    found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return [Address(str(where[0]), int(where[1])) for _, _, _, _, where in found]


class Fleet:
    """`servers` are those to choose from. At `due_s` of the loop's clock or later, `refreshed` says which they are.

    Names are looked up with the first call, then by the first call after 15 s, or after 1 s where a server failed. As
    long as a look-up fails, the last answer counts. A server that is not in the answer any more gets no new calls.
    """

    def __init__(self, targets: Sequence[Target], connect: Callable[[Address], Server], resolve: Resolve) -> None:
        self._targets = targets
        self._connect = connect
        self._resolve = resolve
        self._names = [target for target in targets if isinstance(target, DnsName)]
        self._known: dict[DnsName, list[Address]] = {}
        self._why: dict[DnsName, str] = {}
        self._retired: list[Server] = []
        self._looking: asyncio.Task[None] | None = None
        self._looked_s = -math.inf
        self._closed_because = ""
        self.servers: Sequence[Server] = [connect(each) for each in targets if isinstance(each, Address)]
        self.due_s = -math.inf if self._names else math.inf

    async def refreshed(self, deadline_s: float) -> Sequence[Server]:
        """The servers, of which there is one at least; waits for the answers only where there is none so far.

        ServerUnreachable: no address of any server is known.
        """
        if self._looking is None and not self._closed_because:
            self._looking = asyncio.create_task(self._look())
        if not self.servers and self._looking is not None:
            await asyncio.wait([self._looking], timeout=deadline_s - asyncio.get_running_loop().time())
        if not self.servers:
            why = "; ".join(f"{name}: {self._why.get(name, 'no answer in time')}" for name in self._names)
            raise ServerUnreachable(f"no address of any server is known: {why}")
        return self.servers

    def doubt(self) -> None:
        """A server failed: perhaps the names have changed."""
        if self._names and self.servers:
            self.due_s = min(self.due_s, self._looked_s + DOUBTED_S)

    def end_waits(self, why: str) -> None:
        """Long polls are answered soon, and none can be made any more."""
        for server in (*self.servers, *self._retired):
            server.end_waits(why)

    async def close(self, why: str) -> None:
        """Closes every connection; nothing is looked up any more."""
        self._closed_because = why
        for server in (*self.servers, *self._retired):
            server.close(why)
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    # -- looking up ------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Once, all names. Never fails."""
        try:
            await asyncio.gather(*(self._ask(name) for name in self._names))
            self._use([address for target in self._targets for address in self._addresses(target)])
            self._looked_s = asyncio.get_running_loop().time()
            self.due_s = self._looked_s + AGAIN_S if self.servers else -math.inf
        finally:
            self._looking = None

    async def _ask(self, name: DnsName) -> None:
        try:
            async with asyncio.timeout(LOOK_UP_TIMEOUT_S):
                found = list(dict.fromkeys(await self._resolve(name.name, name.port)))
        except TimeoutError:
            self._why[name] = "no answer in time"
        except OSError as error:
            self._why[name] = error.strerror or str(error)
        else:
            if found:
                self._known[name] = found
            else:
                self._why[name] = "the name has no address"

    def _addresses(self, target: Target) -> Sequence[Address]:
        return self._known.get(target, ()) if isinstance(target, DnsName) else [target]

    def _use(self, addresses: Iterable[Address]) -> None:
        """Those that stay keep their place, their standing and their connections."""
        wanted = dict.fromkeys(addresses)
        stay = [server for server in self.servers if server.address in wanted]
        gone = [server for server in self.servers if server.address not in wanted]
        there = {server.address for server in stay}
        self.servers = [*stay, *(self._connect(address) for address in wanted if address not in there)]
        for server in gone:
            server.retire()
        self._retired = [server for server in (*self._retired, *gone) if not server.is_empty]
