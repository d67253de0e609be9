"""Where jobs run: threads, processes, or the event loop. One protocol; docs/workers.md says which promises what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from pinlater.model import Checkpoint
from pinlater_workers.running import Running, Why
from pinlater_workers.verdict import Verdict

Ended = Callable[[Sequence[tuple[Running, Verdict]]], None]
"""Told on the event loop, once for each job that was submitted: what became of it. As many at a time as there are."""

SaveCheckpoint = Callable[[Running, Checkpoint], Awaitable[None]]
"""Carries out a checkpoint that a running job asks for. Raises ClaimLost, or an error of pinlater.errors."""


class Pool(Protocol):
    """Runs jobs. All calls are made on the worker's event loop, and none of them blocks it."""

    @property
    def stuck(self) -> int:
        """Slots of jobs that have ended for the worker, but go on: threads and coroutines that do not stop."""

    def stuck_jobs(self) -> Sequence[Running]:
        """Those jobs."""

    async def open(self) -> None:
        """Ready to run. ConfigurationError where it cannot."""

    def submit(self, running: Running) -> None:
        """Run it; there is a slot free. `Ended` is told of it once, sooner or later."""

    def stop(self, running: Running, why: Why) -> None:
        """The job, which has not ended, is told; and it is ended as far as this pool can.

        TIME_LIMIT and CLAIM_LOST: a process is killed, a coroutine cancelled, a thread's result dropped; `Ended` hears
        of it soon, with a verdict that names the reason. STOPPING, OUT_OF_TOUCH: it is only told, and goes on.
        """

    async def close(self) -> None:
        """End all at once: what still runs is killed or left behind. `Ended` hears of nothing that ends after it."""
