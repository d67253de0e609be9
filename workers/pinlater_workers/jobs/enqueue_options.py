"""The options of an enqueue, and the calls that store jobs of one type with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypedDict, TypeVar

from pinlater.log_guard import GuardedLogger
from pinlater.model import EnqueueOutcome, ExtendedJob, Job, OnDuplicate, is_queue_name
from pinlater.model.jobs import any_extended
from pinlater.schedule import Delay, delay_seconds, moment_ms
from pinlater_workers.envelope import TAGS_HEADER
from pinlater_workers.errors import ArgumentsInvalid, ConfigurationError
from pinlater_workers.jobs.enqueue_calls import send_all, send_all_async
from pinlater_workers.jobs.handle import AsyncJobHandle, JobHandle
from pinlater_workers.jobs.keys import KeyOption, KeyTemplate, checked_size
from pinlater_workers.jobs.results import RESULT_HEADER
from pinlater_workers.jobs.retry import LONGEST_S
from pinlater_workers.jobs.settings import (
    JOB_KEYS,
    KEPT,
    QUEUE_NAME,
    refuse_without_replace,
    refuse_without_unique,
)
from pinlater_workers.settings_table import MAX_I32, read_table

if TYPE_CHECKING:
    from pinlater_workers.jobs.job_type import JobType

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
HandleT = TypeVar("HandleT", JobHandle[Any], AsyncJobHandle[Any])
Call = tuple[Any, ...] | list[Any] | Mapping[str, Any]
"""One call of many: the arguments by position, or by name."""


_log = GuardedLogger("pinlater_workers.jobs")
_NOT_REPLACED = (
    "job %s: newer arguments are not taken, since %s runs already, or ended less than unique_for ago: "
    'on_duplicate="replace" replaces what is pending. The outcome of the handle is KEPT: enqueue again after its end, '
    'under another key, or with replace_running="enqueue" (logged once for each type of job)'
)


class OptionArguments(TypedDict, total=False):
    """The arguments of `options(...)` of a type of job."""

    delay: Delay | None
    run_after: datetime | int | None
    priority: int | None
    queue: str | None
    attempts: int | None
    headers: Mapping[str, str] | None
    unique: KeyOption | None
    unique_for: Delay | Literal["kept"] | None
    on_duplicate: Literal["keep", "replace", "reject"] | None
    replace_running: Literal["keep", "enqueue", "cancel"] | None
    replace_within: Delay | None
    serialize: KeyOption | None
    expires: Delay | datetime | None
    claim_timeout: Delay | None
    keep_result: bool | None
    tags: Sequence[str] | None
    group: KeyOption | None


_OF_KEYS = (
    *("unique", "unique_for", "on_duplicate", "replace_running", "replace_within"),
    *("serialize", "expires", "claim_timeout", "tags", "group"),
)


class EnqueueOptions(Generic[P]):
    """The options of enqueues, as `options(...)` of a type of job returns them. May be kept and used again and again,
    by any thread: a delay counts from each enqueue.
    """

    __slots__ = (
        "_attempts",
        "_delay_s",
        "_expires_at_ms",
        "_extension",
        "_headers",
        "_job_type",
        "_priority",
        "_queue",
        "_run_after_ms",
    )

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
        keep_result: bool | None = None,
        **of_keys: Any,
    ) -> None:
        """`of_keys`: those of OptionArguments that remain. ValueError: what cannot be. Which priorities there are the
        server knows.
        """
        if delay is not None and run_after is not None:
            raise ValueError("either delay or run_after can be given, not both")
        if queue is not None and not (isinstance(queue, str) and is_queue_name(queue)):
            raise ValueError(f"queue is {queue!r:.100}; allowed: {QUEUE_NAME}")
        if attempts is not None and (type(attempts) is not int or not 1 <= attempts <= MAX_I32):
            raise ValueError(f"attempts is {attempts!r:.100}; allowed: 1 to {MAX_I32}")
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
        if self._delay_s is not None and self._delay_s > LONGEST_S:
            raise ValueError(f"delay is {delay!r:.100}; allowed: up to {LONGEST_S:.0f} seconds, ten years")
        self._run_after_ms = None if run_after is None else moment_ms(run_after)
        self._priority = priority
        self._queue = queue
        self._attempts = attempts
        self._headers = dict(headers or {})
        if keep_result is not None:
            self._headers[RESULT_HEADER] = self._kept(job_type, keep_result)
        expires = of_keys.get("expires")
        self._expires_at_ms = moment_ms(of_keys.pop("expires")) if isinstance(expires, datetime) else None
        given = {name: value for name, value in of_keys.items() if value is not None}
        self._extension: dict[str, Any] | None = self._read(job_type, given) if given else None
        if self._expires_at_ms is not None:
            self._extension = self._extension or {}

    @staticmethod
    def _kept(job_type: JobType, keep_result: object) -> str:
        """ValueError."""
        if not isinstance(keep_result, bool) or job_type.settings.raw:
            raise ValueError(f"keep_result is {keep_result!r:.100}; allowed: true or false, and nothing for a raw job")
        if keep_result:
            job_type.needs_results()
        return "1" if keep_result else "0"

    def _read(self, job_type: JobType, given: Mapping[str, object]) -> dict[str, Any]:
        """The fields of JobSettings that these say, with templates ready for use. ValueError."""
        where = f"options of job {job_type.name!r}"
        try:
            if not given.get("unique", job_type.unique):
                refuse_without_unique(given, where)
            fields = read_table({name: JOB_KEYS[name] for name in _OF_KEYS}, given, where)
            on_duplicate = fields.get("on_duplicate", job_type.settings.on_duplicate)
            refuse_without_replace(given, on_duplicate, where)
            for name in ("unique", "serialize", "group"):
                if fields.get(name):
                    fields[name] = job_type.key_template(name, fields[name])
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
        return fields

    @property
    def queue(self) -> str:
        """The queue of its jobs."""
        return self._queue or self._job_type.settings.queue

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[Any]:
        """Store a job for these arguments, and return its handle.

        ArgumentsInvalid: nothing was sent. EnqueueRejected, reason DUPLICATE: on_duplicate is "reject". Else the errors
        of Client.enqueue.
        """
        jobs = [self.job(*args, **kwargs)]
        return self._checked(jobs, JobHandle.each(self._job_type.app.sink.send(self.queue, jobs), self._job_type))[0]

    def enqueue_many(self, calls: Iterable[Call]) -> list[JobHandle[Any]]:
        """Store a job for each call, in calls of up to 500, and return their handles in order.

        A call is a tuple (or list) of arguments, or a dict of them by name. ArgumentsInvalid: nothing was sent.
        EnqueuedInPart: the first are stored, and says which.
        """
        jobs = self._not_rejecting(self.jobs(calls))
        sent = send_all(self._job_type.app.sink, self.queue, jobs)
        return self._checked(jobs, JobHandle.each(sent, self._job_type))

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> AsyncJobHandle[Any]:
        """`enqueue` for an event loop."""
        jobs = [self.job(*args, **kwargs)]
        sent = await self._job_type.app.sink.send_async(self.queue, jobs)
        return self._checked(jobs, AsyncJobHandle.each(sent, self._job_type))[0]

    async def enqueue_many_async(self, calls: Iterable[Call]) -> list[AsyncJobHandle[Any]]:
        """`enqueue_many` for an event loop."""
        jobs = self._not_rejecting(self.jobs(calls))
        sent = await send_all_async(self._job_type.app.sink, self.queue, jobs)
        return self._checked(jobs, AsyncJobHandle.each(sent, self._job_type))

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Return the job that `enqueue` would store, for a client or a table of your own. ArgumentsInvalid."""
        body = self._job_type.write_body(args, kwargs, self._all_headers(), self._attempts or 0)
        priority, attempts = self._priority_and_attempts()
        job = Job(body, priority, self._at_ms(), attempts)
        if self._extension is None and not self._job_type.extends:
            return job
        return self._extended_job(job, args, kwargs)

    def jobs(self, calls: Iterable[Call]) -> list[Job]:
        """Return the jobs that `enqueue_many` would store. ArgumentsInvalid."""
        headers, at_ms, job_type = self._all_headers(), self._at_ms(), self._job_type
        priority, attempts = self._priority_and_attempts()
        is_plain = self._extension is None and not job_type.extends
        found: list[Job] = []
        try:
            if is_plain and isinstance(calls, list | tuple):
                bodies = job_type.write_bodies(calls, headers, self._attempts or 0)
                if bodies is not None:
                    return [Job(body, priority, at_ms, attempts) for body in bodies]
            write = job_type.body_writer(headers, self._attempts or 0)
            for call in calls:
                args, kwargs = (call, {}) if type(call) is tuple else self._given(call)
                job = Job(write(args, kwargs), priority, at_ms, attempts)
                found.append(job if is_plain else self._extended_job(job, args, kwargs))
        except ArgumentsInvalid as error:
            raise ArgumentsInvalid(f"call {len(found)}, counted from 0: {error}") from error
        return found

    def _priority_and_attempts(self) -> tuple[int, int]:
        settings = self._job_type.settings
        priority = settings.priority if self._priority is None else self._priority
        return priority, settings.attempts_allowed if self._attempts is None else self._attempts

    def _extended_job(self, job: Job, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ExtendedJob:
        """With what few jobs have: as this says, else as the type does."""
        job_type, extension = self._job_type, self._extension or {}
        settings = job_type.settings
        unique, serialize = extension.get("unique", job_type.unique), extension.get("serialize", job_type.serialize)
        dedupe_key = _key(unique, args, kwargs)
        window_s = extension.get("unique_for_s", settings.unique_for_s) if dedupe_key else 0.0
        expires_s, expires_at_ms = extension.get("expires_s", settings.expires_s), self._expires_at_ms
        if expires_at_ms is None and expires_s is not None:
            from_ms = max(job_type.app.clock.now_ms(), job.run_after_ms or 0)
            expires_at_ms = from_ms + round(expires_s * 1000)
        claim_s = extension.get("claim_timeout_s", settings.claim_timeout_s)
        extended = ExtendedJob(
            job.body,
            job.priority,
            job.run_after_ms,
            job.attempts_allowed,
            dedupe_key=checked_size(job_type.name, "unique", f"{job_type.name}:{dedupe_key}") if dedupe_key else "",
            serialize_key=checked_size(job_type.name, "serialize", _key(serialize, args, kwargs)),
            claim_timeout_ms=None if claim_s is None else round(claim_s * 1000),
            on_duplicate=extension.get("on_duplicate", settings.on_duplicate) if dedupe_key else OnDuplicate.KEEP,
            dedupe_for_ms=int(window_s) if window_s == KEPT else round(window_s * 1000),
            expires_at_ms=expires_at_ms,
            tags=extension.get("tags", settings.tags),
            group=checked_size(job_type.name, "group", _key(extension.get("group", job_type.group), args, kwargs)),
        )
        if extended.on_duplicate is OnDuplicate.REPLACE:
            within_s = extension.get("replace_within_s", settings.replace_within_s)
            extended.replace_running = extension.get("replace_running", settings.replace_running)
            extended.replace_within_ms = None if within_s is None else round(within_s * 1000)
        return extended

    def _checked(self, jobs: Sequence[Job], handles: list[HandleT]) -> list[HandleT]:
        """The handles; with a warning, once for each type, where a job was to replace one that stays as it is."""
        if self._job_type.warned_of_kept or (self._extension is None and not self._job_type.extends):
            return handles
        for job, handle in zip(jobs, handles, strict=True):
            if (
                isinstance(job, ExtendedJob)
                and job.on_duplicate is OnDuplicate.REPLACE
                and handle.outcome is EnqueueOutcome.KEPT
            ):
                self._job_type.warned_of_kept = True
                _log.warning(_NOT_REPLACED, self._job_type.name, handle)
                break
        return handles

    def _not_rejecting(self, jobs: list[Job]) -> list[Job]:
        """ArgumentsInvalid: of many jobs none can be rejected alone."""
        if any_extended(jobs) and any(
            isinstance(job, ExtendedJob) and job.on_duplicate is OnDuplicate.REJECT for job in jobs
        ):
            raise ArgumentsInvalid(
                f"job {self._job_type.name!r}: on_duplicate is reject, which is for one job at a time; allowed: "
                "enqueue(...) for each; or options(on_duplicate='keep'), and check `outcome` of each handle"
            )
        return jobs

    def _all_headers(self) -> dict[str, str]:
        if self._job_type.settings.raw:
            return {}
        headers = self._job_type.app.headers(self._job_type.name, self._headers)
        tags = (self._extension or {}).get("tags", self._job_type.settings.tags)
        return {**headers, TAGS_HEADER: "\n".join(tags)} if tags else headers

    def _at_ms(self) -> int | None:
        if self._delay_s is None:
            return self._run_after_ms
        return self._job_type.app.clock.now_ms() + round(self._delay_s * 1000)

    def _given(self, call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Its arguments by position and by name. A text is a sequence too, but surely not meant as one argument for
        each letter.
        """
        if isinstance(call, Mapping):
            return (), dict(call)
        if not isinstance(call, tuple | list):
            raise ArgumentsInvalid(
                f"job {self._job_type.name!r}: a call {call!r:.100}; allowed: a tuple, a list or a dict"
            )
        return tuple(call), {}


class TypedOptions(EnqueueOptions[P], Generic[P, ResultT]):
    """EnqueueOptions whose handles have, for a type checker, what the function returns."""

    __slots__ = ()

    if TYPE_CHECKING:

        def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[ResultT]: ...

        async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> AsyncJobHandle[ResultT]: ...

        def enqueue_many(self, calls: Iterable[Call]) -> list[JobHandle[ResultT]]: ...

        async def enqueue_many_async(self, calls: Iterable[Call]) -> list[AsyncJobHandle[ResultT]]: ...


def _key(template: KeyTemplate | Literal[False] | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """ "": none."""
    return (template.key(args, kwargs) or "") if template else ""
