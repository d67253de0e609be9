"""The calls of PinLater as a protocol: the service and the clients both satisfy it.

The holder of an `Api` (the Thrift server, a gateway, a command) cannot tell whether the jobs live in this process
or behind a network. Values are validated by the service; errors are those of `pinlater.errors`. The wire contract
behind each call is in docs/wire.md. Without a `context`, a client sends its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pinlater.model import (
    CONTINUATION_START,
    AccessView,
    Ack,
    AckOutcome,
    AuditEntry,
    Cancelled,
    Changed,
    Checkpoint,
    ClusterStatus,
    ConnectionRef,
    DequeuedFromQueues,
    DequeuedJob,
    DequeueFromQueuesRequest,
    DequeueRequest,
    GroupsCleared,
    GroupsPage,
    Heartbeat,
    HeartbeatAnswer,
    Job,
    JobChange,
    JobFilter,
    JobInfo,
    JobsChanged,
    KeyRef,
    QueueView,
    RequestContext,
    RescheduleJob,
    RescheduleOutcome,
    ScanPage,
    ScheduleChange,
    SchedulesPage,
    ScheduleUpdated,
    TokenView,
    Unreceived,
    WorkerCommand,
    WorkerReport,
    WorkersCommanded,
    WorkersPage,
)
from pinlater.model.alarm_views import AlarmsPage
from pinlater.model.body_words import BodiesChange, BodiesStep, BodyTiers
from pinlater.model.flow_words import (
    Assignment,
    FlowCreated,
    FlowItemsPage,
    FlowRetry,
    FlowsPage,
    FlowState,
    FlowStatus,
    ItemState,
    NewFlow,
    NewItem,
)
from pinlater.model.job_holds import JobHold
from pinlater.model.job_selection import FoundJobs, FoundJobsChange, JobSelection
from pinlater.model.owner_bounds import IdentityUsage


class Api(Protocol):
    async def create_queue(self, name: str, *, context: RequestContext | None = None) -> None:
        """Create a queue on every shard; one that exists already is no error."""

    async def delete_queue(self, name: str, password: str, *, context: RequestContext | None = None) -> None:
        """Delete a queue and all its jobs. PasswordInvalid; an unknown queue is no error."""

    async def queue_names(self, *, context: RequestContext | None = None) -> set[str]:
        """Return the queues of the shards that answer."""

    async def enqueue(self, queue: str, jobs: Sequence[Job], *, context: RequestContext | None = None) -> list[str]:
        """Store jobs, all of them on one shard or none, and return a descriptor per job, in order.

        OutcomeUnknown: they may be stored; sending again may then store them twice. A request with an `ExtendedJob` is
        whole per home of its keys: where it failed in part, `job_descriptors` of the error says what is stored. The
        answer is an EnqueuedJobs where a job was kept or replaced. A send id makes sending again safe.
        """

    async def dequeue(self, request: DequeueRequest, *, context: RequestContext | None = None) -> list[DequeuedJob]:
        """Claim up to `limit` eligible jobs, highest priority first over all shards; riding acks come first.

        Where one of those had no effect, the answer is a DequeuedJobs, with an outcome for each. RequestInvalid
        for those that are invalid, when the others were carried out (`acks_applied`) and nothing was dequeued.
        """

    async def dequeue_from_queues(
        self, request: DequeueFromQueuesRequest, *, context: RequestContext | None = None
    ) -> DequeuedFromQueues:
        """Claim up to `limit` eligible jobs of several queues, shared among them by weight; riding acks come first. One
        long poll waits on all queues.

        A queue that cannot be read is named in the answer, and keeps nothing from the others; where that is so of
        all, nothing is waited for. Errors of the whole call are those of `dequeue`.
        """

    async def ack(
        self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], *, context: RequestContext | None = None
    ) -> Sequence[AckOutcome]:
        """End attempts, and return an outcome for each ack: first the successes, then the failures, each in order. A
        job that is not in progress, or was claimed again, is left as it is: IGNORED.

        RequestInvalid for those that are invalid, when the others were carried out (`acks_applied`).
        """

    async def checkpoint(
        self,
        queue: str,
        checkpoints: Sequence[Checkpoint],
        *,
        worker: WorkerReport | None = None,
        context: RequestContext | None = None,
    ) -> None:
        """Renew the claims of jobs in progress, of this very source or as given, and change the jobs; `worker` is for
        the list of workers.

        RequestInvalid or BodyTooLarge for those that are invalid, when the others were carried out.
        """

    async def heartbeat(
        self,
        queue: str,
        heartbeats: Sequence[Heartbeat],
        *,
        worker: WorkerReport | None = None,
        context: RequestContext | None = None,
    ) -> list[HeartbeatAnswer]:
        """Renew claims, and change nothing else but the progress; an answer per heartbeat, in order.

        LOST: the job may run elsewhere. CANCEL: it is to stop. RequestInvalid for those that are invalid, when the
        others were carried out.
        """

    async def lookup(
        self,
        descriptors: Sequence[str],
        /,
        *,
        include_body: bool = False,
        include_result: bool = False,
        wait_ms: int = 0,
        queue: str = "",
        keys: Sequence[KeyRef] = (),
        include_trail: bool = False,
        context: RequestContext | None = None,
    ) -> dict[str, JobInfo]:
        """Return the jobs that exist, by descriptor; others are left out. `keys` are of jobs of `queue`.
        `include_trail`: with their attempts and log lines.

        With `wait_ms` it answers when the first of these has ended or is not there, or after that time.
        """

    async def count(
        self, filter: JobFilter, *, allow_partial: bool = False, context: RequestContext | None = None
    ) -> int:
        """Count the jobs that match, up to 2**31 - 1."""

    async def scan(
        self,
        filter: JobFilter,
        *,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
    ) -> ScanPage:
        """Return one page of matching jobs, newest run_after first, then by shard and id."""

    async def retry_failed(
        self,
        queue: str,
        *,
        priority: int = 1,
        attempts: int = 1,
        run_after_ms: int | None = None,
        limit: int = 1000,
        context: RequestContext | None = None,
    ) -> int:
        """Return up to `limit` FAILED jobs of one priority to PENDING; the answer is their number."""

    async def delete_jobs(self, filter: JobFilter, *, limit: int = 1000, context: RequestContext | None = None) -> int:
        """Remove up to `limit` jobs of one state and priority; the answer is their number. `filter.future` does not
        count.
        """

    async def cancel(
        self,
        queue: str,
        descriptors: Sequence[str],
        *,
        keys: Sequence[KeyRef] = (),
        running: bool = False,
        context: RequestContext | None = None,
    ) -> Cancelled:
        """Remove jobs that are still pending, and return an outcome for each. Each key has a dedupe key.

        `running`: the workers of those in progress are asked to stop: REQUESTED.
        """

    async def reschedule(
        self,
        queue: str,
        changes: Sequence[RescheduleJob],
        *,
        audited: bool = False,
        context: RequestContext | None = None,
    ) -> list[RescheduleOutcome]:
        """Give pending jobs another time, body or number of attempts; an outcome per change, in order.

        `audited`: an operator does it, and the audit has an entry that names the jobs.
        """

    # -- operators of a cluster ----------------------------------------------------------------------------------------

    async def get_queues(self, names: Sequence[str] = (), *, context: RequestContext | None = None) -> list[QueueView]:
        """Return queues with their settings and where each comes from; all of them where none is named, by name.

        The name "@defaults" stands for what is set for all queues, and is not among all. QueueNotFound.
        """

    async def update_queue(
        self,
        name: str,
        password: str,
        *,
        set: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        create: bool = False,
        context: RequestContext | None = None,
    ) -> Changed:
        """Change settings of a queue, or of "@defaults"; `unset` ones come from elsewhere again. All or nothing.

        Needs one healthy shard. `create` makes a queue that is not there. PasswordInvalid, QueueNotFound,
        RequestInvalid.
        """

    async def get_groups(
        self,
        queue: str,
        groups: Sequence[str] = (),
        *,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
    ) -> GroupsPage:
        """Return one page of the groups of a queue that have ready jobs or settings of their own, by the bytes of their
        names; or those named, whatever they have. ContinuationInvalid, QueueNotFound.
        """

    async def update_group(
        self,
        queue: str,
        group: str,
        password: str,
        *,
        set: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        context: RequestContext | None = None,
    ) -> Changed:
        """Change settings of one group of a queue, or of those that fit a pattern; `unset` ones are as of others again.
        All or nothing. Needs one healthy shard. PasswordInvalid, QueueNotFound, RequestInvalid, GroupsNotSupported,
        GroupsNotYet.
        """

    async def clear_groups(
        self,
        queue: str,
        password: str,
        *,
        continuation: str = CONTINUATION_START,
        limit: int = 500,
        dry_run: bool = False,
        context: RequestContext | None = None,
    ) -> GroupsCleared:
        """Take the groups off the jobs of a queue, and their settings: one step, of one shard; after the last one none
        has a group but on missing shards. PasswordInvalid, QueueNotFound, RequestInvalid, ContinuationInvalid.
        """

    async def update_shard(
        self,
        shard_id: str,
        password: str,
        *,
        dequeue_only: bool,
        give_up: bool = False,
        context: RequestContext | None = None,
    ) -> Changed:
        """Set whether a shard takes new jobs, beside what the configuration says; with `give_up` it takes none, and
        keys that live there count as lost. PasswordInvalid, RequestInvalid.
        """

    async def cluster_status(
        self,
        *,
        queues: Sequence[str] | None = None,
        counters_since_ms: int | None = None,
        context: RequestContext | None = None,
    ) -> ClusterStatus:
        """Return servers, shards and queues in numbers; only the queues in `queues`, where that is given. Works without
        shards.

        `counters_since_ms`: also what each process has counted of those queues where that changed since then; 0: of
        all of them.
        """

    async def change_jobs(self, change: JobChange, *, context: RequestContext | None = None) -> JobsChanged:
        """Change one bounded slice of all jobs that match; call it again with the continuation that it returns."""

    async def search_jobs(
        self,
        selection: JobSelection,
        *,
        limit: int = 100,
        include_body: bool = False,
        max_ms: int | None = None,
        continuation: str = CONTINUATION_START,
        context: RequestContext | None = None,
    ) -> FoundJobs:
        """Return one page of the jobs that meet all conditions; those whose time has come first, newest run_after
        first.

        After `max_ms` it answers what it found, which may be nothing, and how to go on. Bodies beyond some MiB are left
        out.
        """

    async def change_found_jobs(self, change: FoundJobsChange, *, context: RequestContext | None = None) -> JobsChanged:
        """Change one bounded slice of all jobs of a selection; call it again with the continuation that it returns.

        A run of such calls is in the audit as one.
        """

    async def get_body_tiers(self, *, context: RequestContext | None = None) -> BodyTiers:
        """Return the tiers of bodies as this server process sees them, and the rules; empty where there are none."""

    async def change_bodies(self, change: BodiesChange, *, context: RequestContext | None = None) -> BodiesStep:
        """Take one step of a sweep, of a check or of a move over all bodies; see BodiesChange. A sweep goes on by
        itself between its steps, which report how far it is. RequestInvalid; ContinuationInvalid: the run is gone.
        """

    async def get_workers(
        self,
        *,
        queue: str = "",
        name: str = "",
        include_running: bool = False,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
    ) -> WorkersPage:
        """Return one page of the workers of the cluster, by name, host and pid; of one queue, or of one name, where
        that is given. ContinuationInvalid. Works without shards, by the reports to this server.
        """

    async def get_alarms(
        self, *, ended: bool = False, limit: int = 200, context: RequestContext | None = None
    ) -> AlarmsPage:
        """Return the alarms of queues that the caller may read: those that stand, the worst first, or those that ended,
        the latest first. Works without shards, except for ended ones. NoHealthyShards.
        """

    async def mute_alarm(
        self,
        name: str,
        for_ms: int,
        reason: str = "",
        password: str = "",
        *,
        subject: str = "",
        context: RequestContext | None = None,
    ) -> None:
        """Mute the alarms of a condition, or of one subject of it, for `for_ms`; 0 ends that. PasswordInvalid,
        RequestInvalid, NoHealthyShards.
        """

    async def command_workers(
        self,
        command: WorkerCommand,
        workers: Sequence[str] = (),
        *,
        host: str = "",
        name: str = "",
        all_workers: bool = False,
        context: RequestContext | None = None,
    ) -> WorkersCommanded:
        """Send a command to workers: those of these ids (or HOST:PID), all of a host, of a name or of both, or all of
        the cluster; an answer for each. It is carried out when a worker reports next, after 15 seconds at most, and
        lasts until its process ends. It needs the right to operate all queues of a worker. RequestInvalid: nothing is
        named.
        """

    async def audit(
        self, *, limit: int = 100, before_ms: int | None = None, context: RequestContext | None = None
    ) -> list[AuditEntry]:
        """Return the changes by operators, the latest first."""

    # -- schedules -----------------------------------------------------------------------------------------------------

    async def update_schedule(
        self,
        change: ScheduleChange,
        password: str,
        *,
        dry_run: bool = False,
        only_if_version: str | None = None,
        context: RequestContext | None = None,
    ) -> ScheduleUpdated:
        """Create or change a schedule; the answer has its next five firings. All or nothing; a dry run only checks.

        `only_if_version` "": only where it is not there. Needs one healthy shard. PasswordInvalid; RequestInvalid;
        RecordChanged; QueueNotFound for a queue that is not there.
        """

    async def get_schedules(
        self,
        names: Sequence[str] | None = None,
        *,
        queue: str = "",
        made_by: str = "",
        include_body: bool = False,
        next_limit: int = 1,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
    ) -> SchedulesPage:
        """Return one page of schedules by name: all, or those of the named ones that exist. ContinuationInvalid."""

    async def delete_schedule(
        self, name: str, password: str, *, only_if_version: str | None = None, context: RequestContext | None = None
    ) -> Changed:
        """Delete a schedule; jobs that it enqueued stay. One that is not there is no error, and has the version "".
        PasswordInvalid, RequestInvalid, RecordChanged.
        """

    # -- flows (docs/flows.md) -----------------------------------------------------------------------------------------
    # FlowsUnavailable: no database of flows can be reached, retryable. FlowNotFound: also where the caller may not see
    # it. RequestInvalid for what breaks a limit. Each is one transaction.

    async def create_flow(self, flow: NewFlow, *, context: RequestContext | None = None) -> FlowCreated:
        """Create a flow, whole, with its first items. Missing queues of its stages are created. With a dedupe key
        sending again is safe: where the caller may fill the flow that has its name and key, that one is the answer.
        """

    async def add_flow_items(
        self,
        flow_id: str,
        stage: str,
        items: Sequence[NewItem],
        *,
        seal: bool = False,
        context: RequestContext | None = None,
    ) -> list[int]:
        """Add items to a stage, all or none, and with `seal` no more after them; their numbers, in order, that of the
        one that is there for a dedupe key that is taken. StageSealed.
        """

    async def seal_stage(self, flow_id: str, stage: str = "", *, context: RequestContext | None = None) -> None:
        """Seal a stage, or with "" those without a parent: no more items come. A second time changes nothing."""

    async def get_flow(self, flow_id: str, *, wait_ms: int = 0, context: RequestContext | None = None) -> FlowStatus:
        """Return a flow in numbers; with `wait_ms` when it is over, or after that time."""

    async def get_flows(
        self,
        *,
        name: str = "",
        dedupe_key: str = "",
        state: FlowState | None = None,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
    ) -> FlowsPage:
        """Return one page of the flows, the newest first: of those that the caller may see."""

    async def get_flow_items(
        self,
        flow_id: str,
        *,
        stage: str = "",
        state: ItemState | None = None,
        dedupe_key: str = "",
        numbers: Sequence[int] = (),
        include_body: bool = True,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
    ) -> FlowItemsPage:
        """Return one page of the items of a flow, in order of their numbers; of all that is named an item has to have
        all. Without `include_body` payloads and results are empty, and failures have no reasons. A page of long items
        has fewer than `limit`: about 4 MiB, but one item at least. A continuation is also the number of an item, as
        text: the page behind it.
        """

    async def cancel_flow(self, flow_id: str, *, context: RequestContext | None = None) -> FlowStatus:
        """End a flow: items that have not ended fail as cancelled, workers are asked to stop. A second time changes
        nothing.
        """

    async def delete_flow(self, flow_id: str, *, context: RequestContext | None = None) -> None:
        """Remove a flow and all its items, in steps; one that runs is cancelled first."""

    async def resume_flow(
        self, flow_id: str, *, stage: str = "", expression: str = "", context: RequestContext | None = None
    ) -> FlowStatus:
        """Try again what the flow failed at: children that could not be made, of one stage or all, by another
        expression where one is given, and a callback that was given up.
        """

    async def retry_flow_items(
        self,
        flow_id: str,
        numbers: Sequence[int] = (),
        *,
        stage: str = "",
        failed: bool = False,
        and_follows: bool = False,
        context: RequestContext | None = None,
    ) -> FlowRetry:
        """Try items of a flow again that have ended: those of these numbers, up to 1,000, or with `failed` all that
        have failed, of one stage where it is named; children that could not be made are made again. A flow that is
        over opens, and its next end has the next number.

        Refused, each with its reason in the answer: an item that has not ended, or has succeeded; one whose stage, or
        one below, was stopped; one below whose stage a caller has sealed one. With `and_follows` only what has not
        ended is: what had followed from an item is removed first, and stages that were stopped go on.

        Up to 10,000 failed items are one transaction. FlowsUnavailable, retryable, while an older server lives.
        """

    async def assign_item(
        self,
        number: int,
        *,
        claim_timeout_ms: int | None = None,
        context: RequestContext | None = None,
    ) -> Assignment:
        """Claim the job of one item for the caller, if a dequeue could. ItemNotFound."""

    # each of these needs the admin password, or a role that allows it

    async def update_token(
        self,
        name: str,
        hash: str,
        roles: Sequence[str],
        password: str = "",
        *,
        expires_ms: int | None = None,
        replace: bool = False,
        context: RequestContext | None = None,
    ) -> Changed:
        """Create a token, by its SHA-256 in hexadecimal; it is valid everywhere within two seconds. One of that name
        that is there is RequestInvalid, or revoked with `replace`. PasswordInvalid.
        """

    async def get_tokens(self, *, context: RequestContext | None = None) -> list[TokenView]:
        """Return all tokens, by name."""

    async def delete_token(self, name: str, password: str = "", *, context: RequestContext | None = None) -> Changed:
        """Revoke a token, everywhere within two seconds. One that is not there is no error, and has the version "".
        PasswordInvalid.
        """

    async def get_access(self, *, context: RequestContext | None = None) -> AccessView:
        """Return the caller's identity and rights. Forbidden: its token is wrong."""

    async def get_usage(self, *, context: RequestContext | None = None) -> list[IdentityUsage]:
        """Return how much identities have stored and may store: up to 1,000 of them, those nearest to a bound first."""

    async def explain_jobs(self, descriptors: Sequence[str], *, context: RequestContext | None = None) -> list[JobHold]:
        """Return why pending jobs do not run, in their order; of a job whose shard is out only that.
        At most 100 at a time.
        """


class ServedApi(Api, Protocol):
    """An Api behind a server, which notifies it of connections and of answers that were not delivered."""

    async def requeue(self, jobs: Sequence[DequeuedJob]) -> None:
        """Requeue jobs with all attempts: those claimed for a caller that can no longer be answered."""

    async def requeue_undelivered(self, jobs: Sequence[Unreceived]) -> None:
        """Requeue jobs whose answer nobody received, with all attempts, where their claims stand."""

    def disconnected(self, connection: ConnectionRef, *, idle_ms: int = 0) -> None:
        """Note that a connection with claims broke; it had been idle for `idle_ms`."""

    def unbind(self, connection: ConnectionRef) -> None:
        """Note that a connection with claims was closed in order."""

    def start_draining(self) -> None:
        """End long polls at once, empty; calls that were read are still carried out."""
