"""The calls that search for jobs by conditions, and that change all jobs which such a search finds.

A change to many jobs is one run of many calls. The audit has one entry where the run begins, with what it looks for,
and one where it ends, with how many jobs it was; a run of one call has the last alone. Each server process that carries
out a part of a run notes that once, so that no run goes unseen whose last call never comes.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from dataclasses import fields
from typing import Any, Protocol

from pinlater import job_limits
from pinlater.errors import RequestInvalid
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    JobAction,
    JobChange,
    JobInfo,
    JobsChanged,
    JobState,
    RequestContext,
)
from pinlater.model.job_selection import (
    PENDING_PHASES,
    FoundJobs,
    FoundJobsChange,
    JobPhase,
    JobSelection,
    TextCondition,
    phase_of,
    phases_of,
)
from pinlater.schedule import utc_text
from pinlater.service import validation
from pinlater.service.audit import OPEN
from pinlater.service.bulk_ops import (
    ASKED_METRIC,
    DELETED_METRIC,
    RETRIED_METRIC,
    jobs_text,
)
from pinlater.service.bulk_slices import BulkSlices, Slice, SliceOrder, named_text
from pinlater.service.job_queries import fitting_infos
from pinlater.service.rights import hide_others
from pinlater.service.searches import Mark, Walk, read_mark, write_mark
from pinlater.service.selection import Conditions, SearchPart, check_selection, parts_of
from pinlater.service.service_context import ServiceContext

MAX_NOTE_CHARS = 500
_KNOWN_RUNS = 1_000
_FEW = 3
"""So many jobs are named though it is not known which of them were changed."""

_TAKES: dict[JobAction, tuple[JobPhase, ...]] = {
    JobAction.RETRY: (JobPhase.FAILED, JobPhase.CANCELLED),
    JobAction.DELETE: tuple(JobPhase),
    JobAction.CANCEL: (*PENDING_PHASES, JobPhase.IN_PROGRESS),
    JobAction.REPLAY: (*PENDING_PHASES, JobPhase.FAILED, JobPhase.CANCELLED),
}
"""The phases that an action is for."""

_WITHOUT_PHASES: dict[JobAction, tuple[JobPhase, ...]] = _TAKES | {
    JobAction.RETRY: (JobPhase.FAILED,),
    JobAction.DELETE: (),
}
"""Those that it means where none is named. What somebody stopped is not what failed, and a deletion has to say what it
is for.
"""


class JobLookup(Protocol):
    """Looks up jobs by their descriptors, wherever they are."""

    def __call__(
        self, descriptors: Sequence[str], /, *, include_body: bool
    ) -> Coroutine[Any, Any, dict[str, JobInfo]]: ...


class FoundJobsCalls:
    """Searches, and changes of what they find, for one service."""

    def __init__(self, context: ServiceContext, slices: BulkSlices, lookup: JobLookup) -> None:
        self._router = context.router
        self._clock = context.clock
        self._who = context.who
        self._lookup = lookup
        self._slices = slices
        self._validator = context.validator
        self._settings = context.settings
        self._metrics = context.metrics
        self._audit = context.audit
        self._runs: OrderedDict[str, None] = OrderedDict()

    # -- looking -----------------------------------------------------------------------------------------------------

    async def search(
        self, selection: JobSelection, limit: int, include_body: bool, max_ms: int | None, continuation: str
    ) -> FoundJobs:
        """RequestInvalid, ContinuationInvalid, QueueNotFound."""
        limit = self._validator.limit(limit)
        priorities = check_selection(selection, self._validator)
        conditions = Conditions(selection)
        ends_at = self._slices.ends_at(_checked_max_ms(max_ms))
        phases = tuple(JobPhase) if selection.phases is None else selection.phases
        if selection.selects_nothing:
            page = FoundJobs([], 0)
        elif selection.descriptors is not None:
            found = await self._named(selection, phases, conditions, ends_at)
            page = FoundJobs(found[:limit], len(selection.descriptors))
        else:
            meant = ("search", *_meant(selection))
            parts = parts_of(phases)
            mark = read_mark(continuation, self._clock.now_ms(), len(parts), meant)
            router, settings = self._router, self._settings
            walk = Walk(router, settings, selection.queue, parts, priorities, conditions, mark, ends_at, limit)
            jobs, reached = await self._walk(walk, limit)
            shard_ids = [member.shard.shard_id or "?" for member in walk.missing]
            text = CONTINUATION_END if reached is None else write_mark(reached, meant)
            page = FoundJobs(jobs, walk.examined, text, shard_ids)
        await self._fill(page.jobs, include_body)
        return page

    async def _walk(self, walk: Walk, limit: int) -> tuple[list[JobInfo], Mark | None]:
        """Up to `limit` jobs, as many as fit into an answer, and where the next page begins."""
        jobs: list[JobInfo] = []
        while walk.mark is not None:
            page = await walk.page()
            room = limit - len(jobs)
            for job in page:
                job.body = None
            jobs += page[:room]
            fits = fitting_infos(jobs, self._settings.max_answer_bytes // 2)  # bodies may come beside them
            if fits < len(jobs):
                del jobs[fits:]
                return jobs, walk.turn_back(jobs[-1])
            if len(page) >= room:
                return jobs, walk.turn_back(jobs[-1]) if len(page) > room else walk.mark
            if walk.is_over():
                break
        return jobs, walk.mark

    async def _named(
        self,
        selection: JobSelection,
        phases: Sequence[JobPhase],
        conditions: Conditions,
        ends_at: float,
    ) -> list[JobInfo]:
        """The jobs among those named that the selection and its conditions are for, without bodies."""
        wanted = dict.fromkeys(selection.descriptors or ())
        named = [each for each in wanted if each.partition(":")[0] == selection.queue]
        meant: list[JobInfo] = []
        while named:
            infos = await self._lookup(named, include_body=conditions.reads_bodies)
            now_ms = self._clock.now_ms()
            named = [name for name in named if name in infos and infos[name].body_left_out]
            found = [
                info
                for info in infos.values()
                if phase_of(info, now_ms) in phases
                and (selection.priorities is None or info.priority in selection.priorities)
                and not info.body_left_out  # it is judged by its body, so it is looked up again
            ]
            while found:
                hits = await conditions.select(found, ends_at)
                meant += [info for info, hit in zip(found, hits, strict=False) if hit]
                del found[: len(hits)]
            for info in infos.values():
                info.body = None
        return meant

    async def _fill(self, jobs: list[JobInfo], include_body: bool) -> None:
        """Bodies of jobs that were found, as far as they fit into a page: at least that of the first."""
        if not include_body or not jobs:
            return
        infos = await self._lookup([job.descriptor for job in jobs], include_body=True)
        room = min(self._settings.page_bytes, self._settings.max_answer_bytes // 2)
        for index, job in enumerate(jobs):
            info = infos.get(job.descriptor)
            job.body, job.body_left_out = (None, None) if info is None else (info.body, info.body_left_out)
            room -= len(job.body or b"")
            if room < 0 and index and job.body is not None:
                job.body, job.body_left_out = None, True

    # -- changing ----------------------------------------------------------------------------------------------------

    async def change(self, change: FoundJobsChange, context: RequestContext | None) -> JobsChanged:
        """RequestInvalid, ContinuationInvalid, QueueNotFound; a shard that fails is named, and the others go on."""
        phases = self._checked(change)
        meant = ("change", *_meant(change.selection), int(change.action), change.dry_run, change.attempts)
        meant = (*meant, change.run_after_ms, change.stops_running)
        return await self._slice(self._who(context), change, phases, parts_of(phases), meant, secrets.token_hex(8))

    async def change_filtered(self, change: JobChange, context: RequestContext | None) -> JobsChanged:
        """As `change`, for the filter of changeJobs. Its continuations are as older servers write them: they have no
        run, so each call is recorded by itself, and the jobs of one state come after those of the other.
        """
        found = _found_jobs_change(change)
        phases = self._checked(found)
        states = dict.fromkeys(phase.state for phase in phases)
        parts = [part for state in states for part in parts_of([phase for phase in phases if phase.state is state])]
        meant = (
            change.queue,
            int(change.action),
            None if change.state is None else int(change.state),
            change.priority,
            change.created_before_ms,
            change.created_after_ms,
            change.body_regex,
            change.dry_run,
            change.attempts,
            change.run_after_ms,
        )
        return await self._slice(self._who(context), found, phases, parts, meant, regex_field="bodyRegexToMatch")

    async def _slice(
        self,
        who: str,
        change: FoundJobsChange,
        phases: Sequence[JobPhase],
        parts: Sequence[SearchPart],
        meant: tuple[object, ...],
        run: str = "",
        regex_field: str = "",
    ) -> JobsChanged:
        """One slice of what was checked; `meant` is what its continuation is good for."""
        selection = change.selection
        priorities = check_selection(selection, self._validator)
        if change.stops_running:
            self._router.keys.homes.check()
        order = SliceOrder(
            selection.queue,
            change.action,
            parts,
            priorities,
            Conditions(selection, regex_field),
            change.limit,
            change.attempts,
            change.run_after_ms,
            change.dry_run,
            stop_by=(who or "unknown") if change.stops_running else "",
        )
        slice_ = Slice(order, self._slices.ends_at(_checked_max_ms(change.max_ms)))
        begun = read_mark(change.continuation, self._slices.begins_ms(), len(order.parts), meant, run)
        reached: Mark | None = begun
        if selection.selects_nothing:
            reached = None
        elif selection.descriptors is not None:
            await self._change_named(slice_, selection, phases)
            reached = None
        elif change.limit:
            reached = await self._slices.run(slice_, begun)
        total = begun.changed + slice_.changed + slice_.stop_requests
        if not change.dry_run:
            await self._record(who, change, slice_, begun, total, is_over=reached is None or change.is_last or not run)
        if reached is None:
            return slice_.answer(CONTINUATION_END)
        return slice_.answer(write_mark(reached._replace(changed=total), meant))

    async def _change_named(self, slice_: Slice, selection: JobSelection, phases: Sequence[JobPhase]) -> None:
        """The jobs named, all in one call."""
        conditions = slice_.order.conditions
        assert conditions is not None
        slice_.examined = len(selection.descriptors or ())
        found = await self._named(selection, phases, conditions, slice_.ends_at)
        jobs = self._slices.changeable(found, slice_)
        if jobs:
            await self._slices.apply(jobs, slice_)

    def _checked(self, change: FoundJobsChange) -> Sequence[JobPhase]:
        """The phases that are meant; what is given to the jobs is checked."""
        if change.action not in _TAKES:
            raise RequestInvalid.of("action", change.action, ", ".join(f"{each.name} {each:d}" for each in JobAction))
        takes = _TAKES[change.action]
        if change.action is JobAction.CANCEL and not change.stops_running:
            takes = PENDING_PHASES
        if change.stops_running and change.action is not JobAction.CANCEL:
            raise RequestInvalid.of("mode", "ALSO_RUNNING", "ONLY_PENDING, but for CANCEL")
        validation.existing_queue(change.selection.queue)
        selection = change.selection
        phases = selection.phases
        allowed = ", ".join(f"{phase.name} {phase:d}" for phase in takes)
        if any(phase not in takes for phase in phases or ()):
            wrong = next(phase for phase in phases or () if phase not in takes)
            raise RequestInvalid.of(f"a phase for {change.action.name}", wrong.name, allowed)
        if phases is None:
            phases = takes if selection.descriptors is not None else _WITHOUT_PHASES[change.action]
            phases = [phase for phase in phases if phase in takes]
        if not phases and not selection.selects_nothing:
            raise RequestInvalid.of(f"phases for {change.action.name}", "none", f"one at least of {allowed}")
        if not (change.is_last and change.limit == 0):
            validation.at_least_1("limit", change.limit)
        if len(change.note) > MAX_NOTE_CHARS:
            raise RequestInvalid.of("the length of note", len(change.note), f"at most {MAX_NOTE_CHARS} characters")
        if change.attempts is not None:
            if change.action not in (JobAction.RETRY, JobAction.REPLAY):
                raise RequestInvalid.of("attempts", change.attempts, "nothing, but for RETRY and REPLAY")
            validation.at_least_1("attempts", change.attempts)
            job_limits.attempts("attempts", change.attempts)
        if change.run_after_ms is not None:
            if change.action is not JobAction.RETRY:
                raise RequestInvalid.of("runAfterMillis", change.run_after_ms, "nothing, but for RETRY")
            job_limits.time("runAfterMillis", change.run_after_ms)
        return phases

    async def _record(
        self, who: str, change: FoundJobsChange, slice_: Slice, begun: Mark, total: int, *, is_over: bool
    ) -> None:
        """The metrics of a slice, and what the audit is to have of its run."""
        queue, action = change.selection.queue, change.action
        is_retry = action in (JobAction.RETRY, JobAction.REPLAY)
        for jobs, metric in (
            (slice_.changed, RETRIED_METRIC if is_retry else DELETED_METRIC),
            (slice_.stop_requests, ASKED_METRIC),
        ):
            if jobs:
                self._metrics.add(jobs, metric, queue)
        is_known = begun.run in self._runs
        if is_over:
            self._runs.pop(begun.run, None)
            end = ", stopped before its end" if change.is_last and begun.changed and not slice_.changed else ""
            text = jobs_text(total) + end
        elif (slice_.changed or slice_.stop_requests) and not is_known:
            self._runs[begun.run] = None
            if len(self._runs) > _KNOWN_RUNS:
                self._runs.popitem(last=False)
            begin = "begins" if change.continuation == CONTINUATION_START else "goes on here"
            text = f"{begin}: {jobs_text(total)} so far"
        else:
            return
        if total:
            await self._audit.write(
                who, f"{action.name.lower()}_jobs", queue, text + _change_text(change, slice_, total), part=OPEN
            )


def _found_jobs_change(change: JobChange) -> FoundJobsChange:
    """RequestInvalid for a state that the action is not for, of which a deletion has to name one."""
    states = dict.fromkeys(phase.state for phase in _TAKES.get(change.action, ()))
    if change.action is JobAction.CANCEL:
        del states[JobState.IN_PROGRESS]
    is_wrong = change.state not in states if change.state is not None else change.action is JobAction.DELETE
    if states and is_wrong:
        allowed = " or ".join(f"{state.name} {state:d}" for state in states)
        raise RequestInvalid.of(f"jobState for {change.action.name}", change.state, allowed)
    phases = None
    if change.state is not None and change.action is not JobAction.RETRY:
        phases = [phase for phase in phases_of(change.state) if phase in _TAKES[change.action]]
    selection = JobSelection(
        change.queue,
        phases,
        None if change.priority is None else (change.priority,),
        (TextCondition(change.body_regex),) if change.body_regex else (),
        created_before_ms=change.created_before_ms,
        created_after_ms=change.created_after_ms,
    )
    return FoundJobsChange(
        selection,
        change.action,
        change.limit,
        change.dry_run,
        change.attempts,
        change.run_after_ms,
        continuation=change.continuation,
    )


def _meant(selection: JobSelection) -> tuple[object, ...]:
    """What a continuation is good for: equal for selections of the same jobs, in whatever order they are described."""
    conditions = [
        [(each.regex, bool(each.is_not)) for each in texts]
        for texts in (selection.body_conditions, selection.status_conditions)
    ]
    plain = [getattr(selection, name) for name in _PLAIN_FIELDS]
    keys = [selection.dedupe_key or "", selection.serialize_key or ""]  # as older servers digest them
    phases, priorities = selection.phases or (), selection.priorities or ()
    origin = [selection.origin_queue] if selection.origin_queue else []
    group = [("group", selection.group)] if selection.group else []
    more = (*plain, *keys, *sorted(selection.tags), *origin, *group)
    return (sorted(map(int, phases)), sorted(priorities), *conditions, *more)


_PLAIN_FIELDS = ["queue", *[each.name for each in fields(JobSelection) if each.type == "int | None"]]


def _checked_max_ms(max_ms: int | None) -> int | None:
    if max_ms is not None:
        validation.at_least_1("maxMillis", max_ms)
    return max_ms


def _change_text(change: FoundJobsChange, slice_: Slice, total: int) -> str:
    """What was requested, for the audit, and which jobs go on by it, as far as that is known: ", part, part: note"."""
    selection = change.selection
    jobs = slice_.changed_jobs if change.action in (JobAction.RETRY, JobAction.REPLAY) else []
    named = selection.descriptors or ()
    parts = [] if jobs or not named else [named_text(named if len(named) <= _FEW else [], len(named))]
    if selection.phases:
        parts.append(" or ".join(phase.name for phase in selection.phases))
    if selection.priorities:
        parts.append(f"priority {' or '.join(map(str, selection.priorities))}")
    for what, conditions in (("status", selection.status_conditions), ("body", selection.body_conditions)):
        parts += [f"{what} {'does not match' if each.is_not else 'matches'} {each.regex}" for each in conditions]
    for name in ("created", "updated", "ended"):
        for when in ("before", "after"):
            time_ms = getattr(selection, f"{name}_{when}_ms")
            parts += [] if time_ms is None else [f"{name} {when} {utc_text(time_ms)}"]
    for name, value in (
        ("attempts at least", selection.min_attempts),
        ("attempts at most", selection.max_attempts),
        ("dedupe key", selection.dedupe_key or None),
        ("serialize key", selection.serialize_key or None),
        ("tags", " and ".join(selection.tags) or None),
        ("from", selection.origin_queue or None),
        ("group", selection.group or None),
        ("gets attempts", change.attempts),
        ("runs after", None if change.run_after_ms is None else utc_text(change.run_after_ms)),
        ("also running ones", "" if change.stops_running else None),
    ):
        parts += [] if value is None else [f"{name} {value}".strip()]
    parts += [named_text(jobs, total)] if jobs else []
    return "".join(f", {each}" for each in parts) + (f": {change.note}" if change.note else "")


class FoundJobsApi:
    """The calls of `Api` that search for jobs, and change all that they find."""

    _found_jobs: FoundJobsCalls

    async def change_jobs(self, change: JobChange, *, context: RequestContext | None = None) -> JobsChanged:
        return await self._found_jobs.change_filtered(change, context)

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
        page = await self._found_jobs.search(selection, limit, include_body, max_ms, continuation)
        hide_others(context, page.jobs)
        return page

    async def change_found_jobs(self, change: FoundJobsChange, *, context: RequestContext | None = None) -> JobsChanged:
        return await self._found_jobs.change(change, context)
