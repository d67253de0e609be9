"""Jobs that servers make, for flows and schedules: who may change them by their descriptors.

Producers of a queue may cancel and reschedule the jobs of one another. These belong to none of them: what an item
says is the flow's, whatever its key or descriptor, which can be guessed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from pinlater.errors import Forbidden
from pinlater.extended_limits import is_of_server
from pinlater.model import JobInfo, RequestContext
from pinlater.service.job_lifecycle import sliced
from pinlater.service.rights import OPERATE, may

_AT_ONCE = 100
"""The most jobs in one lookup: each may bring a long status."""

LookUp = Callable[[Sequence[str]], Awaitable[Mapping[str, JobInfo]]]
"""What is known of jobs, wherever they are now."""


async def refuse_changes(
    look_up: LookUp, queue: str, descriptors: Sequence[str], context: RequestContext | None
) -> None:
    """Forbidden: one of these jobs of the queue was made by servers, and the caller may not operate the queue. Whoever
    may is not asked about: nothing is looked up then.
    """
    if may(context, OPERATE, queue):
        return
    named = [each for each in dict.fromkeys(descriptors) if each.partition(":")[0] == queue]
    for some in sliced(named, _AT_ONCE):
        for descriptor, info in (await look_up(some)).items():
            if is_of_server(info.dedupe_key):
                raise Forbidden(
                    f"job {descriptor} was made by the servers, for a flow or a schedule: changing it needs operate on "
                    f"queue {queue!r}; a flow is ended by cancelFlow"
                )
