"""The beats of one worker's claims: begins each when it is due, several at a time, and tells what comes of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from time import monotonic

from pinlater.client.async_client import AsyncClient
from pinlater.client.pool import PoolLimits
from pinlater_workers.heartbeat.beats import Outcome, beat
from pinlater_workers.heartbeat.messages import Beaten, Begin, Ended, ToWorker, Trouble, Watched
from pinlater_workers.heartbeat.orphans import Orphans
from pinlater_workers.heartbeat.table import Table
from pinlater_workers.running import Why

_log = logging.getLogger(__name__)

GATHER_S = 0.02
BEATS_AT_ONCE = 32
SHORTEST_TIMEOUT_S = 0.5
STAY_S = 60.0
IDLE_S = 1_800.0
"""Half of what a server grants an idle connection by default: closing one costs a beat of all claims."""


class Beating:
    """Has a client of its own. `tell` is called on the loop."""

    def __init__(self, begin: Begin, tell: Callable[[ToWorker], None]) -> None:
        self._tell = tell
        self._table = Table(begin.lease_s, begin.interval_s)
        self._timeout_s = max(SHORTEST_TIMEOUT_S, begin.lease_s / 6)
        self._news = asyncio.Event()
        self._next_s = math.inf
        self._beats: set[asyncio.Task[None]] = set()
        self._client = AsyncClient(
            servers=begin.servers,
            source=begin.source,
            patient=False,
            pool=PoolLimits(idle_s=IDLE_S),
            stay_s=STAY_S,
            on_disconnect=self._disconnected,
        )
        self._orphans = Orphans(self._client, begin, self._timeout_s, self._table.known)

    def heard(self) -> None:
        """The worker's event loop goes round."""
        self._orphans.heard()

    def watch(self, claims: Sequence[Watched]) -> None:
        self._table.watch(claims)
        if min(each.from_s for each in claims) < self._next_s:
            self._news.set()

    def forget(self, numbers: Sequence[int]) -> None:
        self._table.forget(numbers)

    async def run(self) -> None:
        """Until it is cancelled; then nothing is told any more."""
        orphans = asyncio.create_task(self._orphans.run())
        try:
            while True:
                self._begin_due()
                await self._until_next()
        finally:
            tasks = [orphans, *self._beats]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._client.close()

    def _disconnected(self) -> None:
        """Whichever claims were tied to that connection: a beat ties them to another before the server's grace ends."""
        self._table.all_due(monotonic())
        self._news.set()
        self._orphans.disconnected()

    def _begin_due(self) -> None:
        now_s = monotonic()
        lost = self._table.take_lost(now_s)
        if lost:
            self._tell(Trouble(lost, Why.CLAIM_LOST, "no heartbeat got through before the lease was over"))
        due = self._table.take_due(now_s) if len(self._beats) < BEATS_AT_ONCE else []
        if due:
            task = asyncio.create_task(self._beat(due, now_s))
            self._beats.add(task)
            task.add_done_callback(self._beats.discard)

    async def _until_next(self) -> None:
        """News, or the time of the next beat; a little later, so that what comes together is beaten together."""
        self._next_s = self._table.next_s()
        wait_s = None if self._next_s == math.inf else max(0.0, self._next_s - monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._news.wait()
        self._news.clear()
        await asyncio.sleep(GATHER_S)

    async def _beat(self, claims: Sequence[Watched], began_s: float) -> None:
        try:
            outcome = await beat(self._client, claims, self._timeout_s)
        except Exception as error:
            _log.exception("a heartbeat of %d claims failed", len(claims))
            outcome = Outcome()
            outcome.failing(claims, error)
        if outcome.good:
            self._table.beaten(outcome.good, began_s)
            self._tell(Beaten(outcome.good, began_s))
        if outcome.lost:
            self._table.lose(outcome.lost, monotonic())
            self._tell(Trouble(outcome.lost, Why.CLAIM_LOST, "it is not in progress under this claim any more"))
        if outcome.ended:
            self._table.forget(outcome.ended)
            self._tell(Ended(outcome.ended))
        twice = self._table.failed(outcome.failed, began_s, monotonic())
        if twice:
            self._tell(Trouble(twice, Why.OUT_OF_TOUCH, outcome.detail))
        if outcome.failed:
            self._news.set()
