"""The recorder of a history: events as lines, by a clock and to a place of its owner's choice.

Each event is written before the call goes on, so that what dies leaves behind what it knew. A recorder may be used by
several threads and loops at a time, if `write` may.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from numbers import Integral, Real
from typing import Any

from msgspec.json import Encoder

from pinlater.errors import (
    BodyTooLarge,
    ContinuationInvalid,
    DequeueRateLimited,
    Draining,
    EnqueueRejected,
    MethodUnknown,
    NoHealthyShards,
    NothingStored,
    Overloaded,
    PasswordInvalid,
    PinLaterError,
    PriorityNotSupported,
    QueueNameInvalid,
    QueueNameTooLong,
    QueueNotFound,
    RequestInvalid,
    ServerUnreachable,
)
from pinlater.history.call_events import FORMAT, CallBegin, CallEnd, CallError, Changed, Event, Note
from pinlater.history.plain_form import plain_answer, plain_arguments

_CHANGED_NOTHING = (
    BodyTooLarge,
    ContinuationInvalid,
    DequeueRateLimited,
    Draining,
    EnqueueRejected,
    MethodUnknown,
    NoHealthyShards,
    NothingStored,
    Overloaded,
    PasswordInvalid,
    PriorityNotSupported,
    QueueNameInvalid,
    QueueNameTooLong,
    QueueNotFound,
    RequestInvalid,
    ServerUnreachable,
)
"""Errors of calls that did no more than their acksApplied and jobDescriptors say."""


def _of_a_subclass(value: object) -> object:
    """Handles of jobs are texts, and numbers may be of classes of their own. TypeError: it is neither."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"a {type(value).__name__} cannot be part of a history")


_encode = Encoder(enc_hook=_of_a_subclass).encode


def header(tolerance_ms: float, clock: str = "") -> bytes:
    """The first line of a history. `tolerance_ms`: how far the clocks of callers and servers may differ. `clock`: the
    one that all these callers have; "" where they may have several.
    """
    fields: dict[str, Any] = {"pinlater_history": FORMAT, "tolerance_ms": tolerance_ms}
    return _encode(fields | {"clock": clock} if clock else fields) + b"\n"


def event_line(event: Event) -> bytes:
    """The line of an event; that of an end has `answer`, or `error` in its place."""
    if isinstance(event, CallEnd):
        fields: dict[str, Any] = {"call": event.call, "at_ms": event.at_ms}
        if event.error is None:
            fields["answer"] = event.answer
        else:
            fields["error"] = event.error
        if event.resent:
            fields["resent"] = True
        return _encode(fields) + b"\n"
    return _encode(event) + b"\n"


class Recorder:
    """Writes the events of calls. `write` takes a whole line; `now_ms` is the time, with fractions."""

    def __init__(self, write: Callable[[bytes], object], now_ms: Callable[[], float]) -> None:
        self._write = write
        self.now_ms = now_ms
        self._numbers = count(1)

    def begin(self, method: str, args: Any, at_ms: float | None = None) -> int:
        """A call with these arguments, as they are sent, begins, or began `at_ms`. Its number."""
        number, began_ms = next(self._numbers), self.now_ms() if at_ms is None else at_ms
        event = CallBegin(number, args.context.source, began_ms, method, plain_arguments(method, args))
        self._write(event_line(event))
        return number

    def end(self, number: int, method: str, success: Any, *, resent: bool = False) -> None:
        """It was answered. `resent`: an earlier copy of it may have been carried out."""
        self._write(event_line(CallEnd(number, self.now_ms(), plain_answer(method, success), None, resent)))

    def fail(self, number: int, error: BaseException, *, resent: bool = False) -> None:
        """It ended with an error, or its caller gave it up."""
        self._write(event_line(CallEnd(number, self.now_ms(), None, _call_error(error, resent), resent)))

    def note(self, note: str, *, shard: str = "", to_ms: float | None = None) -> None:
        """A fact that no caller can see: "rollback", "lost" or "end"."""
        self._write(event_line(Note(note, self.now_ms(), shard, to_ms)))


def _call_error(error: BaseException, resent: bool) -> CallError:
    if not isinstance(error, PinLaterError):
        return CallError(type(error).__name__)
    changed: Changed = "nothing" if isinstance(error, _CHANGED_NOTHING) and not resent else "unknown"
    stored = error.job_descriptors
    return CallError(
        type(error).__name__, error.reason, changed, None if stored is None else list(stored), error.acks_applied
    )
