"""The schedules of the cluster as one process knows them: read from the records that all shards agree on, and changed
there. A change counts in every process when that has read it, twice a second.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pinlater.backends.base import ConfigEntry
from pinlater.clock import Clock
from pinlater.errors import RecordChanged
from pinlater.model import ScheduleChange
from pinlater.queues.directory import ChangeResult, QueueDirectory
from pinlater.schedules.record import SCHEDULE_PREFIX, ScheduleRecord, changed, read_record
from pinlater.schedules.repeated_hours import RepeatedHours
from pinlater.timetable import Firings


class ScheduleChanged(NamedTuple):
    """The record after a change, and what became of its entry."""

    record: ScheduleRecord
    result: ChangeResult


class ScheduleBook:
    """The schedules of one process. `on_change` callbacks are told the names of those that came, went or changed."""

    def __init__(
        self, directory: QueueDirectory, clock: Clock, unaware_of_passes: Callable[[], Sequence[str]] = list
    ) -> None:
        """`unaware_of_passes`: see RepeatedHours."""
        self.repeated_hours = RepeatedHours(directory, clock, unaware_of_passes)
        self._directory = directory
        self._clock = clock
        self._records: dict[str, ScheduleRecord] = {}
        self._names: list[str] = []
        self._callbacks: list[Callable[[Sequence[str]], None]] = []
        directory.on_records(SCHEDULE_PREFIX, self._on_records)

    def __len__(self) -> int:
        return len(self._records)

    def get(self, name: str) -> ScheduleRecord | None:
        return self._records.get(name)

    def names(self, after: str = "") -> Sequence[str]:
        """In order, behind `after`."""
        return self._names[bisect_right(self._names, after) :] if after else self._names

    def firings(self, record: ScheduleRecord) -> Firings:
        """By what counts in the cluster now. TimetableInvalid."""
        return record.firings(self.repeated_hours.expected_ms() if record.has_two_passes else None)

    def on_change(self, callback: Callable[[Sequence[str]], None]) -> None:
        self._callbacks.append(callback)

    def _on_records(self, entries: Iterable[ConfigEntry]) -> None:
        names = []
        for entry in entries:
            name = entry.name.removeprefix(SCHEDULE_PREFIX)
            record = read_record(entry)
            names.append(name)
            if record is None:
                if self._records.pop(name, None) is not None:
                    del self._names[bisect_right(self._names, name) - 1]
                continue
            if name not in self._records:
                insort(self._names, name)
            self._records[name] = record
        for callback in self._callbacks:
            callback(names)

    async def refresh(self) -> None:
        """Read what other servers changed a moment ago."""
        await self._directory.refresh()

    async def change(
        self,
        change: ScheduleChange,
        who: str,
        only_if_version: str | None,
        *,
        begins_anew: bool = False,
        owner: str = "",
    ) -> ScheduleChanged:
        """`begins_anew`: its last firing counts no more. `owner`: whose it is, if it is new. RequestInvalid,
        RecordChanged, LimitReached, NoHealthyShards.
        """

        def update(before: ConfigEntry | None) -> str | None:
            _check_version(read_record(before), only_if_version)
            has = changed(before, change, who, self._clock.now_ms(), begins_anew=begins_anew)
            return None if has.version else has.text()

        result = await self._directory.change_record(SCHEDULE_PREFIX + change.name, update, who, owner)
        record = self.get(change.name)
        assert record is not None
        return ScheduleChanged(record, result)

    def preview(
        self, change: ScheduleChange, who: str, only_if_version: str | None, *, begins_anew: bool = False
    ) -> tuple[ScheduleRecord, bool]:
        """The record after a change that is not made, and whether anything is new. RequestInvalid."""
        _check_version(self.get(change.name), only_if_version)
        before = self._directory.entries.latest.get(SCHEDULE_PREFIX + change.name)
        has = changed(before, change, who, self._clock.now_ms(), begins_anew=begins_anew)
        return has, not has.version

    async def delete(self, name: str, who: str, only_if_version: str | None) -> ChangeResult:
        """One that is not there is no error. RecordChanged, NoHealthyShards."""

        def update(before: ConfigEntry | None) -> str | None:
            had = read_record(before)
            _check_version(had, only_if_version)
            return None if before is None or before.is_deleted else ""

        return await self._directory.change_record(SCHEDULE_PREFIX + name, update, who)


def _check_version(record: ScheduleRecord | None, only_if_version: str | None) -> None:
    version = record.version if record else ""
    if only_if_version is not None and only_if_version != version:
        allowed = f"{version}, which it is now" if version else '"", since there is no such schedule'
        raise RecordChanged.of("onlyIfVersion", only_if_version, allowed)
