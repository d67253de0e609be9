"""Selections of jobs as a service carries them out: the scans that they need, and the conditions on what these find."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pinlater import job_limits
from pinlater.backends.base import StoredState
from pinlater.errors import RequestInvalid
from pinlater.extended_limits import read_group, read_keys, read_tags
from pinlater.model import JobInfo, KeyRef
from pinlater.model.job_selection import JobPhase, JobSelection, TextCondition
from pinlater.service import validation
from pinlater.service.body_pattern import INLINE_STEPS, BodyPattern
from pinlater.service.validation import Validator

MAX_CONDITIONS = 20
"""The most conditions of each kind of text in one request."""

MAX_DESCRIPTORS = 1_000


class SearchPart(NamedTuple):
    """One of the scans that a search consists of."""

    states: tuple[StoredState, ...]
    future: bool


_SCANS: dict[JobPhase, tuple[tuple[StoredState, ...], tuple[bool, ...]]] = {
    JobPhase.READY: ((StoredState.PENDING, StoredState.IN_LINE), (False,)),
    JobPhase.SCHEDULED: ((StoredState.PENDING,), (True,)),
    JobPhase.WAITING: ((StoredState.WAITING,), (False, True)),
    JobPhase.IN_PROGRESS: ((StoredState.IN_PROGRESS,), (False, True)),
    JobPhase.SUCCEEDED: ((StoredState.SUCCEEDED,), (False, True)),
    JobPhase.FAILED: ((StoredState.FAILED,), (False, True)),
    JobPhase.CANCELLED: ((StoredState.CANCELLED,), (False, True)),
    JobPhase.REPLAYED: ((StoredState.REPLAYED,), (False, True)),
}


def parts_of(phases: Sequence[JobPhase]) -> list[SearchPart]:
    """First what may run by now, or could have, then what is for later."""
    found = []
    for future in (False, True):
        states = {state for phase in phases if future in _SCANS[phase][1] for state in _SCANS[phase][0]}
        if states:
            found.append(SearchPart(tuple(sorted(states)), future))
    return found


class Conditions:
    """The conditions of a job, beside its queue, state and priority. RequestInvalid for a pattern that is none."""

    def __init__(self, selection: JobSelection, regex_field: str = "") -> None:
        """`regex_field`: the field that has the one pattern of a call of before."""
        self._selection = selection
        self._statuses = _patterns("statusConditions", selection.status_conditions)
        self._bodies = _patterns(regex_field or "bodyConditions", selection.body_conditions)
        self._has_others = (
            any(getattr(selection, name) for name in ("dedupe_key", "serialize_key", "origin_queue", "group"))
            or any(getattr(selection, name) is not None for name in (*_TIMES, "min_attempts", "max_attempts"))
            or len(selection.tags) > 1
        )

    @property
    def tag(self) -> str:
        """The one whose index is read for such jobs; "": none."""
        return self._selection.tags[0] if self._selection.tags else ""

    @property
    def reads_bodies(self) -> bool:
        return bool(self._bodies)

    @property
    def admit_all(self) -> bool:
        """There are none, or a tag alone."""
        return not (self._has_others or self._statuses or self._bodies)

    async def select(self, jobs: Sequence[JobInfo], ends_at: float) -> list[bool]:
        """Whether each job is meant; of the first ones only when the time is over, but of one at least."""
        is_any = not (self._has_others or self._selection.tags)
        hits = [True] * len(jobs) if is_any else list(map(self._admits, jobs))
        inline_steps = INLINE_STEPS // max(1, len(self._statuses) + len(self._bodies))
        for patterns, text_of in ((self._statuses, _status), (self._bodies, _body)):
            for pattern, is_not in patterns:
                hits = await _narrow(hits, jobs, pattern, is_not, text_of, ends_at, inline_steps)
                await asyncio.sleep(0)  # others have their turn between two conditions
        return hits

    def _admits(self, job: JobInfo) -> bool:
        wanted = self._selection
        if not (
            _between(job.created_at_ms, wanted.created_after_ms, wanted.created_before_ms)
            and _between(job.updated_at_ms, wanted.updated_after_ms, wanted.updated_before_ms)
            and _between(job.finished_at_ms, wanted.ended_after_ms, wanted.ended_before_ms)
        ):
            return False
        taken = job.attempts_allowed - job.attempts_remaining
        if wanted.min_attempts is not None and taken < wanted.min_attempts:
            return False
        if wanted.max_attempts is not None and taken > wanted.max_attempts:
            return False
        if wanted.dedupe_key and job.dedupe_key != wanted.dedupe_key:
            return False
        if wanted.tags and not set(wanted.tags).issubset(job.tags or ()):
            return False
        if wanted.origin_queue and (job.origin or "").partition(":")[0] != wanted.origin_queue:
            return False
        if wanted.group and job.group != wanted.group:
            return False
        return not wanted.serialize_key or job.serialize_key == wanted.serialize_key


def _between(time_ms: int | None, after_ms: int | None, before_ms: int | None) -> bool:
    if after_ms is None and before_ms is None:
        return True
    return (
        time_ms is not None and (after_ms is None or time_ms >= after_ms) and (before_ms is None or time_ms < before_ms)
    )


def _patterns(field: str, conditions: Sequence[TextCondition]) -> list[tuple[BodyPattern, bool]]:
    if len(conditions) > MAX_CONDITIONS:
        raise RequestInvalid.of(f"the length of {field}", len(conditions), f"at most {MAX_CONDITIONS}")
    if any(not each.regex for each in conditions):
        raise RequestInvalid.of(
            f"a pattern of {field}", "", "one that is not empty; without the condition, all are meant"
        )
    return [(BodyPattern(each.regex, field), each.is_not) for each in conditions]


def _status(job: JobInfo) -> bytes:
    return job.custom_status.encode("utf-8", "surrogatepass")


def _body(job: JobInfo) -> bytes:
    return job.body or b""


async def _narrow(
    hits: list[bool],
    jobs: Sequence[JobInfo],
    pattern: BodyPattern,
    is_not: bool,
    text_of: Callable[[JobInfo], bytes],
    ends_at: float,
    inline_steps: int,
) -> list[bool]:
    """The hits that meet this condition too; shorter where the time was over before all were judged."""
    places = [place for place, hit in enumerate(hits) if hit]
    if not places:
        return hits
    left_s = ends_at - asyncio.get_running_loop().time()
    found = await pattern.select([text_of(jobs[place]) for place in places], left_s, inline_steps)
    if len(found) < len(places):
        del hits[places[len(found)] :]
    for place, is_found in zip(places, found, strict=False):
        hits[place] = is_found is not is_not
    return hits


_TIMES = {
    "created_before_ms": "createdBeforeMillis",
    "created_after_ms": "createdAfterMillis",
    "updated_before_ms": "updatedBeforeMillis",
    "updated_after_ms": "updatedAfterMillis",
    "ended_before_ms": "endedBeforeMillis",
    "ended_after_ms": "endedAfterMillis",
}


def check_selection(selection: JobSelection, validator: Validator) -> Sequence[int]:
    """The priorities that it means. RequestInvalid; QueueNotFound for what cannot be a queue's name."""
    validation.existing_queue(selection.queue)
    for attribute, field in _TIMES.items():
        value = getattr(selection, attribute)
        if value is not None:
            job_limits.time(field, value)
    for value, field in ((selection.min_attempts, "minAttempts"), (selection.max_attempts, "maxAttempts")):
        if value is not None and not 0 <= value <= job_limits.MAX_INT32:
            raise RequestInvalid.of(field, value, f"0 to {job_limits.MAX_INT32}")
    keys = KeyRef(selection.dedupe_key or "", selection.serialize_key or "")
    if any(keys):
        read_keys([keys])
    if selection.tags:
        read_tags(selection.tags)
    if selection.group:
        read_group(selection.group)
    if selection.origin_queue:
        validation.existing_queue(selection.origin_queue)
    if len(selection.descriptors or ()) > MAX_DESCRIPTORS:
        allowed = f"at most {MAX_DESCRIPTORS}"
        raise RequestInvalid.of("the length of jobDescriptors", len(selection.descriptors or ()), allowed)
    if selection.priorities is None:
        return validator.priorities
    for priority in selection.priorities:
        validator.priority(priority)
    return tuple(sorted(set(selection.priorities)))
