"""READ THIS FIRST: the protocol of one shard, the seam every store implements and every wrapper keeps.

A shard is one store. It is told the time (`now_ms`), never retries, counts no metrics, and knows no other shard.
Batch is the primitive: a single call is a list of one. Results align with the input, position by position.

Every call
  * is atomic per job, and atomic as a whole where its docstring says so;
  * is bounded by its arguments: no loop over an unbounded number of jobs in one transaction or script;
  * trusts its arguments, which the service has validated (queue names, priorities, bounds);
  * returns, or raises an error of `pinlater.errors`: QueueNotFound where it says so, NothingStored (surely nothing
    changed), StoreConflict (likewise, and worth an immediate second try), OutcomeUnknown (it may have happened).

A job is named on its shard by (queue, priority, id); a name whose priority is not the job's own names nothing.
"Eligible" means PENDING with run_after <= now. Priority 1 is the highest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from pinlater.model import CancelOutcome, DequeuedJob, Job, JobInfo, JobState


class StoreStatus(NamedTuple):
    """What a ping answers: the random id written into the store when it was first opened, and the store's own clock."""

    store_id: str
    now_ms: int


class JobKey(NamedTuple):
    """A job of the queue the call names."""

    priority: int
    id: int


class ClaimKey(NamedTuple):
    """A job and the claim it is expected to be under."""

    priority: int
    id: int
    claim_descriptor: str


@dataclass(slots=True)
class ClaimRequest:
    """One caller's share of a claim call.

    `priorities` are tried in the order given, highest first. At most `limit` jobs, and no more than fit into
    `max_bytes` of bodies, but always the first one. `claim_descriptor` is unique per request, never used again.
    """

    claim_descriptor: str
    limit: int
    priorities: Sequence[int]
    claim_timeout_ms: int
    max_bytes: int


@dataclass(slots=True)
class AckRequest:
    """One outcome. A `claim_descriptor` other than "" must be the job's current claim, else the ack is IGNORED."""

    priority: int
    id: int
    succeeded: bool
    append_status: str = ""
    retry_delay_ms: int = 0
    claim_descriptor: str = ""
    permanent: bool = False


class AckOutcome(IntEnum):
    IGNORED = 0
    SUCCEEDED = 1
    RETRIED = 2
    FAILED = 3


@dataclass(slots=True)
class CheckpointRequest:
    """One heartbeat. With `claim_descriptor` "" the claim's source must be exactly `source`; else that claim counts."""

    priority: int
    id: int
    source: str
    claim_descriptor: str = ""
    new_body: bytes | None = None
    move_to_pending: bool = False
    run_after_ms: int | None = None
    attempts_allowed: int | None = None
    prepend_status: str = ""


class ScanPosition(NamedTuple):
    """A place in the order (run_after descending, id ascending); a scan goes on strictly after it."""

    run_after_ms: int
    id: int


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """Which jobs, and how many of them: in a state, with run_after > now (`future`) or <= now, strictly behind `after`.

    At most `limit`, and fewer where bodies (`with_body`) would pass `max_bytes`, but at least one where one is there.
    """

    state: JobState
    priorities: Sequence[int]
    future: bool
    limit: int
    after: ScanPosition | None = None
    with_body: bool = False
    max_bytes: int = 2**53 - 1


class LapsedCounts(NamedTuple):
    """What became of claims that expired or were released: back to PENDING, or FAILED."""

    retried: int
    failed: int


class Shard(Protocol):
    """One store. Built with its address and shard id; a coroutine method may be called only between open and close."""

    shard_id: str
    """1 to 16 letters and digits; stands in every descriptor this shard makes."""

    async def open(self) -> str:
        """Connect, bring the schema up to date, write the shard id and a random store id where there are none yet.

        Returns the store id. With `shard_id` "" the store's own record decides, and sets `shard_id`; the record missing
        too, StoreRefused. A store that carries another shard id: StoreRefused, and nothing is changed.
        """

    async def close(self) -> None:
        """Let calls in flight end, then free every connection, thread and file. May be called twice."""

    async def ping(self) -> StoreStatus:
        """One round trip, touching what a real call would touch. A wiped store: StoreRefused."""

    # -- queues ------------------------------------------------------------------------------------------------------

    async def create_queue(self, queue: str, now_ms: int) -> bool:
        """Make the queue; True if it is new, False if it is already there."""

    async def delete_queue(self, queue: str, now_ms: int) -> bool:
        """Delete the queue and its jobs in all states; False if there is none.

        Gone at once for every other call, a new queue of the same name included, which starts empty; what it held may
        be freed later in slices, by `collect`.
        """

    async def queue_names(self) -> set[str]:
        """The queues of this shard."""

    # -- the life of a job -------------------------------------------------------------------------------------------

    async def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
        """Store all the jobs or none; returns a descriptor per job. A run_after_ms of None is `now_ms`.

        Ids ascend in the order given, and in the order of calls; see decision 15 in docs/semantics.md.
        QueueNotFound, and then nothing is stored.
        """

    async def ready(self, queue: str, priorities: Sequence[int], limit: int, now_ms: int) -> list[int]:
        """How many jobs are eligible per priority, each counted up to `limit`. QueueNotFound."""

    async def claim(self, queue: str, requests: Sequence[ClaimRequest], now_ms: int) -> list[list[DequeuedJob]]:
        """Hand out eligible jobs, PENDING to IN_PROGRESS, to each request in turn; never one job twice.

        Per request by priority, then run_after, then id (age). A claim expires at now + its time-out. QueueNotFound.
        """

    async def peek(
        self, queue: str, priorities: Sequence[int], limit: int, max_bytes: int, now_ms: int
    ) -> list[DequeuedJob]:
        """What a claim would hand out now, changing nothing. QueueNotFound."""

    async def ack(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        now_ms: int,
        *,
        keep_succeeded: bool = True,
        keep_failed: bool = True,
    ) -> list[AckOutcome]:
        """End attempts; what is not IN_PROGRESS, or under another claim than the one given, is IGNORED.

        A job named twice is acked by the first that applies. Not keeping a state removes the job instead of moving it
        there.
        An unknown queue: all IGNORED.
        """

    async def checkpoint(self, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> list[bool]:
        """Restart claim time-outs and change what is asked, in order; False where the job or its claim did not match.

        The new expiry is now + the claim's own time-out. An unknown queue: all False.
        """

    async def give_back(self, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
        """IN_PROGRESS to PENDING where the claim matches: claim cleared, no attempt taken, run_after kept. How many."""

    async def release(self, queue: str, claims: Sequence[ClaimKey], now_ms: int, *, crash_budget: int) -> LapsedCounts:
        """Treat these claims, where they stand, as expired now (see `expire_claims`), with a status line of theirs."""

    async def cancel(self, queue: str, jobs: Sequence[JobKey], now_ms: int) -> list[CancelOutcome]:
        """Remove PENDING jobs; says what each was. An unknown queue: all NOT_FOUND."""

    # -- looking -----------------------------------------------------------------------------------------------------

    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int
    ) -> list[JobInfo | None]:
        """Each job, or None. With bodies: those beyond `max_bytes` in all come without, but for the first."""

    async def count(self, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
        """Jobs in a state with run_after > now (`future`) or <= now. QueueNotFound."""

    async def scan(self, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
        """A page of jobs by run_after, newest first, then id ascending. Empty only at the end. QueueNotFound."""

    # -- operators ---------------------------------------------------------------------------------------------------

    async def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
    ) -> int:
        """Up to `limit` FAILED jobs back to PENDING with attempts_remaining = `attempts`, attempts_allowed unchanged,
        crashes and claim cleared, run_after as given or now; oldest run_after first. How many. QueueNotFound.
        """

    async def delete_jobs(self, queue: str, state: JobState, priority: int, limit: int, now_ms: int) -> int:
        """Remove up to `limit` jobs of one state and priority; how many. QueueNotFound."""

    async def delete_listed(self, queue: str, state: JobState, jobs: Sequence[JobKey], now_ms: int) -> int:
        """Remove those of the jobs that are still in that state; how many. QueueNotFound."""

    # -- maintenance: one bounded step each, over an index of what is due; calling twice at once does no harm ---------

    async def expire_claims(self, limit: int, now_ms: int, *, crash_budget: int) -> Mapping[str, LapsedCounts]:
        """Up to `limit` jobs whose claim's expiry < now: as a failed ack without delay, one crash more, a status line.

        At `crash_budget` crashes (0: no budget) the job goes to FAILED whatever attempts remain, the reason in its
        status.
        Counts per queue. A queue with nothing due costs nothing.
        """

    async def collect(self, limit: int, now_ms: int, *, succeeded_ttl_ms: int, failed_ttl_ms: int) -> Mapping[str, int]:
        """Remove up to `limit` jobs with finished_at + ttl < now, and up to `limit` leftovers of deleted queues.

        Counts per queue, leftovers under "".
        """


def expired_status(now_ms: int, attempts_remaining: int) -> str:
    """The line that an expired claim leaves in the custom status, the same on every store."""
    return f"[claim expired at {now_ms}, attempts remaining {attempts_remaining}]"


def released_status(now_ms: int, attempts_remaining: int) -> str:
    """The line that a released claim leaves."""
    return f"[claim released at {now_ms}: its connection broke, attempts remaining {attempts_remaining}]"


def crash_budget_status(crashes: int) -> str:
    """What is added behind that line when the crash budget is used up."""
    return f"[failed: crash budget used up, {crashes} crashes]"
