"""A shard in a Redis Cluster: one slot, and the node that serves it.

All keys of a shard have one hash tag, so they lie in one slot and its scripts stay atomic. Tags are chosen so that the
shards are spread evenly over the slots, however many there are. While a slot is being moved, a script would find some
of its keys gone: each begins with a look for a key that never is there, which the node refuses as long as it moves
the slot. So the calls of that shard are refused, whole and to be tried again, until the slot has arrived.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import cache
from itertools import count

from redis.crc import key_slot

from pinlater.backends.redis.connection import PipelinedConnection, ReplyError
from pinlater.errors import NothingStored, ShardConnectionFailed

SLOTS = 16_384
MOST_SHARDS = 64
WINDOW = SLOTS // MOST_SHARDS
ASK_WITHIN_S = 1.0
GUARD = (
    "if type(redis.pcall('EXISTS', KEYS[1] .. ':never')) == 'table' then "
    "return redis.error_reply('TRYAGAIN the slot of this shard is being moved to another node') end "
)
"""Goes before each script; on the first line of it, so that Redis' errors name the lines of the files."""

Place = tuple[str, int]


@cache
def prefix_of(prefix: str, shard: int) -> str:
    """The prefix, and so the hash tag, of a shard, from 1 on: the first whose slot lies where that shard belongs.

    >>> [key_slot(prefix_of("pinlater", shard).encode()) // 4_096 for shard in range(1, 5)]
    [0, 2, 1, 3]
    """
    low = _reversed(shard - 1) * WINDOW
    return next(
        name for number in count() if low <= key_slot((name := f"{prefix}-{shard}-{number}").encode()) < low + WINDOW
    )


def _reversed(number: int) -> int:
    """The bits the other way round: half, a quarter, three quarters, an eighth and so on of MOST_SHARDS."""
    bits = MOST_SHARDS.bit_length() - 1
    return int(f"{number:0{bits}b}"[::-1], 2)


class ClusterNodes:
    """The nodes of a cluster, as far as they are known: those of the address, and whom these name."""

    def __init__(self, seeds: tuple[Place, ...], login: tuple[str, ...] | None, tls: ssl.SSLContext | None) -> None:
        self._seeds = seeds
        self._nodes: list[Place] = list(seeds)
        self._login = login
        self._tls = tls

    async def owner(self, slot: int) -> Place:
        """The node that serves it, as the first one says that answers. NothingStored where none knows."""
        why: list[str] = []
        for place in [*self._nodes, *(seed for seed in self._seeds if seed not in self._nodes)]:
            found = await self._ask(place, slot)
            if not isinstance(found, str):
                self._nodes = [place, *(each for each in self._nodes if each != place)]
                return found
            self._nodes = [each for each in self._nodes if each != place]
            why.append(f"{place[0]}:{place[1]}: {found}")
        self._nodes = list(self._seeds)
        raise NothingStored(f"redis: no node of the cluster serves slot {slot} ({'; '.join(why)})")

    async def _ask(self, place: Place, slot: int) -> Place | str:
        connection = PipelinedConnection(ASK_WITHIN_S)
        try:
            async with asyncio.timeout(ASK_WITHIN_S):
                await asyncio.get_running_loop().create_connection(lambda: connection, *place, ssl=self._tls)
                if self._login is not None:
                    await connection.send(("AUTH", *self._login))
                ranges = await connection.send(("CLUSTER", "SLOTS"))
        except TimeoutError:
            return "no answer"
        except (OSError, ReplyError, ShardConnectionFailed) as error:
            return str(error)
        finally:
            connection.abort()
        owner: Place | None = None
        for first, last, primary, *_ in ranges:
            node = (primary[0].decode() if primary[0] else place[0], int(primary[1]))
            if node not in self._nodes:
                self._nodes.append(node)
            if first <= slot <= last:
                owner = node
        return owner or f"nobody serves slot {slot}"
