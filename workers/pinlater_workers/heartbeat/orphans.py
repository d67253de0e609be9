"""Claims that were made for the worker while it could not read the answers: kept alive until it can."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from time import monotonic

from pinlater.client.async_client import AsyncClient
from pinlater.errors import PinLaterError
from pinlater.model import CONTINUATION_END, CONTINUATION_START, JobFilter, JobState, claim_source
from pinlater_workers.heartbeat.beats import beat
from pinlater_workers.heartbeat.messages import Begin, Watched

_log = logging.getLogger(__name__)

LONGEST_SILENCE_S = 3_600.0
"""A worker that stands still for longer keeps no such claims."""

PAGE = 1_000
PAGES = 20
COLONS_BEFORE_SOURCE = 4

Key = tuple[str, str]
"""Descriptor and claim descriptor."""


class Orphans:
    """Looks for them in the worker's queues while nothing is heard of its event loop, and beats them.

    `known` says which claims the worker has taken. `heard` is called whenever the worker says anything: then it takes
    the others itself, and nothing of them is left here. Where a server names no claims, none is found.
    """

    def __init__(self, client: AsyncClient, begin: Begin, timeout_s: float, known: Callable[[], set[Key]]) -> None:
        self._client = client
        self._begin = begin
        self._timeout_s = timeout_s
        self._known = known
        self._at_once = asyncio.Event()
        self._heard_s = monotonic()

    def heard(self) -> None:
        self._heard_s = monotonic()

    def disconnected(self) -> None:
        """Those that were beaten are tied to a connection that may be gone."""
        self._at_once.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while self._begin.queues:
            silent_s = monotonic() - self._heard_s
            if silent_s < self._begin.silent_s:
                await asyncio.sleep(self._begin.silent_s - silent_s)
                continue
            self._at_once.clear()
            if silent_s < LONGEST_SILENCE_S:
                looks = [self._keep(queue) for queue in self._begin.queues]
                for failed in await asyncio.gather(*looks, return_exceptions=True):
                    if isinstance(failed, Exception):
                        _log.error("a search for unread claims failed", exc_info=failed)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._begin.interval_s):
                    await self._at_once.wait()

    async def _keep(self, queue: str) -> None:
        """One look, and one beat. What fails is tried again an interval later."""
        filter, continuation = JobFilter(queue, JobState.IN_PROGRESS), CONTINUATION_START
        for _ in range(PAGES):
            try:
                page = await self._client.scan(filter, continuation=continuation, limit=PAGE, timeout=self._timeout_s)
            except PinLaterError:
                return
            known = self._known()
            found = [
                Watched(0, queue, job.descriptor, claim, 0.0, 0.0, 0.0)
                for job in page.jobs
                if (claim := job.claim_descriptor or "")
                and self._is_ours(claim)
                and (job.descriptor, claim) not in known
            ]
            if found:
                await beat(self._client, found, self._timeout_s)
            continuation = page.continuation
            if continuation == CONTINUATION_END:
                return

    def _is_ours(self, claim: str) -> bool:
        return claim.count(":") >= COLONS_BEFORE_SOURCE and claim_source(claim) == self._begin.source
