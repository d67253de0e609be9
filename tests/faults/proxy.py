"""A TCP proxy that breaks on demand: what stands between a client and a store, or between a worker and a server.

    with Proxy(port) as proxy:         # proxy.port leads to 127.0.0.1:port
        proxy.black_hole()             # bytes go nowhere, connections stay open
        proxy.heal()                   # held bytes arrive, as after lost packets are sent again

It runs in a thread of its own, so that a blocked test or event loop does not stop it; every method returns when
the change is in force, for connections that are open and for new ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import weakref
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

from tests.stores.process import free_port

CHUNK = 65_536
REQUESTS, ANSWERS = "requests", "answers"
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class _Link:
    """One connection of a client, and ours to the target."""

    def __init__(self, client: asyncio.StreamWriter, target: asyncio.StreamWriter) -> None:
        self.client = client
        self.target = target
        self.peer = _peer(client)
        self.ended_early: asyncio.StreamWriter | None = None
        self.is_lost = False

    def end(self, *, reset: bool) -> None:
        for writer in (self.client, self.target):
            if reset:
                with contextlib.suppress(OSError):  # it may be closed already
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                writer.transport.abort()
            else:
                writer.close()


def _peer(writer: asyncio.StreamWriter) -> str:
    return str(writer.get_extra_info("peername", ("",))[0])


class Proxy:
    def __init__(self, target_port: int, *, target_host: str = "127.0.0.1") -> None:
        self.port = free_port()
        self._target = (target_host, target_port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()
        """Of all connections, also those that close once their bytes have left, or that no link was made of yet."""

        self._open = {REQUESTS: asyncio.Event(), ANSWERS: asyncio.Event()}
        self._delay_s = 0.0
        self._bytes_per_s = 0
        self._cut_off = ""

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._do(self._heal())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- what can be done to the connections -------------------------------------------------------------------------

    def heal(self) -> None:
        """Forward everything again, and accept connections again."""
        self._do(self._heal())

    def cut(self) -> None:
        """Close every connection in an orderly way, and refuse new ones."""
        self._do(self._cut(reset=False))

    def cut_peer(self, address: str) -> None:
        """Close every connection that comes from this address, and each new one; the others go on."""
        self._do(self._cut_peer(address))

    def reset(self) -> None:
        """Reset every connection, and refuse new ones."""
        self._do(self._cut(reset=True))

    def drop_connections(self) -> None:
        """Reset the connections that are open now; new ones are served."""
        self._do(self._end_links(reset=True))

    def black_hole(self, *, answers_only: bool = False) -> None:
        """Accept and hold all bytes; with `answers_only` the requests still arrive, and only their answers are held."""
        self._do(self._hold((ANSWERS,) if answers_only else (REQUESTS, ANSWERS)))

    def lose_connections(self) -> None:
        """The connections that are open now carry nothing any more, neither bytes nor their end, and neither side
        learns of it, as when a machine between them forgets them; new ones are served.
        """
        self._do(self._lose_links())

    def delay(self, seconds: float) -> None:
        """Hold every chunk of bytes, both ways, for so long."""
        self._delay_s = seconds

    def slow(self, bytes_per_second: int) -> None:
        """Forward so many bytes a second, both ways, on each connection."""
        self._bytes_per_s = bytes_per_second

    def half_close(self) -> None:
        """End the answers of every open connection, while its requests still arrive."""
        self._do(self._end_answers())

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._links)

    # -- on the thread of the proxy ----------------------------------------------------------------------------------

    def _do(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _heal(self) -> None:
        self._delay_s, self._bytes_per_s, self._cut_off = 0.0, 0, ""
        for gate in self._open.values():
            gate.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _cut(self, *, reset: bool) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._end_links(reset=reset)

    async def _cut_peer(self, address: str) -> None:
        self._cut_off = address
        for link in tuple(self._links):
            if link.peer == address:
                self._links.discard(link)
                link.end(reset=False)

    async def _end_links(self, *, reset: bool) -> None:
        for link in tuple(self._links):
            link.end(reset=reset)
        self._links.clear()

    async def _lose_links(self) -> None:
        for link in self._links:
            link.is_lost = True

    async def _end_answers(self) -> None:
        for link in self._links:
            link.ended_early = link.client
            link.client.write_eof()

    async def _hold(self, directions: tuple[str, ...]) -> None:
        for direction in directions:
            self._open[direction].clear()

    async def _stop(self) -> None:
        await self._cut(reset=True)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in tuple(self._writers):
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if self._cut_off and self._cut_off == _peer(writer):
            writer.transport.abort()
            return
        try:
            target_reader, target_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(target_writer)
        link = _Link(writer, target_writer)
        self._links.add(link)
        try:
            await asyncio.gather(
                self._pump(link, reader, target_writer, REQUESTS), self._pump(link, target_reader, writer, ANSWERS)
            )
        finally:
            self._links.discard(link)
            link.end(reset=False)

    async def _pump(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str
    ) -> None:
        try:
            await self._carry(link, reader, writer, direction)
        except OSError:  # one side was reset, as by a process that closes with bytes unread
            await self._open[direction].wait()
            if not link.is_lost:
                link.end(reset=True)

    async def _carry(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str
    ) -> None:
        while data := await reader.read(self._bytes_per_s // 10 or CHUNK):
            await self._open[direction].wait()
            if link.is_lost:
                continue
            if pause_s := self._delay_s or (len(data) / self._bytes_per_s if self._bytes_per_s else 0.0):
                await asyncio.sleep(pause_s)
            if writer is not link.ended_early:
                writer.write(data)
                await writer.drain()
        await self._open[direction].wait()
        if link.is_lost:
            await asyncio.Event().wait()  # until the proxy ends
        elif writer is not link.ended_early:
            writer.write_eof()
