"""The calls that search for jobs, and change all that they find; part of the table in methods.py."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Any

from pinlater.api import Api
from pinlater.model import AccessAction, RequestContext
from pinlater.wire import convert
from pinlater.wire import convert_found_jobs as found_jobs
from pinlater.wire.convert_operators import jobs_changed_from_wire
from pinlater.wire.method import Idempotency, Method


def _selected_queue(args: Any) -> Collection[str]:
    return (args.request.selection.queue,)


def _matches_bodies(args: Any) -> bool:
    """Who asks which jobs match a pattern learns of their bodies."""
    return bool(args.request.selection.body_conditions)


def _search(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    return api.search_jobs(
        found_jobs.selection_from_wire(request.selection),
        limit=100 if request.limit is None else request.limit,
        include_body=request.include_body or False,
        max_ms=request.max_ms,
        continuation=convert.continuation_from_wire(request),
        context=context,
    )


SEARCH_JOBS = Method(
    "searchJobs",
    "search_jobs",
    Idempotency.SCAN,
    (AccessAction.READ,),
    _selected_queue,
    _search,
    found_jobs.found_jobs_to_wire,
    found_jobs.search_to_wire,
    result=found_jobs.found_jobs_from_wire,
    shows_bodies=lambda args: bool(args.request.include_body) or _matches_bodies(args),
    answer_size=lambda request: (request.limit or 0, bool(request.include_body)),
)

CHANGE_FOUND_JOBS = Method(
    "changeFoundJobs",
    "change_found_jobs",
    Idempotency.ONCE,
    (AccessAction.OPERATE,),
    _selected_queue,
    lambda api, args, context: api.change_found_jobs(
        found_jobs.found_jobs_change_from_wire(args.request), context=context
    ),
    request=found_jobs.change_found_jobs_to_wire,
    result=jobs_changed_from_wire,
    shows_bodies=_matches_bodies,
    idempotency_of=lambda change: Idempotency.SCAN if change.dry_run else Idempotency.ONCE,
)
