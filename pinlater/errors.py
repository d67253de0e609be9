"""Every error PinLater raises, and what each means on the wire.

    PinLaterError
    ├── RequestInvalid            UNKNOWN   REQUEST_INVALID    a field has a value that is not allowed
    │   ├── RecordChanged         UNKNOWN   CHANGED            what was to be changed is of another version by now
    │   ├── FlowNotFound          UNKNOWN   FLOW_NOT_FOUND     no such flow, or none that the caller may see
    │   ├── ItemNotFound          UNKNOWN   ITEM_NOT_FOUND     no such item of a flow, or none that the caller may see
    │   ├── ShardNotFound         UNKNOWN   SHARD_NOT_FOUND    the servers have no such shard
    │   ├── StageSealed           UNKNOWN   STAGE_SEALED       no more items come into this stage
    │   ├── LimitReached          UNKNOWN   LIMIT_REACHED      its owner has as many of that kind as one may have
    │   ├── ArgumentInvalid                                client only: an argument of another kind; a TypeError too
    │   ├── ValueNotStorable      UNKNOWN   REQUEST_INVALID    a store cannot keep a value of the call; it is well
    │   ├── PartMissing           UNKNOWN   REQUEST_INVALID    a store lacks the part that a call is of; it is well
    │   ├── TagsNotSupported      UNKNOWN   TAGS_NOT_SUPPORTED a store keeps no tags; it is well
    │   └── GroupsNotSupported    UNKNOWN   GROUPS_NOT_SUPPORTED a store has no groups; it is well
    ├── BodyTooLarge              UNKNOWN   BODY_TOO_LARGE     a body over its bound
    ├── ContinuationInvalid       400
    ├── PasswordInvalid           403
    │   └── Forbidden             403       FORBIDDEN          who calls in this way may not
    ├── QueueNameInvalid          410
    ├── QueueNameTooLong          411
    ├── QueueNotFound             413
    ├── PriorityNotSupported      416
    ├── DequeueRateLimited        429                          retryable
    ├── EnqueueRejected           430                          retryable
    ├── Overloaded                UNKNOWN   OVERLOADED         retryable: a bound on waiting calls was reached
    ├── Draining                  UNKNOWN   DRAINING           retryable: this server is stopping
    ├── NoHealthyShards           501                          retryable
    │   └── ShardsFull            501       SHARDS_FULL        none of the shards in use has room for new jobs
    ├── ShardConnectionFailed     502                          retryable: a shard that was needed cannot be reached
    │   ├── NothingStored         502       NOTHING_STORED     the call surely changed nothing; safe to try elsewhere
    │   │   ├── StoreConflict     502       NOTHING_STORED     an expected conflict (deadlock, lock wait): try again
    │   │   ├── HomesChanged      502       HOMES_CHANGED      the store knows newer homes of keys than the call named
    │   │   ├── HomeOut           502       HOME_OUT           the shard where jobs of this key live cannot be used
    │   │   ├── HomeMoving        502       HOME_MOVING        the shard where jobs of this key live changes right now
    │   │   ├── KeysNotYet        502       KEYS_NOT_YET       a server of the cluster does not know keys yet
    │   │   ├── TagsNotYet        502       TAGS_NOT_YET       a server of the cluster does not know tags yet
    │   │   ├── GroupsNotYet      502       GROUPS_NOT_YET     a server of the cluster does not know groups yet
    │   │   ├── BreakersNotYet    502       BREAKERS_NOT_YET   a server of the cluster knows no circuit breakers yet
    │   │   ├── ReplaceRulesNotYet 502      REPLACE_RULES_NOT_YET  a server does not know successors of running jobs yet
    │   │   └── StoreFull         502       NOTHING_STORED     the store lacks room for the write
    │   └── OutcomeUnknown        502       OUTCOME_UNKNOWN    the call may or may not have been carried out
    ├── FlowsUnavailable          UNKNOWN   FLOWS_UNAVAILABLE  retryable: the database of flows cannot be reached
    ├── TierUnavailable           UNKNOWN   TIER_UNAVAILABLE   retryable: the tier of a body cannot be reached
    ├── BodyGone                  UNKNOWN   BODY_UNAVAILABLE   the tier does not have a body, or has other bytes
    ├── StoreRefused              UNKNOWN   STORE_REFUSED      a store under another id, two ids for one store, or unfit
    │   └── StoreReplaced         UNKNOWN   STORE_REFUSED      another store than before, or nothing, at its address
    ├── ServerUnreachable                                      client only: no server could be reached
    ├── ProtocolError                                          client only: bytes that are not the contract
    └── UnknownError              UNKNOWN                      anything else a server says
        └── MethodUnknown                                      client only: the server does not have this method

No new wire codes are ever added (old clients in languages with closed enums fail to decode one): what has no code
of its own is UNKNOWN, and `reason` is the stable word for programs. It is always set: the name of the code, where the
table above has no finer word and none is given.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar

from pinlater.redaction import redact

_CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""Where this is a checkout; else the folder of all packages that are installed."""


def install_command(extra: str, folder: str = _CHECKOUT) -> str:
    """What brings the packages of an extra, for whoever installed PinLater: as a package, or from its checkout.

    >>> install_command("redis", "/no/checkout")
    "pip install 'pinlater[redis]'"
    """
    if all(os.path.isfile(os.path.join(folder, *path)) for path in (("setup.cfg",), ("scripts", "setup"))):
        return f"pip install '.[{extra}]' in the checkout of PinLater"
    return f"pip install '{_source_folder(folder) or 'pinlater'}[{extra}]'"


def _source_folder(packages: str) -> str:
    """The checkout from which `pip install .` brought PinLater, as the record of that says; "" where it is none."""
    # only where a package is missing, and so at no start
    from json import loads  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415
    from urllib.parse import unquote  # noqa: PLC0415

    for record in Path(packages).glob("pinlater-*.dist-info/direct_url.json"):
        origin = loads(record.read_text())
        if "dir_info" in origin:
            folder = unquote(origin["url"].removeprefix("file://"))
            return folder if os.path.isdir(folder) else ""
    return ""


class ErrorCode(IntEnum):
    """The error codes of the wire contract. 400-499 is the caller's fault: no retry as it is, but for 429 and 430."""

    CONTINUATION_INVALID = 400
    PASSWORD_INVALID = 403
    QUEUE_NAME_INVALID = 410
    QUEUE_NAME_TOO_LONG = 411
    QUEUE_NOT_FOUND = 413
    PRIORITY_NOT_SUPPORTED = 416
    DEQUEUE_RATE_LIMITED = 429
    ENQUEUE_REJECTED = 430
    UNKNOWN = 500
    NO_HEALTHY_SHARDS = 501
    SHARD_CONNECTION_FAILED = 502


class PinLaterError(Exception):
    """The root. `retry_after_ms` says when to send again; `acks_applied` whether riding acks were carried out;
    `job_descriptors` what of an enqueue is stored ("" for a job that is not) that failed in part.
    """

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN
    reason: str = ""
    """Of an error: the stable word for programs. Of a class: its own, "" where that is the name of the code."""
    retryable: bool = False
    job_outcomes: Sequence[int | None] = ()
    """Beside `job_descriptors`, and only in the server: an EnqueueOutcome for each that stands, None for the others."""
    quotes_stores: ClassVar[bool] = False
    """Whether the message may repeat what a store, a driver or the configuration says: then it is redacted."""

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        retryable: bool | None = None,
        retry_after_ms: int | None = None,
        acks_applied: bool | None = None,
        job_descriptors: Sequence[str] | None = None,
    ) -> None:
        if self.quotes_stores:
            message = redact(message)
        super().__init__(message)
        self.message = message
        self.reason = reason or self.reason or self.code.name
        if retryable is not None:
            self.retryable = retryable
        self.retry_after_ms = retry_after_ms
        self.acks_applied = acks_applied
        self.job_descriptors = job_descriptors

    def wire_message(self) -> str:
        """The message as sent: where the code is UNKNOWN, and the reason says more, it begins with the reason."""
        says_more = self.code is ErrorCode.UNKNOWN and self.reason != self.code.name
        if says_more and not self.message.startswith(self.reason):
            return f"{self.reason}: {self.message}"
        return self.message


class RequestInvalid(PinLaterError):
    reason = "REQUEST_INVALID"
    field: str = ""
    """The one that is wrong, where this server refused it."""

    @classmethod
    def of(cls, field: str, value: object, allowed: str) -> RequestInvalid:
        """One field, the value it has, and what is allowed."""
        shown = repr(value[:100] if isinstance(value, str | bytes) else value)
        error = cls(f"{field} is {shown[:100]}; allowed: {allowed}")
        error.field = field
        return error


class ArgumentInvalid(RequestInvalid, TypeError):
    @classmethod
    def of_kind(cls, argument: str, value: object, wanted: str) -> ArgumentInvalid:
        """The argument, the value and its kind, and the kinds that it may have. Nothing was sent."""
        shown = repr(value[:100] if isinstance(value, str | bytes) else value)
        error = cls(f"{argument} is {shown[:100]}, of the kind {type(value).__name__}; allowed: {wanted}")
        error.field = argument.partition(": ")[2] or argument
        return error


class RecordChanged(RequestInvalid):
    reason = "CHANGED"


class FlowNotFound(RequestInvalid):
    reason = "FLOW_NOT_FOUND"

    @classmethod
    def named(cls, flow_id: str) -> FlowNotFound:
        return cls(
            f"there is no flow {flow_id[:100]!r}: it was deleted, its time to live is over, or you lack a right on a "
            "queue of its stages"
        )


class ItemNotFound(RequestInvalid):
    reason = "ITEM_NOT_FOUND"

    @classmethod
    def numbered(cls, number: int) -> ItemNotFound:
        return cls(
            f"there is no item {number}: its flow was deleted, that one's time to live is over, or you may not consume "
            "its queue"
        )


class ShardNotFound(RequestInvalid):
    reason = "SHARD_NOT_FOUND"


class StageSealed(RequestInvalid):
    reason = "STAGE_SEALED"


class LimitReached(RequestInvalid):
    reason = "LIMIT_REACHED"
    limit: str = ""
    """The bound that was reached, as the metrics name it."""

    @classmethod
    def by(cls, limit: str, message: str) -> LimitReached:
        error = cls(message)
        error.limit = limit
        return error


class ValueNotStorable(RequestInvalid):
    quotes_stores = True

    @classmethod
    def at(cls, place: str, why: object) -> ValueNotStorable:
        """What a store, or its driver, says of a value that it cannot keep."""
        return cls(f"{place}: the store cannot keep a value of this call: send another value ({why})")


class PartMissing(RequestInvalid):
    @classmethod
    def in_store(cls, shard_id: str, part: str, operation: str) -> PartMissing:
        """A part of a store, by the name of its class, and the operation that belongs to it."""
        return cls(
            f"{operation} is refused: the store of shard {shard_id!r} lacks the part {part}; use a shard whose store "
            "has it"
        )


class TagsNotSupported(RequestInvalid):
    reason = "TAGS_NOT_SUPPORTED"

    @classmethod
    def of_shard(cls, shard_id: str) -> TagsNotSupported:
        return cls(
            f"the store of shard {shard_id!r} keeps no tags; enqueue the job without tags, or use a shard on SQLite, "
            "Redis, MariaDB or PostgreSQL"
        )


class GroupsNotSupported(RequestInvalid):
    reason = "GROUPS_NOT_SUPPORTED"

    @classmethod
    def of_shard(cls, shard_id: str) -> GroupsNotSupported:
        return cls(
            f"the store of shard {shard_id!r} has no groups; leave the group out, or use shards on SQLite, "
            "Redis, MariaDB or PostgreSQL"
        )


class BodyTooLarge(PinLaterError):
    reason = "BODY_TOO_LARGE"


INVALID = (RequestInvalid, BodyTooLarge)
"""What is wrong with a request, or with some of its entries, while the others were carried out."""


class ContinuationInvalid(PinLaterError):
    code = ErrorCode.CONTINUATION_INVALID


class PasswordInvalid(PinLaterError):
    code = ErrorCode.PASSWORD_INVALID


class Forbidden(PasswordInvalid):
    reason = "FORBIDDEN"


class QueueNameInvalid(PinLaterError):
    code = ErrorCode.QUEUE_NAME_INVALID


class QueueNameTooLong(PinLaterError):
    code = ErrorCode.QUEUE_NAME_TOO_LONG


class QueueNotFound(PinLaterError):
    code = ErrorCode.QUEUE_NOT_FOUND

    @classmethod
    def of(cls, queue: str) -> QueueNotFound:
        return cls(f"queue {queue!r} does not exist; create it with createQueue or `pinlater queue create {queue}`")


class PriorityNotSupported(PinLaterError):
    code = ErrorCode.PRIORITY_NOT_SUPPORTED


class DequeueRateLimited(PinLaterError):
    code = ErrorCode.DEQUEUE_RATE_LIMITED
    retryable = True


class EnqueueRejected(PinLaterError):
    code = ErrorCode.ENQUEUE_REJECTED
    retryable = True


class Overloaded(PinLaterError):
    reason = "OVERLOADED"
    retryable = True
    limit: str = ""
    """The bound of this server that was reached, as the metrics name it."""

    @classmethod
    def by(cls, limit: str, message: str, *, retry_after_ms: int) -> Overloaded:
        error = cls(message, retry_after_ms=retry_after_ms)
        error.limit = limit
        return error


class Draining(PinLaterError):
    reason = "DRAINING"
    retryable = True


class NoHealthyShards(PinLaterError):
    quotes_stores = True
    code = ErrorCode.NO_HEALTHY_SHARDS
    retryable = True


class ShardsFull(NoHealthyShards):
    reason = "SHARDS_FULL"


class ShardConnectionFailed(PinLaterError):
    quotes_stores = True
    code = ErrorCode.SHARD_CONNECTION_FAILED
    retryable = True


class NothingStored(ShardConnectionFailed):
    reason = "NOTHING_STORED"


class StoreConflict(NothingStored):
    pass


class HomesChanged(NothingStored):
    reason = "HOMES_CHANGED"

    @classmethod
    def of_store(cls) -> HomesChanged:
        return cls("the store knows newer homes of keys than this server did: send the call again")


class HomeOut(NothingStored):
    reason = "HOME_OUT"


class HomeMoving(NothingStored):
    reason = "HOME_MOVING"


class KeysNotYet(NothingStored):
    reason = "KEYS_NOT_YET"


class TagsNotYet(NothingStored):
    reason = "TAGS_NOT_YET"


class GroupsNotYet(NothingStored):
    reason = "GROUPS_NOT_YET"


class BreakersNotYet(NothingStored):
    reason = "BREAKERS_NOT_YET"


class ReplaceRulesNotYet(NothingStored):
    reason = "REPLACE_RULES_NOT_YET"


class StoreFull(NothingStored):
    pass


class OutcomeUnknown(ShardConnectionFailed):
    reason = "OUTCOME_UNKNOWN"


class FlowsUnavailable(PinLaterError):
    quotes_stores = True
    reason = "FLOWS_UNAVAILABLE"
    retryable = True


class TierUnavailable(PinLaterError):
    quotes_stores = True
    reason = "TIER_UNAVAILABLE"
    retryable = True


class BodyGone(PinLaterError):
    quotes_stores = True
    reason = "BODY_UNAVAILABLE"


class StoreRefused(PinLaterError):
    quotes_stores = True
    reason = "STORE_REFUSED"


WIPED_OR_REPLACED = "it was wiped or replaced"
"""Stands in the text of each StoreReplaced, which leases and answers pass on as text alone."""


class StoreReplaced(StoreRefused):
    @classmethod
    def since(cls, before: str, now: str = "", place: str = "") -> StoreReplaced:
        """`before` and `now` are ids of stores, "" for nothing; `place` says where."""
        found = f"store {now}" if now else "nothing"
        text = f"this was store {before} before, and is {found} now: {WIPED_OR_REPLACED}"
        return cls(f"{place}: {text}" if place else text)


class ServerUnreachable(PinLaterError):
    reason = "SERVER_UNREACHABLE"
    retryable = True


class ProtocolError(PinLaterError):
    reason = "PROTOCOL_ERROR"


class UnknownError(PinLaterError):
    quotes_stores = True
    fault: str = ""
    """Of what nobody foresaw: by this name the server's log has it; its caller gets no more."""

    @classmethod
    def by_fault(
        cls, what: str, fault: str = "", *, reason: str | None = None, retry_after_ms: int | None = None
    ) -> UnknownError:
        """What failed by a fault of the server itself, of a new name or of one that the log has already; retryable
        where it is said when.
        """
        fault = fault or secrets.token_hex(4)
        error = cls(
            f"{what}: a fault of the server, whose log has it as fault {fault}",
            reason=reason,
            retryable=retry_after_ms is not None,
            retry_after_ms=retry_after_ms,
        )
        error.fault = fault
        return error


class MethodUnknown(UnknownError):
    reason = "UNKNOWN_METHOD"
