"""The parts of an open shard, and steps for each of many jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn, TypeVar

from pinlater.backends.base import NoEvents, ShardEvents
from pinlater.backends.dynamodb.agenda import Agenda
from pinlater.backends.dynamodb.items import Item, ItemKey, ItemPlaces
from pinlater.backends.dynamodb.queue_records import Queues
from pinlater.backends.dynamodb.steps import Step, Steps
from pinlater.backends.dynamodb.stored_job import StoredJob
from pinlater.backends.dynamodb.table import JobIds, JobTable, TableIdentity
from pinlater.errors import OutcomeUnknown, PinLaterError
from pinlater.model import descriptor_prefix

T = TypeVar("T")

LANES_AT_ONCE = 64


@dataclass
class Store:
    """`identity` is that of the table once it is open."""

    table: JobTable
    identity: TableIdentity = field(default_factory=lambda: TableIdentity("", ""))
    events: ShardEvents = field(default_factory=NoEvents)

    def __post_init__(self) -> None:
        self.queues = Queues(self.table)
        self.agenda = Agenda(self.table)
        self.steps = Steps(self.table, self.agenda, self.queues.note_priorities)

    @property
    def places(self) -> ItemPlaces:
        return self.table.places

    @property
    def ids(self) -> JobIds:
        return self.table.ids

    def descriptor(self, queue: str, priority: int, job_id: int) -> str:
        return f"{descriptor_prefix(queue, self.identity.shard_id, priority)}{job_id}"

    def of(self, queue: str, job: StoredJob) -> str:
        return self.descriptor(queue, job.priority, job.id)

    async def run(
        self, work: Callable[[Step], Awaitable[T]], *, known: Mapping[ItemKey, Item] | None = None, tries: int = 12
    ) -> T:
        """A step, after which the jobs that it freed are reported."""
        return await self.steps.run(work, known=known, tries=tries, done=self.report_freed)

    def report_freed(self, step: Step) -> None:
        for queue, run_afters in step.freed.items():
            self.events.jobs_freed(queue, run_afters)

    async def per_job(
        self,
        keys: Sequence[ItemKey],
        change: Callable[[Step, StoredJob | None, int], Awaitable[T]],
    ) -> list[T]:
        """What `change` makes of each job, all at once, each in a step of its own; it gets the position too.

        A job that is named several times is changed in order, in one step. Jobs of one serialize key, or of one dedupe
        key, come one after the other: they change the same items.
        """
        found = await self.table.read_all(keys)
        lanes: dict[Hashable, dict[ItemKey, list[int]]] = {}
        for position, key in enumerate(keys):
            item = found.get(key)
            lane: Hashable = key if item is None else item.get("ck") or item.get("dk") or key
            lanes.setdefault(lane, {}).setdefault(key, []).append(position)
        answers: dict[int, T] = {}

        async def walk(lane: Mapping[ItemKey, Sequence[int]]) -> None:
            for key, positions in lane.items():

                async def work(step: Step, key: ItemKey = key, positions: Sequence[int] = positions) -> list[T]:
                    await step.read((key,))
                    return [await change(step, step.known_job(key), position) for position in positions]

                known = {key: found[key]} if key in found else {}
                if known:
                    answers.update(zip(positions, await self.run(work, known=known), strict=True))
                else:  # it was not there: what is to be said of that changes nothing
                    answers.update(zip(positions, await work(self.steps.new()), strict=True))

        await in_turns([partial(walk, lane) for lane in lanes.values()])
        return [answers[position] for position in range(len(keys))]


async def in_turns(calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """All of these, not too many at once. An error says what became of all: OutcomeUnknown where some went well."""
    waiting = list(calls)
    left, errors, done = iter(waiting), list[PinLaterError](), 0

    async def go() -> None:
        nonlocal done
        for call in left:
            try:
                await call()
                done += 1
            except PinLaterError as error:
                errors.append(error)
            if errors:
                break

    await asyncio.gather(*[go() for _ in range(min(LANES_AT_ONCE, len(waiting)))])
    if errors:
        raise_for(errors, any_done=done > 0)


def raise_for(errors: Sequence[PinLaterError], *, any_done: bool) -> NoReturn:
    """One error for all."""
    worst = next((each for each in errors if isinstance(each, OutcomeUnknown)), errors[0])
    if any_done and not isinstance(worst, OutcomeUnknown):
        raise OutcomeUnknown(f"a part was not carried out: {worst.message}") from worst
    raise worst
