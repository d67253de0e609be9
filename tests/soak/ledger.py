"""What was enqueued and what came of it, beside all stores: kept by who enqueues, and by what jobs write down.

Each job has a number. A call whose outcome nobody knows may have stored its jobs or not; all others are exact.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import quantiles

from tests.soak.trends import Sample

_NEW, _SENT, _OWED, _DONE, _VOID = range(5)
WINDOW_S = 15.0


class Latencies:
    """In ms, by kind: the middle and the slowest hundredth of each window, so that hours take little room."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._now: defaultdict[str, list[float]] = defaultdict(list)
        self._since_s = time.monotonic()
        self.middle: defaultdict[str, list[Sample]] = defaultdict(list)
        self.slowest: defaultdict[str, list[Sample]] = defaultdict(list)

    def add(self, kind: str, ms: float) -> None:
        self._now[kind].append(ms)

    def roll(self) -> None:
        """Called every so often: ends a window that has lasted long enough."""
        now_s = time.monotonic()
        if now_s - self._since_s < self._window_s:
            return
        self._since_s = now_s
        for kind, found in self._now.items():
            if len(found) >= 2:
                parts = quantiles(found, n=100)
                self.middle[kind].append(Sample(now_s, parts[49]))
                self.slowest[kind].append(Sample(now_s, parts[98]))
        self._now.clear()


class Ledger:
    """`faults`: what no kill explains, each as a sentence. `given` and `ended` count jobs by their parts."""

    def __init__(self, latencies: Latencies) -> None:
        self._states = bytearray(1)
        self._parts: dict[int, str] = {}
        """Of jobs that have not ended."""
        self._sent_s: dict[int, float] = {}
        self._latencies = latencies
        self.given: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.again = 0
        """Ends of jobs that had ended already, as a kill between an end and its ack brings about."""

        self.calls: Counter[str] = Counter()
        self.unanswered: Counter[str] = Counter()
        """Calls that failed, by the reason."""
        self.faults: list[str] = []
        self.ticks: list[str] = []
        """Jobs of schedules that ran, to be looked up."""
        self.items: Counter[str] = Counter()
        """Runs of items of flows, by their flow."""

    # -- who enqueues ------------------------------------------------------------------------------------------------

    def number(self, part: str, *, waits: bool = True) -> int:
        """Of a job that is about to be sent. `waits`: the time until it has run says how fast jobs are."""
        number = len(self._states)
        self._states.append(_SENT)
        self._parts[number] = part
        if waits:
            self._sent_s[number] = time.monotonic()
        return number

    def stored(self, part: str, numbers: Iterable[int]) -> None:
        """An answer said so: each is owed an end, which it may have had already."""
        for number in numbers:
            if self._states[number] == _SENT:
                self._states[number] = _OWED
            self.given[part] += 1

    def void(self, number: int) -> None:
        """An answer said that it was not stored, or it was cancelled: it must not run."""
        if self._states[number] == _DONE:
            self.faults.append(f"job {number} ran, although an answer says that it is not there")
        self._states[number] = _VOID
        self._forget(number)

    def _forget(self, number: int) -> str:
        self._sent_s.pop(number, None)
        return self._parts.pop(number, "?")

    # -- what jobs wrote ---------------------------------------------------------------------------------------------

    def read(self, lines: Iterable[str]) -> None:
        """Lines of the journal (tests.soak.jobs)."""
        for line in lines:
            kind, _, rest = line.partition(" ")
            if kind == "tick":
                self.ticks.append(rest)
            elif kind == "item":
                self.items[rest] += 1
            else:
                self._done(int(rest))

    def _done(self, number: int) -> None:
        state = self._states[number] if number < len(self._states) else _NEW
        if state == _NEW:
            self.faults.append(f"job {number} ran, and nobody has sent it")
        elif state == _VOID:
            self.faults.append(f"job {number} ran, although an answer says that it is not there")
        elif state == _DONE:
            self.again += 1
        else:
            self._states[number] = _DONE
            sent_s = self._sent_s.get(number)
            if sent_s is not None:
                self._latencies.add("from enqueue to end", (time.monotonic() - sent_s) * 1000)
            self.ended[self._forget(number)] += 1

    # -- the end -----------------------------------------------------------------------------------------------------

    @property
    def owed(self) -> dict[int, str]:
        """Jobs that an answer says are stored, and that have not ended, with their parts."""
        return {number: part for number, part in self._parts.items() if self._states[number] == _OWED}

    @property
    def unknown(self) -> int:
        """Jobs of calls whose outcome nobody knows, and that were not seen to end."""
        return sum(self._states[number] == _SENT for number in self._parts)


class Journal:
    """A file of lines that grows, read as it does."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("rb")
        self._half = b""

    def new_lines(self) -> Iterator[str]:
        data = self._half + self._file.read()
        whole, _, self._half = data.rpartition(b"\n")
        yield from whole.decode().splitlines()

    def close(self) -> None:
        self._file.close()
