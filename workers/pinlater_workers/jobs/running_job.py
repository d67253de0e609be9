"""The jobs that a worker runs: one with its claim and its type, or a batch of such."""

from __future__ import annotations

import time

import msgspec

from pinlater.job_body import ITEM_HEADER
from pinlater.model import DequeuedJob
from pinlater_workers.envelope import Envelope
from pinlater_workers.jobs.batch import BatchContext
from pinlater_workers.jobs.context import Host, JobContext, StopReason
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.progress_report import SURELY_SENT_MS, ProgressReport, TakeProgress


class RunningJob(msgspec.Struct, eq=False, gc=False):
    """A job that a worker runs. `type` None: none that this worker knows. `envelope` None: a body that has none.

    `began_s` and `until_s` (the time limit) are of time.monotonic, `deadline_ms` is the limit by the wall clock.
    `stop_reason` is why it was told to stop, if it was; `cancelled_by` who asked for that, None: nobody. `ahead`:
    it is with its pool, and has not begun. `turn`: when it came, as prefetch.py counts time. Of one that has said how
    far it is, or logged, `take_new` takes what is new; `untaken` is what came from a process, `taken` all that was.
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
    take_new: TakeProgress | None = None
    untaken: ProgressReport | None = None
    taken: ProgressReport | None = None

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

    def say(self, made: ProgressReport) -> None:
        """It has said this, in a process of a pool."""
        self.untaken = made if self.untaken is None else self.untaken.followed_by(made)

    def take_untaken(self) -> ProgressReport | None:
        """A `take_new`."""
        made, self.untaken = self.untaken, None
        return made

    def take(self) -> ProgressReport | None:
        """What it has newly said, for a heartbeat."""
        made = None if self.take_new is None else self.take_new()
        if made is not None:
            self.taken = made if self.taken is None else self.taken.followed_by(made)
        return made

    def last_report(self) -> ProgressReport | None:
        """For its ack: its last progress, and the lines that a heartbeat may not have brought."""
        if self.take_new is None:
            return None
        self.take()
        if self.taken is None:
            return None
        since_ms = time.time_ns() // 1_000_000 - SURELY_SENT_MS
        return self.taken._replace(log_lines=[line for line in self.taken.log_lines if line.at_ms >= since_ms])

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
