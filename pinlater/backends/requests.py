"""Arguments of the calls of a shard: names of jobs and claims, acks, checkpoints, places of scans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from pinlater.backends.aged_levels import Level
from pinlater.model import MAX_TIME_MS, JobState

GroupSpread = Mapping[int, Mapping[str, int]]
"""By priority and group, on how many shards the group has jobs in line."""


class JobKey(NamedTuple):
    """A job of the queue the call names."""

    priority: int
    id: int


class ClaimKey(NamedTuple):
    """A job and the claim it is expected to be under."""

    priority: int
    id: int
    claim_descriptor: str


class SilentClaim(NamedTuple):
    """A job, the claim it is expected to be under, and the time of that claim's last sign of life: the now of the claim
    itself, or of its last checkpoint.
    """

    priority: int
    id: int
    claim_descriptor: str
    last_seen_ms: int


class UnrenewedClaim(NamedTuple):
    """A job, the claim it is expected to be under, and when that claim expires if nobody has renewed it since it was
    made.
    """

    priority: int
    id: int
    claim_descriptor: str
    expires_at_ms: int


class ExpiredClaim(NamedTuple):
    """A claim whose time is over, and what its job is like. `is_to_stop`: it was asked to, so it ends as CANCELLED."""

    priority: int
    id: int
    claim_descriptor: str
    expires_at_ms: int
    attempts_allowed: int
    attempts_remaining: int
    crashes: int
    is_to_stop: bool


class ExpiryRequest(NamedTuple):
    """A claim that is to end as expired, and when it expires if nobody has renewed it since it was listed. Where
    attempts remain the job is to be retried `retry_delay_ms` after now.
    """

    priority: int
    id: int
    claim_descriptor: str
    expires_at_ms: int
    retry_delay_ms: int = 0


@dataclass(slots=True)
class ClaimRequest:
    """One caller's share of a claim call.

    `priorities` are tried in the order given, highest first; in a queue whose jobs age they are levels
    (aged_levels.py). At most `limit` jobs, and no more than fit into `max_bytes` of bodies, but always the first one.
    `claim_descriptor` is unique per request, never used again.
    `spare_ms`: the claim begins so much after now, where now is the earliest of the times that it may be.
    `is_default_timeout`: a job's own claim time-out counts before `claim_timeout_ms`.
    `most_of_group`: groups of the queue have limits, none has a higher one than this: so many jobs of each at most, and
    no more than it has room for (permit_store.py). 0: none has a limit. Of all requests of a call the highest counts.
    `prefetch`: so many of the `limit`, not all, are fetched ahead; a queue whose jobs have groups does not give these.
    `spread`: a turn of these groups costs so many times as much; of all requests the first one counts.
    """

    claim_descriptor: str
    limit: int
    priorities: Sequence[Level]
    claim_timeout_ms: int
    max_bytes: int
    spare_ms: int = 0
    is_default_timeout: bool = False
    most_of_group: int = 0
    prefetch: int = 0
    spread: GroupSpread | None = None

    def without_prefetch(self) -> ClaimRequest:
        return replace(self, limit=self.limit - self.prefetch, prefetch=0) if self.prefetch else self


def highest_limit(requests: Sequence[ClaimRequest]) -> int:
    """The `most_of_group` that counts for a call."""
    if len(requests) == 1:
        return requests[0].most_of_group
    return max([each.most_of_group for each in requests], default=0)


@dataclass(slots=True)
class AckRequest:
    """One outcome. A `claim_descriptor` other than "" must be the job's current claim, else the ack is IGNORED.

    A `retry_delay_ms` below 0 makes the job eligible from before now on. `result`, with a success, is kept for
    `EndRules.result_ttl_ms`, also where the job itself is not kept.
    """

    priority: int
    id: int
    succeeded: bool
    append_status: str = ""
    retry_delay_ms: int = 0
    claim_descriptor: str = ""
    permanent: bool = False
    result: bytes | None = None


@dataclass(slots=True)
class CheckpointRequest:
    """One heartbeat. With `claim_descriptor` "" the claim's source must be exactly `source`; else that claim counts.

    The claim expires its own time-out after now, or after a later `run_after_ms`, but because of that no later than
    `latest_expiry_ms`.
    """

    priority: int
    id: int
    source: str
    claim_descriptor: str = ""
    new_body: bytes | None = None
    move_to_pending: bool = False
    run_after_ms: int | None = None
    attempts_allowed: int | None = None
    prepend_status: str = ""
    latest_expiry_ms: int = MAX_TIME_MS

    def expiry_ms(self, timeout_ms: int, now_ms: int) -> int:
        """When a claim with this time-out expires after it."""
        return max(now_ms + timeout_ms, min((self.run_after_ms or 0) + timeout_ms, self.latest_expiry_ms))


MOST_OVERTAKEN_MS = 60_000
"""A heartbeat or a checkpoint whose now lies before the last change of its job, by at most so much, was overtaken on
its way: a late copy of a call, or a call to a server whose clock is behind. It never lets the claim expire earlier. A
minute is longer than such a call lives, and than clocks differ; by more, a clock was set back, and what stands counts
from a time that will not come soon: then now counts.
"""


def changes_behind(now_ms: int) -> tuple[int, int]:
    """The earliest and the latest last change of a job that has overtaken a renewal with this now.

    >>> changes_behind(1_000)
    (1001, 61000)
    """
    return now_ms + 1, now_ms + MOST_OVERTAKEN_MS


class ScanPosition(NamedTuple):
    """A place in the order (run_after descending, id ascending; of a scan by tag: id descending); a scan goes on
    strictly after it.
    """

    run_after_ms: int
    id: int


class StoredState(IntEnum):
    """A state as stores keep it, which is finer than the one that is shown. The numbers are those of the stores."""

    PENDING = 0
    IN_PROGRESS = 1
    SUCCEEDED = 2
    FAILED = 3
    WAITING = 4
    """PENDING, behind another job of its serialize key."""

    CANCELLED = 5
    """FAILED, since it was to stop."""

    REPLAYED = 6
    """FAILED, and its dead letter was sent back as a new job."""

    IN_LINE = 8
    """PENDING and due, in the line of its group."""


STORED_STATES: dict[JobState, tuple[StoredState, ...]] = {
    JobState.PENDING: (StoredState.PENDING, StoredState.WAITING, StoredState.IN_LINE),
    JobState.IN_PROGRESS: (StoredState.IN_PROGRESS,),
    JobState.SUCCEEDED: (StoredState.SUCCEEDED,),
    JobState.FAILED: (StoredState.FAILED, StoredState.CANCELLED, StoredState.REPLAYED),
}
LIVE_STATES = (StoredState.PENDING, StoredState.IN_PROGRESS, StoredState.WAITING, StoredState.IN_LINE)
ENDED_STATES = (StoredState.SUCCEEDED, *STORED_STATES[JobState.FAILED])


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """A selection of jobs, and how many of them: in one of these states, with run_after > now (`future`) or <= now,
    strictly behind `after`; with a `tag`, of those that have it.

    At most `limit`, and fewer where bodies (`with_body`) would pass `max_bytes`, but at least one where one is there.
    """

    states: Sequence[StoredState]
    priorities: Sequence[int]
    future: bool
    limit: int
    after: ScanPosition | None = None
    with_body: bool = False
    max_bytes: int = 2**53 - 1
    tag: str = ""
