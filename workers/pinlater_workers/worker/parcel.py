"""Results of one queue that travel in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pinlater.model import parse_descriptor
from pinlater_workers.running import Running
from pinlater_workers.worker.results import Result

MAX_RESULTS = 1_000
"""In one call."""

MAX_BODY_BYTES = 1 << 16
"""So much of new bodies is in one call, or one body: a server breaks the connection over a call that is too large."""


class Parcel:
    """`moves`: all of them go back to PENDING; else all are acks. `is_copy`: an earlier call with them may have been
    carried out, so that this one has no effect.
    """

    __slots__ = ("is_copy", "moves", "queue", "results")

    def __init__(self, queue: str, results: list[Result], *, moves: bool, is_copy: bool = False) -> None:
        self.is_copy = is_copy
        self.queue = queue
        self.results = results
        self.moves = moves

    def halves(self) -> Iterator[Parcel]:
        middle = len(self.results) // 2
        return (self._with(part) for part in (self.results[:middle], self.results[middle:]))

    def by_shard(self) -> list[Parcel]:
        """One for each shard, so that those of a shard that is away hold up no others."""
        parts: dict[str, list[Result]] = {}
        for result in self.results:
            parts.setdefault(_shard(result[0].job.descriptor), []).append(result)
        return [self] if len(parts) == 1 else [self._with(part) for part in parts.values()]

    def take(self, which: Callable[[Running], bool]) -> list[Result]:
        """Those out of the parcel, and returned."""
        taken = [result for result in self.results if which(result[0])]
        if taken:
            self.results = [result for result in self.results if not which(result[0])]
        return taken

    def _with(self, results: list[Result]) -> Parcel:
        return Parcel(self.queue, results, moves=self.moves, is_copy=self.is_copy)


def fitting(moves: Sequence[Result]) -> int:
    """How many of the first of these one call takes; 1 or more."""
    size = 0
    for index, (_, verdict) in enumerate(moves[:MAX_RESULTS]):
        size += len(verdict.body or b"")
        if size > MAX_BODY_BYTES:
            return max(1, index)
    return MAX_RESULTS


def _shard(descriptor: str) -> str:
    ref = parse_descriptor(descriptor)
    return "" if ref is None else ref.shard
