"""The calls that change jobs by their descriptors or keys: cancel and reschedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pinlater import job_limits
from pinlater.backends.base import JobKey, Shard
from pinlater.backends.extended import KeyHolder, RescheduleRequest
from pinlater.errors import RequestInvalid
from pinlater.extended_limits import changed_keys
from pinlater.model import Cancelled, CancelOutcome, JobInfo, JobState, KeyRef, RescheduleJob, RescheduleOutcome
from pinlater.queues.settings import QueueSettings
from pinlater.service.job_lifecycle import one_by_one, sliced
from pinlater.service.service_context import UNKNOWN_CALLER, ServiceContext


class NamedJobChanges:
    """Cancels and reschedules of jobs that are named, for one service."""

    def __init__(self, context: ServiceContext) -> None:
        self._router = context.router
        self._clock = context.clock
        self._validator = context.validator
        self._parser = context.parser
        self._queues = context.queues
        self._events = context.events

    # -- cancel ------------------------------------------------------------------------------------------------------

    async def cancel(
        self, queue: str, descriptors: Sequence[str], keys: Sequence[KeyRef], running: bool, who: str
    ) -> Cancelled:
        """The outcome for each descriptor and for each key, in order. With `running`, jobs in progress are asked to
        stop, in the name of `who`. A key takes its job's successor along; the outcome is that of the job.

        KeysNotYet: a live process would not know what that means. Where a slice of `max_jobs` fails, the others are
        carried out all the same, and the error is raised then.
        """
        changed_keys(keys)
        self._validator.amount("keys", keys)
        found = await self._router.find_keys(queue, keys) if keys else []
        outcomes = dict.fromkeys(descriptors, CancelOutcome.NOT_FOUND)
        of_keys = [each for holder in found if holder is not None for each in holder if each]
        both = outcomes | dict.fromkeys(of_keys, CancelOutcome.NOT_FOUND)
        if running:
            self._router.keys.homes.check()
        by = (who or UNKNOWN_CALLER) if running else ""
        most = self._validator.max_jobs
        if len(both) <= most:
            await self._cancel(queue, list(both), both, by)
        else:
            self._parser.require_shards(both)
            await one_by_one(self._cancel(queue, some, both, by) for some in sliced(list(both), most))
        await self._cancel_moved(queue, both, by)
        return Cancelled(
            {descriptor: both[descriptor] for descriptor in outcomes},
            [CancelOutcome.NOT_FOUND if each is None else both[each.descriptor] for each in found],
        )

    async def _cancel(
        self, queue: str, descriptors: Sequence[str], outcomes: dict[str, CancelOutcome], by: str
    ) -> None:
        """Records what became of these."""
        groups = self._parser.keys(queue, descriptors)
        if not groups:
            return
        now_ms = self._clock.now_ms()
        calls = [
            (shard_id, partial(_cancel_on, queue, [key for _, key in named], now_ms, by))
            for shard_id, named in groups.items()
        ]
        for (shard_id, named), results in zip(groups.items(), await self._router.call_by_shard(calls), strict=True):
            for (descriptor, _), outcome in zip(named, results or (), strict=False):
                outcomes[descriptor] = outcome
            self._events.ended(shard_id, queue, [key.id for _, key in named])

    async def _cancel_moved(self, queue: str, outcomes: dict[str, CancelOutcome], by: str) -> None:
        """Cancel the copies of jobs that ended here as they were moved to another shard: theirs are the outcomes."""
        ended = [descriptor for descriptor, outcome in outcomes.items() if outcome is CancelOutcome.ENDED]
        moved = await self._moved(queue, ended)
        while moved:
            copies = dict.fromkeys(moved.values(), CancelOutcome.NOT_FOUND)
            for some in sliced(list(copies), self._validator.max_jobs):
                await self._cancel(queue, some, copies, by)
            there = {old: copies[new] for old, new in moved.items()}
            outcomes.update({old: outcome for old, outcome in there.items() if outcome is not CancelOutcome.NOT_FOUND})
            further = await self._moved(queue, [new for new in copies if copies[new] is CancelOutcome.ENDED])
            moved = {old: further[new] for old, new in moved.items() if new in further}

    async def _moved(self, queue: str, descriptors: Sequence[str]) -> dict[str, str]:
        """The copies on other shards of those that were moved there; asks nothing where none is named."""
        found: dict[str, str] = {}
        for some in sliced(list(descriptors), self._validator.max_jobs):
            groups = self._parser.keys(queue, some)
            calls = [
                (shard_id, partial(_lookup_on, queue, [key for _, key in named])) for shard_id, named in groups.items()
            ]
            for named, infos in zip(groups.values(), await self._router.call_by_shard(calls), strict=True):
                for (descriptor, _), info in zip(named, infos or (), strict=False):
                    if info is not None and info.state is JobState.SUCCEEDED and info.moved_to:
                        found[descriptor] = info.moved_to
        return found

    # -- reschedule --------------------------------------------------------------------------------------------------

    async def reschedule(
        self, queue: str, changes: Sequence[RescheduleJob]
    ) -> tuple[list[RescheduleOutcome], list[str]]:
        """An outcome for each, in order, and the descriptors of the jobs that were changed. RequestInvalid,
        BodyTooLarge before anything is changed.
        """
        self._validator.amount("jobs", changes)
        now_ms, settings = self._clock.now_ms(), self._queues.settings(queue)
        changes = [self._checked(each, settings, now_ms) for each in changes]
        changed: list[str] = []
        outcomes = await self._reschedule(queue, changes, now_ms, changed)
        self._announce(queue, changes, outcomes, now_ms)
        return outcomes, changed

    async def _reschedule(
        self, queue: str, changes: Sequence[RescheduleJob], now_ms: int, changed: list[str]
    ) -> list[RescheduleOutcome]:
        """An outcome for each, in order; `changed` gets the descriptors of those that were rescheduled. Where a job
        was moved to another shard, its copy there is changed; of a key that has a successor, that is.
        """
        keys = [each.key for each in changes if each.key is not None]
        found = iter(await self._router.find_keys(queue, keys) if keys else ())
        outcomes = [RescheduleOutcome.NOT_FOUND] * len(changes)
        places: dict[str, list[int]] = {}
        requests: dict[str, list[RescheduleRequest]] = {}
        descriptors = [each.descriptor if each.key is None else _newest(next(found)) for each in changes]
        for place, (each, descriptor) in enumerate(zip(changes, descriptors, strict=True)):
            ref = None if descriptor is None else self._parser.parse(descriptor)
            if ref is not None and ref.queue == queue:
                places.setdefault(ref.shard, []).append(place)
                requests.setdefault(ref.shard, []).append(
                    RescheduleRequest(
                        ref.priority,
                        ref.id,
                        each.run_after_ms,
                        each.body,
                        each.attempts_allowed,
                        each.only_if_updated_at_ms,
                    )
                )
        calls = [(shard_id, partial(_reschedule_on, queue, some, now_ms)) for shard_id, some in requests.items()]
        for shard_id, results in zip(requests, await self._router.call_by_shard(calls), strict=True):
            for place, outcome in zip(places[shard_id], results or (), strict=False):
                outcomes[place] = outcome
                if outcome is RescheduleOutcome.RESCHEDULED and (descriptor := descriptors[place]) is not None:
                    changed.append(descriptor)
        ended = {
            place: changes[place].descriptor
            for place, outcome in enumerate(outcomes)
            if outcome is RescheduleOutcome.ENDED and changes[place].key is None
        }
        moved = await self._moved(queue, list(ended.values()))
        again = {place: replace(changes[place], descriptor=moved[old]) for place, old in ended.items() if old in moved}
        if again:
            copies = await self._reschedule(queue, list(again.values()), now_ms, changed)
            for place, outcome in zip(again, copies, strict=True):
                if outcome is not RescheduleOutcome.NOT_FOUND:
                    outcomes[place] = outcome
        return outcomes

    def _checked(self, change: RescheduleJob, settings: QueueSettings, now_ms: int) -> RescheduleJob:
        if (change.key is None) == (not change.descriptor):
            given = change.descriptor or change.key
            raise RequestInvalid.of("jobDescriptor or key", given, "one of the two")
        if change.key is not None:
            changed_keys([change.key])
        if change.body is not None:
            self._validator.body(change.body, settings.max_body_bytes)
        run_after_ms, attempts = change.run_after_ms, change.attempts_allowed
        if run_after_ms is not None:
            run_after_ms = job_limits.run_at("runAfterTimestampMillis", run_after_ms) or now_ms
        if attempts is not None:
            attempts = job_limits.attempts("numAttemptsAllowed", attempts, settings.max_attempts)
        return replace(change, run_after_ms=run_after_ms, attempts_allowed=attempts)

    def _announce(
        self, queue: str, changes: Sequence[RescheduleJob], outcomes: Sequence[RescheduleOutcome], now_ms: int
    ) -> None:
        """A job that waits for another one is announced too: a claim tells."""
        times_ms = [
            each.run_after_ms
            for each, outcome in zip(changes, outcomes, strict=True)
            if outcome is RescheduleOutcome.RESCHEDULED and each.run_after_ms is not None
        ]
        self._events.ready_at(queue, times_ms, now_ms)


def _newest(holder: KeyHolder | None) -> str | None:
    """Of a key's jobs the one that may be changed, where there is one: a running job stays as it is."""
    return None if holder is None else holder.successor or holder.descriptor


async def _cancel_on(queue: str, jobs: Sequence[JobKey], now_ms: int, by: str, shard: Shard) -> list[CancelOutcome]:
    return await shard.cancel(queue, jobs, now_ms, by)


async def _lookup_on(queue: str, jobs: Sequence[JobKey], shard: Shard) -> list[JobInfo | None]:
    return await shard.lookup(queue, jobs, with_body=False, max_bytes=0)


async def _reschedule_on(
    queue: str, requests: Sequence[RescheduleRequest], now_ms: int, shard: Shard
) -> list[RescheduleOutcome]:
    return await shard.reschedule(queue, requests, now_ms)
