"""Checkpoints that running jobs ask for, carried out on the worker's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pinlater.model import Checkpoint
from pinlater_workers.errors import ClaimLost
from pinlater_workers.pools.base import SaveCheckpoint
from pinlater_workers.running import Running

Done = Callable[[BaseException | None], None]
"""Told once how the checkpoint went: None is well."""


class Saving:
    """For the loop's own thread alone."""

    def __init__(self, save: SaveCheckpoint) -> None:
        self._save = save
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self, running: Running, checkpoint: Checkpoint, done: Done) -> None:
        if self._closed:
            done(ClaimLost("the worker has ended"))
            return
        task = asyncio.get_running_loop().create_task(self._carry_out(running, checkpoint, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """What is under way ends as ClaimLost, so that no thread waits for it for ever."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry_out(self, running: Running, checkpoint: Checkpoint, done: Done) -> None:
        error: BaseException | None = ClaimLost("the worker has ended")
        try:
            await self._save(running, checkpoint)
            error = None
        except Exception as raised:
            error = raised
        finally:
            done(error)
