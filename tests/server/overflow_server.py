"""One process of a server with an overflow shard, put together by hand: python -m … FOLDER STORE-URL BOUND.

Says where it listens on its standard output; ends with SIGTERM, as `pinlater serve` does. Its log is on stderr.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

from pinlater.backends.redis.shard import RedisShard
from pinlater.clock import SystemClock
from pinlater.identity import server_id
from pinlater.logs import configure
from pinlater.overflow import Forwarding, Overflow, Surroundings
from pinlater.periodic import Periodic
from pinlater.queues.registry import Queues
from pinlater.server import ServerLimits, ThriftServer
from pinlater.service import ClaimNames, Service
from pinlater.shards.calls import GuardSettings
from pinlater.shards.coalesce import Coalescing
from pinlater.shards.guard import Guarded
from pinlater.shards.member import Member
from pinlater.shards.members import Members
from pinlater.shards.router import Router

DRAIN_S = 5.0


async def serve(folder: Path, url: str, bound: int) -> None:
    clock = SystemClock()
    guard = GuardSettings(deadline_ms=2_000)
    members = Members([Member(Coalescing(Guarded(RedisShard(url, "1"), guard)), clock)], clock)
    queues = Queues(members, clock)
    router = Router(members)
    periodic = Periodic()
    periodic.every(500, "queues", queues.poll)

    def new_service(over: Router, names: ClaimNames) -> Service:
        return Service(over, clock, names, queues=queues)

    service = new_service(router, ClaimNames("here", os.getpid(), clock.now_ms()))
    around = Surroundings(service=service, router=router, queues=queues, clock=clock, new_service=new_service)
    overflow = Overflow(folder, server_id(folder), bound, around, host="127.0.0.1")
    server = ThriftServer(Forwarding(overflow), ServerLimits(drain_linger_s=0.0))
    await service.open()
    await overflow.open(periodic)
    periodic.start()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await server.start(listener)
        print(listener.getsockname()[1], flush=True)
    ends = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)
    await ends.wait()
    await server.drain(None, DRAIN_S)
    await overflow.drain(DRAIN_S)
    await periodic.close()
    await overflow.close()
    await service.close()


if __name__ == "__main__":
    configure("info", "json")
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
