"""Errors <-> the one exception that the interface declares."""

from __future__ import annotations

from typing import Any

from pinlater import errors
from pinlater.errors import ErrorCode, PinLaterError
from pinlater.wire.interface import struct
from pinlater.wire.message import ApplicationErrorKind, WireError

_Exception = struct("PinLaterException")
_QueueError = struct("QueueError")

_BY_REASON: dict[str, type[PinLaterError]] = {
    cls.reason: cls
    for cls in (
        errors.RequestInvalid,
        errors.RecordChanged,
        errors.BodyTooLarge,
        errors.Overloaded,
        errors.Draining,
        errors.ShardsFull,
        errors.NothingStored,
        errors.HomesChanged,
        errors.HomeOut,
        errors.HomeMoving,
        errors.KeysNotYet,
        errors.TagsNotYet,
        errors.GroupsNotYet,
        errors.BreakersNotYet,
        errors.ReplaceRulesNotYet,
        errors.TagsNotSupported,
        errors.GroupsNotSupported,
        errors.OutcomeUnknown,
        errors.FlowNotFound,
        errors.ShardNotFound,
        errors.ItemNotFound,
        errors.StageSealed,
        errors.LimitReached,
        errors.FlowsUnavailable,
        errors.TierUnavailable,
        errors.BodyGone,
        errors.StoreRefused,
        errors.Forbidden,
    )
}
_BY_CODE: dict[int, type[PinLaterError]] = {
    cls.code: cls
    for cls in (
        errors.ContinuationInvalid,
        errors.PasswordInvalid,
        errors.QueueNameInvalid,
        errors.QueueNameTooLong,
        errors.QueueNotFound,
        errors.PriorityNotSupported,
        errors.DequeueRateLimited,
        errors.EnqueueRejected,
        errors.NoHealthyShards,
        errors.ShardConnectionFailed,
    )
}


def exception_from_error(error: PinLaterError) -> Any:
    """The struct to answer with. `reason` and `retryable` are always set, our other fields where they say something."""
    exception = _Exception()
    exception.error_code = error.code
    exception.message = error.wire_message()
    exception.reason = error.reason
    exception.retryable = error.retryable
    exception.retry_after_ms = error.retry_after_ms
    exception.acks_applied = error.acks_applied
    exception.job_descriptors = error.job_descriptors
    return exception


def error_of_queue(queue: str, error: PinLaterError) -> Any:
    """The struct that says it of one queue of a call."""
    fault = _QueueError()
    fault.queue = queue
    vars(fault).update(vars(exception_from_error(error)))
    del fault.acks_applied, fault.job_descriptors
    return fault


def error_from_exception(exception: Any) -> PinLaterError:
    """The typed error behind a decoded exception, or behind a QueueError: by its reason, else by its code, else
    UnknownError.

    A server that knows none of our fields says a reason, if any, at the head of the message.
    """
    code, message = exception.error_code, exception.message
    reason = exception.reason or ""
    if not reason and code == ErrorCode.UNKNOWN:
        reason = message.split(":", 1)[0]
    cls = _BY_REASON.get(reason)
    # others are stored, although what kept these from it stores nothing
    is_partial = any(getattr(exception, "job_descriptors", None) or ())
    if cls is None or cls.code != code or (is_partial and issubclass(cls, errors.NothingStored)):
        cls = _BY_CODE.get(code, errors.UnknownError)
    return cls(
        message,
        reason=exception.reason,
        retryable=exception.retryable,
        retry_after_ms=exception.retry_after_ms,
        acks_applied=getattr(exception, "acks_applied", None),
        job_descriptors=getattr(exception, "job_descriptors", None),
    )


def error_from_application(error: WireError) -> PinLaterError:
    """The error behind a TApplicationException that a server sent."""
    if error.kind is ApplicationErrorKind.PROTOCOL_ERROR:
        return errors.ProtocolError(f"the server could not read the call: {error.message}")
    cls = errors.MethodUnknown if error.kind is ApplicationErrorKind.UNKNOWN_METHOD else errors.UnknownError
    return cls(f"the server could not answer the call: {error.message}")
