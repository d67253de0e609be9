"""The slot of a shard in a Redis Cluster, and the node that serves it.

All keys of a shard have one hash tag, so they lie in one slot, and its scripts stay atomic. The tags are chosen so that
any number of shards is spread evenly over the slots.

While a node moves a slot away, a script would miss some of its keys and fail in the middle. So each script begins with
GUARD, a look for a key that never exists: the node refuses it for as long as it moves the slot, and the call is refused
as a whole.
"""

from __future__ import annotations

import ssl
from functools import cache
from itertools import count

from redis.crc import key_slot

from pinlater.backends.redis.connection import reason
from pinlater.backends.redis.failover import NO_ANSWER, Endpoint, ask
from pinlater.errors import NothingStored

SLOTS = 16_384
MOST_SHARDS = 64
WINDOW = SLOTS // MOST_SHARDS
GUARD = (
    "if type(redis.pcall('EXISTS', KEYS[1] .. ':never')) == 'table' then "
    "return redis.error_reply('TRYAGAIN the slot of this shard is being moved to another node') end "
)
"""It stands on the first line of a script, so that the line numbers in errors of Redis are those of the files."""


@cache
def prefix_of(prefix: str, shard: int) -> str:
    """The prefix, and so the hash tag, of a shard, counted from 1: the first whose slot lies in the shard's window.

    >>> [key_slot(prefix_of("pinlater", shard).encode()) // 4_096 for shard in range(1, 5)]
    [0, 2, 1, 3]
    """
    low = _reversed_bits(shard - 1) * WINDOW
    names = (f"{prefix}-{shard}-{number}" for number in count())
    return next(name for name in names if low <= key_slot(name.encode()) < low + WINDOW)


def _reversed_bits(number: int) -> int:
    """Half of MOST_SHARDS, a quarter, three quarters, an eighth and so on, for 1, 2, 3, 4 and so on."""
    bits = MOST_SHARDS.bit_length() - 1
    return int(f"{number:0{bits}b}"[::-1], 2)


class ClusterNodes:
    """The known nodes of a cluster: those of the address, and those that they name."""

    def __init__(self, seeds: tuple[Endpoint, ...], login: tuple[str, ...] | None, tls: ssl.SSLContext | None) -> None:
        self._seeds = seeds
        self._known: list[Endpoint] = []
        self._login = login
        self._tls = tls

    async def owner(self, slot: int) -> Endpoint:
        """The primary that serves the slot, by the first node that answers. NothingStored where none does."""
        failures: list[str] = []
        for node in dict.fromkeys([*self._known, *self._seeds]):
            try:
                ranges = await ask(node, self._login, self._tls, ("CLUSTER", "SLOTS"))
            except NO_ANSWER as error:
                failures.append(f"{node[0]}:{node[1]}: {reason(error)}")
                continue
            primaries = [
                (first, last, (primary[0].decode() if primary[0] else node[0], int(primary[1])))
                for first, last, primary, *_ in ranges
            ]
            self._known = [node, *(primary for *_, primary in primaries)]
            for first, last, primary in primaries:
                if first <= slot <= last:
                    return primary
            failures.append(f"{node[0]}:{node[1]}: nobody serves it")
        raise NothingStored(f"redis: no node of the cluster serves slot {slot} ({'; '.join(failures)})")
