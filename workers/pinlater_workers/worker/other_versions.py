"""Workers of other versions of the app: while some take from a queue, what is unknown here may be known there."""

from __future__ import annotations

import time
from typing import NamedTuple

from pinlater.client.async_client import AsyncClient
from pinlater.errors import PinLaterError
from pinlater.model import WorkerInfo

ASK_EVERY_S = 2.0
"""The list of workers is as old as that itself."""

MOST = 1_000
"""A page: of more workers the first are looked at."""


class _Known(NamedTuple):
    requested_s: float
    began_s: float | None


class OtherVersions:
    """As the list of workers has them. `id`: of this worker, which runs since `began_s` of time.monotonic. Where one of
    two workers says no version of its app, the one that began later counts as the newer.
    """

    def __init__(self, client: AsyncClient, id: str, app_version: str, began_s: float) -> None:
        self._client = client
        self._id = id
        self._version = app_version
        self._began_s = began_s
        self._known: dict[str, _Known] = {}

    async def age_ms(self, queue: str, timeout_s: float) -> int | None:
        """For how long one of them takes from this queue; None: none does, or no server says. Raises nothing."""
        now_s = time.monotonic()
        known = self._known.get(queue)
        if known is None or now_s - known.requested_s >= ASK_EVERY_S:
            known = self._known[queue] = _Known(now_s, await self._request(queue, timeout_s))
        return None if known.began_s is None else max(0, round((time.monotonic() - known.began_s) * 1000))

    async def _request(self, queue: str, timeout_s: float) -> float | None:
        try:
            page = await self._client.get_workers(queue=queue, limit=MOST, timeout=timeout_s)
        except PinLaterError:  # of an earlier version, or it keeps the list from this worker
            return None
        now_s = time.monotonic()
        began = [(each, now_s - (page.now_ms - each.started_ms) / 1000) for each in page.workers]
        return min((at_s for each, at_s in began if self._is_other(each, at_s)), default=None)

    def _is_other(self, worker: WorkerInfo, began_s: float) -> bool:
        if worker.id == self._id or worker.is_stopping:
            return False
        version = worker.versions.get("app", "")
        return version != self._version if version and self._version else began_s > self._began_s
