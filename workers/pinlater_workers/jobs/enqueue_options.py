"""The options of an enqueue, and the calls that store jobs of one type with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec

from pinlater.model import Job, is_queue_name
from pinlater.schedule import Delay, delay_seconds, moment_ms
from pinlater_workers.errors import ArgumentsInvalid
from pinlater_workers.jobs.enqueue_calls import send_all, send_all_async
from pinlater_workers.jobs.settings import QUEUE_NAME
from pinlater_workers.settings_table import MAX_I32

if TYPE_CHECKING:
    from pinlater_workers.jobs.job_type import JobType

P = ParamSpec("P")
Call = tuple[Any, ...] | list[Any] | Mapping[str, Any]
"""One call of many: the arguments by position, or by name."""


class EnqueueOptions(Generic[P]):
    """What `options(...)` of a type of job returns. May be kept, and used again and again, by any thread: a delay
    counts from each enqueue.
    """

    __slots__ = ("_attempts", "_delay_s", "_headers", "_job_type", "_priority", "_queue", "_run_after_ms")

    def __init__(
        self,
        job_type: JobType,
        *,
        delay: Delay | None = None,
        run_after: datetime | int | None = None,
        priority: int | None = None,
        queue: str | None = None,
        attempts: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """ValueError: what cannot be. Which priorities there are the server knows."""
        if delay is not None and run_after is not None:
            raise ValueError("either delay or run_after can be given, not both")
        if queue is not None and not (isinstance(queue, str) and is_queue_name(queue)):
            raise ValueError(f"queue is {queue!r:.100}; allowed: {QUEUE_NAME}")
        if attempts is not None and (type(attempts) is not int or not 1 <= attempts <= MAX_I32):
            raise ValueError(f"attempts is {attempts!r:.100}; allowed: 1 or more")
        if priority is not None and type(priority) is not int:
            raise ValueError(f"priority is {priority!r:.100}; allowed: a whole number, 1 is the highest")
        settings = job_type.settings
        if settings.raw and (headers or (attempts or 0) > settings.attempts_allowed):
            raise ValueError(
                f"job {job_type.name!r} is raw, and its bodies have no place for headers and further attempts; "
                f"allowed: no headers, and up to {settings.attempts_allowed} attempts"
            )
        self._job_type = job_type
        self._delay_s = None if delay is None else delay_seconds(delay)
        self._run_after_ms = None if run_after is None else moment_ms(run_after)
        self._priority = priority
        self._queue = queue
        self._attempts = attempts
        self._headers = dict(headers or {})

    @property
    def queue(self) -> str:
        """The one that its jobs go to."""
        return self._queue or self._job_type.settings.queue

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Store a job for these arguments; its descriptor.

        ArgumentsInvalid: nothing was sent. Else the errors of Client.enqueue.
        """
        return self._job_type.app.sink.send(self.queue, [self.job(*args, **kwargs)])[0]

    def enqueue_many(self, calls: Iterable[Call]) -> list[str]:
        """Store a job for each call, in calls of up to 500; the descriptors in order.

        A call is a tuple (or list) of arguments, or a dict of them by name. ArgumentsInvalid: nothing was sent.
        EnqueuedInPart: the first are stored, and says which.
        """
        return send_all(self._job_type.app.sink, self.queue, self.jobs(calls))

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """`enqueue` for an event loop."""
        return (await self._job_type.app.sink.send_async(self.queue, [self.job(*args, **kwargs)]))[0]

    async def enqueue_many_async(self, calls: Iterable[Call]) -> list[str]:
        """`enqueue_many` for an event loop."""
        return await send_all_async(self._job_type.app.sink, self.queue, self.jobs(calls))

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """The job that `enqueue` would store, for a client or a table of one's own. ArgumentsInvalid."""
        return self._job(self._body(args, kwargs, self._all_headers()), self._at_ms())

    def jobs(self, calls: Iterable[Call]) -> list[Job]:
        """Those that `enqueue_many` would store. ArgumentsInvalid."""
        headers, at_ms = self._all_headers(), self._at_ms()
        found: list[Job] = []
        try:
            for call in calls:
                args, kwargs = ((), call) if isinstance(call, Mapping) else (self._listed(call), {})
                found.append(self._job(self._body(args, kwargs, headers), at_ms))
        except ArgumentsInvalid as error:
            raise ArgumentsInvalid(f"call {len(found)}, counted from 0: {error}") from error
        return found

    def _body(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], headers: dict[str, str]) -> bytes:
        return self._job_type.write_body(args, kwargs, headers, self._attempts or 0)

    def _job(self, body: bytes, at_ms: int | None) -> Job:
        settings = self._job_type.settings
        priority = settings.priority if self._priority is None else self._priority
        attempts = settings.attempts_allowed if self._attempts is None else self._attempts
        return Job(body, priority=priority, run_after_ms=at_ms, attempts_allowed=attempts)

    def _all_headers(self) -> dict[str, str]:
        if self._job_type.settings.raw:
            return {}
        return self._job_type.app.headers(self._job_type.name, self._headers)

    def _at_ms(self) -> int | None:
        if self._delay_s is None:
            return self._run_after_ms
        return self._job_type.app.clock.now_ms() + round(self._delay_s * 1000)

    def _listed(self, call: object) -> tuple[Any, ...]:
        """A text is a sequence too, but surely not meant as one argument for each letter."""
        if not isinstance(call, tuple | list):
            raise ArgumentsInvalid(
                f"job {self._job_type.name!r}: a call {call!r:.100}; allowed: a tuple, a list or a dict"
            )
        return tuple(call)
