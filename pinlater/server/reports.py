"""What the worker processes of a server say of themselves, asked by their supervisor and put together.

A counter never falls: what a worker had counted when it ended is kept, up to what it said last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pinlater.metrics import Key, Merged, merge
from pinlater.server.worker import Worker, WorkerFailed

ASK_TIMEOUT_S = 5.0


class Reports:
    """Asks all workers at once. `workers` are those that live."""

    def __init__(self, workers: Callable[[], Sequence[Worker]]) -> None:
        self._workers = workers
        self._seen: set[Worker] = set()
        self._ended: dict[Key, list[float]] = {}

    async def ask(self, kind: str, timeout_s: float = ASK_TIMEOUT_S) -> list[tuple[Worker, Any]]:
        """What each worker that serves reports; None for one that does not answer in time."""
        workers = [worker for worker in self._workers() if worker.takes_connections]
        return list(zip(workers, await asyncio.gather(*[_ask(each, kind, timeout_s) for each in workers]), strict=True))

    async def any_of(self, kind: str, timeout_s: float = ASK_TIMEOUT_S) -> Any:
        """The first report that comes; None where none does."""
        workers = [worker for worker in self._workers() if worker.takes_connections]
        asked = [asyncio.ensure_future(_ask(worker, kind, timeout_s)) for worker in workers]
        try:
            for report in asyncio.as_completed(asked):
                if (found := await report) is not None:
                    return found
            return None
        finally:
            for each in asked:
                each.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def metrics(self) -> Merged:
        """The counts of all workers as one, those included that have ended."""
        self._seen.update(worker for worker, _ in await self.ask("metrics"))
        living = set(self._workers())
        for worker in [worker for worker in self._seen if worker not in living]:
            self._seen.discard(worker)
            merge(self._ended, worker.last_metrics, ended=True)
        merged = {key: list(values) for key, values in self._ended.items()}
        for worker in self._seen:
            merge(merged, worker.last_metrics)
        return merged


async def _ask(worker: Worker, kind: str, timeout_s: float) -> Any:
    try:
        return await worker.ask(kind, timeout_s)
    except (TimeoutError, WorkerFailed):
        return None
