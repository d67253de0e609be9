"""The beats of a worker that has no heartbeat process at the moment: on its own event loop, which its jobs can hold up.

Better than none: a claim that nobody keeps alive is handed out again, to the worker whose job still runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from pinlater_workers.heartbeat.heartbeat_loop import HeartbeatLoop
from pinlater_workers.heartbeat.messages import Begin, ToProcess, ToWorker

HAND_OVER_S = 5.0
"""So long its connection stays open once a process beats: claims are bound to it until that has beaten them."""


class OwnBeats:
    """Takes and gives the messages of a heartbeat process. Begins when it is made, on the running loop."""

    def __init__(self, begin: Begin, received: Callable[[ToWorker], None]) -> None:
        loop = asyncio.get_running_loop()

        def send(message: ToWorker) -> None:
            loop.call_soon(received, message)

        self._beats = HeartbeatLoop(msgspec.structs.replace(begin, queues=[]), send)
        self._run = asyncio.create_task(self._beats.run())

    def send(self, message: ToProcess) -> None:
        self._beats.receive(message)

    async def hand_over(self) -> None:
        """Another one beats from now on."""
        self._beats.forget_all()
        await asyncio.sleep(HAND_OVER_S)
        await self.close()

    async def close(self) -> None:
        await self._beats.last_report()
        self._run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._run
