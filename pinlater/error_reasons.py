"""The reasons of errors: their meanings and remedies.

A reason is the stable word for programs; `errors` has the classes, with code and whether to send again.
"""

from __future__ import annotations

from dataclasses import dataclass

from pinlater import errors
from pinlater.errors import PinLaterError


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """`error`: the class of the errors with this reason, which knows their code. `retryable`: where that differs from
    its class. `meaning` and `remedy` are sentences for people, in Markdown.
    """

    name: str
    error: type[PinLaterError]
    meaning: str
    remedy: str
    retryable: bool | None = None

    @property
    def is_retryable(self) -> bool:
        return self.error.retryable if self.retryable is None else self.retryable


REASONS: tuple[Reason, ...] = (
    Reason(
        name="BODY_TOO_LARGE",
        error=errors.BodyTooLarge,
        meaning="The body of a job, or a request, is larger than this server takes.",
        remedy="Send a smaller one, keep large data elsewhere and send its address, or let the server take larger "
        "ones: [bodies.md](bodies.md).",
    ),
    Reason(
        name="BODY_UNAVAILABLE",
        error=errors.BodyGone,
        meaning="The body of a job lies in a tier, which does not have it, or has other bytes.",
        remedy="Find out what deletes objects there. The job cannot run without its body: [bodies.md](bodies.md).",
    ),
    Reason(
        name="BREAKERS_NOT_YET",
        error=errors.BreakersNotYet,
        meaning="A live server of the cluster is of a version that knows no circuit breakers. Nothing was changed.",
        remedy="Upgrade all servers; until then leave `pause_on_failures` out.",
    ),
    Reason(
        name="CHANGED",
        error=errors.RecordChanged,
        meaning="The object has another version by now: it was changed in between. Nothing was changed.",
        remedy="Read it again, and send the change with its new version.",
    ),
    Reason(
        name="CONTINUATION_INVALID",
        error=errors.ContinuationInvalid,
        meaning="The continuation of a scan or search is not one that this cluster gave.",
        remedy="Begin the scan again, without a continuation.",
    ),
    Reason(
        name="DEADLINE_EXCEEDED",
        error=errors.UnknownError,
        meaning="A call over many jobs met no match within its time, and has not seen all of them.",
        remedy="Send it again: it goes on. Narrow it by queue, state or time to make it quicker.",
        retryable=True,
    ),
    Reason(
        name="DEQUEUE_RATE_LIMITED",
        error=errors.DequeueRateLimited,
        meaning="The queue hands out nothing at this moment.",
        remedy="Send it again after the time that the error gives.",
    ),
    Reason(
        name="DRAINING",
        error=errors.Draining,
        meaning="This server is about to stop, and takes no new calls. Nothing was changed.",
        remedy="Send the call to another server. The Python clients do so by themselves.",
    ),
    Reason(
        name="DUPLICATE",
        error=errors.EnqueueRejected,
        meaning="A job with this dedupe key is there, and the enqueue asked for an error in that case. Nothing was "
        "stored.",
        remedy="Leave it, or enqueue with another key: [client.md](client.md#once-in-order-with-a-result).",
        retryable=False,
    ),
    Reason(
        name="ENQUEUE_REJECTED",
        error=errors.EnqueueRejected,
        meaning="The queue takes no new jobs at this moment. Nothing was stored.",
        remedy="Send it again after the time that the error gives.",
    ),
    Reason(
        name="FLOWS_UNAVAILABLE",
        error=errors.FlowsUnavailable,
        meaning="The database of flows cannot be reached, or this server has none.",
        remedy="Start the server with `--flows`, or repair that database: [flows.md](flows.md).",
    ),
    Reason(
        name="FLOW_NOT_FOUND",
        error=errors.FlowNotFound,
        meaning="There is no such flow: it was deleted, its time to live is over, or the caller lacks a right on a "
        "queue of its stages.",
        remedy="`pinlater flow list` has those that are there.",
    ),
    Reason(
        name="FORBIDDEN",
        error=errors.Forbidden,
        meaning="The caller may not do that. Nothing was changed.",
        remedy="Show a token or certificate that has the right, or have it given: [access.md](access.md). "
        "`pinlater access show` prints the identity that the servers see.",
    ),
    Reason(
        name="HOMES_CHANGED",
        error=errors.HomesChanged,
        meaning="The home of this key has changed, and the server did not know it yet. Nothing was stored.",
        remedy="Send the call again. The Python clients do so by themselves.",
    ),
    Reason(
        name="GROUP_FULL",
        error=errors.EnqueueRejected,
        meaning="A group has as many jobs that wait as `group_max_pending` of its queue allows. Nothing was stored.",
        remedy="Send it later, add workers, or raise the bound: `pinlater queue set QUEUE group_max_pending=N`.",
    ),
    Reason(
        name="GROUPS_NOT_SUPPORTED",
        error=errors.GroupsNotSupported,
        meaning="The store of the shard has no groups.",
        remedy="Leave groups out, or use shards on SQLite, Redis, MariaDB or PostgreSQL.",
    ),
    Reason(
        name="GROUPS_NOT_YET",
        error=errors.GroupsNotYet,
        meaning="A live server of the cluster is of a version that does not know groups. Nothing was stored.",
        remedy="Upgrade all servers; until then enqueue without groups.",
    ),
    Reason(
        name="HOME_MOVING",
        error=errors.HomeMoving,
        meaning="The home of this key is being changed. Nothing was stored.",
        remedy="Send the call again in a second.",
    ),
    Reason(
        name="HOME_OUT",
        error=errors.HomeOut,
        meaning="The shard that is this key's home cannot be used. Nothing was stored.",
        remedy="Repair the store, and send the call again; `pinlater shard give-up` is for one that is lost for good: "
        "[operations.md](operations.md).",
    ),
    Reason(
        name="ITEM_NOT_FOUND",
        error=errors.ItemNotFound,
        meaning="A flow has no such item, or the caller may not consume its queue.",
        remedy="`pinlater flow items FLOW` has those that are there.",
    ),
    Reason(
        name="KEYS_NOT_YET",
        error=errors.KeysNotYet,
        meaning="A live server of the cluster is of a version that does not know keys. Nothing was stored.",
        remedy="Upgrade all servers; until then enqueue without keys.",
    ),
    Reason(
        name="LIMIT_REACHED",
        error=errors.LimitReached,
        meaning="The owner has as many of that kind (queues, schedules, flows and so on) as one may have.",
        remedy="Delete some, or have the bound raised: [configuration.md](configuration.md), [access.md](access.md).",
    ),
    Reason(
        name="NOTHING_STORED",
        error=errors.NothingStored,
        meaning="The store of a shard could not be reached or failed. Nothing was changed.",
        remedy="Send the call again. `pinlater cluster status` shows the shard, and why it fails.",
    ),
    Reason(
        name="NO_HEALTHY_SHARDS",
        error=errors.NoHealthyShards,
        meaning="No shard can be used. Nothing was changed.",
        remedy="Repair a store; `pinlater alarms` says what is wrong with each. [overflow.md](overflow.md) keeps "
        "enqueues going meanwhile.",
    ),
    Reason(
        name="OUTCOME_UNKNOWN",
        error=errors.OutcomeUnknown,
        meaning="The connection to a store broke while the call was under way: it may have been carried out.",
        remedy="Send again what may happen twice; a job with a dedupe key is stored once whatever comes. "
        "[semantics.md](semantics.md) says what a second time does.",
    ),
    Reason(
        name="OVERFLOW_FULL",
        error=errors.EnqueueRejected,
        meaning="No shard takes the job, and the overflow shard on the server's own disk is full. Nothing was stored.",
        remedy="Repair a store, or give the overflow shard more room: [overflow.md](overflow.md).",
    ),
    Reason(
        name="OVERLOADED",
        error=errors.Overloaded,
        meaning="The server has as many calls under way as it takes, for all callers or for this one. Nothing was "
        "changed.",
        remedy="Send it again after the time that the error gives, with fewer calls at once. The metric `limits_hit` "
        "names the bound.",
    ),
    Reason(
        name="PASSWORD_INVALID",
        error=errors.PasswordInvalid,
        meaning="A change of queues or shards needs the admin password, which is missing or wrong.",
        remedy="Set `PINLATER_ADMIN_PASSWORD`, or `--admin-password-file`: [operations.md](operations.md).",
    ),
    Reason(
        name="PRIORITY_NOT_SUPPORTED",
        error=errors.PriorityNotSupported,
        meaning="The priority of a job is not one of the queue's.",
        remedy="Use 1 up to the cluster's number of priorities (`--priorities`).",
    ),
    Reason(
        name="QUEUE_DRAINING",
        error=errors.EnqueueRejected,
        meaning="The queue takes no new jobs, since an operator lets it run empty. Nothing was stored.",
        remedy="`pinlater queue drain QUEUE --undo` lets it take new jobs again.",
    ),
    Reason(
        name="QUEUE_FULL",
        error=errors.EnqueueRejected,
        meaning="The queue has as many jobs as its `max_pending` allows. Nothing was stored.",
        remedy="Send it later, add workers, or raise the bound: `pinlater queue set QUEUE max_pending=N`.",
    ),
    Reason(
        name="QUEUE_NAME_INVALID",
        error=errors.QueueNameInvalid,
        meaning="The name of a queue is empty, or has characters that a name may not have.",
        remedy="[queues.md](queues.md) has what a name may be.",
    ),
    Reason(
        name="QUEUE_NAME_TOO_LONG",
        error=errors.QueueNameTooLong,
        meaning="The name of a queue is too long.",
        remedy="[queues.md](queues.md) has what a name may be.",
    ),
    Reason(
        name="QUEUE_NOT_FOUND",
        error=errors.QueueNotFound,
        meaning="There is no queue of that name, or the caller has no right on it.",
        remedy="`pinlater queue create QUEUE`, or correct the name: `pinlater queue list`.",
    ),
    Reason(
        name="QUEUE_PAUSED",
        error=errors.DequeueRateLimited,
        meaning="An operator paused the queue, or its circuit breaker did: it hands out nothing.",
        remedy="`pinlater queue show QUEUE` says who paused it, why and until when; `pinlater queue resume QUEUE`.",
    ),
    Reason(
        name="RATE_LIMITED",
        error=errors.DequeueRateLimited,
        meaning="The queue handed out as many jobs as its rate allows.",
        remedy="Send it again after the time that the error gives, or `pinlater queue set-rate QUEUE 100/s`.",
    ),
    Reason(
        name="REPLACE_RULES_NOT_YET",
        error=errors.ReplaceRulesNotYet,
        meaning="A live server of the cluster is of a version that does not know `replaceRunning` and "
        "`replaceWithinMillis`. Nothing was stored.",
        remedy="Upgrade all servers; until then enqueue without the two.",
    ),
    Reason(
        name="REQUEST_INVALID",
        error=errors.RequestInvalid,
        meaning="A field of the request has a value that is not allowed; the message names it, and what is allowed. "
        "Valid acks and checkpoints of the same request were carried out, else nothing.",
        remedy="Correct that field. Sending it again as it is changes nothing.",
    ),
    Reason(
        name="SERVING_FAILED",
        error=errors.UnknownError,
        meaning="A dequeue that waited met an unexpected error. The server's log has it under the name that the "
        "message gives.",
        remedy="Send it again after a pause, and read that log.",
        retryable=True,
    ),
    Reason(
        name="SHARDS_FULL",
        error=errors.ShardsFull,
        meaning="No shard in use has room for new jobs. Nothing was stored; everything but enqueues goes on.",
        remedy="Give a store more room, add a shard, or let jobs that ended go sooner (`succeeded_ttl`, `failed_ttl`).",
    ),
    Reason(
        name="SHARD_CONNECTION_FAILED",
        error=errors.ShardConnectionFailed,
        meaning="The store of a shard could not be reached or failed.",
        remedy="Send the call again where it may happen twice. `pinlater cluster status` shows the shard.",
    ),
    Reason(
        name="SHARD_NOT_FOUND",
        error=errors.ShardNotFound,
        meaning="The servers have no such shard.",
        remedy="`pinlater shard list` has those that there are.",
    ),
    Reason(
        name="STAGE_SEALED",
        error=errors.StageSealed,
        meaning="The stage of a flow was sealed: no more items come into it.",
        remedy="Add the items before the seal, or make another flow: [flows.md](flows.md).",
    ),
    Reason(
        name="STORE_REFUSED",
        error=errors.StoreRefused,
        meaning="A store answers, and refuses the call: its user lacks a right, it is read only, or it is "
        "another store than before.",
        remedy="The message has the store's own error; [stores.md](stores.md) has what a store needs.",
    ),
    Reason(
        name="TAGS_NOT_SUPPORTED",
        error=errors.TagsNotSupported,
        meaning="The store of the shard keeps no tags.",
        remedy="Enqueue without tags, or use a shard on SQLite, Redis, MariaDB or PostgreSQL.",
    ),
    Reason(
        name="TAGS_NOT_YET",
        error=errors.TagsNotYet,
        meaning="A live server of the cluster is of a version that does not know tags. Nothing was stored.",
        remedy="Upgrade all servers; until then enqueue without tags.",
    ),
    Reason(
        name="TIER_UNAVAILABLE",
        error=errors.TierUnavailable,
        meaning="The tier where bodies lie cannot be reached.",
        remedy="Repair it, or the way to it, and send the call again: [bodies.md](bodies.md).",
    ),
    Reason(
        name="UNKNOWN",
        error=errors.UnknownError,
        meaning="An unexpected error. The server's log has it under the name that the message gives.",
        remedy="Read that log, and report it as a bug.",
    ),
    Reason(
        name="UNKNOWN_METHOD",
        error=errors.MethodUnknown,
        meaning="The server does not have this call: it is older than its caller, or another program.",
        remedy="Upgrade the server, or check the address.",
    ),
    Reason(
        name="SERVER_UNREACHABLE",
        error=errors.ServerUnreachable,
        meaning="A client could not reach any server. Servers never send this.",
        remedy="Check that a server runs at that address (`pinlater check`), and the network between.",
    ),
    Reason(
        name="PROTOCOL_ERROR",
        error=errors.ProtocolError,
        meaning="The program that answers does not speak the protocol. Servers never send this.",
        remedy="Check that the address is that of a PinLater server, and that TLS is set where the server has it.",
    ),
)
