"""The servers of a client: which there are just now, how each has been doing, and which the next call goes to.

ServerList    those whose addresses were given, and those that names in the DNS stand for
Server        one of them, with its connections
ServerHealth  how it has been doing: one that fails is left out for a growing pause
LoadBalancer  the turn among them, from a random start; or with one for a while, so that claims bound to a
              connection are acked where they are held
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from pinlater.background_tasks import exponential_backoff_s
from pinlater.client.addresses import Address, DnsName, Target
from pinlater.client.blocking_pool import BlockingPool
from pinlater.client.capabilities import Capability
from pinlater.client.client_tls import ClientTls
from pinlater.client.pool import Pool, PoolLimits
from pinlater.errors import ServerUnreachable
from pinlater.wire.method import Method

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0


class ServerHealth:
    """How one server has been doing. Times are seconds of the event loop's clock."""

    __slots__ = ("failures", "paused_until_s")

    def __init__(self) -> None:
        self.failures = 0
        self.paused_until_s = 0.0

    def answered(self) -> None:
        """It is there: the pause ends, and the next one starts small again."""
        self.failures = 0
        self.paused_until_s = 0.0

    def failed(self, now_s: float, rng: random.Random) -> None:
        """Leave it out for a while: twice as long with every failure in a row, jittered by half.

        The many calls that fail with one broken connection are one failure.
        """
        if now_s < self.paused_until_s:
            return
        pause_s = exponential_backoff_s(self.failures + 1, FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self.failures += 1
        self.paused_until_s = now_s + pause_s * rng.uniform(0.5, 1.0)


class HasHealth(Protocol):
    health: ServerHealth


ServerT = TypeVar("ServerT", bound=HasHealth)


class LoadBalancer(Generic[ServerT]):
    """The turn among servers, of which there may be more or fewer each time.

    `pick` always names one: where all are paused, the one whose pause ends first. `sticky_s`: about how long one is
    named again and again while it can be, half of that at least; 0: a call each.
    """

    def __init__(self, rng: random.Random, sticky_s: float = 0.0) -> None:
        self._rng = rng
        self._next = rng.randrange(2**16)
        self._sticky_s = sticky_s
        self._sticky_until_s = 0.0
        self._sticky_to: ServerT | None = None

    def pick(self, servers: Sequence[ServerT], now_s: float, tried: Collection[ServerT]) -> ServerT:
        """The next in turn that is neither paused nor among `tried`; else the soonest of the untried, else of all."""
        count = len(servers)
        if count == 1:
            return servers[0]
        if self._sticky_to is not None:
            server = self._sticky_to
            stays = now_s < self._sticky_until_s and server in servers
            if stays and server.health.paused_until_s <= now_s and server not in tried:
                return server
        for offset in range(count):
            position = (self._next + offset) % count
            server = servers[position]
            if server.health.paused_until_s <= now_s and server not in tried:
                self._next = position + 1
                if self._sticky_s:
                    self._sticky_to = server
                    self._sticky_until_s = now_s + self._sticky_s * self._rng.uniform(0.5, 1.5)
                return server
        untried = [server for server in servers if server not in tried]
        return min(untried or servers, key=lambda server: server.health.paused_until_s)


class Server:
    """Long polls have connections of their own: answers come in order, so one would hold back all calls behind it.
    `straight` are those of threads that wait for their answers themselves.
    """

    __slots__ = ("address", "calls", "capabilities", "health", "long_polls", "straight", "unknown_methods")

    def __init__(
        self,
        address: Address,
        limits: PoolLimits,
        on_lost: Callable[[], None] | None = None,
        *,
        tls: ClientTls | None = None,
        server_name: str | None = None,
    ) -> None:
        self.address = address
        self.health = ServerHealth()
        self.unknown_methods: set[str] = set()
        """What it said that it does not have, since it was last connected to: it may be another version by then."""
        self.capabilities: set[Capability] = set()
        """Those that it was asked for because a call needs them, likewise."""
        self.calls = Pool(address, limits, on_lost, on_connect=self._learn_anew, tls=tls, server_name=server_name)
        many = replace(limits, connections=limits.long_poll_connections)
        self.long_polls = Pool(address, many, on_lost, on_connect=self._learn_anew, tls=tls, server_name=server_name)
        self.straight = BlockingPool(address, limits, on_connect=self._learn_anew, tls=tls, server_name=server_name)

    def _learn_anew(self) -> None:
        self.unknown_methods.clear()
        self.capabilities.clear()

    def name_of(self, method: Method[Any]) -> str:
        """What it calls a method, as far as is known."""
        return method.fallback_method if method.name in self.unknown_methods else method.name

    def older_name_of(self, method: Method[Any], name: str) -> str | None:
        """What it may call a method of which it has just said not to know this name; None: it does not have it."""
        if not method.fallback_method or name == method.fallback_method:
            return None
        self.unknown_methods.add(method.name)
        return method.fallback_method

    @property
    def is_empty(self) -> bool:
        """It has no connections."""
        return self.calls.is_empty and self.long_polls.is_empty

    def renew_connections(self) -> None:
        """It is about to close those that are open, perhaps in the moment of the next call: that gets a new one."""
        self.calls.renew()
        self.long_polls.renew()
        self.straight.renew()

    def retire(self) -> None:
        """It is not among the servers any more: what it was asked it may answer, then the connections close."""
        self.calls.retire()
        self.long_polls.retire()
        self.straight.renew()

    def cancel_long_polls(self, why: str) -> None:
        """Long polls are answered soon, and none can be made any more."""
        self.long_polls.cancel_calls(why)

    def resume_long_polls(self) -> None:
        """They can be made again."""
        self.long_polls.resume_calls()

    def close(self, why: str) -> None:
        self.calls.close(why)
        self.long_polls.close(why)
        self.straight.close(why)


LOOK_UP_EVERY_S = 15.0
STALE_S = 1.0
LOOK_UP_TIMEOUT_S = 5.0

Resolve = Callable[[str, int], Awaitable[Iterable[Address]]]
"""All addresses of a name. OSError: it has none, or none is known."""


async def look_up(name: str, port: int) -> Iterable[Address]:
    """What the system says, IPv6 and IPv4."""
    found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return [Address(str(where[0]), int(where[1])) for _, _, _, _, where in found]


class ServerList:
    """`servers` are those to choose from. At `due_s` of the loop's clock or later, `refreshed` says which they are.

    Names are looked up with the first call, then by the first call after 15 s, or after 1 s where a server failed. As
    long as a look-up fails, the last answer counts. A server that is not in the answer any more gets no new calls.
    """

    def __init__(self, targets: Sequence[Target], connect: Callable[[Address, str], Server], resolve: Resolve) -> None:
        """`connect` gets an address, and the name that it is called by."""
        self._targets = targets
        self._connect = connect
        self._resolve = resolve
        self._names = [target for target in targets if isinstance(target, DnsName)]
        self._known: dict[DnsName, list[Address]] = {}
        self._why: dict[DnsName, str] = {}
        self._retired: list[Server] = []
        self._looking: asyncio.Task[None] | None = None
        self._resolved_s = -math.inf
        self._closed_because = ""
        self.servers: Sequence[Server] = [connect(each, each.host) for each in targets if isinstance(each, Address)]
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

    def mark_stale(self) -> None:
        """A server failed: perhaps the names have changed."""
        if self._names and self.servers:
            self.due_s = min(self.due_s, self._resolved_s + STALE_S)

    def cancel_long_polls(self, why: str) -> None:
        """Long polls are answered soon, and none can be made any more."""
        for server in (*self.servers, *self._retired):
            server.cancel_long_polls(why)

    def resume_long_polls(self) -> None:
        """They can be made again."""
        for server in self.servers:
            server.resume_long_polls()

    def close_straight(self, why: str) -> None:
        """From any thread: closes the connections that threads read themselves."""
        for server in (*self.servers, *self._retired):
            server.straight.close(why)

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
            self._use({address: name for target in self._targets for name, address in self._addresses(target)})
            self._resolved_s = asyncio.get_running_loop().time()
            self.due_s = self._resolved_s + LOOK_UP_EVERY_S if self.servers else -math.inf
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

    def _addresses(self, target: Target) -> list[tuple[str, Address]]:
        """The name that each is called by, and the address."""
        if isinstance(target, DnsName):
            return [(target.name, address) for address in self._known.get(target, ())]
        return [(target.host, target)]

    def _use(self, wanted: Mapping[Address, str]) -> None:
        """Takes the servers there are now. Those that stay keep their place, their health and their connections."""
        stay = [server for server in self.servers if server.address in wanted]
        gone = [server for server in self.servers if server.address not in wanted]
        there = {server.address for server in stay}
        new = [(address, name) for address, name in wanted.items() if address not in there]
        self.servers = [*stay, *(self._connect(address, name) for address, name in new)]
        for server in gone:
            server.retire()
        self._retired = [server for server in (*self._retired, *gone) if not server.is_empty]
