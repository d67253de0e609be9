"""A service that keeps nothing, for tests whose subject is frames and connections, not jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pinlater.model import AckOutcome, Cancelled, ConnectionRef, DequeuedJob, DequeueRequest, Job, RequestContext

FIRST_ID = 1_790_000_000_000_000


def job_of(queue: str, number: int, body: bytes) -> DequeuedJob:
    return DequeuedJob(f"{queue}:s1:p1:{FIRST_ID + number}", body, 1, 2, 2, 5, 5, "host:1:2:3:me", 9)


class EchoService:
    """Answers are made from the calls. Enqueued bodies come back from the next dequeue of that queue, once.

    `hold` keeps dequeues of a queue waiting until it is set; `calls` lists what was asked, `given_back` what returned.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.contexts: list[RequestContext | None] = []
        self.jobs: dict[str, list[Job]] = {}
        self.given_back: list[DequeuedJob] = []
        self.hold: dict[str, asyncio.Event] = {}
        self.held = asyncio.Event()
        self.returned = asyncio.Event()
        self.draining = asyncio.Event()
        self.cancelled = 0
        self.names = {"mail", "images"}
        self.fail_with: BaseException | None = None

    def _note(self, name: str, what: Any, context: RequestContext | None) -> None:
        self.calls.append((name, what))
        self.contexts.append(context)
        if self.fail_with is not None:
            raise self.fail_with

    async def create_queue(self, name: str, *, context: RequestContext | None = None) -> None:
        self._note("create_queue", name, context)

    async def delete_queue(self, name: str, password: str, *, context: RequestContext | None = None) -> None:
        self._note("delete_queue", (name, password), context)

    async def queue_names(self, *, context: RequestContext | None = None) -> set[str]:
        self._note("queue_names", None, context)
        return self.names

    async def enqueue(self, queue: str, jobs: Sequence[Job], *, context: RequestContext | None = None) -> list[str]:
        self._note("enqueue", (queue, jobs), context)
        if queue in self.hold:
            self.held.set()
            await self.hold[queue].wait()
        kept = self.jobs.setdefault(queue, [])
        kept.extend(jobs)
        return [f"{queue}:s1:p{job.priority}:{FIRST_ID + number}" for number, job in enumerate(jobs)]

    async def dequeue(self, request: DequeueRequest, *, context: RequestContext | None = None) -> list[DequeuedJob]:
        self._note("dequeue", request, context)
        try:
            if request.queue in self.hold:
                self.held.set()
                waits = [asyncio.ensure_future(e.wait()) for e in (self.hold[request.queue], self.draining)]
                try:
                    await asyncio.wait(waits[: 2 if request.wait_ms else 1], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for wait in waits:
                        wait.cancel()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        taken = self.jobs.pop(request.queue, [])[: request.limit]
        return [job_of(request.queue, number, job.body) for number, job in enumerate(taken)]

    async def ack(
        self, queue: str, succeeded: Any, failed: Any, *, context: RequestContext | None = None
    ) -> list[AckOutcome]:
        self._note("ack", (queue, succeeded, failed), context)
        return [AckOutcome.SUCCEEDED] * len(succeeded) + [AckOutcome.FAILED] * len(failed)

    async def checkpoint(self, queue: str, checkpoints: Any, *, context: Any = None, **more: Any) -> None:
        self._note("checkpoint", (queue, checkpoints), context)

    async def lookup(
        self, descriptors: Any, *, include_body: bool = False, context: Any = None, **more: Any
    ) -> dict[str, Any]:
        self._note("lookup", (descriptors, include_body), context)
        return {}

    async def count(self, filter: Any, *, allow_partial: bool = False, context: Any = None) -> int:
        self._note("count", (filter, allow_partial), context)
        return 7

    async def scan(self, filter: Any, *, continuation: str = "0", limit: int = 100, context: Any = None) -> Any:
        raise LookupError("a fault of the service, which no error of PinLater names")

    async def retry_failed(self, queue: str, *, context: Any = None, **rest: Any) -> int:
        self._note("retry_failed", (queue, rest), context)
        return 3

    async def delete_jobs(self, filter: Any, *, limit: int = 1000, context: Any = None) -> int:
        self._note("delete_jobs", (filter, limit), context)
        return 4

    async def cancel(self, queue: str, descriptors: Any, *, context: Any = None, **more: Any) -> Cancelled:
        self._note("cancel", (queue, descriptors), context)
        return Cancelled({})

    async def requeue(self, jobs: Sequence[DequeuedJob]) -> None:
        self.given_back.extend(jobs)
        self.returned.set()

    def disconnected(self, connection: ConnectionRef, *, idle_ms: int = 0) -> None:
        raise AssertionError("no connection ever holds claims of this service")

    def unbind(self, connection: ConnectionRef) -> None:
        raise AssertionError("no connection ever holds claims of this service")

    def start_draining(self) -> None:
        self.draining.set()
