"""Searches for jobs, and changes of what they find, both ways between the wire and the model."""

from __future__ import annotations

from typing import Any

from pinlater.errors import RequestInvalid
from pinlater.model import CONTINUATION_END, CONTINUATION_START
from pinlater.model.job_selection import FoundJobs, FoundJobsChange, JobPhase, JobSelection, TextCondition
from pinlater.wire.convert import job_info_from_wire
from pinlater.wire.convert_keyed import ALSO_RUNNING, cancels_running
from pinlater.wire.convert_operators import action_from_wire
from pinlater.wire.interface import filled, struct

_Selection = struct("JobSelection")
_SearchRequest = struct("SearchJobsRequest")
_SearchResponse = struct("SearchJobsResponse")
_ChangeRequest = struct("ChangeFoundJobsRequest")
_PHASES = {int(phase): phase for phase in JobPhase}


# -- a server reads and answers ----------------------------------------------------------------------------------------


def selection_from_wire(selection: Any) -> JobSelection:
    """RequestInvalid."""
    return JobSelection(
        selection.queue,
        None if selection.phases is None else [_phase(number) for number in selection.phases],
        selection.priorities,
        [TextCondition(each.regex, each.is_not or False) for each in selection.body_conditions or ()],
        [TextCondition(each.regex, each.is_not or False) for each in selection.status_conditions or ()],
        selection.created_before_ms,
        selection.created_after_ms,
        selection.updated_before_ms,
        selection.updated_after_ms,
        selection.ended_before_ms,
        selection.ended_after_ms,
        selection.min_attempts,
        selection.max_attempts,
        selection.dedupe_key,
        selection.serialize_key,
        None if selection.descriptors is None else [each for each in selection.descriptors if each],
    )


def _phase(number: int) -> JobPhase:
    if number not in _PHASES:
        raise RequestInvalid.of("a phase", number, ", ".join(f"{phase.name} {phase}" for phase in JobPhase))
    return _PHASES[number]


def found_jobs_change_from_wire(request: Any) -> FoundJobsChange:
    """RequestInvalid."""
    return FoundJobsChange(
        selection_from_wire(request.selection),
        action_from_wire(request.action),
        1000 if request.limit is None else request.limit,
        request.dry_run or False,
        request.attempts,
        request.run_after_ms,
        cancels_running(request),
        request.max_ms,
        request.is_last or False,
        request.note or "",
        CONTINUATION_START if request.continuation is None else request.continuation,
    )


def found_jobs_to_wire(found: FoundJobs) -> Any:
    return filled(
        _SearchResponse,
        jobs=found.jobs,
        looked_at=found.looked_at,
        continuation=found.continuation,
        missing_shards=found.missing_shards or None,
    )


# -- a client calls, and reads -----------------------------------------------------------------------------------------


_NO_JOB = ("",)
"""The descriptors of a selection of nothing. Older servers take an empty list for all jobs, and find no job of this
name.
"""


def _selection_to_wire(selection: JobSelection) -> Any:
    descriptors = _NO_JOB if selection.selects_nothing else selection.descriptors
    return filled(
        _Selection,
        queue=selection.queue,
        phases=list(selection.phases or ()) or None,
        priorities=list(selection.priorities or ()) or None,
        body_conditions=list(selection.body_conditions) or None,
        status_conditions=list(selection.status_conditions) or None,
        created_before_ms=selection.created_before_ms,
        created_after_ms=selection.created_after_ms,
        updated_before_ms=selection.updated_before_ms,
        updated_after_ms=selection.updated_after_ms,
        ended_before_ms=selection.ended_before_ms,
        ended_after_ms=selection.ended_after_ms,
        min_attempts=selection.min_attempts,
        max_attempts=selection.max_attempts,
        dedupe_key=selection.dedupe_key or None,
        serialize_key=selection.serialize_key or None,
        descriptors=None if descriptors is None else list(descriptors),
    )


def search_to_wire(
    selection: JobSelection, limit: int, include_body: bool, max_ms: int | None, continuation: str
) -> Any:
    return filled(
        _SearchRequest,
        selection=_selection_to_wire(selection),
        limit=limit,
        include_body=include_body or None,
        max_ms=max_ms,
        continuation=continuation,
    )


def change_found_jobs_to_wire(change: FoundJobsChange) -> Any:
    return filled(
        _ChangeRequest,
        selection=_selection_to_wire(change.selection),
        action=change.action,
        limit=change.limit,
        dry_run=change.dry_run or None,
        attempts=change.attempts,
        run_after_ms=change.run_after_ms,
        mode=ALSO_RUNNING if change.stops_running else None,
        max_ms=change.max_ms,
        is_last=change.is_last or None,
        note=change.note or None,
        continuation=change.continuation,
    )


def found_jobs_from_wire(response: Any) -> FoundJobs:
    return FoundJobs(
        [job_info_from_wire(info) for info in response.jobs],
        response.looked_at,
        CONTINUATION_END if response.continuation is None else response.continuation,
        response.missing_shards or [],
    )
