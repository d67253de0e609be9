"""The trails of jobs in a store: their attempts and log lines."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.operations import StorePart, operation
from pinlater.backends.requests import JobKey
from pinlater.model import JobTrail


class TrailStore(StorePart):
    """The operations of JobStore that end attempts keep what `read_trails` tells of them, in the same step.

    An attempt ends by an ack, by an expiry, by a release of its claim, or as cancelled; one that is requeued was none.
    The last MAX_ATTEMPTS_KEPT of a job are kept, through a retry of an operator too, until the job is removed. A copy
    (`dead_letter`, `replay`) begins with none. A job that succeeds at its first attempt costs no write and no byte
    more. The numbers of attempts follow one another; those that an older version ended are not kept, and not counted.

    A heartbeat adds lines to the log of its job: the last MAX_LOG_LINES, and of these the last whose texts come to no
    more than MAX_LOG_BYTES, are kept as long as the job. A line that is there already, with the same time, attempt and
    text, is not added again.
    """

    @operation(reads=True, bulk=True, optional=True)
    async def read_trails(self, queue: str, jobs: Sequence[JobKey]) -> list[JobTrail | None]:
        """The trail of each job, None where it is not there; all of one job as of one moment. An unknown queue: none.

        A store that lacks this part answers with empty trails.
        """
        return [JobTrail()] * len(jobs)

    @operation(batch=1, optional=True)
    async def put_trails(self, queue: str, given: Sequence[tuple[JobKey, JobTrail]]) -> list[bool]:
        """Give jobs that came from another store the trails that they had there: the attempts that have ended, and the
        log. False where the job is not there, or has a record of attempts or lines already, which stay.
        """
        return [False] * len(given)
