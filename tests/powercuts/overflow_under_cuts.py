"""Jobs that lie in the overflow file of a server when the power is cut: their store was away, and keeps what it has."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from pinlater.model import Job
from pinlater.overflow.descriptors import overflow_of
from pinlater.wire.convert import enqueue_to_wire
from tests.faults.load import BROKEN, QUEUE
from tests.faults.test_kills import STUCK_AFTER_S
from tests.powercuts.jobs_under_cuts import JobsUnderCuts, Workload
from tests.powercuts.machine import Machine
from tests.stores.process import StoreServer

_WORKLOAD = Workload(is_explained_by_history=False)
"""Jobs move from there to the store, under other names."""

_CONNECTIONS = 8
"""So many reach each process of the server, which then knows the queue: without a store it could not learn of it."""


class OverflowUnderCuts(JobsUnderCuts):
    """`store` is on no disk that is cut: killed before the load, it is there again when the machine starts."""

    def __init__(self, machine: Machine, folder: Path, store: StoreServer, seed: int) -> None:
        super().__init__(machine, folder, _WORKLOAD, seed)
        self._store = store

    async def prepare(self) -> None:
        for _ in range(_CONNECTIONS):
            await self.serves()
        await asyncio.to_thread(self._store.kill)
        await self._keeps_jobs()

    async def _keeps_jobs(self) -> None:
        """Until the server has found out that its store is away."""
        deadline, refused = time.monotonic() + STUCK_AFTER_S, ""
        while True:
            said = self._machine.what_was_said()
            assert time.monotonic() < deadline, f"the overflow file takes nothing: {refused} {said}"
            try:
                plain = await self._run.plain(self._machine.port)
                try:
                    answer = await plain.call(
                        "enqueueJobs", request=enqueue_to_wire(QUEUE, [Job(bytes(_WORKLOAD.body_bytes))])
                    )
                finally:
                    await plain.close()
            except BROKEN as error:
                refused = repr(error)
                await asyncio.sleep(0.1)
            else:
                assert overflow_of(answer.job_descriptors[0])
                return

    async def restarts(self) -> None:
        await asyncio.to_thread(self._store.start)
        await super().restarts()
