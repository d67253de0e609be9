"""A server that does not know some methods: a real one, behind a connection that answers for it that it does not."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import Counter
from collections.abc import AsyncIterator

from pinlater.wire.codec import encode_application_exception
from pinlater.wire.message import ApplicationErrorKind, read_header


class OlderServer:
    """In front of the server at a port. `calls` counts the methods that were asked for."""

    def __init__(self, port: int, unknown: frozenset[str]) -> None:
        self._port = port
        self._unknown = unknown
        self._tasks: set[asyncio.Task[None]] = set()
        self.calls: Counter[str] = Counter()
        self.address = ""
        self.lost = asyncio.Event()
        self._loses_after = -2

    def lose_after(self, calls: int) -> None:
        """One call after so many more reaches nobody, and has no answer."""
        self._loses_after = calls

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        async with _closed_after(writer):
            behind_reader, behind = await asyncio.open_connection("127.0.0.1", self._port)
            async with _closed_after(behind):
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    while True:
                        writer.write(_framed(await self._answer(await _frame(reader), behind_reader, behind)))

    async def _answer(self, message: bytes, reader: asyncio.StreamReader, behind: asyncio.StreamWriter) -> bytes:
        header = read_header(message)
        self.calls[header.name] += 1
        self._loses_after -= 1
        if self._loses_after == -1:
            self.lost.set()
            await asyncio.Event().wait()
        if header.name in self._unknown:
            text = f"there is no method {header.name!r}"
            return encode_application_exception(header.name, header.seqid, ApplicationErrorKind.UNKNOWN_METHOD, text)
        behind.write(_framed(message))
        return await _frame(reader)

    async def close(self) -> None:
        await asyncio.sleep(0)  # a connection of this moment has its task now
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def older_server(port: int, *unknown: str) -> AsyncIterator[OlderServer]:
    """A server that knows all methods but these, one call of a connection at a time."""
    older = OlderServer(port, frozenset(unknown))
    listener = await asyncio.start_server(older.serve, "127.0.0.1", 0)
    older.address = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield older
    finally:
        listener.close()
        await older.close()


@contextlib.asynccontextmanager
async def _closed_after(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(length)
