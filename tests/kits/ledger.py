"""What workers of the trial wrote of their jobs, and what the servers say of these."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pinlater.model import JobInfo, JobState

WITHIN_S = 100.0
"""How long a thing may take that comes within seconds on a machine at rest."""

Event = dict[str, Any]


def until(holds: Callable[[], object], what: str | Callable[[], object], within_s: float = WITHIN_S) -> None:
    """Fails after a while, and says what did not come to pass."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"it did not come to pass: {what() if callable(what) else what}"
        time.sleep(0.03)


class Ledger:
    """One file, which several workers may append to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def events(self, event: str = "", **fields: object) -> list[Event]:
        """Those of this name and with these fields, in the order in which they were written."""
        *lines, _unfinished = self.path.read_text(encoding="utf-8").split("\n")
        made: list[Event] = [json.loads(line) for line in lines]
        return [each for each in made if event in ("", each["event"]) and fields.items() <= each.items()]

    def begins(self, job: str) -> list[Event]:
        return self.events("begin", job=job)

    def outcomes(self, job: str) -> list[str]:
        """Of its attempts here, as far as they have ended."""
        return [each["outcome"] for each in self.events("end", job=job)]

    def wait_for(self, event: str, *, times: int = 1, within_s: float = WITHIN_S, **fields: object) -> Event:
        """The so-manieth such event."""
        until(
            lambda: len(self.events(event, **fields)) >= times,
            lambda: f"{times} times {event} {fields} in {self.path}, which has {self.path.read_text()[-3000:]}",
            within_s,
        )
        return self.events(event, **fields)[times - 1]

    def has_once(self, infos: Mapping[str, JobInfo]) -> None:
        """Each of these jobs succeeded, and ran once."""
        self.has_each(infos, dict.fromkeys(infos, 1))

    def has_each(self, infos: Mapping[str, JobInfo], attempts: Mapping[str, int]) -> None:
        """Each of these jobs succeeded, and began so many times."""
        assert {job: info for job, info in infos.items() if info.state is not JobState.SUCCEEDED} == {}
        begun = count(each["job"] for each in self.events("begin"))
        wrong = {job: (begun.get(job, 0), wanted) for job, wanted in attempts.items() if begun.get(job, 0) != wanted}
        assert wrong == {}, f"begun and wanted, in {self.path}"


def count(names: Iterable[str]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for name in names:
        counted[name] = counted.get(name, 0) + 1
    return counted


def most_at_once(events: Iterable[Event]) -> int:
    """How many jobs ran at once, by these begins and ends."""
    running, most = 0, 0
    for each in events:
        running += {"begin": 1, "end": -1}.get(each["event"], 0)
        most = max(most, running)
    return most


def spent(info: JobInfo) -> int:
    """How many attempts the servers have counted, of a job that has not ended well."""
    return info.attempts_allowed - info.attempts_remaining
