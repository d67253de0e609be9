"""`python -m pinlater_workers.heartbeat.process FD PARENT`: the heartbeat process of the worker with that process id.

FD is its end of a socket pair. It ends when the worker closes the other end, or when the worker is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from typing import cast

from pinlater_workers.dying import die_with, when_lost
from pinlater_workers.frames import Frames
from pinlater_workers.heartbeat.beating import Beating
from pinlater_workers.heartbeat.messages import (
    Beaten,
    Begin,
    Forget,
    ToProcess,
    ToWorker,
    Watch,
    read_by_process,
    written,
)

UNREAD_BYTES = 65_536


class Ear(asyncio.Protocol):
    """The connection to the worker."""

    def __init__(self) -> None:
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._beating: Beating | None = None
        self._run: asyncio.Task[None] | None = None
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            self._hear(read_by_process(message))

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def _hear(self, message: ToProcess) -> None:
        if isinstance(message, Begin):
            self._beating = Beating(message, self._tell)
            self._run = asyncio.create_task(self._beating.run())
            self._run.add_done_callback(lambda _: self.ended.set())
        elif self._beating is not None:
            self._beating.heard()
            if isinstance(message, Watch):
                self._beating.watch(message.claims)
            elif isinstance(message, Forget):
                self._beating.forget(message.numbers)

    def _tell(self, message: ToWorker) -> None:
        """Good beats are not worth a growing heap when the worker does not read: later ones say the same."""
        if self._transport is None or self._transport.is_closing():
            return
        if isinstance(message, Beaten) and self._transport.get_write_buffer_size() > UNREAD_BYTES:
            return
        self._transport.write(written(message))

    async def finish(self) -> None:
        """Ends the beats. Raises what ended them by itself, if that is why."""
        if self._transport is not None:
            self._transport.abort()
        if self._run is not None:
            self._run.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._run


async def serve(end: socket.socket, parent: int) -> None:
    loop = asyncio.get_running_loop()
    _, ear = await loop.create_unix_connection(Ear, sock=end)
    when_lost(parent, lambda: os._exit(0))
    await ear.ended.wait()
    await ear.finish()


def main() -> None:
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with(parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the worker needs its claims until it has ended
    with socket.socket(fileno=descriptor) as end:
        asyncio.run(serve(end, parent))


if __name__ == "__main__":
    main()
