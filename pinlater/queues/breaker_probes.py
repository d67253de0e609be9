"""The probes of open circuit breakers: one job at a time in the whole cluster, handed out by whoever is asked for it.

A process takes the slot of a queue (breaker_record.py) before it claims a job, and writes the job into it before it
hands the job out. A process that was too slow finds that another one has taken the slot, and requeues its job. So no
two probes are in the hands of workers, whichever process dies in between.

Where a probe has gone is seen once a second. A success is known to the process that carried out the ack, also where the
job is removed at once, and by the state of the job to the process that owns the shard of the slot. Whatever else ended
the claim, a failure, an expiry or a requeue, the next job is tried. While the shard of the job is out nobody can tell,
and nothing is tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import structlog

from pinlater.backends.acks import Acks
from pinlater.backends.base import JobKey, KvEntry
from pinlater.clock import Clock
from pinlater.errors import PinLaterError, QueueNotFound
from pinlater.model import MAX_TIME_MS, AckOutcome, JobState, descriptor_prefix, parse_descriptor
from pinlater.queues.breaker_record import OpenBreaker, ProbeSlot, SlotState, read_slot
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.gone_shards import GoneShards
from pinlater.schedule import utc_text
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.queues")

KIND = "breaker-probe"
_SUCCEEDED_MS = 10_000
"""A success is remembered for so long: the slot names its job a second later at most."""

_MISSING_MS = 5_000
"""A job that is not there any more has been removed by its success, perhaps: so long the process that carried out its
ack has time to say so.
"""

_AGAIN_MS = 1_000
"""The slot rests so long where no job was there."""


class Probe(NamedTuple):
    """The right to hand out one job of a queue."""

    queue: str
    opened: OpenBreaker
    slot: ProbeSlot


class BreakerProbes:
    """The slots of all open breakers, as one process knows them. `on_change` is told the queues whose slots changed."""

    def __init__(self, members: ShardSet, queues: QueueDirectory, clock: Clock) -> None:
        self._members = members
        self._queues = queues
        self._clock = clock
        self.gone = GoneShards(members, queues, clock)
        self._slots: dict[str, ProbeSlot] = {}
        self._succeeded: dict[str, int] = {}
        """Jobs of queues whose breaker is open that succeeded a moment ago, and when."""
        self._missing_since: dict[str, tuple[str, int]] = {}
        """By queue the job that was tried and is not there any more, and since when."""
        self.on_change: Callable[[str], None] = lambda queue: None

    def slot(self, queue: str) -> ProbeSlot | None:
        """The slot as it was seen last; None: the breaker is closed, or the shard of the slot could not be asked."""
        opened, slot = self._queues.open_breakers.get(queue), self._slots.get(queue)
        return slot if opened is not None and slot is not None and slot.opening == opened.version else None

    def wait_ms(self, queue: str) -> int | None:
        """How long until a job may be tried; 0: now. None: not before something changes."""
        slot = self.slot(queue)
        return None if slot is None else slot.wait_ms(self._clock.now_ms())

    def outlook(self, queue: str) -> str:
        """When the next job of an open breaker is tried, in words."""
        slot, opened = self.slot(queue), self._queues.open_breakers.get(queue)
        if slot is not None and slot.state is SlotState.OUT:
            return f"{slot.job} is tried since {utc_text(slot.at_ms)}"
        if slot is not None:
            return f"next try at {utc_text(max(slot.at_ms, self._clock.now_ms()))}"
        member = None if opened is None else self._members.by_id(opened.place)
        if opened is not None and (member is None or not member.is_healthy):
            return f"no job is tried while shard {opened.place} is out"
        return "the next try is not known yet"

    # -- the hand-out of a probe ---------------------------------------------------------------------------------------

    async def take(self, queue: str, claim: str) -> Probe | None:
        """The right to hand out one job, which is claimed under this descriptor. None: it is not time yet, or another
        one has it.
        """
        opened, slot, now_ms = self._queues.open_breakers.get(queue), self.slot(queue), self._clock.now_ms()
        if opened is None or slot is None or slot.wait_ms(now_ms) != 0:
            return None
        taken = replace(slot, state=SlotState.TAKEN, at_ms=now_ms, claim=claim, job="")
        return await self._put(Probe(queue, opened, taken))

    async def hand_out(self, probe: Probe, job: str, claim: str) -> bool:
        """This job, which is under this claim, is the probe. False: another process has taken the slot meanwhile, or it
        cannot be told: the job must not be handed out.
        """
        out = replace(probe.slot, state=SlotState.OUT, at_ms=self._clock.now_ms(), claim=claim, job=job)
        return await self._put(probe._replace(slot=out)) is not None

    async def give_back(self, probe: Probe) -> None:
        """No job was there. Raises nothing."""
        at_ms = self._clock.now_ms() + _AGAIN_MS
        await self._put(probe._replace(slot=replace(probe.slot, state=SlotState.RESTING, at_ms=at_ms, claim="")))

    async def _put(self, probe: Probe) -> Probe | None:
        """Put the slot in the place of the one that it was made from. None: another one is there, or nobody answers."""
        queue, opened, slot = probe
        self._slots.pop(queue, None)  # until that is known nobody else here need try
        member = self._members.by_id(opened.place)
        if member is None:
            return None
        expected = slot.entry_version
        try:
            version = await member.shard.kv_put(
                KIND, queue, slot.body(), MAX_TIME_MS, self._clock.now_ms(), expected_version=expected
            )
        except PinLaterError as error:
            _log.debug("probe_slot_not_written", queue=queue, shard=opened.place, error=error.message)
            return None
        if not version:
            return None
        self._slots[queue] = kept = replace(slot, entry_version=version)
        return probe._replace(slot=kept)

    # -- where it has gone ---------------------------------------------------------------------------------------------

    def acked(self, queue: str, shard_id: str, acks: Acks, outcomes: Sequence[AckOutcome]) -> None:
        """These acks of an open breaker's queue were carried out: one may be that of the probe."""
        now_ms, start = self._clock.now_ms(), 0
        for kind, ids in acks.runs:
            prefix = descriptor_prefix(queue, shard_id, kind.priority)
            for place, job_id in enumerate(ids, start):
                if outcomes[place] is AckOutcome.SUCCEEDED:
                    self._succeeded[f"{prefix}{job_id}"] = now_ms
            start += len(ids)
        while self._succeeded and next(iter(self._succeeded.values())) < now_ms - _SUCCEEDED_MS:
            del self._succeeded[next(iter(self._succeeded))]

    async def follow(self, owns: Callable[[str], bool]) -> list[tuple[str, OpenBreaker]]:
        """See where all probes are; the queues whose probe succeeded. Raises nothing."""
        opened = self._queues.open_breakers
        self._slots = {queue: slot for queue, slot in self._slots.items() if queue in opened}
        self._missing_since = {queue: each for queue, each in self._missing_since.items() if queue in opened}
        places: dict[str, list[str]] = {}
        for queue, each in opened.items():
            places.setdefault(each.place, []).append(queue)
        found = await asyncio.gather(*[self._follow_on(place, queues, owns) for place, queues in places.items()])
        return [each for some in found for each in some]

    async def _follow_on(
        self, place: str, queues: Sequence[str], owns: Callable[[str], bool]
    ) -> list[tuple[str, OpenBreaker]]:
        """Those whose slots are on this shard."""
        entries = await self._entries(place)
        succeeded = []
        for queue in queues:
            opened, rule = self._queues.open_breakers.get(queue), self._queues.settings(queue).pause_on_failures
            if opened is None or rule is None:
                continue
            if entries is None:
                self._slots.pop(queue, None)
                continue
            before, slot = self._slots.get(queue), read_slot(entries.get(queue), opened, rule)
            self._slots[queue] = slot
            if slot.state is SlotState.OUT:
                outcome = True if slot.job in self._succeeded else None
                if outcome is None and owns(place):
                    outcome = await self._outcome(queue, slot)
                if outcome:
                    succeeded.append((queue, opened))
                elif outcome is False:
                    await self._put(Probe(queue, opened, slot.rested(rule, self._clock.now_ms())))
            if self._slots.get(queue) != before:
                self.on_change(queue)
        return succeeded

    async def _entries(self, place: str) -> dict[str, KvEntry] | None:
        """The slots on this shard; None: it cannot be asked."""
        member = self._members.by_id(place)
        if member is None or not member.is_healthy:
            return None
        try:
            return await member.shard.kv_list(KIND, self._clock.now_ms())
        except PinLaterError as error:
            _log.debug("probe_slots_not_read", shard=place, error=error.message)
            return None

    async def _outcome(self, queue: str, slot: ProbeSlot) -> bool | None:
        """Whether the probe succeeded, by the state of its job; None: it still runs, or nobody can tell now."""
        ref = parse_descriptor(slot.job)
        if ref is None or self.gone.is_gone(ref.shard):
            return False
        member = self._members.by_id(ref.shard)
        if member is None or not member.is_healthy:
            return None
        try:
            (info,) = await member.shard.lookup(queue, [JobKey(ref.priority, ref.id)], with_body=False, max_bytes=0)
        except QueueNotFound:
            return False
        except PinLaterError:
            return None
        if info is None:
            return self._is_missing_for_long(queue, slot.job)
        if info.state is JobState.IN_PROGRESS and info.claim_descriptor == slot.claim:
            return None
        return info.state is JobState.SUCCEEDED and info.moved_to is None

    def _is_missing_for_long(self, queue: str, job: str) -> bool | None:
        """False: so long that it did not succeed, as far as anybody knows; None: not yet."""
        now_ms = self._clock.now_ms()
        known, since_ms = self._missing_since.get(queue, ("", now_ms))
        if known != job:
            since_ms = now_ms
        self._missing_since[queue] = job, since_ms
        return False if now_ms - since_ms >= _MISSING_MS else None

    async def forget(self, queue: str, opened: OpenBreaker) -> None:
        """The breaker is closed: its slot goes. Raises nothing: one that stays is of an opening that is over."""
        slot = self._slots.pop(queue, None)
        member = self._members.by_id(opened.place)
        if slot is None or member is None:
            return
        try:
            await member.shard.kv_put(KIND, queue, b"", 0, self._clock.now_ms(), expected_version=slot.entry_version)
        except PinLaterError as error:
            _log.debug("probe_slot_not_removed", queue=queue, shard=opened.place, error=error.message)
