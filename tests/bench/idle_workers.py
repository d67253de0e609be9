"""Workers that wait for jobs that never come, one connection each: `python -m tests.bench.idle_workers --help`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack

import uvloop

from pinlater import AsyncClient, DequeueRequest

WAIT_MS = (10_000, 20_000)


async def wait(client: AsyncClient, queue: str, wait_ms: int) -> None:
    while True:
        await client.dequeue(DequeueRequest(queue, 1, wait_ms=wait_ms))


async def idle(options: argparse.Namespace) -> float:
    """Seconds for which all waited."""
    queues = [f"idle_{number}" for number in range(options.queues)]
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AsyncClient(options.server)) for _ in range(options.workers)]
        for queue in queues:
            await clients[0].create_queue(queue)
        low, high = WAIT_MS
        span = (high - low) / options.workers
        tasks = [
            asyncio.create_task(wait(client, queues[number % len(queues)], round(low + number * span)))
            for number, client in enumerate(clients)
        ]
        await asyncio.sleep(options.settle_s)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began = time.monotonic()
        await asyncio.to_thread(sys.stdin.readline)
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.wait(tasks)
        return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--queues", type=int, required=True)
    parser.add_argument("--settle-s", type=float, default=3.0, help="how long they wait before it says ready [3]")
    print(json.dumps({"seconds": uvloop.run(idle(parser.parse_args()))}), flush=True)


if __name__ == "__main__":
    main()
