"""Runs of jobs that have a serialize key, and whether they were one at a time and in order, as far as that is promised.

A worker may read its answer late: a machine that is busy stops it for seconds, and the claim runs out in the meantime.
Such a run may come beside another one or behind a later one, since a job is delivered at least once, and is not judged
by that. A claim excludes others until it expires, by the servers' clock, which is also the workers'. So a run is
exclusive from its begin until its end or the expiry of its claim, whichever is earlier.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class Run:
    """One attempt at the job `number` of a key, from the moment its worker had it; `ended_ns` before its ack left, or
    None where it sent none.
    """

    key: str
    number: int
    expires_at_ms: int
    began_ns: int
    ended_ns: int | None = None

    @property
    def expired(self) -> bool:
        """Whether its claim was over when it began."""
        return self.began_ns >= self._expiry_ns

    @property
    def exclusive_until_ns(self) -> int:
        return self._expiry_ns if self.ended_ns is None else min(self.ended_ns, self._expiry_ns)

    @property
    def _expiry_ns(self) -> int:
        return self.expires_at_ms * 1_000_000


@dataclass(frozen=True)
class Verdict:
    """`faults`: each breach of the order as a readable line. `held` and `expired` count the runs by their claims."""

    faults: list[str]
    held: int
    expired: int

    def passes(self) -> None:
        """No fault, among runs most of which held their claims: else this would say little."""
        assert not self.faults, "\n".join(self.faults[:20])
        assert self.held > self.expired, f"{self.held} runs began within their claims, {self.expired} after them"


def judge(runs: Iterable[Run]) -> Verdict:
    """Key by key, in the order in which the runs began."""
    by_key: defaultdict[str, list[Run]] = defaultdict(list)
    held = expired = 0
    for run in runs:
        by_key[run.key].append(run)
        expired += run.expired
        held += not run.expired
    return Verdict([fault for own in by_key.values() for fault in _faults(own)], held, expired)


def _faults(runs: list[Run]) -> Iterable[str]:
    """What is there of a later job proves that the earlier ones are over, even if its claim has expired since."""
    reached = -1
    before: Run | None = None
    first_end_ns: dict[int, int] = {}
    for run in runs:
        if run.ended_ns is not None:
            first_end_ns[run.number] = min(run.ended_ns, first_end_ns.get(run.number, run.ended_ns))
    for run in sorted(runs, key=lambda run: run.began_ns):
        if run.number and first_end_ns.get(run.number - 1, run.began_ns) >= run.began_ns:
            yield f"{run} began before the end of {run.number - 1}"
        if not run.expired:
            if run.number < reached:
                yield f"{run} began behind {reached}"
            if before is not None and run.began_ns < before.exclusive_until_ns:
                yield f"{run} began beside {before}"
            before = run
        reached = max(reached, run.number)


def most_at_once(runs: Iterable[Run]) -> dict[str, int]:
    """The most runs of each key that were exclusive at one moment. One that ends as another begins is not beside it."""
    changes: list[tuple[int, int, str]] = []
    for run in runs:
        if not run.expired:
            changes += [(run.began_ns, 1, run.key), (run.exclusive_until_ns, -1, run.key)]
    now, most = Counter[str](), Counter[str]()
    for _, change, key in sorted(changes):
        now[key] += change
        most[key] = max(most[key], now[key])
    return dict(most)
