"""What a server has answered, kept outside of it, and whether that was kept.

The promise, checked event by event and once more at the end:

* lost: a job whose enqueue was answered is handed out, or still there, whatever was killed in between;
* early: no job is handed out before its run_after, by the clock that hands it out (tests and servers share one);
* double: no job is handed out again before its claim's expiry, unless its holder failed it in between;
* ended: no job is handed out again once its successful ack was answered, unless its claim had expired by then.

An answer that never came proves nothing: an enqueue may or may not be stored, an ack may or may not be applied.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pinlater.model import AckOutcome, DequeuedJob


@dataclass(slots=True)
class Entry:
    """What is known of one job."""

    run_after_ms: int
    enqueue_answered: bool = True
    claim_descriptor: str = ""
    claim_expires_at_ms: int = 0
    failed_sent_for: str = ""
    success_answered: bool = False
    hand_outs: int = 0


@dataclass
class Ledger:
    """Keeps every answered descriptor; `broken` collects each breach of the promise as one readable line."""

    claim_timeout_ms: int
    entries: dict[str, Entry] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def enqueued(self, descriptor: str, run_after_ms: int) -> None:
        """An enqueue was answered. A hand-out may have been seen before its answer was read."""
        seen = self.entries.get(descriptor)
        if seen is None:
            self.entries[descriptor] = Entry(run_after_ms)
        elif seen.enqueue_answered:
            self.broken.append(f"id given twice: {descriptor}")
        else:
            seen.enqueue_answered = True
            seen.run_after_ms = max(seen.run_after_ms, run_after_ms)

    def handed_out(self, job: DequeuedJob) -> None:
        """A dequeue was answered with this job."""
        entry = self.entries.get(job.descriptor)
        if entry is None:
            entry = self.entries[job.descriptor] = Entry(job.run_after_ms, enqueue_answered=False)
        claimed_at_ms = job.claim_expires_at_ms - self.claim_timeout_ms
        due_ms = max(job.run_after_ms, entry.run_after_ms)
        if claimed_at_ms < due_ms:
            self.broken.append(f"early: {job.descriptor} by {due_ms - claimed_at_ms} ms")
        if entry.success_answered:
            self.broken.append(f"ended: {job.descriptor} handed out after its answered success")
        ended_by_failure = entry.failed_sent_for == entry.claim_descriptor
        if entry.hand_outs and not ended_by_failure and claimed_at_ms <= entry.claim_expires_at_ms:
            left = entry.claim_expires_at_ms - claimed_at_ms
            self.broken.append(f"double: {job.descriptor} with {left} ms of its claim left")
        entry.hand_outs += 1
        entry.claim_descriptor = job.claim_descriptor
        entry.claim_expires_at_ms = job.claim_expires_at_ms

    def success_answered(self, descriptor: str) -> None:
        self.entries[descriptor].success_answered = True

    def ack_answered(self, job: DequeuedJob, outcome: AckOutcome) -> None:
        """The ack of a success was answered. It may have had no effect where its claim had expired by then."""
        if outcome is not AckOutcome.IGNORED or time.time_ns() // 1_000_000 < job.claim_expires_at_ms:
            self.success_answered(job.descriptor)

    def failure_sent(self, job: DequeuedJob) -> None:
        self.entries[job.descriptor].failed_sent_for = job.claim_descriptor

    def unfinished(self) -> set[str]:
        """Jobs that were answered, and whose success was not: each has ended, or must still be there."""
        return {name for name, entry in self.entries.items() if not entry.success_answered}
