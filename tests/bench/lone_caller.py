"""One caller that makes one call after the other: `python -m tests.bench.lone_caller --help`.

Connects, says `ready`, waits for a line on standard input, and prints one JSON object: calls, seconds, processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, cast

import redis
import redis.asyncio
import uvloop

from pinlater import Ack, AsyncClient, Client, DequeueRequest, Job

QUEUE, NONE_QUEUE = "bench", "none"
BODY = os.urandom(200)
PING, PONG = b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"
WARM_UP = 200
Call = Callable[[], Any]


def exchange(connection: socket.socket, sent: bytes, answer: int) -> None:
    """Send it, and read an answer of so many bytes."""
    connection.sendall(sent)
    while answer > 0:
        read = connection.recv(65_536)
        if not read:
            raise ConnectionError("it was closed")
        answer -= len(read)


def calls_of(client: Client | AsyncClient, jobs: list[Any]) -> dict[str, Call]:
    """What a call of each kind is. `jobs` are handed out already, to be acked."""
    return {
        "empty": partial(client.enqueue, QUEUE, []),
        "enqueue": lambda: client.enqueue(QUEUE, Job(BODY)),
        "dequeue none": partial(client.dequeue, DequeueRequest(NONE_QUEUE, 1)),
        "dequeue": partial(client.dequeue, DequeueRequest(QUEUE, 1)),
        "ack": lambda: client.ack(QUEUE, [Ack(jobs.pop().descriptor)], []),
    }


WITHOUT_SERVER = ("echo", "PING", "SET")
WHAT = (*WITHOUT_SERVER, "empty", "enqueue", "dequeue none", "dequeue", "ack")


def plain_call(what: str, host: str, port: int, ending: ExitStack) -> Call:
    """One of WITHOUT_SERVER."""
    if what == "SET":
        client = redis.Redis(host, port)
        ending.callback(client.close)
        return partial(client.set, "bench", BODY)
    connection = ending.enter_context(socket.create_connection((host, port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sent, answer = (PING, len(PONG)) if what == "PING" else (BODY, len(BODY))
    return partial(exchange, connection, sent, answer)


def result(began_s: float, cpu_began_s: float, calls: int) -> None:
    seconds, cpu = time.monotonic() - began_s, time.process_time() - cpu_began_s
    print(json.dumps({"jobs": calls, "seconds": round(seconds, 4), "cpu": round(cpu, 4)}), flush=True)


def run_sync(what: str, address: str, calls: int) -> None:
    host, _, port = address.rpartition(":")
    with ExitStack() as ending:
        if what in WITHOUT_SERVER:
            call = plain_call(what, host, int(port), ending)
        else:
            client = ending.enter_context(Client(address))
            jobs = []
            for queue in (QUEUE, NONE_QUEUE):
                client.create_queue(queue)
            if what in ("dequeue", "ack"):
                for _ in range((calls + WARM_UP) // 100 + 1):
                    client.enqueue(QUEUE, [Job(BODY)] * 100)
            while what == "ack" and (some := client.dequeue(DequeueRequest(QUEUE, 100))):
                jobs += some
            call = calls_of(client, jobs)[what]
        for _ in range(WARM_UP):
            call()
        print("ready", flush=True)
        sys.stdin.readline()
        began_s, cpu_began_s = time.monotonic(), time.process_time()
        for _ in range(calls):
            call()
        result(began_s, cpu_began_s, calls)


async def run_async(what: str, address: str, calls: int) -> None:
    host, _, port = address.rpartition(":")
    if what == "SET":
        async with redis.asyncio.Redis(host=host, port=int(port)) as store:
            await _repeat(partial(store.set, "bench", BODY), calls)
        return
    async with AsyncClient(address) as client:
        jobs = []
        for queue in (QUEUE, NONE_QUEUE):
            await client.create_queue(queue)
        if what in ("dequeue", "ack"):
            for _ in range((calls + WARM_UP) // 100 + 1):
                await client.enqueue(QUEUE, [Job(BODY)] * 100)
        while what == "ack" and (some := await client.dequeue(DequeueRequest(QUEUE, 100))):
            jobs += some
        await _repeat(calls_of(client, jobs)[what], calls)


async def _repeat(call: Callable[[], Awaitable[object]], calls: int) -> None:
    for _ in range(WARM_UP):
        await call()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    began_s, cpu_began_s = time.monotonic(), time.process_time()
    for _ in range(calls):
        await call()
    result(began_s, cpu_began_s, calls)


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


async def serve_echo() -> None:
    """Until standard input ends; prints the port first."""
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", help="HOST:PORT of what is called; without it, answer echoes")
    parser.add_argument("--what", choices=WHAT)
    parser.add_argument("--mode", choices=("sync", "async"), default="sync")
    parser.add_argument("--calls", type=int)
    given = parser.parse_args()
    if given.server is None:
        uvloop.run(serve_echo())
    elif given.mode == "sync":
        run_sync(given.what, given.server, given.calls)
    else:
        uvloop.run(run_async(given.what, given.server, given.calls))


if __name__ == "__main__":
    main()
