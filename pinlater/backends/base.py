"""The contract of a shard, which every store implements and every wrapper keeps. Read this first.

Its operations stand in eight parts: the life of jobs (job_store.py), jobs with keys (key_store.py), groups of jobs
(group_store.py) and their permits (permit_store.py), references to bodies (reference_store.py), attempts and log lines
(trail_store.py), what operators do (operator_store.py), what servers tell each other (cluster_store.py).

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

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import NamedTuple

from pinlater.backends.beside_jobs import ConfigEntry as ConfigEntry
from pinlater.backends.beside_jobs import ConfigPage as ConfigPage
from pinlater.backends.beside_jobs import KvEntry as KvEntry
from pinlater.backends.beside_jobs import LevelCounts as LevelCounts
from pinlater.backends.beside_jobs import Quota as Quota
from pinlater.backends.beside_jobs import ReferencesPage as ReferencesPage
from pinlater.backends.beside_jobs import StatsPage as StatsPage
from pinlater.backends.beside_jobs import StatsPosition as StatsPosition
from pinlater.backends.beside_jobs import Tokens as Tokens
from pinlater.backends.cluster_store import ClusterStore as ClusterStore
from pinlater.backends.group_store import GroupStore as GroupStore
from pinlater.backends.job_store import NO_RULES as NO_RULES
from pinlater.backends.job_store import SLICE_BYTES as SLICE_BYTES
from pinlater.backends.job_store import UNDELIVERED_IN_A_ROW as UNDELIVERED_IN_A_ROW
from pinlater.backends.job_store import DeadLetterTarget as DeadLetterTarget
from pinlater.backends.job_store import EndRules as EndRules
from pinlater.backends.job_store import ExpiryCounts as ExpiryCounts
from pinlater.backends.job_store import JobStore as JobStore
from pinlater.backends.job_store import PerQueue as PerQueue
from pinlater.backends.job_store import Retention as Retention
from pinlater.backends.key_store import KeyStore as KeyStore
from pinlater.backends.operations import Operation, operation, operations_of
from pinlater.backends.operator_store import OperatorStore as OperatorStore
from pinlater.backends.permit_store import PermitStore as PermitStore
from pinlater.backends.reference_store import ReferenceStore as ReferenceStore
from pinlater.backends.requests import ENDED_STATES as ENDED_STATES
from pinlater.backends.requests import LIVE_STATES as LIVE_STATES
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
from pinlater.backends.requests import highest_limit as highest_limit
from pinlater.backends.shard_events import UNKNOWN_CHANGE as UNKNOWN_CHANGE
from pinlater.backends.shard_events import NoEvents as NoEvents
from pinlater.backends.shard_events import Notification as Notification
from pinlater.backends.shard_events import OnNotification as OnNotification
from pinlater.backends.shard_events import ShardEvents as ShardEvents
from pinlater.backends.trail_store import TrailStore as TrailStore
from pinlater.model import AckOutcome as AckOutcome
from pinlater.model.body_reference import BodyReference as BodyReference


class StoreStatus(NamedTuple):
    """The answer to a ping: the random id written into the store when it was first opened, and the store's own clock.

    `full` says why the store has no room for new jobs, and what to do; "" while it has room, as far as it can tell.
    `newest_ms` is the largest time that jobs were stored at, 0 where there were none.
    """

    store_id: str
    now_ms: int
    full: str = ""
    newest_ms: int = 0


class Shard(JobStore, KeyStore, GroupStore, PermitStore, ReferenceStore, TrailStore, OperatorStore, ClusterStore):
    """One store. Built with its address and shard id; a coroutine method may be called only between open and close."""

    events: ShardEvents
    """What listens to the shard's events; set once, before `open`."""

    @property
    def has_groups(self) -> bool:
        """Whether jobs may have a group; see group_store.py."""
        return GroupStore not in self.lacks

    @property
    def keeps_order(self) -> bool:
        """Whether a claim that is begun right behind an enqueue, before that is answered, sees its jobs."""

    @property
    def has_own_clock(self) -> bool:
        """Whether a ping returns the time of another clock than this machine's; that of a file does not."""

    @operation("", urgent=True)
    async def open(self) -> str:
        """Connect, bring the schema up to date, write the shard id and a random store id where there are none yet.

        Returns the store id. With `shard_id` "" the id that the store itself carries is taken, and sets `shard_id`;
        where it carries none, StoreRefused. A store that carries another shard id: StoreRefused, and nothing changes.
        """

    async def close(self) -> None:
        """Let calls in flight end, then free every connection, thread and file. May be called twice."""

    @operation(urgent=True)
    async def ping(self) -> StoreStatus:
        """One round trip, touching what a real call would touch. A wiped store: StoreRefused."""


OPERATIONS: dict[str, Operation] = {
    each.name: each for part in (Shard, *Shard.__bases__) for each in operations_of(part)
}
"""All operations of a shard, by name."""
