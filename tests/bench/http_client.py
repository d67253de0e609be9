"""Callers over HTTP, each on a connection of its own, one request after the other; and the floor that they are held to.

    python -m tests.bench.http_client floor       a plain aiohttp server that answers as much as an enqueue is answered
    python -m tests.bench.http_client load --help

`floor` prints its address and serves until its input ends. `load` connects, says `ready`, waits for a line on standard
input, and prints one JSON object: how many jobs, in how many seconds, with how much processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

import uvloop
from aiohttp import web

from pinlater.listener import listening

DESCRIPTOR = "bench:s1:p1:1790000000000001"


async def answer(request: web.Request) -> web.Response:
    """What any service on aiohttp does: read JSON, answer JSON."""
    json.loads(await request.read())
    return web.Response(status=201, body=json.dumps({"job": DESCRIPTOR}).encode(), content_type="application/json")


async def floor() -> None:
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/{any:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    (listener,) = listening("127.0.0.1", 0)
    await web.SockSite(runner, listener).start()
    print(f"127.0.0.1:{listener.getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


class Caller(asyncio.Protocol):
    """Sends its request again as soon as it is answered, while there is one left."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._got = bytearray()

    def begin(self, left: list[int], ended: asyncio.Future[None]) -> None:
        """The next requests, as many as are `left` for all callers."""
        self._left = left
        self._ended = ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def next(self) -> None:
        if self._left[0]:
            self._left[0] -= 1
            self._transport.write(self._request)
        elif not self._ended.done():
            self._ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head = self._got.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self._got.find(b"Content-Length: ") + 16
        length = int(self._got[at : self._got.index(b"\r", at)])
        if len(self._got) < head + 4 + length:
            return
        if not self._got.startswith(b"HTTP/1.1 201"):
            self._ended.set_exception(RuntimeError(self._got.decode()[:500]))
            return
        self._got.clear()
        self.next()


async def load(address: str, path: str, calls: int, connections: int, batch: int) -> None:
    job = {"body": "x" * 200}
    body = json.dumps(job if batch == 1 else {"jobs": [job] * batch}).encode()
    lines = [f"POST {path} HTTP/1.1", f"Host: {address}", "Content-Type: application/json"]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()

    async def all_of(number: int) -> float:
        left = [number]
        ends = [loop.create_future() for _ in callers]
        for caller, end in zip(callers, ends, strict=True):
            caller.begin(left, end)
        began = time.monotonic()
        for caller in callers:
            caller.next()
        await asyncio.gather(*ends)
        return time.monotonic() - began

    callers: list[Caller] = []
    for _ in range(connections):
        _, caller = await loop.create_connection(lambda: Caller(head.encode() + body), host, int(port))
        callers.append(caller)
    await all_of(max(connections, calls // 10))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    cpu_began = time.process_time()
    seconds = await all_of(calls)
    result = {"jobs": calls * batch, "seconds": seconds, "cpu": round(time.process_time() - cpu_began, 2)}
    print(json.dumps(result), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["floor", "load"])
    parser.add_argument("--address", help="HOST:PORT")
    parser.add_argument("--path", default="/v1/queues/bench/jobs")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if options.what == "floor":
            runner.run(floor())
        else:
            runner.run(load(options.address, options.path, options.calls, options.connections, options.batch))


if __name__ == "__main__":
    main()
