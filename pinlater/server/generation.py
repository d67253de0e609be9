"""The server processes of one configuration: started together, replaced one by one when they die, drained together.

A Generation keeps a ProcessHandle for each; a roll makes the next generation and drains this one. Reports asks the
workers of all generations what they count.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from pinlater.child_process import ChildProcess, Restarts, exit_text
from pinlater.metric_family import Series
from pinlater.metrics import Snapshot, merge
from pinlater.server.process_channel import Message, ProcessChannel, line

log = structlog.get_logger(__name__)
START_WITHIN_S = 60.0
MOST_WAITING = 64
"""Connections on their way to a worker; one that is stuck gets no more."""


class ProcessFailed(Exception):
    """The worker did not come to serve; the message says why."""


class ProcessHandle:
    """A server process, as its supervisor sees it. `ready`: it serves, or ProcessFailed; `ended`: its exit code."""

    def __init__(self, on_connection: Callable[[socket.socket], None]) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[int] = loop.create_future()
        self._on_connection = on_connection
        self.on_news: Callable[[Any], None] = lambda _: None
        """Called with what it wants the other processes to learn."""
        self._draining = False
        self._numbers = itertools.count(1)
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._parts: dict[int, list[str]] = {}
        self.last_metrics: Snapshot = ()

    def spawn(self, command: Sequence[str], payload: dict[str, Any]) -> None:
        """Start `command` with the descriptor of its end of the line as its last argument. OSError."""
        ours, theirs = line()
        with theirs:
            fd = theirs.fileno()
            try:
                self._process = ChildProcess([*command, str(fd)], [fd], self._exited, own_group=False)
            except OSError:
                ours.close()
                raise
        self._channel = ProcessChannel(ours, self._on_message, lambda: None)
        self._channel.send({"do": "start", "payload": payload})

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
        """ProcessFailed, and then the process is gone."""
        try:
            async with asyncio.timeout(START_WITHIN_S):
                await asyncio.shield(self.ready)
        except TimeoutError:
            await self.kill()
            raise ProcessFailed(f"the process was not ready within {START_WITHIN_S:.0f} s") from None
        except ProcessFailed:
            await self.kill()
            raise

    def adopt(self, connection: socket.socket) -> None:
        """Hand it a connection, a new one or one that another worker began."""
        self._channel.send({"do": "adopt"}, connection)

    def tell(self, news: Any) -> None:
        """What another process has learnt; it does without where it does not keep up."""
        if self.takes_connections:
            self._channel.send({"do": "news", "news": news})

    async def ask(self, kind: str, timeout_s: float) -> Any:
        """What the worker reports of itself: see Serving.report. TimeoutError; ProcessFailed: it is gone."""
        number = next(self._numbers)
        answer = self._requests[number] = asyncio.get_running_loop().create_future()
        try:
            self._channel.send({"do": "report", "kind": kind, "number": number})
            async with asyncio.timeout(timeout_s):
                return await answer
        finally:
            self._requests.pop(number, None)

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
        self._process.kill()
        return await asyncio.shield(self.ended)

    def _exited(self, code: int) -> None:
        self._channel.read_rest()  # what it said last counts before that it ended
        self._channel.close()
        if not self.ready.done():
            self._failed(f"the process ended at once: {exit_text(code)}")
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(ProcessFailed(f"the worker process ended: {exit_text(code)}"))
        self.ended.set_result(code)

    def _failed(self, message: str) -> None:
        self.ready.set_exception(ProcessFailed(message))
        self.ready.exception()  # those who wait are told; nobody has to

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
            case "news", _:
                self.on_news(message["news"])

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
        answer = self._requests.get(number)
        if answer is not None and not answer.done():
            answer.set_result(report)


GRACE_S = 5.0
"""What a worker gets beyond its drain time-out, before it is killed."""

LIVED_S = 10.0
"""A worker that lived so long is replaced at once; others after a pause that doubles."""


def _nothing() -> None:
    """Nobody has to know."""


@dataclass(frozen=True, slots=True)
class ServePlan:
    """The processes to run: so many of `command`, each told `payload`, behind one address. `facts` are for the log,
    which calls each of them `what`. Each gets a copy of the `listeners`.
    """

    host: str
    port: int
    processes: int
    command: Sequence[str]
    payload: dict[str, Any]
    drain_timeout_ms: int
    facts: dict[str, object]
    on_rolled: Callable[[], None] = _nothing
    """Called when those that they replaced have ended."""

    on_over: Callable[[], None] = _nothing
    """Called when none of them serves, and no start succeeds any more."""

    what: str = "worker"
    listeners: Sequence[socket.socket] = ()


class Generation:
    """Workers with one plan."""

    def __init__(self, plan: ServePlan) -> None:
        self.plan = plan
        self._workers: dict[int, ProcessHandle] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._turns = itertools.count()
        self._successor: Generation | None = None

    async def start(self) -> None:
        """All workers, until they serve. ProcessFailed, and then none is left."""
        starts = [asyncio.ensure_future(self._start_worker(slot)) for slot in range(self.plan.processes)]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await self.kill()
            raise
        self._keepers = [asyncio.ensure_future(self._keep(slot)) for slot in self._workers]

    async def drain(self, successor: Generation | None = None) -> None:
        """Let all finish and end, and hand their connections to the successor, where there is one."""
        self._successor = successor
        await self._stop_keeping()
        timeout_s = self.plan.drain_timeout_ms / 1000
        hand_over = successor is not None
        await asyncio.gather(*(self._drained(each, hand_over, timeout_s) for each in self.living()))

    async def _drained(self, worker: ProcessHandle, hand_over: bool, timeout_s: float) -> None:
        code = await worker.drain(hand_over=hand_over, timeout_s=timeout_s, grace_s=GRACE_S)
        if code:
            self._say(log.warning, "not_drained", worker, how=exit_text(code))

    def hurry(self) -> None:
        """Break off a drain."""
        for worker in self.living():
            worker.hurry()

    async def kill(self) -> None:
        await self._stop_keeping()
        await asyncio.gather(*(worker.kill() for worker in self.living()))

    def takes_connections(self) -> bool:
        return any(worker.takes_connections for worker in self._workers.values())

    def answers(self) -> bool:
        """Whether some worker takes connections, or would refuse their calls by name."""
        return any(worker.answers for worker in self._workers.values())

    def adopt(self, connection: socket.socket) -> None:
        """Give a connection to the next worker in turn, to one that drains only where none takes any; where none would
        answer, it is closed.
        """
        workers = self._workers.values()
        taking = [worker for worker in workers if worker.takes_connections] or [
            each for each in workers if each.answers
        ]
        if taking:
            taking[next(self._turns) % len(taking)].adopt(connection)
        else:
            connection.close()

    def pids(self) -> list[int]:
        return [worker.pid for worker in self.living()]

    def living(self) -> list[ProcessHandle]:
        return [worker for worker in self._workers.values() if not worker.ended.done()]

    async def _stop_keeping(self) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    async def _start_worker(self, slot: int) -> ProcessHandle:
        worker = ProcessHandle(self._handed_over)
        worker.on_news = lambda news: self._pass_on(worker, news)
        worker.spawn(self.plan.command, self.plan.payload)
        for listener in self.plan.listeners:
            worker.adopt(listener.dup())
        self._workers[slot] = worker
        await worker.until_ready()
        return worker

    def _pass_on(self, sender: ProcessHandle, news: Any) -> None:
        for worker in self.living():
            if worker is not sender:
                worker.tell(news)

    def _handed_over(self, connection: socket.socket) -> None:
        """It goes to who serves now: a successor may have been replaced meanwhile."""
        generation = self
        while generation._successor is not None:
            generation = generation._successor
        generation.adopt(connection)

    async def _keep(self, slot: int) -> None:
        """Replace the worker of one slot whenever it dies."""
        loop = asyncio.get_running_loop()
        began_s, restarts = loop.time(), Restarts()
        while True:
            worker = self._workers[slot]
            code = await asyncio.shield(worker.ended)
            if loop.time() - began_s >= LIVED_S:
                restarts.served()
            else:
                restarts.failed()
            pause_s = restarts.pause_s
            self._say(log.error, "died", worker, how=exit_text(code), replaced_in_ms=round(pause_s * 1000))
            if restarts.is_over and not self.answers():
                self.plan.on_over()
            await asyncio.sleep(pause_s)
            began_s = loop.time()
            try:
                replacement = await self._start_worker(slot)
            except (ProcessFailed, OSError) as failed:
                self._say(log.error, "not_started", reason=str(failed))
            except Exception as failed:  # a slot that nobody keeps any more would never serve again
                self._say(log.error, "not_started", reason=repr(failed), exc_info=failed)
            else:
                self._say(log.info, "replaced", replacement)

    def _say(
        self, write: Callable[..., object], event: str, process: ProcessHandle | None = None, **fields: object
    ) -> None:
        what = self.plan.what
        write(f"{what}_{event}", **({} if process is None else {what: process.pid}), **fields)


ASK_TIMEOUT_S = 5.0


class Reports:
    """Asks all workers at once. `workers` are those that live; of those `beside` only what they count is asked."""

    def __init__(
        self,
        workers: Callable[[], Sequence[ProcessHandle]],
        beside: Callable[[], Sequence[ProcessHandle]] = tuple,
    ) -> None:
        self._workers = workers
        self._beside = beside
        self._seen: set[ProcessHandle] = set()
        self._ended: Series = {}

    async def ask(self, kind: str, timeout_s: float = ASK_TIMEOUT_S) -> list[tuple[ProcessHandle, Any]]:
        """What each worker that serves reports; None for one that does not answer in time."""
        return await _ask_all(self._workers(), kind, timeout_s)

    async def any_of(self, kind: str, timeout_s: float = ASK_TIMEOUT_S) -> Any:
        """The first report that comes; None where none does."""
        workers = [worker for worker in self._workers() if worker.takes_connections]
        requests = [asyncio.ensure_future(_ask(worker, kind, timeout_s)) for worker in workers]
        try:
            for report in asyncio.as_completed(requests):
                if (found := await report) is not None:
                    return found
            return None
        finally:
            for each in requests:
                each.cancel()
            await asyncio.gather(*requests, return_exceptions=True)

    async def metrics(self) -> Series:
        """The counts of all workers as one, those included that have ended."""
        counting = [*self._workers(), *self._beside()]
        self._seen.update(worker for worker, _ in await _ask_all(counting, "metrics", ASK_TIMEOUT_S))
        living = {*self._workers(), *self._beside()}
        for worker in [worker for worker in self._seen if worker not in living]:
            self._seen.discard(worker)
            merge(self._ended, worker.last_metrics, ended=True)
        merged = {key: list(values) for key, values in self._ended.items()}
        for worker in self._seen:
            merge(merged, worker.last_metrics)
        return merged


async def _ask_all(workers: Sequence[ProcessHandle], kind: str, timeout_s: float) -> list[tuple[ProcessHandle, Any]]:
    serving = [worker for worker in workers if worker.takes_connections]
    return list(zip(serving, await asyncio.gather(*[_ask(each, kind, timeout_s) for each in serving]), strict=True))


async def _ask(worker: ProcessHandle, kind: str, timeout_s: float) -> Any:
    try:
        return await worker.ask(kind, timeout_s)
    except (TimeoutError, ProcessFailed):
        return None
