"""Jobs that have run for a while: their claims are kept alive, and those over their time limit are ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pinlater_workers.running import ENDS, Why
from pinlater_workers.worker.jobs import Jobs
from pinlater_workers.worker.keeping import Keeping

EVERY_S = 0.2


class Sweep:
    """`swept` is called after each look. While no claim is held and no slot is stuck there is no look."""

    def __init__(self, jobs: Jobs, keeping: Keeping, swept: Callable[[], None]) -> None:
        self._jobs = jobs
        self._keeping = keeping
        self._swept = swept
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def begin(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._loop.call_later(EVERY_S, self._look)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        now_s = time.monotonic()
        for running in [each for each in self._jobs.running if each.until_s <= now_s and each.told not in ENDS]:
            self._jobs.stop(running, Why.TIME_LIMIT)
        self._keeping.tell_late(now_s)
        self._swept()
        if self._keeping.holds_any or self._jobs.pool.stuck:
            self.begin()
