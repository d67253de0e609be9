"""Commands of operators, as a worker carries them out: it rests, takes jobs again, or leaves when its jobs are over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from pinlater.model import WorkerCommand
from pinlater_workers.heartbeat.messages import WorkerCommanded
from pinlater_workers.worker.queue_state import log

LOOK_S = 0.1
"""Between looks whether the jobs of a worker that is to leave have ended."""

_WORDS = {
    WorkerCommand.QUIET: "take no more jobs",
    WorkerCommand.RESUME: "take jobs again",
    WorkerCommand.STOP: "end when its jobs have ended",
}


class JobSource(Protocol):
    """What brings jobs to the worker."""

    @property
    def is_fetching(self) -> bool:
        """Jobs may still come."""

    def rest(self) -> None:
        """No more come until `resume`, but for those that are on their way."""

    def resume(self) -> None:
        """They come again."""


class CommandedState:
    """What operators want of one run of a worker. `changed` is called when that is news; `leave` when the worker is to
    end and `is_busy` says that it has no jobs left.
    """

    def __init__(
        self, source: JobSource, is_busy: Callable[[], bool], changed: Callable[[], None], leave: Callable[[], None]
    ) -> None:
        self._source = source
        self._is_busy = is_busy
        self._changed = changed
        self._leave = leave
        self._number = 0
        self.is_quiet = False
        self.is_leaving = False

    def receive(self, message: WorkerCommanded) -> None:
        """Each is carried out once, and none that is older than the last."""
        if message.number <= self._number:
            return
        self._number = message.number
        command = WorkerCommand(message.command)
        log.info("an operator wants this worker to %s", _WORDS[command])
        self.is_quiet = command is not WorkerCommand.RESUME
        was_leaving, self.is_leaving = self.is_leaving, command is WorkerCommand.STOP
        if self.is_quiet:
            self._source.rest()
        else:
            self._source.resume()
        self._changed()
        if not was_leaving:
            self._look()

    def _look(self) -> None:
        if not self.is_leaving:
            return
        if self._source.is_fetching or self._is_busy():
            asyncio.get_running_loop().call_later(LOOK_S, self._look)
        else:
            self.is_leaving = False  # once: asked again, a worker that ends gives its jobs no time
            self._leave()
