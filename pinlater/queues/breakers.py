"""The circuit breakers of all queues, as one process of the cluster works on them once a second.

Every process publishes its counts (breaker_counts.py) on one shard, the same for all: the first by rendezvous of those
that are in. The process that owns this shard judges them, and opens breakers. That is a configuration entry
(breaker_record.py), so that all servers hold the queue back, and go on doing so whichever of them dies; two that judge
at once do no harm. Probes (breaker_probes.py) close it again.

Where no queue has a breaker, nothing of this runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import structlog

from pinlater.backends.base import ConfigEntry
from pinlater.clock import Clock
from pinlater.errors import BreakersNotYet, PinLaterError
from pinlater.metrics import Metrics
from pinlater.queues.breaker_counts import AttemptCounts, counts_of_all, reached
from pinlater.queues.breaker_probes import BreakerProbes
from pinlater.queues.breaker_record import BREAKER_PREFIX, OpenBreaker
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.settings import BREAKER
from pinlater.shards.handle import ShardHandle
from pinlater.shards.rendezvous import rendezvous_pick
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.queues")

BREAKERS_MS = 1_000
"""How often a process works on them."""

KIND = "breaker-counts"
CLOSED, OPENED = "close_breaker", "open_breaker"
"""The words for it in the audit."""

Note = Callable[[str, str, str], Awaitable[None]]
"""Writes into the audit what the breaker of a queue did: the word for it, the queue, and the details."""


class Breakers:
    """The breakers of all queues. `probes`: the jobs that are handed out while one is open."""

    def __init__(
        self,
        probes: BreakerProbes,
        members: ShardSet,
        queues: QueueDirectory,
        clock: Clock,
        metrics: Metrics,
        process: str,
        note: Note,
        unaware: Callable[[], Sequence[str]],
    ) -> None:
        """`process`: a name that no other process has. `unaware`: the live processes that do not know breakers."""
        self.probes = probes
        self._members = members
        self._queues = queues
        self._clock = clock
        self._metrics = metrics
        self._process = process
        self._note = note
        self._unaware = unaware
        self._counts = AttemptCounts(metrics)
        self._published_on = ""
        self._held_back: set[str] = set()
        """Queues whose breaker would be open, if all servers knew it."""

    def check(self) -> None:
        """BreakersNotYet, while a live process does not know breakers."""
        if behind := self._unaware():
            raise BreakersNotYet(
                f"servers of an earlier version are running, which know no circuit breaker: {', '.join(behind)}"
            )

    async def tick(self, owns: Callable[[str], bool]) -> None:
        """Count, judge, and follow the probes. Raises nothing: the next one does better."""
        self._counts.count(self._queues.breaker_rules(), self._clock.now_ms())
        place = self._place()
        if place is not None:
            await self._publish(place)
            if owns(place.shard.shard_id):
                await self._judge(place)
                await self._tidy(place)
        for queue, opened in await self.probes.follow(owns):
            await self._close(queue, opened, "a job that was tried succeeded")

    def _place(self) -> ShardHandle | None:
        """The shard of the counts, and of the slots of breakers that open now."""
        shard_id = rendezvous_pick(KIND, [member.shard.shard_id for member in self._members.healthy()])
        return None if shard_id is None else self._members.by_id(shard_id)

    async def _publish(self, place: ShardHandle) -> None:
        if place.shard.shard_id != self._published_on:
            self._published_on = place.shard.shard_id
            self._counts.publish_all()
        for part in self._counts.take_changed():
            now_ms = self._clock.now_ms()
            body, expires_ms = self._counts.entry(part, now_ms)
            try:
                await place.shard.kv_put(KIND, f"{self._process}/{part}", body, expires_ms, now_ms)
            except PinLaterError as error:
                self._counts.give_back(part)
                _log.debug("breaker_counts_not_published", shard=place.shard.shard_id, error=error.message)

    # -- opening -------------------------------------------------------------------------------------------------------

    async def _judge(self, place: ShardHandle) -> None:
        """Open the breakers whose rules are reached, where nobody has paused the queue."""
        rules, now_ms = self._queues.breaker_rules(), self._clock.now_ms()
        if not rules:
            return
        try:
            found = counts_of_all(await place.shard.kv_list(KIND, now_ms))
        except PinLaterError as error:
            _log.debug("breaker_counts_not_read", shard=place.shard.shard_id, error=error.message)
            return
        for queue, counts in found.items():
            rule = rules.get(queue)
            if rule is None or queue in self._queues.breaker_records() or self._queues.settings(queue).paused:
                continue
            closed = self._queues.entries.latest.get(BREAKER_PREFIX + queue)
            tally = reached(counts, rule, self._queues.breaker_closed_ms(queue), now_ms)
            if tally is not None:
                await self._open(queue, closed, OpenBreaker("", now_ms, rule.reason(tally), place.shard.shard_id))

    async def _open(self, queue: str, closed: ConfigEntry | None, opened: OpenBreaker) -> None:
        """Open it, unless it is another entry by now than the one by which the counts were judged: it is open already,
        or an operator has reset it.
        """
        if behind := self._unaware():  # they would hand out its jobs
            if queue not in self._held_back:
                self._held_back.add(queue)
                _log.warning("breaker_not_opened", queue=queue, why=opened.why, servers_of_earlier_versions=behind)
            return

        def update(before: ConfigEntry | None) -> str | None:
            return opened.text() if before == closed else None

        if await self._change(queue, update):
            self._held_back.discard(queue)
            self._metrics.add(1, "breakers_opened", queue)
            _log.warning("breaker_opened", queue=queue, why=opened.why)
            await self._note(OPENED, queue, opened.why)

    async def _tidy(self, place: ShardHandle) -> None:
        """Close breakers of queues that have none any more; give a slot whose shard is gone another place."""
        for queue, opened in list(self._queues.breaker_records().items()):
            if queue not in self._queues.breaker_rules():
                await self._close(queue, opened, "the queue has no pause_on_failures any more")
            elif opened.place != place.shard.shard_id and self.probes.gone.is_gone(opened.place):
                moved = OpenBreaker("", opened.opened_ms, opened.why, place.shard.shard_id)
                await self._change(queue, _instead_of(opened, moved.text()))

    # -- closing -------------------------------------------------------------------------------------------------------

    async def _close(self, queue: str, opened: OpenBreaker, why: str) -> None:
        """Close this opening; counts begin anew."""
        if await self._change(queue, _instead_of(opened, "")):
            _log.warning("breaker_closed", queue=queue, why=why)
            await self._note(CLOSED, queue, why)
            await self.probes.forget(queue, opened)

    async def _change(self, queue: str, update: Callable[[ConfigEntry | None], str | None]) -> bool:
        """Whether this very call changed the entry. Raises nothing."""
        try:
            return (await self._queues.change_record(BREAKER_PREFIX + queue, update, BREAKER)).is_new
        except PinLaterError as error:
            _log.warning("breaker_not_changed", queue=queue, error=error.message)
            return False

    async def reset(self, queue: str, who: str) -> bool:
        """An operator has the queue run again: its breaker is closed, and counts begin anew. Whether it was open.
        NoHealthyShards.
        """
        opened = self._queues.breaker_records().get(queue)
        if opened is None and queue not in self._queues.breaker_rules():
            return False
        await self._queues.change_record(BREAKER_PREFIX + queue, lambda before: "", who)
        if opened is not None:
            await self.probes.forget(queue, opened)
        return opened is not None


def _instead_of(opened: OpenBreaker, text: str) -> Callable[[ConfigEntry | None], str | None]:
    """The change of this very opening, and of no other one."""
    return lambda before: text if before is not None and before.version == opened.version else None
