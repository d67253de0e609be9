"""A real server on a loopback port, and raw sockets to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

from pinlater.access.gate import CallGate
from pinlater.clock import Clock
from pinlater.metrics import Metrics
from pinlater.model import DequeueRequest, Job, RequestContext
from pinlater.server.limits import ServerLimits
from pinlater.server.thrift_server import ThriftServer
from pinlater.wire import convert
from pinlater.wire.codec import Reply, decode_reply, encode_call
from pinlater.wire.message import Protocol
from tests.server.memory_api import EchoService

ME = RequestContext("me")
PATIENCE_S = 10.0


def bound_socket() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return listener


async def until(true: Callable[[], bool]) -> None:
    """Look again and again: for what happens without telling."""
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.002)


class Raw:
    """One connection, as bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def send_framed(self, message: bytes) -> None:
        self.writer.write(struct.pack(">i", len(message)) + message)

    async def frame(self) -> bytes:
        """The next framed answer, without its frame."""
        async with asyncio.timeout(PATIENCE_S):
            (length,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(length)

    async def reply(self) -> Reply:
        return decode_reply(await self.frame())

    async def until_closed(self) -> bytes:
        """What is still sent until the server closes the connection, by an end or a reset."""
        got = b""
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                while chunk := await self.reader.read(65536):
                    got += chunk
        return got

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


class Served:
    """A running server with its service; `connect` opens raw connections that are closed at the end."""

    def __init__(self, server: ThriftServer, service: Any, port: int) -> None:
        self.server = server
        self.service = service
        self.port = port
        self.open: list[Raw] = []

    async def connect(self) -> Raw:
        raw = Raw(*await asyncio.open_connection("127.0.0.1", self.port))
        self.open.append(raw)
        return raw

    async def is_well(self) -> None:
        """The server answers a new caller at once and fully."""
        raw = await self.connect()
        raw.send_framed(call_names(3))
        assert (await raw.reply()).success == {"mail", "images"}
        await raw.close()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for something that the server does by itself."""
        await until(true)


async def connect_from(served: Served, host: str) -> Raw:
    """A connection from another address."""
    raw = Raw(*await asyncio.open_connection("127.0.0.1", served.port, local_addr=(host, 0)))
    served.open.append(raw)
    return raw


@contextlib.asynccontextmanager
async def serving(
    service: Any = None,
    clock: Clock | None = None,
    metrics: Metrics | None = None,
    gate: CallGate | None = None,
    **limits: Any,
) -> AsyncIterator[Served]:
    service = service or EchoService()
    server = ThriftServer(service, ServerLimits(**{"drain_linger_s": 0.0, **limits}), metrics, clock, gate)
    listener = bound_socket()
    with listener:
        await server.start(listener)
        served = Served(server, service, listener.getsockname()[1])
    try:
        yield served
    finally:
        for raw in served.open:
            await raw.close()
        await server.drain(None, PATIENCE_S)


def call_names(seqid: int, protocol: Protocol = Protocol.BINARY) -> bytes:
    return encode_call("getQueueNames", seqid, convert.call_args("getQueueNames", ME), protocol)


def call_enqueue(seqid: int, *jobs: Job, queue: str = "mail", protocol: Protocol = Protocol.BINARY) -> bytes:
    request = convert.enqueue_to_wire(queue, jobs)
    return encode_call("enqueueJobs", seqid, convert.call_args("enqueueJobs", ME, request=request), protocol)


def call_dequeue(seqid: int, request: DequeueRequest, protocol: Protocol = Protocol.BINARY) -> bytes:
    args = convert.call_args("dequeueJobs", ME, request=convert.dequeue_to_wire(request))
    return encode_call("dequeueJobs", seqid, args, protocol)
