"""The end of a worker, in order: what is asked of it, and how long what runs may go on."""

from __future__ import annotations

import asyncio


class Stop:
    """Asked once: no new jobs, and the grace time for those that run. Asked again: none."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()
        self.failure: BaseException | None = None

    def ask(self) -> None:
        (self.hurried if self.asked.is_set() else self.asked).set()

    def look_at(self, task: asyncio.Task[None]) -> None:
        """A part of the worker has ended. One that broke ends the whole: better than a worker that does nothing."""
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.failure = self.failure or failure
            self.asked.set()
            self.hurried.set()

    async def unless_hurried(self, done: asyncio.Event, within_s: float) -> None:
        """Until that is done, the time is over, or the worker is hurried."""
        waits = [asyncio.ensure_future(event.wait()) for event in (done, self.hurried)]
        try:
            await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
