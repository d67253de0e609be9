"""What a server has answered, kept outside of it, and whether that was kept.

The promise, checked event by event and once more at the end:

* lost: a job whose enqueue was answered is handed out, or still there, whatever was killed in between;
* early: no job is handed out before its run_after, by the clock that hands it out (tests and servers share one);
* double: no job is handed out again before its claim's expiry, unless its holder failed it in between;
* ended: no job is handed out again once its successful ack was answered, unless its claim had expired by then.

An answer that never came proves nothing: an enqueue may or may not be stored, an ack may or may not be applied.
Nor does the order in which answers are read: a busy machine may stop a caller until its claim is over and another one
was made and ended. So claims are compared by their times.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pinlater.model import AckOutcome, DequeuedJob


@dataclass(slots=True)
class Claim:
    """One claim of a job, and whether its failure was sent."""

    made_at_ms: int
    expires_at_ms: int
    failure_sent: bool = False

    def left_ms(self, other: Claim) -> int:
        """How long both last at once; below 0: one was over when the other was made."""
        return min(self.expires_at_ms, other.expires_at_ms) - max(self.made_at_ms, other.made_at_ms)


@dataclass(slots=True)
class Entry:
    """What is known of one job: `claims` by their descriptors, `success_answered` for the one that it ended under."""

    run_after_ms: int
    enqueue_answered: bool = True
    claims: dict[str, Claim] = field(default_factory=dict)
    success_answered: Claim | None = None


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
        claim = Claim(job.claim_expires_at_ms - self.claim_timeout_ms, job.claim_expires_at_ms)
        due_ms = max(job.run_after_ms, entry.run_after_ms)
        if claim.made_at_ms < due_ms:
            self.broken.append(f"early: {job.descriptor} by {due_ms - claim.made_at_ms} ms")
        if entry.success_answered and claim.expires_at_ms >= entry.success_answered.made_at_ms:
            self.broken.append(f"ended: {job.descriptor} handed out after its answered success")
        for other in entry.claims.values():
            if not other.failure_sent and (left_ms := claim.left_ms(other)) >= 0:
                self.broken.append(f"double: {job.descriptor} with {left_ms} ms of its claim left")
        entry.claims[job.claim_descriptor] = claim

    def ack_answered(self, job: DequeuedJob, outcome: AckOutcome) -> None:
        """The ack of a success was answered. It may have had no effect where its claim had expired by then."""
        if outcome is not AckOutcome.IGNORED or time.time_ns() // 1_000_000 < job.claim_expires_at_ms:
            entry = self.entries[job.descriptor]
            entry.success_answered = entry.claims[job.claim_descriptor]

    def failure_sent(self, job: DequeuedJob) -> None:
        self.entries[job.descriptor].claims[job.claim_descriptor].failure_sent = True

    def unfinished(self) -> set[str]:
        """Jobs that were answered, and whose success was not: each has ended, or must still be there."""
        return {name for name, entry in self.entries.items() if not entry.success_answered}
