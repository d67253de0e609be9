"""Repeated hours: from when on expressions for every hour fire in both passes of an hour that comes twice.

Earlier versions skip the second pass. So the cluster begins with it when none of them lives, and notes the moment in a
record of its own, `@cron/both-passes`: what an earlier version had left out before is not made up for by a later one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

import structlog

from pinlater.backends.base import ConfigEntry
from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.queues.directory import QueueDirectory
from pinlater.stored_json import read_stored

_log = structlog.get_logger("pinlater.schedules")
_PREFIX = "@cron/"
_NAME = f"{_PREFIX}both-passes"


class RepeatedHours:
    """What the cluster does in an hour that comes twice, as one process knows it. `unaware`: the live processes whose
    version skips the second pass.
    """

    def __init__(self, directory: QueueDirectory, clock: Clock, unaware: Callable[[], Sequence[str]] = list) -> None:
        self._directory = directory
        self._clock = clock
        self._unaware = unaware
        self._noted_ms: int | None = None
        self._unaware_ms = 0
        """When such a process was last seen."""
        directory.on_records(_PREFIX, self._on_records)

    def from_ms(self) -> int | None:
        """From when on both passes count; None: not yet, or not while a server of an earlier version lives."""
        if self._noted_ms is None:
            return None
        if self._unaware():
            self._unaware_ms = self._clock.now_ms()
            return None
        return max(self._noted_ms, self._unaware_ms)

    def expected_ms(self) -> int | None:
        """The same, and now where nothing has prevented it but that nobody has asked for it."""
        return self._clock.now_ms() if self._noted_ms is None and not self._unaware() else self.from_ms()

    async def begin(self) -> None:
        """Begin with both passes, where that is possible now. Raises nothing: who fires tries again."""
        if self._noted_ms is not None or self._unaware():
            return
        text = json.dumps({"from": self._clock.now_ms()})
        try:
            await self._directory.change_record(
                _NAME, lambda before: text if before is None or before.is_deleted else None, "pinlater"
            )
        except PinLaterError as error:
            _log.debug("repeated_hours_not_noted", error=error.message)

    def _on_records(self, entries: Iterable[ConfigEntry]) -> None:
        for entry in entries:
            if entry.name != _NAME or entry.is_deleted:
                continue
            try:
                self._noted_ms = int(read_stored(entry.text)["from"])
            except (ValueError, LookupError, TypeError) as error:
                _log.warning("repeated_hours_not_understood", error=str(error))
