"""The knowledge of one poller about the jobs of its queue, from events, polls and claims; it asks nothing itself.

What it knows is wrong in one direction only. Jobs that it expects may not be there, which costs a poll or a claim; but
a queue is empty to it, and a shard no candidate, only where each later job would be notified
(tests/unit/test_known_queue.py).

Where stores notify of jobs, a poller that has asked all shards knows which of them may have jobs: those that had some,
and those that notified since, or that this process gave a job to. Only these are asked. Else every process that waits
for the queue would ask every shard for every job.

Order over shards (docs/semantics.md, 3) wants more where a job is not of the first priority: everybody who waits must
have been waiting at a moment when all shards had nothing, or have asked all of them himself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pinlater.service.queue_limits import Throttle

SOME_JOBS = 1_000
"""How many jobs are expected where nobody said how many there are."""

_MAX_THROTTLE_MS = 1_000
"""A queue with a slow rate is polled this often all the same: others may have given tokens back."""

TRUSTED_S = 3.0
"""What all shards said is trusted for so long: a notification may be lost."""


class Candidates(NamedTuple):
    """The shards to ask, by id; none: all. `in_order`: whatever they have may be handed out, else jobs of the first
    priority alone. `got_jobs`: one of them has got jobs since these were last asked.
    """

    shard_ids: set[str]
    in_order: bool
    got_jobs: bool = False


class KnownQueue:
    """`time_s` is the event loop's clock; `trusted_s`: for how long what all shards said is trusted."""

    __slots__ = (
        "_ahead",
        "_candidates",
        "_empty_at",
        "_forgot_at",
        "_got_jobs",
        "_in_order",
        "_joined_at",
        "_notified_at",
        "_time_s",
        "_trusted_s",
        "_trusted_until_s",
        "changes",
        "due_passed",
        "events",
        "is_exhausted",
        "is_full",
        "is_stale",
        "look_s",
        "pause_ms",
        "ready_estimate",
        "throttle",
        "throttled_until_s",
    )

    def __init__(self, pause_ms: int, time_s: Callable[[], float], trusted_s: float = TRUSTED_S) -> None:
        self.pause_ms = pause_ms
        """The pause between two polls."""
        self.ready_estimate = 0
        """How many jobs are expected. Negative: jobs handed out before their enqueue was announced."""
        self.events = 0
        """How many events came that may have brought jobs."""
        self.is_stale = False
        """An event came since the poll that is under way, or the last one, began."""
        self.is_full = False
        """There were more jobs than the last caller could take, as far as it is known."""
        self.is_exhausted = False
        """The last claim asked all shards that may have jobs, and found less than those who wait could take."""
        self.due_passed = False
        """A delayed job's time has come: when the next one's will, is not known."""
        self.throttle: Throttle | None = None
        """What kept the last round from handing out what was eligible."""
        self.throttled_until_s = 0.0
        """In the loop's time; 0: it is not throttled."""
        self._empty_at = (
            -1
        )  # so many events there had been at the last poll, which found nothing; -1: there may be jobs
        self._trusted_until_s = 0.0
        self._candidates: set[str] | None = None  # ids of the shards that may have jobs; None: any may have
        self.look_s = 0.0
        """When all shards were last asked, as far as it counts."""
        self.changes = 0
        """How much happened that `found_at` must know of: it is told what this was before shards were asked."""
        self._ahead: dict[str, int] = {}  # jobs that were expected before they are announced, by shard
        self._got_jobs = False  # a shard has, since `_candidates` were last asked
        self._notified_at: dict[str, int] = {}  # `changes` when a shard last got jobs
        self._forgot_at = 0  # when any shard might have got some
        self._joined_at = 0  # when somebody joined who had not asked all shards
        self._in_order = False  # everybody who waits did so at a moment when all shards had nothing
        self._time_s = time_s
        self._trusted_s = trusted_s

    # -- events ------------------------------------------------------------------------------------------------------

    def expect(self, jobs: int, shard_id: str = "") -> bool:
        """So many jobs became eligible on this shard, or ("") on one that is not known. Whether that is of use to
        waiters: not while the queue is throttled.
        """
        self.events += 1
        if not shard_id:
            self.forget_shards()
        else:
            self.changes += 1
            self._note_jobs(shard_id, jobs)
        if self.throttled_until_s and self.throttled_for() > 0:
            return False
        self.ready_estimate += jobs
        return True

    def _note_jobs(self, shard_id: str, jobs: int) -> None:
        ahead = self._ahead.get(shard_id, 0)
        if ahead:
            self._ahead[shard_id] = max(0, ahead - jobs)
        if jobs > ahead:
            self._notified_at[shard_id] = self.changes
            self._got_jobs = True
            if self._candidates is not None:
                self._candidates.add(shard_id)

    def expect_ahead(self, jobs: int, shard_id: str) -> None:
        """As `expect`, of jobs that are still to be announced by another call of that."""
        self.expect(jobs, shard_id)
        if shard_id:
            self._ahead[shard_id] = self._ahead.get(shard_id, 0) + jobs

    def distrust(self) -> bool:
        """Something may have happened that no store reports: the next poll comes at once. Whether it may."""
        self.events += 1
        self.forget_shards()
        if self.throttled_for() > 0:
            return False
        self.pause_ms = 0
        self.is_stale = True
        return True

    def unthrottle(self) -> None:
        """What kept jobs back may be over: the next poll comes at once."""
        self.events += 1
        self.forget_shards()
        self.throttled_until_s = 0.0
        self.pause_ms = 0

    def fail(self) -> None:
        """The queue cannot be served now."""
        self.events += 1
        self.is_full = False
        self.forget_shards()

    def forget_shards(self) -> None:
        """There may be jobs on any shard."""
        self.changes += 1
        self._forgot_at = self.changes
        self._candidates = None
        self._ahead.clear()

    def joined_unseen(self) -> None:
        """Somebody waits from now on who has not asked all shards."""
        self.changes += 1
        self._joined_at = self.changes
        self._in_order = False

    def expect_any(self) -> None:
        """There may be jobs, on any shard."""
        self._empty_at = -1
        self.forget_shards()

    # -- polls -------------------------------------------------------------------------------------------------------

    def found_due(self) -> None:
        """There are eligible jobs; nobody knows how many, or where."""
        self.ready_estimate = max(self.ready_estimate, SOME_JOBS)
        self.expect_any()

    def found_empty(self, events: int, pause_ms: int) -> None:
        """A poll found nothing eligible that began after so many events; the next one comes after this pause."""
        self.pause_ms = pause_ms
        self._empty_at, self.is_full = events, False
        self._trusted_until_s = self._time_s() + pause_ms / 1000

    def found_at(self, shard_ids: Iterable[str], changes: int) -> None:
        """All shards were asked after so many changes. These had jobs, or did not say, and all notify of what comes."""
        if changes < self._forgot_at:
            return
        self._ahead.clear()
        had_jobs = set(shard_ids)
        self._candidates = had_jobs | {each for each, at in self._notified_at.items() if at > changes}
        self.look_s = self._time_s()
        self._in_order = not had_jobs and changes >= self._joined_at

    def found_none_at(self, shard_ids: Iterable[str], changes: int) -> None:
        """These were asked after so many changes, and had nothing."""
        if self._candidates is not None:
            without = {each for each in shard_ids if self._notified_at.get(each, 0) <= changes}
            self._candidates -= without
            for shard_id in without:  # others took what was sent ahead: what is notified from now on is not that
                self._ahead.pop(shard_id, None)

    def worth_asking(self) -> set[str] | None:
        """The shards that may have jobs; None: it is not known, or all have not been asked for a while."""
        if self._candidates is None or self._time_s() - self.look_s > self._trusted_s:
            return None
        return set(self._candidates)

    def is_empty(self, now_s: float) -> bool:
        """Whether the last poll found nothing, and no event came since; for as long as such a poll is trusted."""
        return self.was_empty() and now_s < self._trusted_until_s

    def was_empty(self) -> bool:
        """The same, however long ago that poll was."""
        return self._empty_at == self.events

    # -- claims ------------------------------------------------------------------------------------------------------

    def begin_claim(self) -> None:
        """The claim takes what was expected."""
        self.ready_estimate, self._empty_at, self.is_exhausted = 0, -1, False

    def take_candidates(self) -> Candidates:
        """The shards to ask now. They count as empty from then on, until `give_back` returns them."""
        candidates, got_jobs = self.worth_asking(), self._got_jobs
        self._got_jobs = False
        if not candidates:
            self._candidates = None
            return Candidates(set(), in_order=True)
        self._candidates = set()
        return Candidates(candidates, self._in_order, got_jobs)

    def give_back(self, candidates: Iterable[str]) -> None:
        """These had jobs, and may have more."""
        if self._candidates is not None:
            self._candidates.update(candidates)

    def expect_left(self) -> bool:
        """More jobs are expected where the last were. Whether it is known which shards these are."""
        if not self.worth_asking():
            return False
        self.ready_estimate = max(self.ready_estimate, 1)
        return True

    # -- limits ------------------------------------------------------------------------------------------------------

    def throttle_by(self, throttle: Throttle | None, poll_min_ms: int) -> None:
        """Nothing can be handed out, whatever becomes eligible: until the rate allows a job, until the circuit breaker
        tries one, or until the next poll where too many are in progress, unless some end meanwhile. None: all can be.
        """
        pause_ms = self.pause_ms
        if throttle is not None and throttle.reason == "rate":
            pause_ms = min(max(throttle.retry_after_ms, poll_min_ms), _MAX_THROTTLE_MS)
        elif throttle is not None and throttle.reason == "paused":
            pause_ms = throttle.retry_after_ms
        self.throttle = throttle
        self.throttled_until_s = 0.0 if throttle is None else self._time_s() + pause_ms / 1000

    def throttled_for(self) -> float:
        """The seconds for which nothing can be handed out yet; 0: all can be."""
        return max(0.0, self.throttled_until_s - self._time_s()) if self.throttled_until_s else 0.0
