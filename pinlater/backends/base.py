"""READ THIS FIRST: the protocol of one shard, the seam every store implements and every wrapper keeps.

A shard is one store. It is told the time (`now_ms`), never retries, counts no metrics, and knows no other shard.
Batch is the primitive: a single call is a list of one. Results align with the input, position by position.

Every call
  * is atomic per job, and atomic as a whole where its docstring says so;
  * is bounded by its arguments: no loop over an unbounded number of jobs in one transaction or script;
  * trusts its arguments, which the service has validated (queue names, priorities, bounds);
  * returns, or raises an error of `pinlater.errors`: QueueNotFound where it says so, NothingStored (surely nothing
    changed), StoreConflict (likewise, and worth an immediate second try), StoreFull (likewise, for lack of room),
    OutcomeUnknown (it may have happened).

A job is named on its shard by (queue, priority, id); a name whose priority is not the job's own names nothing.
"Eligible" means PENDING with run_after <= now, before its expiry if it has one, and the first of its serialize key if
it has one. Priority 1 is the highest.

What few jobs have beside this is in extended.py: it lies apart from the job, so that other jobs cost nothing more.

A body or a result may be a BodyReference (model/body_reference.py), given as one and returned as one: the record says
so by a mark of its own. Wherever a call bounds bytes it counts the length that the reference says. Whatever takes a
reference from its job (a removal, a new body, a result that is gone) lists it as dropped in the same step, but for one
that is given to its own job again. `dead_letter` and `replay` share it: it is dropped when the last of its jobs let go
of it. The first reference of a store raises its version, so that processes of older versions cannot open it any more;
`open` lowers it where no reference is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from pinlater.backends.beside_jobs import ConfigEntry as ConfigEntry
from pinlater.backends.beside_jobs import ConfigPage as ConfigPage
from pinlater.backends.beside_jobs import KvEntry as KvEntry
from pinlater.backends.beside_jobs import LevelCounts as LevelCounts
from pinlater.backends.beside_jobs import Quota as Quota
from pinlater.backends.beside_jobs import ReferencesPage as ReferencesPage
from pinlater.backends.beside_jobs import StatsPage as StatsPage
from pinlater.backends.beside_jobs import StatsPosition as StatsPosition
from pinlater.backends.beside_jobs import Tokens as Tokens
from pinlater.backends.extended import (
    Barrier,
    BlockedChain,
    HeartbeatAnswer,
    HeartbeatRequest,
    KeyWindow,
    Offer,
    Offered,
    RescheduleRequest,
)
from pinlater.backends.requests import STORED_STATES as STORED_STATES
from pinlater.backends.requests import AckRequest as AckRequest
from pinlater.backends.requests import CheckpointRequest as CheckpointRequest
from pinlater.backends.requests import ClaimKey as ClaimKey
from pinlater.backends.requests import ClaimRequest as ClaimRequest
from pinlater.backends.requests import ExpiredClaim as ExpiredClaim
from pinlater.backends.requests import ExpiryRequest as ExpiryRequest
from pinlater.backends.requests import JobKey as JobKey
from pinlater.backends.requests import ScanPosition as ScanPosition
from pinlater.backends.requests import ScanRequest as ScanRequest
from pinlater.backends.requests import SilentClaim as SilentClaim
from pinlater.backends.requests import StoredState as StoredState
from pinlater.backends.requests import UnrenewedClaim as UnrenewedClaim
from pinlater.backends.shard_events import UNKNOWN_CHANGE as UNKNOWN_CHANGE
from pinlater.backends.shard_events import NoEvents as NoEvents
from pinlater.backends.shard_events import Notification as Notification
from pinlater.backends.shard_events import OnNotification as OnNotification
from pinlater.backends.shard_events import ShardEvents as ShardEvents
from pinlater.model import AckOutcome as AckOutcome
from pinlater.model import (
    CancelOutcome,
    ClaimAnswer,
    DequeuedJob,
    Job,
    JobInfo,
    JobState,
    KeyRef,
    RescheduleOutcome,
)
from pinlater.model.body_reference import BodyReference as BodyReference

T = TypeVar("T")

UNDELIVERED_IN_A_ROW = 5
"""After so many undelivered hand-outs in a row the job itself may be the cause. Then its claim is left to expire."""

SLICE_BYTES = 1024 * 1024
"""What a store reads of large values at a time, so that other calls come in between: see `claim` and `lookup`."""


class StoreStatus(NamedTuple):
    """The answer to a ping: the random id written into the store when it was first opened, and the store's own clock.

    `full` says why the store has no room for new jobs, and what to do; "" while it has room, as far as it can tell.
    `newest_ms` is the largest time that jobs were stored at, 0 where there were none.
    """

    store_id: str
    now_ms: int
    full: str = ""
    newest_ms: int = 0


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


class Shard(Protocol):
    """One store. Built with its address and shard id; a coroutine method may be called only between open and close."""

    shard_id: str
    """1 to 16 letters and digits; stands in every descriptor this shard makes."""

    events: ShardEvents
    """Set once, before `open`."""

    @property
    def keeps_order(self) -> bool:
        """Whether a claim that is begun right behind an enqueue, before that is answered, sees its jobs."""

    @property
    def has_own_clock(self) -> bool:
        """Whether a ping returns the time of another clock than this machine's; that of a file does not."""

    async def open(self) -> str:
        """Connect, bring the schema up to date, write the shard id and a random store id where there are none yet.

        Returns the store id. With `shard_id` "" the id that the store itself carries is taken, and sets `shard_id`;
        where it carries none, StoreRefused. A store that carries another shard id: StoreRefused, and nothing changes.
        """

    async def close(self) -> None:
        """Let calls in flight end, then free every connection, thread and file. May be called twice."""

    async def ping(self) -> StoreStatus:
        """One round trip, touching what a real call would touch. A wiped store: StoreRefused."""

    # -- config entries: queues, and what else all shards should agree on ---------------------------------------------

    async def put_config(self, entries: Sequence[ConfigEntry], now_ms: int) -> list[bool]:
        """Take each entry, in order, that is newer than the one of its name here; True where it was.

        An entry without "@" in its name is a queue. Taking a live one makes the queue where it is not there. Taking one
        whose `deleted_version` is higher than the version here deletes the queue that is there, with its jobs in all
        states, before that: gone at once for every other call; what it held may be freed later in slices, by `prune`.
        Any other newer entry of a live queue changes its text alone: its jobs stay, and its quota.
        """

    async def list_config(self, since: int, limit: int) -> ConfigPage:
        """Up to `limit` entries that came here after revision `since` (0: all), tombstones of deleted queues included,
        in the order in which they came; one that is replaced comes again, as the last. An empty page: there are no
        more. A page leaves out nothing up to its revision, also when others write at that moment. A store that was
        emptied: StoreRefused.
        """

    # -- the life of a job -------------------------------------------------------------------------------------------

    async def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
        """Store all the jobs or none; returns a descriptor per job. A run_after_ms of None is `now_ms`.

        Ids ascend in the order given, and in the order of calls; see decision 15 in docs/semantics.md.
        QueueNotFound, and then nothing is stored.
        """

    async def enqueue_extended(
        self, queue: str, offers: Sequence[Offer], now_ms: int, homes_version: str = ""
    ) -> list[Offered]:
        """Store extended jobs, in order, each by itself: an offer sees what those before it did.

        `homes_version`: the version of the config entry "@homes" by which the caller chose this shard; where the one
        here is higher, HomesChanged, and nothing is stored ("": not compared). A resend (the send id stands here) gets
        the outcome and descriptor of the first time, and changes nothing; of an offer that was KEPT or REPLACED this is
        remembered for SEND_ID_KEPT_MS, of any other that stored nothing it is not. Else a dedupe key that is taken
        decides by `on_duplicate`; keys are unique per queue and serialize key, so one with another serialize key (or
        none) is another key. REPLACE sets body, run_after (None: now) and both numbers of attempts, of what is PENDING
        or WAITING, and nothing else of the job but `updated_at_ms`. Else the job is stored: PENDING, or WAITING where
        its serialize key has a live job here already. The first extended job of a store raises its version: processes
        of older versions, which would misread it, cannot open it any more. QueueNotFound, and then nothing is stored.
        """

    async def find_keys(self, queue: str, keys: Sequence[KeyRef]) -> list[str | None]:
        """The descriptor of each key's job here (see KeyRef), whether or not it is kept; None where there is none."""

    async def count_ready(self, queue: str, priorities: Sequence[int], limit: int, now_ms: int) -> list[int]:
        """How many jobs are eligible per priority, each counted up to `limit`. QueueNotFound."""

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

    async def claim_listed(
        self, queue: str, jobs: Sequence[JobKey], request: ClaimRequest, now_ms: int, *, enforce_quota: bool = False
    ) -> list[ClaimAnswer]:
        """Hand out these very jobs, in the order given, where `claim` might: an answer each. QueueNotFound.

        The limit and the priorities of the request do not count. Once the bodies would come to more than its
        `max_bytes`, or than SLICE_BYTES, no further job is looked at, and the answer is the shorter: the caller asks
        again for the others. The first that can be claimed always is. `enforce_quota`: as for `claim`.
        """

    async def peek(
        self, queue: str, priorities: Sequence[int], limit: int, max_bytes: int, now_ms: int
    ) -> list[DequeuedJob]:
        """What a claim would hand out now, changing nothing. QueueNotFound."""

    async def ack(
        self, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> list[AckOutcome]:
        """End attempts; what is not IN_PROGRESS, or under another claim than the one given, is IGNORED.

        A job named twice is acked by the first that applies. An unknown queue: all IGNORED.
        """

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

    async def checkpoint(self, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> list[bool]:
        """Restart claim time-outs and change what is asked, in order; False where the job or its claim did not match.

        The new expiry is max(now, run_after_ms) + the claim's own time-out, bounded as CheckpointRequest says. An
        unknown queue: all False.
        """

    async def heartbeat(self, queue: str, heartbeats: Sequence[HeartbeatRequest], now_ms: int) -> list[HeartbeatAnswer]:
        """Restart the time-outs of these claims, in order, from now, also where a checkpoint had set a later expiry;
        nothing else of the jobs changes but their progress (and `updated_at_ms`), which later ends and attempts keep.
        LOST where the job is not in progress under that claim; CANCEL where it is to stop. An unknown queue: all LOST.
        """

    async def reschedule(
        self, queue: str, requests: Sequence[RescheduleRequest], now_ms: int
    ) -> list[RescheduleOutcome]:
        """Change PENDING jobs, in order, and their `updated_at_ms`. Attempts set those that are allowed and those that
        remain. What waits for another job keeps its place. An unknown queue: all NOT_FOUND.
        """

    async def requeue(self, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
        """IN_PROGRESS to PENDING where the claim matches: claim cleared, no attempt taken, run_after kept. How many."""

    async def expire_disconnected(
        self, queue: str, claims: Sequence[SilentClaim], now_ms: int, rules: EndRules = NO_RULES
    ) -> ExpiryCounts:
        """Treat these claims as expired now (see `expire_claims`), with a status line of theirs, where they stand and
        no server has renewed them since `last_seen_ms`: no clocks are compared, only that time.
        An unknown queue: none.
        """

    async def expire_listed(
        self, queue: str, claims: Sequence[ExpiryRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> list[AckOutcome]:
        """End these claims as `expire_claims` would, each with a delay of its own, where they stand and were not
        renewed: what still expires at the time named. All else, and all of an unknown queue, is IGNORED. A job that is
        named twice ends by the first that applies.
        """

    async def requeue_undelivered(self, queue: str, claims: Sequence[UnrenewedClaim], now_ms: int) -> int:
        """As `requeue`, for claims that nobody received, where their expiry is still the one named; how many.

        A job goes back at most UNDELIVERED_IN_A_ROW times in a row; after that its claim is left to expire. The count
        restarts when attempts remaining or run_after change. An unknown queue: none.
        """

    async def cancel(self, queue: str, jobs: Sequence[JobKey], now_ms: int, by: str = "") -> list[CancelOutcome]:
        """Remove PENDING jobs; says what each was. An unknown queue: all NOT_FOUND.

        With `by` (who asks) those in progress are asked to stop, REQUESTED: see JobEnd. Asking again changes nothing,
        and is REQUESTED too; the first who asked is told.
        """

    # -- queries -----------------------------------------------------------------------------------------------------

    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int, with_result: bool = False
    ) -> list[JobInfo | None]:
        """Each job, or None. With bodies: those beyond `max_bytes` in all come without, but for the first, and say so
        (`body_left_out`, `result_left_out`); with 0 all of them do.

        With results: those that are kept, which count as bodies; a job that is gone, but whose result is kept, is
        SUCCEEDED, with what the result's entry tells of it.

        Read in slices of SLICE_BYTES, with other calls in between: each job as of one moment, not all of the same.
        """

    async def count(self, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
        """Jobs in a state with run_after > now (`future`) or <= now. QueueNotFound."""

    async def scan(self, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
        """A page of jobs by run_after, newest first, then id ascending. Empty only at the end. QueueNotFound.

        Where values are large it may be read in slices, as `lookup` does.
        """

    async def watch_ends(self, queue: str, jobs: Sequence[JobKey], until_ms: int, now_ms: int) -> bool:
        """Have the ends of these jobs told (`ShardEvents.jobs_ended`), whichever process ends them, until then. One
        that has ended before is not told: look behind this call. False: this store tells nobody.
        """

    async def blocked_chains(self, limit: int, now_ms: int) -> list[BlockedChain]:
        """The serialize keys with most jobs waiting, at most so many, and those whose first job is oldest, likewise.

        Cheap: it is asked every few seconds.
        """

    # -- operators ---------------------------------------------------------------------------------------------------

    async def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
    ) -> int:
        """Up to `limit` FAILED jobs back to PENDING with attempts_remaining = `attempts`, attempts_allowed unchanged,
        crashes, claim and `moved_to` cleared, pending for `dead_letter` no more, run_after as given or now; oldest
        run_after first. How many. QueueNotFound.

        CANCELLED jobs stay, and those whose dedupe key has another live job (`taken_keys` tells which), which takes
        nothing of the limit; a serialize key gives the job a new place at the end. A job keeps its expiry: where that
        has passed it ends again.
        """

    async def retry_listed(
        self,
        queue: str,
        jobs: Sequence[JobKey],
        attempts: int | None,
        run_after_ms: int | None,
        now_ms: int,
        homes_version: str = "",
    ) -> int:
        """As `retry_failed`, for those of the jobs that are FAILED or CANCELLED; `attempts` None: as many as were
        allowed. `homes_version`: as for `enqueue_extended`; HomesChanged, and then nothing is changed. QueueNotFound.
        """

    async def taken_keys(self, queue: str, jobs: Sequence[JobKey]) -> list[str | None]:
        """For each job that has ended and whose dedupe key has another live job now: that job's descriptor, else None.
        For a dead letter: as if it were the job that it is a copy of.
        """

    async def delete_jobs(self, queue: str, state: JobState, priority: int, limit: int, now_ms: int) -> int:
        """Remove up to `limit` jobs of one state and priority; how many. QueueNotFound."""

    async def delete_listed(self, queue: str, state: JobState, jobs: Sequence[JobKey], now_ms: int) -> int:
        """Remove those of the jobs that are still in that state; how many. QueueNotFound."""

    async def replay(
        self, queue: str, jobs: Sequence[JobKey], now_ms: int, attempts: int | None, homes_version: str = ""
    ) -> list[str | None]:
        """Send dead letters back: each of these jobs that is PENDING or FAILED and was made by `dead_letter`, whose
        origin's queue is there, becomes a new PENDING job of that queue, in one step, and is removed here.

        Same body and priority, run_after now, `attempts` allowed (None: as many as the origin was), the letter's status
        and its descriptor as `origin`; it is no dead letter itself. The new descriptors; None where nothing was done.
        The new job has the keys of the origin and its `dedupe_for_ms`, but no send id, expiry, claim time-out or
        progress; where its dedupe key has a live job, nothing is done (`taken_keys`).
        A letter named twice goes once. `homes_version`: as for `retry_listed`. QueueNotFound.
        """

    async def mark_moved(self, queue: str, moved: Sequence[tuple[ClaimKey, str]], now_ms: int) -> list[bool]:
        """IN_PROGRESS under that claim to SUCCEEDED, with the descriptor of its copy on another shard as `moved_to`.

        An unknown queue: all False.
        """

    # -- maintenance: one bounded step each, over an index of what is due; calling twice at once does no harm ---------

    async def expire_claims(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, ExpiryCounts]:
        """Up to `limit` jobs whose claim's expiry < now: as a failed ack without delay, one crash more, a status line.

        At `crash_budget` crashes (0: no budget) the job goes to FAILED whatever attempts remain, the reason in its
        status. Counts per queue. A queue with nothing due costs nothing. Those whose rules have `lists_expired` are
        left out, and take nothing of the limit.
        """

    async def expired_claims(
        self, queues: Sequence[str], limit: int, now_ms: int
    ) -> Mapping[str, Sequence[ExpiredClaim]]:
        """The claims of these queues whose expiry < now, at most so many in all, the oldest expiry of each queue first.

        It changes no job. Any end counts for them until `expire_listed`, `ack` or another call has ended them; until
        then they are listed again. Queues with nothing due are left out, and cost nothing.
        """

    async def expire_jobs(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, int]:
        """Up to `limit` jobs that are PENDING with expires_at_ms <= now: to FAILED, with a line (`job_expired_status`),
        as a final ack would. Counts per queue. A store with nothing due costs nothing.

        `claim`, `peek` and `count_ready` leave such jobs out already. Until it ends so, such a job is PENDING: its keys
        are taken, and what waits for it waits. Whether statistics count it as ready, scheduled or waiting until then
        depends on the store.
        """

    async def dead_letter(self, limit: int, now_ms: int, targets: Mapping[str, DeadLetterTarget]) -> Mapping[str, int]:
        """Up to `limit` jobs that are pending for it: in one step a copy comes into the target's queue, and the job is
        pending no more.

        The copy is PENDING with run_after now, same body and priority, the target's attempts, the original's status
        after a line of its history (`dead_letter_status`), and `origin`; the original stays FAILED, with `moved_to`,
        and was updated now. The copy has the original's keys to show, and for `replay`: they count for nothing else. A
        job without a target, or whose target queue is not there, stays pending, and does not block others. A job that
        was retried or removed is not copied. Returns how many jobs left each queue. A queue with nothing pending costs
        nothing.
        """

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

    async def last_firings(self, schedules: Sequence[str]) -> list[str | None]:
        """For each schedule the highest `mark` of an offer of it that was stored here (see Offer), or None."""

    async def raise_marks(self, marks: Mapping[str, str]) -> None:
        """Let these marks count for schedules that have none here, or a lower one."""

    # -- the homes of keys, while they change --------------------------------------------------------------------------

    async def key_slots(self) -> Sequence[int]:
        """The slots of all keys that have an entry or a live job here."""

    async def list_windows(self, limit: int, after: str, now_ms: int) -> list[KeyWindow]:
        """Up to `limit` windows by name, behind `after` ("": from the beginning)."""

    async def put_windows(self, windows: Sequence[KeyWindow], now_ms: int) -> None:
        """Take those whose key has no live job here, and no window that still counts. QueueNotFound never: one of a
        queue that is gone is left out.
        """

    async def drop_windows(self, windows: Sequence[KeyWindow]) -> None:
        """Remove these, where they are as they were listed."""

    async def has_chains(self, serialize_keys: Sequence[str]) -> list[bool]:
        """Whether a job of the key is live here."""

    async def list_barriers(self, limit: int) -> list[Barrier]:
        """Some of the barriers."""

    async def lift_barriers(self, barriers: Sequence[Barrier], now_ms: int) -> Mapping[str, Sequence[int]]:
        """The first of each key's jobs here goes from WAITING to PENDING; the run_afters of these, by queue. A barrier
        goes with the last of the jobs behind it.
        """

    # -- references to bodies ------------------------------------------------------------------------------------------

    async def list_references(self, after: str, limit: int) -> ReferencesPage:
        """About `limit` references behind `after` ("": from the beginning), dropped ones included. One that was here
        all the time while the pages were read, at whichever of its jobs, is on one of them at least.
        """

    async def dropped_references(self, limit: int) -> list[BodyReference]:
        """Some of the references that no job has any more: no further one will ever come to have them. Which of them
        is by chance, or in turns, so that some that cannot be deleted do not hide the others.
        """

    async def forget_references(self, references: Sequence[BodyReference]) -> None:
        """Strike these off the list of those that were dropped: their objects are deleted."""

    # -- what the servers of a cluster tell each other -----------------------------------------------------------------

    async def kv_put(
        self,
        namespace: str,
        name: str,
        body: bytes,
        expires_at_ms: int,
        now_ms: int,
        *,
        expected_version: int | None = None,
        keep: int = 100_000,
    ) -> int:
        """Write an entry; the version it has now. With `expected_version` (0: there is none) only where that is the
        version here, else 0 and nothing is changed. An entry that expires at or before now is removed, and the answer
        is as if it had been written. One that has expired counts as none: versions begin at 1 again.

        Some expired entries of the namespace are removed on the way, and those beyond `keep`, the first to expire
        first.
        """

    async def kv_list(self, namespace: str, now_ms: int) -> dict[str, KvEntry]:
        """The entries of a namespace by name, without expired ones."""

    async def take_tokens(self, queue: str, wanted: int, per_second: float, capacity: float, now_ms: int) -> Tokens:
        """From the queue's token bucket on this shard: as many of `wanted` as it has, whole ones; see token_bucket.py.

        It fills by `per_second`, up to `capacity` (1.0 or more), by the largest now it was ever told, and begins with
        one token. A negative `wanted` gives tokens back, up to the capacity. The queue need not be there.
        """

    async def set_quota(self, queue: str, quota: int, version: int, now_ms: int) -> Quota:
        """Set the queue's quota where `version` is above the one here (0 where none was set); what it is then.

        A smaller quota takes no claim away: until enough have ended, `in_progress` in the answer is above it, and only
        falls. Version 0 only looks. Deleting the queue ends its quota. QueueNotFound.
        """

    async def stats(
        self, queue: str, priorities: Sequence[int], now_ms: int, after: StatsPosition | None, limit: int
    ) -> StatsPage:
        """Count the queue's jobs of these priorities, looking at no more than about `limit` entries of an index per
        call; a store that keeps counts answers all at once. A level without jobs may be left out. The pages of
        one queue are of different moments. QueueNotFound.
        """
