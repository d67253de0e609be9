"""The life of jobs in a store: from their enqueue to their ends, of whichever kind, and their removal."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from pinlater.backends.aged_levels import Level
from pinlater.backends.extended import HeartbeatAnswer, HeartbeatRequest, RescheduleRequest
from pinlater.backends.operations import StorePart, operation
from pinlater.backends.requests import (
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    ClaimRequest,
    ExpiredClaim,
    ExpiryRequest,
    JobKey,
    ScanRequest,
    SilentClaim,
    UnrenewedClaim,
)
from pinlater.backends.shard_events import OnNotification
from pinlater.model import (
    AckOutcome,
    CancelOutcome,
    ClaimAnswer,
    DequeuedJob,
    Job,
    JobInfo,
    JobState,
    RescheduleOutcome,
)

T = TypeVar("T")

UNDELIVERED_IN_A_ROW = 5
"""After so many undelivered hand-outs in a row the job itself may be the cause. Then its claim is left to expire."""

SLICE_BYTES = 1024 * 1024
"""What a store reads of large values at a time, so that other calls come in between: see `claim` and `lookup`."""


class ExpiryCounts(NamedTuple):
    """Counts of claims that expired or were released: jobs back to PENDING, or FAILED."""

    retried: int
    failed: int
    cancelled: int = 0


@dataclass(frozen=True, slots=True)
class PerQueue(Generic[T]):
    """One value for all queues, but for those that have another."""

    default: T
    of: Mapping[str, T] = field(default_factory=dict)

    def get(self, queue: str) -> T:
        return self.of.get(queue, self.default)


class EndRules(NamedTuple):
    """What the settings of a queue say about attempts that end.

    `crash_budget` (0: none) counts at expiry and release only. Not keeping a state removes the job in the final ack
    instead of moving it there; expiry and release leave that to `prune`. With `dead_letters` a job that goes to
    FAILED, in whichever way, is pending for `dead_letter`, and kept whatever `keep_failed` says. With `lists_expired`,
    which is never a default for all queues, `expire_claims` leaves claims alone: something else has to know of each
    before it ends, and so takes them from `expired_claims`.
    """

    crash_budget: int = 0
    keep_succeeded: bool = True
    keep_failed: bool = True
    dead_letters: bool = False
    result_ttl_ms: int = 3_600_000
    lists_expired: bool = False


NO_RULES = EndRules()


class Retention(NamedTuple):
    """How long after its end a job is kept."""

    succeeded_ms: int
    failed_ms: int


class DeadLetterTarget(NamedTuple):
    """Where dead letters of a queue go, and how many attempts they are allowed there."""

    queue: str
    attempts_allowed: int


class JobStore(StorePart):
    """Every store has it."""

    @operation(batch=1)
    async def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
        """Store all the jobs or none; returns a descriptor per job. A run_after_ms of None is `now_ms`.

        Ids ascend in the order given, and in the order of calls; see decision 15 in docs/semantics.md.
        QueueNotFound, and then nothing is stored.
        """

    @operation("ready", reads=True)
    async def count_ready(self, queue: str, priorities: Sequence[Level], limit: int, now_ms: int) -> list[int]:
        """How many jobs are eligible per priority, each counted up to `limit`; ReadyCounts (group_store.py) where jobs
        of the queue have groups. Of levels (aged_levels.py) it counts the first `limit` jobs of each priority.
        QueueNotFound.
        """

    @operation(reads=True)
    async def next_due(self, queues: Sequence[str], priorities: Sequence[int]) -> dict[str, int | None]:
        """The smallest run_after of the PENDING jobs of each queue, or None; a queue that is not there is left out.

        One read of an index per queue and priority, however many jobs there are.
        """

    async def subscribe(self, queue: str, on_event: OnNotification | None) -> bool:
        """True: from now on, until it is called with None, `on_event` is called for every job that becomes PENDING in
        the queue, by whichever process, but not for those that this shard's own `enqueue` brings. It gets counts, or
        UNKNOWN_CHANGE, which may also come for nothing. False: not by this store, or not now.

        The last `on_event` of a queue counts; None ends it. Raises nothing.
        """
        return False

    @operation(claims=True)
    async def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> list[list[DequeuedJob]]:
        """Hand out eligible jobs, PENDING to IN_PROGRESS, to each request in turn; never one job twice.

        Per request by priority, then run_after, then id (age). A claim begins at now + its `spare_ms`, and expires its
        time-out later. QueueNotFound. Once the bodies come to SLICE_BYTES no further request is served, and the
        answer is the shorter: the callers of the others ask again. The first request is always served.
        `enforce_quota`: no more than leaves the queue's jobs in progress here at or below its quota (`set_quota`; 0
        where none was set), also when others claim at the same moment.
        """

    @operation(batch=1, claims_listed=True)
    async def claim_listed(
        self, queue: str, jobs: Sequence[JobKey], request: ClaimRequest, now_ms: int, *, enforce_quota: bool = False
    ) -> list[ClaimAnswer]:
        """Hand out these very jobs, in the order given, where `claim` might: an answer each. QueueNotFound.

        The limit and the priorities of the request do not count. Once the bodies would come to more than its
        `max_bytes`, or than SLICE_BYTES, no further job is looked at, and the answer is the shorter: the caller asks
        again for the others. The first that can be claimed always is. `enforce_quota`: as for `claim`.
        """

    @operation(reads=True, bulk=True)
    async def peek(
        self, queue: str, priorities: Sequence[Level], limit: int, max_bytes: int, now_ms: int
    ) -> list[DequeuedJob]:
        """What a claim would hand out now, changing nothing. QueueNotFound."""

    @operation(batch=1)
    async def ack(
        self, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> list[AckOutcome]:
        """End attempts; what is not IN_PROGRESS, or under another claim than the one given, is IGNORED.

        A job named twice is acked by the first that applies. An unknown queue: all IGNORED.
        """

    @operation(batch=1, batch_label="ack", claims=True)
    async def ack_and_claim(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        requests: Sequence[ClaimRequest],
        now_ms: int,
        rules: EndRules = NO_RULES,
        *,
        enforce_quota: bool = False,
    ) -> tuple[list[AckOutcome], list[list[DequeuedJob]]]:
        """`ack` and then `claim`, atomic as a whole, each with exactly the results that the two calls would have had.

        The claim sees what the acks did: it may hand out a job that is to be retried at once, and use the room that
        they made under the quota.

        QueueNotFound as by `claim`; then no ack can have had an effect. After any other error both or neither happened.
        """

    @operation(batch=1)
    async def checkpoint(self, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> list[bool]:
        """Restart claim time-outs and change what is asked, in order; False where the job or its claim did not match.

        The new expiry is max(now, run_after_ms) + the claim's own time-out, bounded as CheckpointRequest says. An
        unknown queue: all False.
        """

    @operation(batch=1)
    async def heartbeat(self, queue: str, heartbeats: Sequence[HeartbeatRequest], now_ms: int) -> list[HeartbeatAnswer]:
        """Restart the time-outs of these claims, in order, from now, also where a checkpoint had set a later expiry;
        nothing else of the jobs changes but their progress (and `updated_at_ms`), which later ends and attempts keep,
        and their logs (TrailStore).
        LOST where the job is not in progress under that claim; CANCEL where it is to stop. An unknown queue: all LOST.
        """

    @operation(batch=1)
    async def reschedule(
        self, queue: str, requests: Sequence[RescheduleRequest], now_ms: int
    ) -> list[RescheduleOutcome]:
        """Change PENDING jobs, in order, and their `updated_at_ms`. Attempts set those that are allowed and those that
        remain. What waits for another job keeps its place. An unknown queue: all NOT_FOUND.
        """

    @operation("give_back", batch=1)
    async def requeue(self, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
        """IN_PROGRESS to PENDING where the claim matches: claim cleared, no attempt taken, run_after kept. How many."""

    @operation("release")
    async def expire_disconnected(
        self, queue: str, claims: Sequence[SilentClaim], now_ms: int, rules: EndRules = NO_RULES
    ) -> ExpiryCounts:
        """Treat these claims as expired now (see `expire_claims`), with a status line of theirs, where they stand and
        no server has renewed them since `last_seen_ms`: no clocks are compared, only that time.
        An unknown queue: none.
        """

    @operation(batch=1)
    async def expire_listed(
        self, queue: str, claims: Sequence[ExpiryRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> list[AckOutcome]:
        """End these claims as `expire_claims` would, each with a delay of its own, where they stand and were not
        renewed: what still expires at the time named. All else, and all of an unknown queue, is IGNORED. A job that is
        named twice ends by the first that applies.
        """

    @operation()
    async def requeue_undelivered(self, queue: str, claims: Sequence[UnrenewedClaim], now_ms: int) -> int:
        """As `requeue`, for claims that nobody received, where their expiry is still the one named; how many.

        A job goes back at most UNDELIVERED_IN_A_ROW times in a row; after that its claim is left to expire. The count
        restarts when attempts remaining or run_after change. An unknown queue: none.
        """

    @operation()
    async def mark_moved(self, queue: str, moved: Sequence[tuple[ClaimKey, str]], now_ms: int) -> list[bool]:
        """IN_PROGRESS under that claim to SUCCEEDED, with the descriptor of its copy on another shard as `moved_to`.

        The origin of a dead letter that is FAILED and has the letter as `moved_to` has the copy in its place.
        An unknown queue: all False.
        """

    @operation(batch=1)
    async def cancel(self, queue: str, jobs: Sequence[JobKey], now_ms: int, by: str = "") -> list[CancelOutcome]:
        """Remove PENDING jobs; says what each was. An unknown queue: all NOT_FOUND.

        With `by` (who asks) those in progress are asked to stop, REQUESTED: see JobEnd. Asking again changes nothing,
        and is REQUESTED too; the first who asked is told.
        """

    @operation(batch=1, reads=True, bulk=True)
    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int, with_result: bool = False
    ) -> list[JobInfo | None]:
        """Each job, or None. With bodies: those beyond `max_bytes` in all come without, but for the first, and say so
        (`body_left_out`, `result_left_out`); with 0 all of them do.

        With results: those that are kept, which count as bodies; a job that is gone, but whose result is kept, is
        SUCCEEDED, with what the result's entry tells of it.

        Read in slices of SLICE_BYTES, with other calls in between: each job as of one moment, not all of the same.
        """

    @operation(reads=True, bulk=True)
    async def count(self, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
        """Jobs in a state with run_after > now (`future`) or <= now. QueueNotFound."""

    @operation(reads=True, bulk=True)
    async def scan(self, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
        """A page of jobs by run_after, newest first, then id ascending. Empty only at the end. QueueNotFound.

        With a tag by id alone, newest first: an index has the jobs of a tag in that order, so that a page costs what
        the tag has, and not what the queue holds.

        Where values are large it may be read in slices, as `lookup` does.
        """

    @operation(optional=True)
    async def watch_ends(self, queue: str, jobs: Sequence[JobKey], until_ms: int, now_ms: int) -> bool:
        """Have the ends of these jobs told (`ShardEvents.jobs_ended`), whichever process ends them, until then. One
        that has ended before is not told: look behind this call. False: this store tells nobody.
        """
        return False

    @operation()
    async def expire_claims(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, ExpiryCounts]:
        """Up to `limit` jobs whose claim's expiry < now: as a failed ack without delay, one crash more, a status line.

        At `crash_budget` crashes (0: no budget) the job goes to FAILED whatever attempts remain, the reason in its
        status. Counts per queue. A queue with nothing due costs nothing. Those whose rules have `lists_expired` are
        left out, and take nothing of the limit.
        """

    @operation(reads=True)
    async def expired_claims(
        self, queues: Sequence[str], limit: int, now_ms: int
    ) -> Mapping[str, Sequence[ExpiredClaim]]:
        """The claims of these queues whose expiry < now, at most so many in all, the oldest expiry of each queue first.

        It changes no job. Any end counts for them until `expire_listed`, `ack` or another call has ended them; until
        then they are listed again. Queues with nothing due are left out, and cost nothing.
        """

    @operation()
    async def expire_jobs(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, int]:
        """Up to `limit` jobs that are PENDING with expires_at_ms <= now: to FAILED, with a line (`job_expired_status`),
        as a final ack would. Counts per queue. A store with nothing due costs nothing.

        `claim`, `peek` and `count_ready` leave such jobs out already. Until it ends so, such a job is PENDING: its keys
        are taken, and what waits for it waits. Whether statistics count it as ready, scheduled or waiting until then
        depends on the store.
        """

    @operation("bury")
    async def dead_letter(self, limit: int, now_ms: int, targets: Mapping[str, DeadLetterTarget]) -> Mapping[str, int]:
        """Up to `limit` jobs that are pending for it: in one step a copy comes into the target's queue, and the job is
        pending no more.

        The copy is PENDING with run_after now, same body and priority, the target's attempts, the original's status
        after a line of its history (`dead_letter_status`), and `origin`; the original stays FAILED, with `moved_to`,
        and was updated now. The copy has the original's tags, and its keys to show, and for `replay`: they count for
        nothing else. A job without a target, or whose target queue is not there, stays pending, and does not block
        others. A job that was retried or removed is not copied. Returns how many jobs left each queue. A queue with
        nothing pending costs nothing.
        """

    @operation("collect")
    async def prune(
        self, limit: int, now_ms: int, retention: PerQueue[Retention], *, tombstones_before: str = ""
    ) -> Mapping[str, int]:
        """Remove up to `limit` jobs with finished_at + ttl < now, and up to `limit` leftovers of deleted queues.

        A job that is pending for `dead_letter` is kept. Counts per queue, leftovers under "". Tombstones of deleted
        config entries with a version below `tombstones_before` are removed too, with the marks of schedules of these
        names, and not counted. So are up to `limit`
        key entries and results whose time has passed; and up to `limit` extended jobs of deleted queues leave their
        chains, which frees those behind them.
        """
