"""The worker processes of one configuration: started together, replaced one by one when they die, drained together."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from pinlater.background_tasks import exponential_backoff_s
from pinlater.server.worker import Worker, WorkerFailed, ending

log = structlog.get_logger(__name__)
GRACE_S = 5.0
"""What a worker gets beyond its drain time-out, before it is killed."""

FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 10.0
LIVED_S = 10.0
"""A worker that lived so long is replaced at once; others after a pause that doubles."""


def _nothing() -> None:
    """Nobody has to know."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: so many processes of `command`, each told `payload`, behind one address. `facts` are for the log."""

    host: str
    port: int
    processes: int
    command: Sequence[str]
    payload: dict[str, Any]
    drain_timeout_ms: int
    facts: dict[str, object]
    on_rolled: Callable[[], None] = _nothing
    """Called when those that they replaced have ended."""


class Generation:
    """Workers with one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._workers: dict[int, Worker] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._turns = itertools.count()
        self._heir: Generation | None = None

    async def start(self) -> None:
        """All workers, until they serve. WorkerFailed, and then none is left."""
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

    async def drain(self, heir: Generation | None = None) -> None:
        """Let all finish and end, and hand their connections to the heir, where there is one."""
        self._heir = heir
        await self._stop_keeping()
        timeout_s = self.plan.drain_timeout_ms / 1000
        hand_over = heir is not None
        await asyncio.gather(*(self._drained(each, hand_over, timeout_s) for each in self.living()))

    async def _drained(self, worker: Worker, hand_over: bool, timeout_s: float) -> None:
        code = await worker.drain(hand_over=hand_over, timeout_s=timeout_s, grace_s=GRACE_S)
        if code:
            log.warning("worker_not_drained", worker=worker.pid, how=ending(code))

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

    def living(self) -> list[Worker]:
        return [worker for worker in self._workers.values() if not worker.ended.done()]

    async def _stop_keeping(self) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    async def _start_worker(self, slot: int) -> Worker:
        worker = Worker(self._handed_over)
        await worker.spawn(self.plan.command, self.plan.payload)
        self._workers[slot] = worker
        await worker.until_ready()
        return worker

    def _handed_over(self, connection: socket.socket) -> None:
        """It goes to who serves now: an heir may have been replaced meanwhile."""
        generation = self
        while generation._heir is not None:
            generation = generation._heir
        generation.adopt(connection)

    async def _keep(self, slot: int) -> None:
        """Replace the worker of one slot whenever it dies."""
        loop = asyncio.get_running_loop()
        began_s, deaths = loop.time(), 0
        while True:
            worker = self._workers[slot]
            code = await asyncio.shield(worker.ended)
            deaths = 0 if loop.time() - began_s >= LIVED_S else deaths + 1
            pause_s = exponential_backoff_s(deaths, FIRST_PAUSE_S, LAST_PAUSE_S)
            log.error("worker_died", worker=worker.pid, how=ending(code), replaced_in_ms=round(pause_s * 1000))
            await asyncio.sleep(pause_s)
            began_s = loop.time()
            try:
                replacement = await self._start_worker(slot)
            except (WorkerFailed, OSError) as failed:
                log.error("worker_not_started", reason=str(failed))
            except Exception as failed:  # a slot that nobody keeps any more would never serve again
                log.error("worker_not_started", reason=repr(failed), exc_info=failed)
            else:
                log.info("worker_replaced", worker=replacement.pid)
