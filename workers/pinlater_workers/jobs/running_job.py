"""The jobs that a worker runs: one with its claim and its type, or a batch of such."""

from __future__ import annotations

import msgspec

from pinlater.job_body import ITEM_HEADER
from pinlater.model import DequeuedJob
from pinlater_workers.envelope import Envelope
from pinlater_workers.jobs.batch import BatchContext
from pinlater_workers.jobs.context import Host, JobContext, StopReason
from pinlater_workers.jobs.job_type import JobType


class RunningJob(msgspec.Struct, eq=False, gc=False):
    """A job that a worker runs. `type` None: none that this worker knows. `envelope` None: a body that has none.

    `began_s` and `until_s` (the time limit) are of time.monotonic, `deadline_ms` is the limit by the wall clock.
    `stop_reason` is why it was told to stop, if it was; `cancelled_by` who asked for that, None: nobody. `ahead`:
    it is with its pool, and has not begun. `turn`: when it came, as prefetch.py counts time.
    """

    job: DequeuedJob
    queue: str
    type: JobType | None
    began_s: float
    until_s: float
    envelope: Envelope | None = None
    deadline_ms: int = 0
    stop_reason: StopReason | None = None
    ahead: bool = False
    turn: int = 0
    cancelled_by: str | None = None

    @property
    def carries_item(self) -> bool:
        """Its result is that of an item of a flow."""
        return self.envelope is not None and ITEM_HEADER in self.envelope.headers

    def begin(self, now_s: float) -> None:
        """It begins then: that it has waited since it was read does not count. Also from the thread that runs it."""
        waited_s = now_s - self.began_s
        self.began_s = now_s
        self.until_s += waited_s
        self.deadline_ms += int(waited_s * 1000)
        self.ahead = False

    def context(self, host: Host) -> JobContext:
        """For a job of a known type."""
        assert self.type is not None
        return JobContext(self.type.name, self.queue, self.job, host, self.deadline_ms, self.envelope)


class RunningBatch(RunningJob, kw_only=True, eq=False, gc=False):
    """A batch that a worker runs: for its pool a job like any other, with one context and one end."""

    members: list[RunningJob]

    def context(self, host: Host) -> BatchContext:
        contexts = [(member.job, member.context(host)) for member in self.members]
        return BatchContext(contexts, host, self.deadline_ms)
