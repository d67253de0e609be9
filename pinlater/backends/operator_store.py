"""The commands of operators in a store: retrying, deleting and replaying jobs that have ended."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.operations import StorePart, operation
from pinlater.backends.requests import JobKey
from pinlater.model import JobState


class OperatorStore(StorePart):
    """A store that lacks it refuses each of these."""

    @operation(bulk=True)
    async def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
    ) -> int:
        """Up to `limit` FAILED jobs back to PENDING with attempts_remaining = `attempts`, attempts_allowed unchanged,
        crashes, claim and `moved_to` cleared, pending for `dead_letter` no more, run_after as given or now; oldest
        run_after first. How many. QueueNotFound.

        The dead letter of a job (its `moved_to`) that is PENDING, FAILED or CANCELLED, and has no copy of its own, is
        removed in the same step: one failure is in one place. Where the letter is anything else, or lies on another
        shard, the job stays. A letter that is not there holds up nothing.

        CANCELLED and REPLAYED jobs stay, and those whose dedupe key has another live job (`taken_keys` tells which).
        What stays takes nothing of the limit. A serialize key gives the job a new place at the end. A job keeps its
        expiry: where that has passed it ends again.
        """

    @operation(bulk=True)
    async def retry_listed(
        self,
        queue: str,
        jobs: Sequence[JobKey],
        attempts: int | None,
        run_after_ms: int | None,
        now_ms: int,
        homes_version: str = "",
    ) -> int:
        """As `retry_failed`, for those of the jobs that are FAILED or CANCELLED; `attempts` None: as many as were
        allowed. `homes_version`: as for `enqueue_extended`; HomesChanged, and then nothing is changed. QueueNotFound.
        """

    @operation(bulk=True)
    async def delete_jobs(self, queue: str, state: JobState, priority: int, limit: int, now_ms: int) -> int:
        """Remove up to `limit` jobs of one state and priority; how many. QueueNotFound."""

    @operation(bulk=True)
    async def delete_listed(self, queue: str, state: JobState, jobs: Sequence[JobKey], now_ms: int) -> int:
        """Remove those of the jobs that are still in that state; how many. QueueNotFound."""

    @operation(bulk=True)
    async def replay(
        self,
        queue: str,
        jobs: Sequence[JobKey],
        now_ms: int,
        attempts: int | None,
        homes_version: str = "",
        marks_originals: bool = True,
    ) -> list[str | None]:
        """Send dead letters back: each of these jobs that is PENDING, FAILED or CANCELLED, made by `dead_letter`, and
        whose origin's queue is there, becomes a new PENDING job of that queue, in one step, and is removed here.

        Same body and priority, run_after now, `attempts` allowed (None: as many as the origin was), the letter's status
        and its descriptor as `origin`; it is no dead letter itself. The new descriptors; None where nothing was done.
        The new job has the tags and the keys of the origin and its `dedupe_for_ms`, but no send id, expiry, claim
        time-out or progress; where its dedupe key has a live job, nothing is done (`taken_keys`). A letter named twice
        goes once. `homes_version`: as for `retry_listed`. QueueNotFound.

        In the same step the origin, where it is here, FAILED, and this letter is its `moved_to`, becomes REPLAYED, with
        the new descriptor as `replayed_to` in place of `moved_to`, and is updated now. It is pruned as it would have
        been. `marks_originals` False: not so, as servers that do not know REPLAYED would misread it.
        """
