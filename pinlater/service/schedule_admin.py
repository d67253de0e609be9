"""The schedules as operators see and change them. Each change is recorded with its author."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from pinlater.errors import PinLaterError, QueueNotFound, RequestInvalid
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    EVERY_QUEUE,
    SCHEDULE_NAME_ALLOWED,
    Changed,
    Job,
    RequestContext,
    Schedule,
    ScheduleChange,
    SchedulesPage,
    ScheduleUpdated,
    ScheduleView,
    is_queue_name,
    is_schedule_name,
)
from pinlater.schedules.book import ScheduleBook
from pinlater.schedules.record import ScheduleRecord, queue_missing_text, silence_text
from pinlater.service.admin_password import Operator
from pinlater.service.audit import PROTECTED
from pinlater.service.continuations import continuation_behind, place_behind
from pinlater.service.rights import OPERATE, require_groups
from pinlater.service.service_context import ServiceContext
from pinlater.timetable import Firings, TimetableInvalid

NEXT_SHOWN = 5
"""How many of the next firings the answer to a change has."""

MAX_NEXT = 100
MAX_PAGE = 1_000
PAGE_S = 1.0
"""A page with firings that take longer has fewer schedules."""

FIRINGS_AT_ONCE = 10

_NOTHING_NEXT = "it has ended: no time is left"


class _LastFiring(NamedTuple):
    """What the shards that answer know of a schedule's last firing."""

    known_ms: int | None
    """The latest that they know."""

    is_latest: bool
    """No other shard can know a later one."""

    has_home: bool
    """The shard where the schedule is at home is one of them."""

    @property
    def shown_ms(self) -> int | None:
        """None: there was none, or it is not known. An older one may have been left on a former home."""
        return self.known_ms if self.is_latest else None


class ScheduleAdmin:
    """Schedules, for one service."""

    def __init__(
        self,
        context: ServiceContext,
        book: ScheduleBook,
        problem_of: Callable[[ScheduleRecord], str],
    ) -> None:
        """`problem_of`: why a schedule does not fire as it should, as far as those know who fire."""
        self._problem_of = problem_of
        self._book = book
        self._queues = context.queues
        self._router = context.router
        self._clock = context.clock
        self._validator = context.validator
        self._admin = context.admin
        self._audit = context.audit

    async def update(
        self,
        change: ScheduleChange,
        password: str,
        dry_run: bool,
        only_if_version: str | None,
        operator: Operator,
        context: RequestContext | None,
    ) -> ScheduleUpdated:
        who = operator.who
        await self._admin.check(password, operator)
        if not is_schedule_name(change.name):
            raise RequestInvalid.of("name", change.name, SCHEDULE_NAME_ALLOWED)
        await self._book.refresh()
        begins_anew = change.paused is False and await self._is_silent(change.name)
        record, is_changed = self._book.preview(change, who, only_if_version, begins_anew=begins_anew)
        self._check_job(record.schedule)
        if not password:  # which was checked above, and allows any group
            require_groups(context, OPERATE, EVERY_QUEUE, [record.schedule.group])
        self._router.keys.homes.check_jobs([change])
        if dry_run:
            return ScheduleUpdated(await self._view(record, NEXT_SHOWN, True), is_changed)
        record, made = await self._book.change(
            change, who, only_if_version, begins_anew=begins_anew, owner=operator.owner
        )
        if made.is_new:
            detail = _change_text(change) + (
                f"; missed by shard {', '.join(made.missed_shards)}" if made.missed_shards else ""
            )
            await self._audit.write(who, "update_schedule", change.name, detail, part=PROTECTED)
        return ScheduleUpdated(await self._view(record, NEXT_SHOWN, True), made.is_new, made.missed_shards)

    async def _is_silent(self, name: str) -> bool:
        """Its mark lies ahead of the clock. An operator may set that aside; a server cannot, since a clock that is
        behind shows it the same.
        """
        record = self._book.get(name)
        if record is None:
            return False
        (fired,) = await self._last_fired([record])
        return record.silent_until_ms(fired.known_ms, self._clock.now_ms()) is not None

    def _check_job(self, schedule: Schedule) -> None:
        """Raise the error that each firing would be refused with: QueueNotFound, RequestInvalid, BodyTooLarge."""
        queue = schedule.queue
        if not is_queue_name(queue) or not self._queues.has(queue):
            raise QueueNotFound.of(queue[:100])
        if schedule.attempts_allowed < 1:
            raise RequestInvalid.of("numAttemptsAllowed", schedule.attempts_allowed, "1 or more")
        job = Job(schedule.body, schedule.priority, None, schedule.attempts_allowed)
        self._validator.enqueue(queue, [job], self._clock.now_ms(), self._queues.settings(queue))

    async def delete(self, name: str, password: str, only_if_version: str | None, operator: Operator) -> Changed:
        await self._admin.check(password, operator)
        if not is_schedule_name(name):
            raise RequestInvalid.of("name", name, SCHEDULE_NAME_ALLOWED)
        made = await self._book.delete(name, operator.who, only_if_version)
        if not made.is_new:
            return Changed("", [])
        await self._audit.write(operator.who, "delete_schedule", name, part=PROTECTED)
        return Changed(made.version, made.missed_shards)

    async def page(
        self,
        names: Sequence[str] | None,
        queue: str,
        made_by: str,
        include_body: bool,
        next_limit: int,
        continuation: str,
        limit: int,
    ) -> SchedulesPage:
        """One page, by name."""
        if limit < 1:
            raise RequestInvalid.of("limit", limit, "1 or more")
        if not 0 <= next_limit <= MAX_NEXT:
            raise RequestInvalid.of("nextLimit", next_limit, f"0 to {MAX_NEXT}")
        if names is not None:
            self._validator.amount("names", names)
        meant = ("schedules", None if names is None else sorted(set(names)), queue, made_by)
        await self._book.refresh()
        last = None if continuation == CONTINUATION_START else self._book.get(continuation)
        is_name = last is not None and _matches(last, queue, made_by)  # servers before digests give the last one's name
        after = continuation if is_name else place_behind(continuation, meant)
        wanted = self._book.names(after) if names is None else sorted({name for name in names if name > after})
        matching = (record for record in map(self._book.get, wanted) if record and _matches(record, queue, made_by))
        records = list(islice(matching, min(limit, MAX_PAGE) + 1))
        is_last = len(records) <= min(limit, MAX_PAGE)
        shown = records if is_last else records[:-1]
        fired = await self._last_fired(shown)
        views: list[ScheduleView] = []
        ends_s = asyncio.get_running_loop().time() + PAGE_S
        for each, at in zip(shown, fired, strict=True):
            if views and asyncio.get_running_loop().time() > ends_s:
                is_last, shown = False, shown[: len(views)]
                break
            views.append(await self._view_of(each, next_limit, include_body, at))
        behind = CONTINUATION_END if is_last else continuation_behind(shown[-1].schedule.name, meant)
        return SchedulesPage(views, behind)

    async def _view(self, record: ScheduleRecord, next_limit: int, include_body: bool) -> ScheduleView:
        (fired,) = await self._last_fired([record])
        return await self._view_of(record, next_limit, include_body, fired)

    async def _last_fired(self, records: Sequence[ScheduleRecord]) -> list[_LastFiring]:
        """Of each schedule, in their order."""
        by_shard: dict[str, Sequence[str | None]] = {}
        with suppress(PinLaterError):
            by_shard = await self._router.marks_by_shard([record.entry_name for record in records])
        is_whole = len(by_shard) == len(self._router.members.all)
        fired = []
        for place, record in enumerate(records):
            times = {shard_id: ms for shard_id, marks in by_shard.items() if (ms := record.fired_ms(marks[place]))}
            home = self._home_of(record)
            # Fired since its key may have changed, it did so at its home; before, a shard where it was may know more.
            is_latest = is_whole or (home is not None and times.get(home, 0) > record.counts_from_ms)
            fired.append(_LastFiring(max(times.values(), default=None), is_latest, home in by_shard))
        return fired

    def _home_of(self, record: ScheduleRecord) -> str | None:
        return self._router.home_of_schedule(record.schedule.name, record.schedule.serialize_key)

    async def _view_of(
        self, record: ScheduleRecord, next_limit: int, include_body: bool, fired: _LastFiring
    ) -> ScheduleView:
        schedule = record.schedule
        problem, next_ms = "", []
        try:
            firings = self._book.firings(record)
        except TimetableInvalid as error:
            problem = str(error)
        else:
            from_ms = max(self._clock.now_ms(), record.counts_from_ms, fired.known_ms or 0)
            next_ms = await _next(firings, from_ms, next_limit)
            if not schedule.paused:
                is_over = not (next_ms or firings.next(from_ms, 1))
                problem = self._silence(record, fired.known_ms) or (
                    _NOTHING_NEXT if is_over else self._firing_problem(record, fired.has_home)
                )
        return ScheduleView(
            schedule=schedule if include_body else replace(schedule, body=b""),
            version=record.version,
            created_at_ms=record.created_at_ms,
            updated_at_ms=record.updated_at_ms,
            updated_by=record.updated_by,
            last_fired_ms=fired.shown_ms,
            next_ms=next_ms,
            trouble=problem,
            body_size=len(schedule.body),
        )

    def _silence(self, record: ScheduleRecord, fired_ms: int | None) -> str:
        silent_until_ms = record.silent_until_ms(fired_ms, self._clock.now_ms())
        return "" if silent_until_ms is None else silence_text(silent_until_ms)

    def _firing_problem(self, record: ScheduleRecord, home_answers: bool) -> str:
        queue = record.schedule.queue
        if not self._queues.has(queue):
            return queue_missing_text(queue)
        home = self._home_of(record)
        if home is not None and not home_answers:
            return f"shard {home}, where it is at home, cannot be used now: it fires when the shard is back"
        return self._problem_of(record)


async def _next(firings: Firings, from_ms: int, limit: int) -> list[int]:
    """The next times to fire, at most `limit`, in milliseconds. Others run in between: each may take milliseconds."""
    found: list[int] = []
    while len(found) < limit:
        some = firings.next(found[-1] if found else from_ms, min(FIRINGS_AT_ONCE, limit - len(found)))
        if not some:
            break
        found += some
        await asyncio.sleep(0)
    return found


def _matches(record: ScheduleRecord, queue: str, made_by: str) -> bool:
    schedule = record.schedule
    return (not queue or schedule.queue == queue) and (not made_by or schedule.made_by == made_by)


def _change_text(change: ScheduleChange) -> str:
    """The fields that change, for the audit: "name=value, ..."; of a body, its size."""
    values = {name: getattr(change, name) for name in ScheduleChange.__dataclass_fields__ if name != "name"}
    if change.body is not None:
        values["body"] = f"{len(change.body)} bytes"
    if change.misfire is not None:
        values["misfire"] = change.misfire.name.lower()
    return ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)
