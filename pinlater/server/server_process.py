"""The inside of a server process: it serves until its supervisor or a signal tells it to stop.

The supervisor says           the process says
    start (payload)               ready, or failed (message)
    adopt, a connection           draining
    drain (hand_over, timeout)    connection, a connection handed over while draining
    report (kind, number)         report (number, part, is_last), the JSON text in as many parts as it takes
    news (news)                   news (news), for the other processes of the server
    hurry                         report (metrics, number 0), and ends
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import structlog

from pinlater.background_tasks import BackgroundTasks
from pinlater.listener import raise_descriptor_limit
from pinlater.server.process_channel import Message, ProcessChannel

try:
    import uvloop
except ModuleNotFoundError:  # not to be had on every system
    uvloop = None  # type: ignore[assignment]

log = structlog.get_logger(__name__)
new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop if uvloop else asyncio.new_event_loop
REPORT_PART_CHARS = 64 * 1024
"""With every character escaped that can be, it still fits into a message of the line."""

SUPERVISOR_FIRST_S = 1.0
"""So long after a signal the supervisor may give the order: it too gets a signal to all processes, and then first hands
over the connections that wait to be accepted. A process that ended before could not answer them."""

GC_THRESHOLD = (50_000, 20, 50)
"""Requests make many containers and few cycles; at the default of 700, looking for garbage takes 9 % of the time."""


News = dict[str, str]
Tell = Callable[[News], None]


class Serving(Protocol):
    """A server that is built and opened."""

    def adopt(self, connection: socket.socket) -> None:
        """Serve a connection: a new one, or one that another process began and left at the boundary of a message."""

    async def report(self, kind: str) -> Any:
        """What this process says of itself, as JSON can hold it: metrics, status, remarks or readiness."""

    def share(self, tell: Tell) -> None:
        """Called once, with what passes news on to the other processes of the server."""

    def learn(self, news: News) -> None:
        """What another process of the server passed on."""

    async def drain(self, hand_over: Callable[[socket.socket], None] | None, timeout_s: float) -> None:
        """Answer what was read; then close the connections, or hand them over."""

    async def close(self) -> None:
        """Free everything."""


Build = Callable[[dict[str, Any]], Awaitable[Serving]]
HandOver = Callable[[socket.socket], None]


class StartRefused(Exception):
    """The worker cannot serve with what it was given; the message is for the operator."""


class SupervisedProcess:
    """One worker, as seen from inside."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._begun: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._drain: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._hurry = asyncio.Event()
        self._adopted: list[socket.socket] = []
        self._serving: Serving | None = None
        self._reporting = BackgroundTasks()

    async def run(self, end: socket.socket) -> int:
        """Serve over one end of the supervisor's line; the exit code."""
        self._channel = ProcessChannel(end, self._on_message, self._on_end)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, loop.call_later, SUPERVISOR_FIRST_S, self._begin_drain, {"do": "drain"})
        try:
            return await self._run()
        finally:
            await self._channel.flush()
            self._channel.close()

    async def _run(self) -> int:
        payload = await self._begun
        try:
            serving = await self._build(payload)
        except (StartRefused, OSError) as error:
            self._channel.send({"say": "failed", "message": str(error)})
            return 1
        self._begin(serving)
        order = await self._drain
        self._channel.send({"say": "draining"})
        hand_over = self._hand_over if order.get("hand_over") else None
        await self._drained(serving, hand_over, order.get("timeout_ms", payload["drain_timeout_ms"]) / 1000)
        await self._report("metrics", 0)
        return 0

    def _begin(self, serving: Serving) -> None:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLD)
        self._serving = serving
        serving.share(lambda news: self._channel.send({"say": "news", "news": news}))
        self._channel.send({"say": "ready"})
        while self._adopted:
            self._adopt(self._adopted.pop())

    async def _drained(self, serving: Serving, hand_over: HandOver | None, timeout_s: float) -> None:
        """Drain in order, unless it must be fast."""
        drain = asyncio.ensure_future(serving.drain(hand_over, timeout_s))
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait((drain, hurry), return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not drain.done():
            drain.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await drain
        await serving.close()

    def _on_message(self, message: Message, passed: socket.socket | None) -> None:
        match message["do"], passed:
            case "start", _:
                self._begun.set_result(message["payload"])
            case "adopt", socket.socket():
                self._adopt(passed)
            case "drain", _:
                self._begin_drain(message)
            case "hurry", _:
                self._begin_drain(message)
                self._hurry.set()
            case "news", _ if self._serving is not None:
                self._serving.learn(message["news"])
            case "report", _:
                self._reporting.start(self._report(message["kind"], message["number"]))

    async def _report(self, kind: str, number: int) -> None:
        """Where it fails the caller gets no answer, and gives up waiting."""
        if self._serving is None:
            return
        try:
            text = json.dumps(await self._serving.report(kind))
        except Exception:
            log.exception("report_failed", kind=kind)
            return
        for start in range(0, len(text), REPORT_PART_CHARS):
            is_last = start + REPORT_PART_CHARS >= len(text)
            part = text[start : start + REPORT_PART_CHARS]
            self._channel.send({"say": "report", "kind": kind, "number": number, "part": part, "is_last": is_last})

    def _begin_drain(self, order: Message) -> None:
        """The first order counts: a process manager may send its own signal to all of us as well."""
        if not self._drain.done():
            self._drain.set_result(order)

    def _on_end(self) -> None:
        """The supervisor is gone: answer what was read, and end."""
        if not self._begun.done():
            self._begun.cancel()
        if not self._drain.done():
            log.warning("supervisor_gone")
            self._begin_drain({"do": "drain"})

    def _adopt(self, connection: socket.socket) -> None:
        if self._serving is None:
            self._adopted.append(connection)
        elif self._drain.done() and self._drain.result().get("hand_over"):
            self._hand_over(connection)
        else:
            self._serving.adopt(connection)

    def _hand_over(self, connection: socket.socket) -> None:
        self._channel.send({"say": "connection"}, connection)


def main(descriptor: int, build: Build) -> None:
    """The whole life of a server process whose end of the line has this descriptor; never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the supervisor says when to stop
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # a terminal that stops who writes to it in the background
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            code = runner.run(_run(descriptor, build))
        except asyncio.CancelledError:
            code = 1
    sys.exit(code)


async def _run(descriptor: int, build: Build) -> int:
    return await SupervisedProcess(build).run(socket.socket(fileno=descriptor))
