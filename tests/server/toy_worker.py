"""A worker process that answers every line with its process id, and misbehaves as its payload says."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from typing import Any

from pinlater.server import server_process
from pinlater.server.server_process import HandOver, News, StartRefused, Tell


class Toy:
    def __init__(self, behaviour: str) -> None:
        self._behaviour = behaviour
        self._tasks: set[asyncio.Task[None]] = set()

    def adopt(self, connection: socket.socket) -> None:
        task = asyncio.ensure_future(self._answer(connection))
        self._tasks.add(task)

    async def _answer(self, connection: socket.socket) -> None:
        nodelay = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        reader, writer = await asyncio.open_connection(sock=connection)
        while await reader.readline():
            writer.write(f"{os.getpid() if nodelay else 'delayed'}\n".encode())
        writer.close()

    def share(self, tell: Tell) -> None:
        pass

    def learn(self, news: News) -> None:
        pass

    async def report(self, kind: str) -> Any:
        if self._behaviour == "reports at length":
            return [[["limits_hit", '"' * 1000 + str(number)], [1.0]] for number in range(500)]
        return [[["limits_hit", kind], [1.0]]]

    async def drain(self, hand_over: HandOver | None, timeout_s: float) -> None:
        if self._behaviour == "drains slowly":
            await asyncio.Event().wait()
        if self._behaviour == "hangs":
            time.sleep(60)  # noqa: ASYNC251

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def build(payload: dict[str, Any]) -> Toy:
    behaviour = payload["behaviour"]
    if behaviour == "refuses":
        raise StartRefused("I will not")
    if behaviour == "dies at once":
        os._exit(7)
    if behaviour == "dies soon":
        asyncio.get_running_loop().call_later(0.05, os._exit, 9)
    return Toy(behaviour)


if __name__ == "__main__":
    server_process.main(int(sys.argv[1]), build)
