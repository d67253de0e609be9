"""The thread of a worker inside a program, with an event loop of its own."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from pinlater.log_guard import GuardedLogger, guard_loop

_log = GuardedLogger("pinlater_workers.worker")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster loop, where it is installed."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ModuleNotFoundError:
        return None
    return factory


class WorkerThread:
    """Runs a coroutine, which is told what to call when it has begun."""

    def __init__(self, run: Callable[[Callable[[], None]], Coroutine[Any, Any, None]]) -> None:
        self._run = run
        self._begun: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="pinlater-worker", daemon=True)

    def start(self) -> None:
        """Return when it has begun, or raise why it has not."""
        self._thread.start()
        try:
            self._begun.result()
        except BaseException:
            self._thread.join()
            raise

    def end(self, ask: Callable[[], None]) -> None:
        """Have its loop call this, and wait for the end; raises what it ended with."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: it has ended
                self._loop.call_soon_threadsafe(ask)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                self._loop = runner.get_loop()
                guard_loop(self._loop)
                runner.run(self._run(self._note_begun))
        except BaseException as error:
            if self._begun.done():
                _log.error("The worker has ended: %s", error)
                self._failure = error
            else:
                self._begun.set_exception(error)
        else:
            self._note_begun()

    def _note_begun(self) -> None:
        if not self._begun.done():
            self._begun.set_result(None)
