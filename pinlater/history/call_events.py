"""The events of a history: one line each, in the order in which they were written.

A call is two lines, its begin and its end, so that whoever dies in between leaves the begin behind. Its arguments and
its answer are in the words of the interface file (plain_form.py).
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

FORMAT = 1
"""The version of the format, which the header of a file says."""

Changed = Literal["nothing", "unknown"]


class CallBegin(Struct, frozen=True, omit_defaults=True, gc=False):
    """A call is about to be sent. `call` is its number, which no other call of the history has; `by`: the source that
    it names, which stands in the claims made for it.
    """

    call: int
    by: str
    at_ms: float
    method: str
    args: dict[str, Any]
    """The arguments of the interface's method by their names, but for the context: mostly `request` alone."""


class CallError(Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """The error that a call ended with, by the name of its class in `pinlater.errors` and its word for programs."""

    name: str
    reason: str = ""
    changed: Changed = "unknown"
    """What the call did, beside the acks and the jobs that the fields below speak of. "unknown": all of it, a part or
    nothing, also later than here."""

    job_descriptors: list[str] | None = None
    """What of an enqueue is stored, in the order of its jobs, with "" for one that is not; of one that was refused as a
    duplicate, the job that stands."""

    acks_applied: bool | None = None
    """Whether the acks of the call were carried out, but for invalid ones. None: nothing is said of them."""


class CallEnd(Struct, frozen=True, gc=False):
    """A call has ended. One without an end, or with an error that leaves open what it changed, may take effect at any
    time behind its begin.
    """

    call: int
    at_ms: float
    answer: Any = None
    """What the method returns, where `error` is None; None too for a method that returns nothing, and for an
    `ackJobs` that a server of an older version carried out without saying what became of each ack."""

    error: CallError | None = None
    resent: bool = False
    """An earlier copy of the call may have been carried out too, in whole or in part, also later than here: the answer
    is that of the last copy alone."""


class Note(Struct, frozen=True, omit_defaults=True, gc=False):
    """A fact that no caller can see.

    "rollback": the store of `shard` was set back to its state at `to_ms`, and what was answered since, or was under
    way, may stand or not. "lost": all that the store of `shard` had is gone. "end": the run is over and everything was
    drained, so each accepted job was seen to end, or is lost or stuck.
    """

    note: str
    at_ms: float
    shard: str = ""
    to_ms: float | None = None


Event = CallBegin | CallEnd | Note


class HistoryLine(Struct, omit_defaults=True, gc=False):
    """The fields that a line may have; those of newer versions are passed over."""

    pinlater_history: int | None = None
    tolerance_ms: float = 0.0
    clock: str = ""
    call: int | None = None
    by: str = ""
    at_ms: float = 0.0
    method: str = ""
    args: dict[str, Any] | UnsetType = UNSET
    answer: Any = None
    error: CallError | None = None
    resent: bool = False
    note: str = ""
    shard: str = ""
    to_ms: float | None = None

    def event(self) -> Event:
        """ValueError: it is none."""
        if self.note:
            return Note(self.note, self.at_ms, self.shard, self.to_ms)
        if self.call is None:
            raise ValueError("it has neither `call` nor `note`")
        if self.method:
            if self.args is UNSET:
                raise ValueError("the begin of a call has `args`")
            return CallBegin(self.call, self.by, self.at_ms, self.method, self.args)
        return CallEnd(self.call, self.at_ms, self.answer, self.error, self.resent)
