"""One server as a client sees it: its address, how it has been doing, and the connections to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pinlater.client.address import Address
from pinlater.client.pool import Pool, PoolLimits
from pinlater.client.rotation import Standing

LONG_POLL_CONNECTIONS = 256


class Server:
    """Long polls have connections of their own: answers come in order, so one would hold back all calls behind it."""

    __slots__ = ("address", "calls", "long_polls", "standing", "unknown_methods")

    def __init__(self, address: Address, limits: PoolLimits, on_lost: Callable[[], None] | None = None) -> None:
        self.address = address
        self.standing = Standing()
        self.unknown_methods: set[str] = set()
        """What it said that it does not have, since it was last connected to: it may be another version by then."""
        learn = self.unknown_methods.clear
        self.calls = Pool(address, limits, on_lost, on_connect=learn)
        self.long_polls = Pool(address, replace(limits, connections=LONG_POLL_CONNECTIONS), on_lost, on_connect=learn)

    @property
    def is_empty(self) -> bool:
        """It has no connections."""
        return self.calls.is_empty and self.long_polls.is_empty

    def renew_connections(self) -> None:
        """It is about to close those that are open, perhaps in the moment of the next call: that gets a new one."""
        self.calls.renew()
        self.long_polls.renew()

    def retire(self) -> None:
        """It is not among the servers any more: what it was asked it may answer, then the connections close."""
        self.calls.retire()
        self.long_polls.retire()

    def end_waits(self, why: str) -> None:
        """Long polls are answered soon, and none can be made any more."""
        self.long_polls.end(why)

    def close(self, why: str) -> None:
        self.calls.close(why)
        self.long_polls.close(why)
