"""The supervisor: binds the address once, keeps workers behind it, and turns signals into an orderly stop or a roll.

SIGTERM, SIGINT   drain all workers and end with 0; a second one breaks off what still runs
SIGHUP            read the configuration again, start new workers, then drain the old ones, which hand their connections
                  over; a configuration with mistakes, or workers that do not start, change nothing
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from pinlater.server.generation import Generation, Plan
from pinlater.server.worker import WorkerFailed

log = structlog.get_logger(__name__)
BACKLOG = 1024
SAME_SIGNAL_S = 0.5
"""A terminal or a process manager may send its signal twice, to us and to our group; that is one wish."""


class ServeRefused(Exception):
    """The server cannot start, or go on, as it was told to; the message is one line for the operator."""


MakePlan = Callable[[], Awaitable[Plan]]
"""Reads the configuration and looks at its stores. ServeRefused."""


class Supervisor:
    """Serves until it is told to stop. `on_ready` is called once, with the address."""

    def __init__(self, make_plan: MakePlan, on_ready: Callable[[str], None]) -> None:
        self._make_plan = make_plan
        self._on_ready = on_ready
        self._stop = asyncio.Event()
        self._roll = asyncio.Event()
        self._generation: Generation | None = None
        self._draining: set[Generation] = set()
        self._drains: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """ServeRefused: the server could not start."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_asked)
        loop.add_signal_handler(signal.SIGHUP, self._roll.set)
        await self._unless_stopped(self._start())
        while not self._stop.is_set():
            await self._unless_stopped(self._roll.wait())
            if self._roll.is_set() and not self._stop.is_set():
                self._roll.clear()
                await self._unless_stopped(self._roll_over())
        await self._end()

    def _stop_asked(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if not self._stop.is_set():
            self._stopped_at_s = now_s
        elif now_s - self._stopped_at_s > SAME_SIGNAL_S:
            log.warning("hurrying")
            for generation in self._all():
                generation.hurry()
        self._stop.set()

    async def _unless_stopped(self, work: Coroutine[Any, Any, object]) -> None:
        """Do it, or break it off as soon as we are told to stop."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _start(self) -> None:
        plan = await self._make_plan()
        generation = Generation(plan, bound(plan.host, plan.port))
        try:
            await generation.start()
        except WorkerFailed as failed:
            raise ServeRefused(str(failed)) from failed
        self._generation = generation
        self._log("ready", generation)
        self._on_ready(address_of(generation.listener))

    async def _roll_over(self) -> None:
        """Replace the workers by new ones with the configuration as it is now; or change nothing, and say why."""
        old = self._generation
        assert old is not None
        log.info("rolling", supervisor=os.getpid())
        try:
            plan = await self._make_plan()
            new = Generation(plan, self._listener_for(plan, old))
            await new.start()
        except (ServeRefused, WorkerFailed) as refused:
            log.error("roll_refused", reason=str(refused))
            return
        self._generation = new
        self._log("ready", new)
        drain = asyncio.ensure_future(self._retire(old, new))
        self._drains.add(drain)
        drain.add_done_callback(self._drains.discard)

    def _listener_for(self, plan: Plan, old: Generation) -> socket.socket:
        """The socket that is there already, unless the address has changed."""
        if (plan.host, plan.port) == (old.plan.host, old.plan.port):
            return old.listener
        return bound(plan.host, plan.port)

    async def _retire(self, old: Generation, new: Generation) -> None:
        self._draining.add(old)
        await old.drain(heir=new)
        self._draining.discard(old)
        if old.listener is not new.listener:
            old.listener.close()
        log.info("rolled", workers=new.pids())

    async def _end(self) -> None:
        log.info("stopping", supervisor=os.getpid())
        if self._generation is not None:
            await self._generation.drain()
            self._generation.listener.close()
        if self._drains:
            await asyncio.wait(self._drains)
        log.info("stopped", supervisor=os.getpid())

    def _all(self) -> list[Generation]:
        return [*self._draining, *([self._generation] if self._generation is not None else [])]

    def _log(self, event: str, generation: Generation) -> None:
        address = address_of(generation.listener)
        log.info(event, address=address, supervisor=os.getpid(), workers=generation.pids(), **generation.plan.facts)


def bound(host: str, port: int) -> socket.socket:
    """A socket bound to the address; workers listen on it. ServeRefused."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ServeRefused(f"cannot listen on {host}: {error.strerror}") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ServeRefused(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error
    listener.setblocking(False)
    return listener


def address_of(listener: socket.socket) -> str:
    """HOST:PORT, as clients write it."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
