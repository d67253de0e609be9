"""Callers with one token, each with one single enqueue at a time: `python -m tests.bench.token_client --help`.

Connects, says `ready`, begins at a line on standard input, ends at the next one, and prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time

from pinlater.model import Job, RequestContext
from pinlater.wire.convert import enqueue_to_wire
from tests.server.running import Plain


async def run(port: int, token: str, queue: str, connections: int) -> None:
    context, request = RequestContext("bench", token=token), enqueue_to_wire(queue, [Job(os.urandom(100))])
    plain = [await Plain.to(port) for _ in range(connections)]
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    end = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
    took_ms: list[float] = []

    async def call(connection: Plain) -> None:
        while not end.done():
            began = time.monotonic()
            await connection.call("enqueueJobs", context=context, request=request)
            took_ms.append((time.monotonic() - began) * 1000)

    began = time.monotonic()
    await asyncio.gather(*map(call, plain))
    result = {"took_ms": took_ms, "seconds": time.monotonic() - began}
    print(json.dumps(result), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--token", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--connections", required=True, type=int)
    options = parser.parse_args()
    asyncio.run(run(options.port, options.token, options.queue, options.connections))


if __name__ == "__main__":
    main()
