"""One heartbeat process as the worker sees it: started, spoken to, ended."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Self, cast

from pinlater_workers.frames import Frames
from pinlater_workers.heartbeat.messages import ToProcess, ToWorker, read_by_worker, written

LOOK_S = 0.005
LOOKS = 400
UNREAD_BYTES = 16 * 2**20


class Child(asyncio.Protocol):
    """`ended` is set when it is gone, or does not listen any more."""

    def __init__(self, process: subprocess.Popen[bytes], hear: Callable[[ToWorker], None]) -> None:
        self._process = process
        self._hear = hear
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self.ended = asyncio.Event()

    @classmethod
    async def start(cls, hear: Callable[[ToWorker], None]) -> Self:
        """OSError: the system starts no process. `hear` is called on the loop.

        To be called in the thread that lives as long as the worker: the process ends with the thread that started it.
        """
        ours, its = socket.socketpair()
        try:
            with its:
                process = _spawn(its)
        except BaseException:
            ours.close()
            raise
        child = cls(process, hear)
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: child, sock=ours)
        except BaseException:
            ours.close()
            await child.end()
            raise
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: ToProcess) -> None:
        """Nothing where it is gone: whoever replaces it is told all. One that does not listen is ended.

        What is sent has left this process when this returns, unless the other one is far behind.
        """
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > UNREAD_BYTES:
            self.kill()
        else:
            self._transport.write(written(message))

    def kill(self) -> None:
        """`ended` follows."""
        self._process.kill()

    async def end(self) -> int:
        """The exit code. It ends by itself when it is not spoken to any more, or is killed soon."""
        if self._transport is not None:
            self._transport.abort()
        try:
            for _ in range(LOOKS):
                if self._process.poll() is not None:
                    break
                await asyncio.sleep(LOOK_S)
        finally:
            if self._process.poll() is None:
                self._process.kill()
            code = self._process.wait()
        return code

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            self._hear(read_by_worker(message))

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


def _spawn(its: socket.socket) -> subprocess.Popen[bytes]:
    """In a process group of its own: a Ctrl-C at the terminal is for the worker."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "pinlater_workers.heartbeat.process", str(its.fileno()), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[its.fileno()],
        process_group=0,
    )
