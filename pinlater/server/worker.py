"""One worker process, as its supervisor sees it: started with what to serve, given connections, until it ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any

from pinlater.metrics import Snapshot
from pinlater.server.handover import Channel, Message, line

START_WITHIN_S = 60.0
MOST_WAITING = 64
"""Connections on their way to a worker; one that is stuck gets no more."""


class WorkerFailed(Exception):
    """The worker did not come to serve; the message says why."""


class Worker:
    """`ready`: it serves, or WorkerFailed; `ended`: the process is gone, with this exit code."""

    def __init__(self, on_connection: Callable[[socket.socket], None]) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[int] = loop.create_future()
        self._on_connection = on_connection
        self._draining = False
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._parts: dict[int, list[str]] = {}
        self.last_metrics: Snapshot = ()

    async def spawn(self, command: Sequence[str], payload: dict[str, Any]) -> None:
        """Start `command` with the descriptor of its end of the line as its last argument."""
        ours, theirs = line()
        with theirs:
            fd = theirs.fileno()
            self._process = await asyncio.create_subprocess_exec(
                *command, str(fd), pass_fds=(fd,), stdin=asyncio.subprocess.DEVNULL
            )
        self._channel = Channel(ours, self._on_message, lambda: None)
        self._channel.send({"do": "start", "payload": payload})
        self._watch = asyncio.ensure_future(self._watched())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def takes_connections(self) -> bool:
        """It serves, and keeps up with what it is given."""
        return not self._draining and self.answers

    @property
    def answers(self) -> bool:
        """It takes connections, or drains: then it refuses, by name, the calls of those that it is given."""
        ready = self.ready
        has_begun = ready.done() and not ready.cancelled() and ready.exception() is None
        return has_begun and self._channel.open and self._channel.waiting < MOST_WAITING

    async def until_ready(self) -> None:
        """WorkerFailed, and then the process is gone."""
        try:
            async with asyncio.timeout(START_WITHIN_S):
                await asyncio.shield(self.ready)
        except TimeoutError:
            await self.kill()
            raise WorkerFailed(f"a worker process was not ready within {START_WITHIN_S:.0f} s") from None
        except WorkerFailed:
            await self.kill()
            raise

    def adopt(self, connection: socket.socket) -> None:
        """Hand it a connection, a new one or one that another worker began."""
        self._channel.send({"do": "adopt"}, connection)

    async def ask(self, kind: str, timeout_s: float) -> Any:
        """What the worker reports of itself: see Serving.report. TimeoutError; WorkerFailed: it is gone."""
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._channel.send({"do": "report", "kind": kind, "number": number})
            async with asyncio.timeout(timeout_s):
                return await answer
        finally:
            self._asked.pop(number, None)

    async def drain(self, *, hand_over: bool, timeout_s: float, grace_s: float) -> int:
        """Tell it to finish and end, and kill it where it takes longer than both times; its exit code."""
        self._draining = True
        self._channel.send({"do": "drain", "hand_over": hand_over, "timeout_ms": round(timeout_s * 1000)})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s + grace_s):
                return await asyncio.shield(self.ended)
        return await self.kill()

    def hurry(self) -> None:
        """Tell it to break off what it does, and end."""
        self._channel.send({"do": "hurry"})

    async def kill(self) -> int:
        """kill -9; returns when it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        return await asyncio.shield(self.ended)

    async def _watched(self) -> None:
        code = await self._process.wait()
        self._channel.read_rest()  # what it said last counts before that it ended
        self._channel.close()
        if not self.ready.done():
            self._failed(f"a worker process ended at once: {ending(code)}")
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(WorkerFailed(f"the worker process ended: {ending(code)}"))
        self.ended.set_result(code)

    def _failed(self, message: str) -> None:
        self.ready.set_exception(WorkerFailed(message))
        self.ready.exception()  # whoever waits is told; nobody has to

    def _on_message(self, message: Message, passed: socket.socket | None) -> None:
        match message["say"], passed:
            case "ready", _ if not self.ready.done():
                self.ready.set_result(None)
            case "failed", _ if not self.ready.done():
                self._failed(message["message"])
            case "draining", _:
                self._draining = True
            case "connection", socket.socket():
                self._on_connection(passed)
            case "report", _:
                self._reported(message)

    def _reported(self, message: Message) -> None:
        """One part of a report; a report of metrics is kept, also where nobody waits for it any more."""
        number = message["number"]
        parts = self._parts.setdefault(number, [])
        parts.append(message["part"])
        if not message["is_last"]:
            return
        report = json.loads("".join(self._parts.pop(number)))
        if message["kind"] == "metrics":
            self.last_metrics = report
        answer = self._asked.get(number)
        if answer is not None and not answer.done():
            answer.set_result(report)


def ending(code: int) -> str:
    """How a process ended, in words."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
