"""The calls that search for jobs, change all they find, and say why jobs do not run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from pinlater.api import Api
from pinlater.model import ANY_QUEUE, AccessAction, is_descriptor
from pinlater.model.job_selection import JobSelection, TextCondition
from pinlater.wire.method import Idempotency, Method
from pinlater.wire.struct_map import BY_HAND, WRITTEN_BY_HAND

_NO_JOB = ("",)
"""The descriptors of a selection of nothing. Older servers take an empty list for all jobs, and find no job of this
name.
"""


_NO_TEXT = TextCondition("", is_not=True)
"""Goes with what older servers do not see of a selection: they would mean all jobs, and either refuse this condition or
find no job that meets it.
"""

_NO_GROUP = TextCondition("(?:group)?", is_not=True)
"""The same for a group. Servers that know tags and no groups leave the other one out beside tags, and obey this one,
which no job meets: its pattern is found in every text.
"""


def _selection_to_wire(selection: JobSelection) -> JobSelection:
    unmet = [_NO_TEXT] if selection.tags or selection.origin_queue else []
    unmet += [_NO_GROUP] if selection.group else []
    if unmet:
        selection = replace(selection, status_conditions=(*selection.status_conditions, *unmet))
    if not selection.selects_nothing:
        return selection
    return replace(
        selection,
        phases=selection.phases or None,
        priorities=selection.priorities or None,
        dedupe_key=selection.dedupe_key or None,
        serialize_key=selection.serialize_key or None,
        origin_queue=selection.origin_queue or None,
        group=selection.group or None,
        descriptors=_NO_JOB,
    )


def _descriptors_from_wire(selection: Any) -> list[str] | None:
    return None if selection.descriptors is None else [each for each in selection.descriptors if each]


def _status_conditions_from_wire(selection: Any) -> list[TextCondition]:
    conditions = [TextCondition(each.regex, each.is_not or False) for each in selection.status_conditions or ()]
    if selection.tags or selection.origin_queue:
        conditions = [each for each in conditions if each.regex]
    return [each for each in conditions if each != _NO_GROUP] if selection.group else conditions


BY_HAND[JobSelection, "descriptors"] = _descriptors_from_wire
BY_HAND[JobSelection, "status_conditions"] = _status_conditions_from_wire
WRITTEN_BY_HAND[JobSelection] = _selection_to_wire


def _selected_queue(args: Any) -> Collection[str]:
    return (args.request.selection.queue,)


def _queues_of_explained(args: Any) -> Collection[str]:
    """What is no descriptor finds nothing."""
    named = {each.partition(":")[0] for each in args.request.descriptors if is_descriptor(each)}
    return named or (ANY_QUEUE,)


def _matches_bodies(args: Any) -> bool:
    """Who asks which jobs match a pattern learns of their bodies."""
    return bool(args.request.selection.body_conditions)


SEARCH_JOBS = Method(
    "searchJobs",
    Api.search_jobs,
    Idempotency.SCAN,
    (AccessAction.READ,),
    _selected_queue,
    shows_bodies=lambda args: bool(args.request.include_body) or _matches_bodies(args),
    answer_size=lambda request: (request.limit or 0, bool(request.include_body)),
)
CHANGE_FOUND_JOBS = Method(
    "changeFoundJobs",
    Api.change_found_jobs,
    Idempotency.ONCE,
    (AccessAction.OPERATE,),
    _selected_queue,
    shows_bodies=_matches_bodies,
    idempotency_of=lambda change: Idempotency.SCAN if change.dry_run else Idempotency.ONCE,
)
EXPLAIN_JOBS = Method("explainJobs", Api.explain_jobs, Idempotency.READ, (AccessAction.READ,), _queues_of_explained)
