"""One server process without its supervisor and its periodic work: `python -m tests.bench.alone STORE_URL...`.

For counting the instructions of calls: prints the port that it listens on, and serves until its standard input ends.
What it does every half a second about answers comes so much later as valgrind makes it slower: it has its usual share.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import tempfile

from pinlater.app import ServerProcess
from pinlater.config import Config, StoreConfig
from pinlater.server import deliveries
from pinlater.server.server_process import GC_THRESHOLD, new_loop

NEVER_MS = 600_000
SLOWER = 50
"""Under valgrind, about."""


async def serve(urls: list[str], folder: str) -> None:
    stores = tuple(StoreConfig(str(number), url) for number, url in enumerate(urls, 1))
    deliveries.LOOK_EVERY_MS *= SLOWER
    config = Config(stores=stores, data=folder, lease_ms=NEVER_MS, stats_interval_ms=NEVER_MS, log_level="error")
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        server = ServerProcess(config, {}, f"127.0.0.1:{port}")
        await server.open()
        await server._periodic.close()  # by the clock, it would count with some calls and not with others
        accepting = asyncio.create_task(accept(server, listener))
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLD)
        print(port, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        accepting.cancel()


async def accept(server: ServerProcess, listener: socket.socket) -> None:
    """As the supervisor does, which hands every connection to a worker process."""
    while True:
        connection, _ = await asyncio.get_running_loop().sock_accept(listener)
        server.adopt(connection)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="pinlater-bench-") as data, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve(sys.argv[1:], data))
