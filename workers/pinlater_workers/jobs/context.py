"""A job while it runs: the worker's record of it, and the context that the job itself uses.

`current()` gives the context, in the job's own thread or task.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol

from pinlater.held_up_loop import holds_up_loop
from pinlater.log_guard import GuardedLogger
from pinlater.model import MAX_PROGRESS_CHARS, MAX_STATUS_CHARS, Checkpoint, DequeuedJob, LogLine
from pinlater_workers.envelope import TAGS_HEADER, Envelope, next_body, write_envelope
from pinlater_workers.errors import ClaimLost, JobStopped
from pinlater_workers.jobs.attempt_record import AttemptRecord
from pinlater_workers.jobs.progress_report import ProgressReport, last_lines, log_lines_of

_log = GuardedLogger("pinlater_workers.jobs")
_lock = threading.Lock()
"""Held for moments: one for all, as hardly any job waits."""


class StopReason(StrEnum):
    """The reason why a running job is to stop. The words are those of statuses, logs and metrics."""

    TIME_LIMIT = "time limit exceeded"
    CLAIM_LOST = "claim lost"
    OUT_OF_TOUCH = "no heartbeat gets through"
    STOPPING = "the worker stops"
    CANCELLED = "cancelled"


ENDING_REASONS = frozenset({StopReason.TIME_LIMIT, StopReason.CLAIM_LOST})
"""The reasons that end a job, and that no other one replaces; of the others it is only told. CANCELLED ends it where
its pool can, and only these two replace it.
"""


def cancelled_text(by: str) -> str:
    """
    >>> cancelled_text("ada@web-1"), cancelled_text("")
    ('cancelled by ada@web-1', 'cancelled')
    """
    return f"{StopReason.CANCELLED.value} by {by}" if by else StopReason.CANCELLED.value


def attempt_number(job: DequeuedJob) -> int:
    """1 for the first; at least 1 for a job that an operator gave more attempts."""
    return max(1, job.attempts_allowed - job.attempts_remaining + 1)


def waited_s(job: DequeuedJob, now_ms: int) -> float:
    """From when it was due until now; 0 where the server does not say when that was."""
    return (now_ms - job.run_after_ms) / 1000 if job.run_after_ms else 0.0


class Host(Protocol):
    """The pool of a running job, which carries out its wishes. Raises ClaimLost, or an error of pinlater.errors."""

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """From the job's thread; returns when the server has answered."""

    async def checkpoint_async(self, checkpoint: Checkpoint) -> None:
        """From the job's event loop."""

    def progress_made(self, context: JobContext) -> None:
        """From any thread: the context has progress to be taken, and had none before."""


class JobContext:
    """The context of a running attempt, which the job uses, from any thread. `request_stop` is for the pool.

    `queue`, and `job`: the name of its type. `body` is what the server holds: the newest checkpoint's, if there was
    one. `envelope` None: not read yet, or a body that has none.
    """

    __slots__ = (
        "_began_s",
        "_claimed",
        "_deadline_ms",
        "_host",
        "_line_ms",
        "_lines",
        "_progress",
        "_reason",
        "_stopped_by",
        "_wake",
        "body",
        "envelope",
        "job",
        "queue",
    )

    def __init__(
        self, job: str, queue: str, claimed: DequeuedJob, host: Host, deadline_ms: int, envelope: Envelope | None = None
    ) -> None:
        """`deadline_ms` is a wall-clock time: when its time limit ends. `envelope`, where it is read already."""
        self._began_s = 0.0
        self.job = job
        self.queue = queue
        self.body = claimed.body
        self.envelope = envelope
        self._claimed = claimed
        self._host = host
        self._deadline_ms = deadline_ms
        self._reason: StopReason | None = None
        self._stopped_by = ""
        self._wake: list[Callable[[], None]] | None = None
        self._progress: ProgressReport | None = None
        self._lines: list[LogLine] | None = None
        self._line_ms = 0

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def descriptor(self) -> str:
        return self._claimed.descriptor

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return attempt_number(self._claimed)

    @property
    def attempts_left(self) -> int:
        """The number of attempts that may follow this one."""
        return max(0, self._claimed.attempts_remaining - 1)

    @property
    def deadline(self) -> datetime:
        """The end of its time limit, in UTC."""
        return datetime.fromtimestamp(self._deadline_ms / 1000, UTC)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the job: a trace context, and those of middleware."""
        return {} if self.envelope is None else self.envelope.headers

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that its producer set by this framework; a raw job has none."""
        return tuple(self.headers.get(TAGS_HEADER, "").split("\n")) if TAGS_HEADER in self.headers else ()

    def begin(self) -> None:
        """The attempt begins, here and now."""
        self._began_s = time.monotonic()

    def record(self) -> AttemptRecord | None:
        """Of the attempt until now; None: it has not begun."""
        return AttemptRecord.since(self._began_s) if self._began_s else None

    def move_deadline(self, deadline_ms: int) -> None:
        """The attempt begins later than this context was made."""
        self._deadline_ms = deadline_ms

    # -- being told to stop ----------------------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """Whether it should stop; `cancel_reason` is why. Cheap enough for a tight loop."""
        return self._reason is not None

    @property
    def cancel_reason(self) -> StopReason | None:
        return self._reason

    @property
    def cancel_text(self) -> str:
        """The reason to stop, for people, as in "cancelled by ada@web-1"; "": it should not."""
        if self._reason is None:
            return ""
        return cancelled_text(self._stopped_by) if self._reason is StopReason.CANCELLED else self._reason.value

    def raise_if_cancelled(self) -> None:
        """Raise JobStopped if it should stop. Left to the framework, that ends the attempt by the reason: a cancelled
        job is over, and one whose worker stops is requeued.
        """
        if self._reason is not None:
            raise JobStopped(self.cancel_text)

    def request_stop(self, reason: StopReason, by: str = "") -> None:
        """Request the job to stop; `by`: the operator. May be called from any thread, and more than once."""
        with _lock:
            if self._reason not in ENDING_REASONS and (
                self._reason is not StopReason.CANCELLED or reason in ENDING_REASONS
            ):
                self._reason, self._stopped_by = reason, by
            wake, self._wake = self._wake, None
        for call in wake or ():
            try:
                call()
            except Exception:  # the stop goes on, and so do the others that are to hear of it
                _log.exception("what was to hear of the stop of job %s failed", self.descriptor)

    def wait(self, seconds: float) -> bool:
        """Wait for that time. Returns True, at once, when the job is or becomes cancelled. Not on an event loop."""
        refuse_on_loop("wait_async")
        stopped = threading.Event()
        if self._cancelled_or(stopped.set):
            return True
        try:
            return stopped.wait(seconds)
        finally:
            self._no_more(stopped.set)

    async def wait_async(self, seconds: float) -> bool:
        """`wait` for coroutines."""
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(stopped.set)

        if self._cancelled_or(wake):
            return True
        try:
            async with asyncio.timeout(seconds):
                return await stopped.wait()
        except TimeoutError:
            return False
        finally:
            self._no_more(wake)

    def on_stop(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` once, from any thread, when the job is to stop, or at once if it is already. Call what this
        returns to undo it.
        """
        if self._cancelled_or(told):
            told()
        return lambda: self._no_more(told)

    def _cancelled_or(self, wake: Callable[[], None]) -> bool:
        with _lock:
            if self._reason is not None:
                return True
            self._wake = [*(self._wake or ()), wake]
            return False

    def _no_more(self, wake: Callable[[], None]) -> None:
        with _lock:
            if self._wake is not None:
                self._wake = [call for call in self._wake if call is not wake]

    # -- telling the server ----------------------------------------------------------------------------------------

    def checkpoint(self, body: bytes | None = None) -> None:
        """Renew the claim, and store `body`: every further attempt begins with it.

        A body comes from `job_type.body(...)`, which leaves headers and snoozes to this one; a raw job stores what it
        likes. ValueError: no such body. ClaimLost: another worker has the job, and nothing was stored. Else an error of
        pinlater.errors.
        """
        refuse_on_loop("checkpoint_async")
        kept = self._kept(body)
        self._host.checkpoint(self._checkpoint(kept))
        self._keep(kept)

    async def checkpoint_async(self, body: bytes | None = None) -> None:
        """`checkpoint` for coroutines."""
        kept = self._kept(body)
        await self._host.checkpoint_async(self._checkpoint(kept))
        self._keep(kept)

    def set_status(self, text: str) -> None:
        """Put a line in front of the job's custom status, where people can read it, and renew the claim."""
        refuse_on_loop("set_status_async")
        self._host.checkpoint(self._checkpoint(None, _line(text)))

    async def set_status_async(self, text: str) -> None:
        """`set_status` for coroutines."""
        await self._host.checkpoint_async(self._checkpoint(None, _line(text)))

    def progress(self, fraction: float | None = None, text: str = "") -> None:
        """Report how far the job is: from 0 to 1, and a short text, as in progress(0.4, "rows 400 of 1000"). The newest
        goes with a heartbeat, at most every second; the call itself waits for nothing, and may stand in a loop.

        ValueError: a fraction that is none.
        """
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"progress is {fraction!r:.100}; allowed: 0 to 1, as in done / all")
        made = ProgressReport(None if fraction is None else float(fraction), text[:MAX_PROGRESS_CHARS])
        with _lock:
            is_first, self._progress = self._progress is None and self._lines is None, made
        if is_first:
            self._host.progress_made(self)

    def log(self, text: str) -> None:
        """Add a line to the log of the job, which people see on its page while it runs, and with `pinlater job log`. It
        goes with a heartbeat, at most every second; the call itself waits for nothing, and may stand in a loop: the
        last 100 lines or 16 KiB of a job are kept, each of up to 1,024 bytes.
        """
        with _lock:
            is_first = self._progress is None and self._lines is None
            now_ms = max(time.time_ns() // 1_000_000, self._line_ms + 1)
            lines = log_lines_of(text, now_ms)
            self._line_ms = lines[-1].at_ms
            self._lines = [*last_lines([*(self._lines or ()), *lines])]
        if is_first:
            self._host.progress_made(self)

    def take_progress(self) -> ProgressReport | None:
        """For the pool: what is new, once."""
        with _lock:
            made, self._progress = self._progress, None
            lines, self._lines = self._lines, None
        if lines is None:
            return made
        return ProgressReport(None, None, lines) if made is None else made._replace(log_lines=lines)

    @property
    def claimed(self) -> DequeuedJob:
        """As the server handed it out."""
        return self._claimed

    def _kept(self, body: bytes | None) -> tuple[bytes, Envelope | None] | None:
        if body is None or self.envelope is None:
            return None if body is None else (body, None)
        new = next_body(self.envelope, body, self.envelope.snoozes)
        return write_envelope(new), new

    def _keep(self, kept: tuple[bytes, Envelope | None] | None) -> None:
        if kept is not None:
            self.body, self.envelope = kept

    def _checkpoint(self, kept: tuple[bytes, Envelope | None] | None, status: str = "") -> Checkpoint:
        if self._reason is StopReason.CLAIM_LOST:
            raise ClaimLost(f"the claim of job {self._claimed.descriptor} is lost")
        return Checkpoint(
            self._claimed.descriptor,
            new_body=None if kept is None else kept[0],
            prepend_status=status,
            claim_descriptor=self._claimed.claim_descriptor,
        )


CURRENT: ContextVar[JobContext] = ContextVar("pinlater_job")


def current() -> JobContext:
    """Return the context of the job that runs here. LookupError: none does."""
    try:
        return CURRENT.get()
    except LookupError:
        raise LookupError("no job runs in this thread or task") from None


def _line(text: str) -> str:
    """As it can be sent, within what a server keeps."""
    return text[: MAX_STATUS_CHARS - 1].encode(errors="replace").decode() + "\n"


def refuse_on_loop(instead: str) -> None:
    """Blocking the event loop that is to carry out the call would last for ever."""
    if holds_up_loop():
        raise RuntimeError(f"in a coroutine: await {instead}(...)")
