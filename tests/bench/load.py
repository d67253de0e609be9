"""What the load programs share: options, the moment at which all begin, and the result as one line of JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

from pinlater import AsyncClient

QUEUE = "bench"

Prepare = Callable[[AsyncClient], Awaitable[object]]
Load = Callable[[AsyncClient], Awaitable[int]]


def parser(what: str | None) -> argparse.ArgumentParser:
    """The options that all have."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--server", required=True, help="HOST:PORT")
    parser.add_argument("--in-flight", type=int, default=1, help="callers at the same time [1]")
    return parser


async def _measured(server: str, prepare: Prepare, load: Load) -> dict[str, object]:
    async with AsyncClient(server) as client:
        await client.create_queue(QUEUE)
        await prepare(client)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began, cpu_began = time.monotonic(), time.process_time()
        done = await load(client)
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu_began
    return {"jobs": done, "seconds": round(seconds, 4), "cpu": round(cpu, 3)}


def run(server: str, prepare: Prepare, load: Load) -> None:
    """Connects, prepares, says `ready`, waits for a line on standard input, and does what `load` counts.

    On uvloop, as programs that are in a hurry run: it comes with the extras of the server and of the workers.
    """
    print(json.dumps(uvloop.run(_measured(server, prepare, load))), flush=True)
