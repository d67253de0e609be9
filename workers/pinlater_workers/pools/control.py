"""Between a running job and its worker, inside a process of the pool: told to stop, and asking for checkpoints."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from concurrent.futures import Future

from pinlater.model import Checkpoint
from pinlater_workers.context import JobContext
from pinlater_workers.pools.line import Line
from pinlater_workers.pools.messages import Answer, Ask, Tell, ToProcess
from pinlater_workers.running import Why


class Control:
    """Its own thread reads, as the main one is busy with the job."""

    def __init__(self, line: Line[ToProcess]) -> None:
        self._line = line
        self._lock = threading.Lock()
        self._number = 0
        self._context: JobContext | None = None
        self._told: tuple[int, Why] | None = None
        self._asks = itertools.count()
        self._asked: dict[int, Future[None]] = {}

    def start(self) -> None:
        threading.Thread(target=self._serve, name="pinlater-control", daemon=True).start()

    def begin(self, number: int, context: JobContext) -> None:
        """This job runs from now on. It may have been told already, as that comes by another connection."""
        with self._lock:
            self._number, self._context = number, context
            told = self._told
        if told is not None and told[0] == number:
            context.tell(told[1])

    def end(self) -> None:
        with self._lock:
            self._context = None

    def ask(self, number: int, checkpoint: Checkpoint) -> Future[None]:
        """For the job of that number: the checkpoint under way."""
        ask = next(self._asks)
        asked: Future[None] = Future()
        asked.set_running_or_notify_cancel()  # a coroutine that gives up waiting does not cancel it
        self._asked[ask] = asked
        self._line.send(Ask(number, ask, checkpoint))
        return asked

    def _serve(self) -> None:
        while (message := self._line.receive()) is not None:
            if isinstance(message, Tell):
                self._tell(message.number, Why(message.why))
            elif isinstance(message, Answer):
                self._answer(message)
        os._exit(1)  # the worker is gone, and what the job does is for nobody

    def _tell(self, number: int, why: Why) -> None:
        with self._lock:
            self._told = number, why
            context = self._context if self._number == number else None
        if context is not None:
            context.tell(why)

    def _answer(self, answer: Answer) -> None:
        asked = self._asked.pop(answer.ask)
        error = answer.exception()
        if error is None:
            asked.set_result(None)
        else:
            asked.set_exception(error)


class JobHost:
    """The host of one job's context."""

    def __init__(self, control: Control, number: int) -> None:
        self._control = control
        self._number = number

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        self._control.ask(self._number, checkpoint).result()

    async def checkpoint_async(self, checkpoint: Checkpoint) -> None:
        await asyncio.wrap_future(self._control.ask(self._number, checkpoint))
