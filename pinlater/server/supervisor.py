"""The supervisor: one listening socket, the workers behind it, and signals turned into an orderly stop or a roll.

SIGTERM, SIGINT   drain all workers and end with 0; a second one breaks off what still runs
SIGHUP            read the configuration again, start new workers, then drain the old ones, which hand their connections
                  over; a configuration with mistakes, or workers that do not start, change nothing. When it says
                  that the terminal was closed, it ends the server like SIGTERM (under nohup it does nothing then)

Other content of the configuration's file is like a SIGHUP.

The supervisor accepts, and gives each worker its turn: workers that all accept from one socket do not share evenly, for
the one that wakes up first takes all there is.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import structlog

from pinlater.background_tasks import BackgroundTasks
from pinlater.listener import BACKLOG, AcceptLoop, RateLimitedLog
from pinlater.server.generation import Generation, ProcessFailed, ProcessHandle, ServePlan
from pinlater.server.watched_file import LOOK_EVERY_S, WatchedFile
from pinlater.standard_streams import StartTerminal

log = structlog.get_logger(__name__)
SAME_SIGNAL_S = 0.5
"""A terminal or a process manager may send its signal twice, to us and to our group; that is one wish."""


class ServeRefused(Exception):
    """The server cannot start, or go on, as it was told to; the message is one line for the operator."""


MakePlan = Callable[[], Awaitable[ServePlan]]
"""Reads the configuration and looks at its stores. ServeRefused."""


class Companion(Protocol):
    """What runs beside the server processes, and ends before they do."""

    async def started(self, plan: ServePlan) -> None:
        """The processes of this plan serve now."""

    async def drain(self) -> None:
        """No more is to be begun; returns when what was begun has ended."""

    def hurry(self) -> None:
        """Break off a drain."""


class Supervisor:
    """Serves until it is told to stop. `on_ready` is called once, with the address."""

    def __init__(
        self, make_plan: MakePlan, on_ready: Callable[[str], None], watched: WatchedFile | None = None
    ) -> None:
        """`watched`: what the configuration is read from."""
        self._watched = watched
        self.companion: Companion | None = None
        self._make_plan = make_plan
        self._on_ready = on_ready
        self._stop = asyncio.Event()
        self._roll = asyncio.Event()
        self._generation: Generation | None = None
        self._acceptor: Acceptor | None = None
        self._draining: set[Generation] = set()
        self._drains = BackgroundTasks()

    async def run(self) -> None:
        """Until it has stopped; then the process is to end, and no signal makes it end otherwise.

        ServeRefused: the server could not start.
        """
        self._terminal = StartTerminal(asyncio.get_running_loop())
        handlers = {signal.SIGTERM: self._interrupted, signal.SIGINT: self._interrupted, signal.SIGHUP: self._hung_up}
        for number, handler in handlers.items():
            on_signal(number, handler)
        try:
            await self._serve()
        finally:
            for number in handlers:
                signal.signal(number, signal.SIG_IGN)

    async def _serve(self) -> None:
        await self._unless_stopped(self._start())
        watch = asyncio.ensure_future(self._watch_file())
        while not self._stop.is_set():
            await self._unless_stopped(self._roll.wait())
            if self._roll.is_set() and not self._stop.is_set():
                self._roll.clear()
                if self._watched is not None:
                    self._watched.accept()
                await self._unless_stopped(self._roll_over())
        watch.cancel()
        await self._end()

    async def _watch_file(self) -> None:
        while self._watched is not None:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                if self._watched.has_changed():
                    log.info("configuration_file_changed", file=str(self._watched.path))
                    self._roll.set()
            except Exception:
                log.exception("configuration_file_not_read", file=str(self._watched.path))

    def _interrupted(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if not self._stop.is_set():
            self._stopped_at_s = now_s
        elif now_s - self._stopped_at_s > SAME_SIGNAL_S:
            log.warning("hurrying")
            for generation in self._all():
                generation.hurry()
            if self.companion is not None:
                self.companion.hurry()
        self._stop.set()

    def _hung_up(self) -> None:
        """The same signal asks for a roll, and tells that the terminal we were started on was closed."""
        if not self._terminal.was_closed():
            self._roll.set()
        elif self._terminal.is_outlived:
            log.info("terminal_closed", then="it goes on, as it runs under nohup")
        else:
            self._interrupted()

    async def _unless_stopped(self, work: Coroutine[Any, Any, object]) -> None:
        """Do it, or break it off as soon as we are told to stop."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        except ServeRefused:  # a signal to the whole group ends workers that are only starting
            if not self._stop.is_set():
                raise

    async def _start(self) -> None:
        plan = await self._make_plan()
        try:
            self._acceptor = self._accepting(plan)
            await self._started(plan)
        except (CannotListen, ProcessFailed, OSError) as failed:
            if self._acceptor is not None:
                self._acceptor.close()
            raise ServeRefused(str(failed)) from failed
        self._on_ready(self._acceptor.address)

    async def _roll_over(self) -> None:
        """Replace the workers by new ones with the configuration as it is now; or change nothing, and say why."""
        old, old_acceptor = self._generation, self._acceptor
        assert old is not None
        assert old_acceptor is not None
        log.info("rolling", supervisor=os.getpid())
        moved = None
        try:
            plan = await self._make_plan()
            if (plan.host, plan.port) != (old.plan.host, old.plan.port):
                moved = self._acceptor = self._accepting(plan)
            new = await self._started(plan)
        except BaseException as error:
            self._acceptor = old_acceptor
            if moved is not None:
                moved.close()
            if not isinstance(error, ServeRefused | CannotListen | ProcessFailed | OSError):
                raise
            log.error("roll_refused", reason=str(error))
            return
        if moved is not None:
            old_acceptor.close()
        self._drains.start(self._retire(old, new))

    async def _started(self, plan: ServePlan) -> Generation:
        """A new generation, which takes all new connections from now on. ProcessFailed."""
        assert self._acceptor is not None
        plan.payload["address"] = self._acceptor.address
        generation = Generation(plan)
        await generation.start()
        self._generation = generation
        address, workers = self._acceptor.address, generation.pids()
        log.info("ready", address=address, supervisor=os.getpid(), workers=workers, **plan.facts)
        if self.companion is not None:
            await self.companion.started(plan)
        return generation

    def _accepting(self, plan: ServePlan) -> Acceptor:
        return Acceptor(plan.host, plan.port, self._wants_connections, self._give)

    def _wants_connections(self) -> bool:
        """Once all is to end, those that came before are taken for an answer: closed unread, they would leave their
        callers without an outcome.
        """
        generation = self._generation
        return generation is not None and (
            generation.takes_connections() or (self._stop.is_set() and generation.answers())
        )

    def _give(self, connection: socket.socket) -> None:
        assert self._generation is not None
        self._generation.adopt(connection)

    async def _retire(self, old: Generation, new: Generation) -> None:
        self._draining.add(old)
        await old.drain(successor=new)
        self._draining.discard(old)
        new.plan.on_rolled()
        log.info("rolled", workers=new.pids())

    async def _end(self) -> None:
        log.info("stopping", supervisor=os.getpid())
        if self.companion is not None:
            await self.companion.drain()
        if self._acceptor is not None:
            self._acceptor.close()
        if self._generation is not None:
            await self._generation.drain()
        await self._drains.drain()
        log.info("stopped", supervisor=os.getpid())

    def workers(self) -> list[ProcessHandle]:
        """Those that live."""
        return [worker for generation in self._all() for worker in generation.living()]

    def _all(self) -> list[Generation]:
        return [*self._draining, *([self._generation] if self._generation is not None else [])]


def on_signal(number: signal.Signals, handler: Callable[[], None]) -> None:
    """The loop's own handlers would be taken away when it is closed, and a late signal then kill the process."""
    loop = asyncio.get_running_loop()

    def hand_on(_number: int, _frame: object) -> None:
        loop.call_soon_threadsafe(handler)

    signal.signal(number, hand_on)


class CannotListen(Exception):
    """The address cannot be had; the message says why."""


class Acceptor:
    """Accepts while `wanted`, else leaves new connections where they wait; `give` takes each."""

    def __init__(self, host: str, port: int, wanted: Callable[[], bool], give: Callable[[socket.socket], None]) -> None:
        """CannotListen."""
        self._accepting = AcceptLoop(bound(host, port), give, RateLimitedLog(log.error), wanted)

    @property
    def address(self) -> str:
        """HOST:PORT, as clients write it."""
        host, port = self._accepting.listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        """Take those who are waiting still, where they are wanted, and listen no more."""
        self._accepting.close(take_waiting=True)


def refuse_taken(host: str, port: int) -> None:
    """CannotListen: somebody else has the port, which a server had better know before it makes its files."""
    bound(host, port, listens=False).close()


def bound(host: str, port: int, *, listens: bool = True) -> socket.socket:
    """A socket that listens on the first address of the host. CannotListen."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}: {error.strerror}") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        if listens:
            listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        other = "--host" if error.errno == errno.EADDRNOTAVAIL else "--port"
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}; choose another {other}") from error
    listener.setblocking(False)
    return listener
