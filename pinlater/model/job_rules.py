"""The rules that calls give for jobs, and the outcomes that they get."""

from __future__ import annotations

from pinlater.model.word_enum import WordEnum


class CancelOutcome(WordEnum):
    """The outcome of one job of a cancel call. The numbers are those of the wire contract."""

    CANCELLED = 0
    IN_PROGRESS = 1
    ENDED = 2
    NOT_FOUND = 3
    REQUESTED = 4
    """It is in progress, and its worker is asked to stop."""


class ClaimOutcome(WordEnum):
    """The outcome of one job that a claim named. The numbers are those of the stores."""

    CLAIMED = 0
    NOT_DUE = 1
    """Its run_after is yet to come."""

    BEHIND = 2
    """Another job of its serialize key is before it, whatever its run_after is."""

    IN_PROGRESS = 3
    ENDED = 4
    """Or its expiry has passed, whether or not maintenance has ended it yet."""

    NOT_FOUND = 5
    LIMITED = 6
    """It is eligible, and the quota of its queue leaves no room."""

    GROUP_LIMITED = 7
    """It is eligible, and its group is at its maximum, or at its rate. No store says this."""


class AckOutcome(WordEnum):
    """The outcome of one ack. The numbers are those of the wire contract, and of the stores."""

    IGNORED = 0
    """Nothing was changed: the job was not in progress, not under the claim given, or not there."""

    SUCCEEDED = 1
    RETRIED = 2
    FAILED = 3
    UNKNOWN = 4
    """No store says this. Who carried it out does not tell, or an earlier copy of this very ack may have come first."""

    CANCELLED = 5
    """FAILED for good, since it was to stop."""


class OnDuplicate(WordEnum):
    """The rule of an enqueue whose dedupe key is taken. The numbers are those of the wire contract."""

    KEEP = 0
    """Nothing is stored; the answer is the descriptor of the job that stands."""

    REPLACE = 1
    """A PENDING job gets the new body, run_after and attempts; of one IN_PROGRESS ReplaceRunning decides."""

    REJECT = 2
    """EnqueueRejected, reason DUPLICATE; for requests of one job."""


class ReplaceRunning(WordEnum):
    """What REPLACE does where the job that has the dedupe key is IN_PROGRESS, and no newer one waits behind it yet. The
    numbers are those of the wire contract.
    """

    KEEP = 0
    """The running job is kept, and nothing is stored."""

    ENQUEUE = 1
    """The new job is stored as the successor: it waits until the running one has ended."""

    CANCEL = 2
    """The same, and the running job is asked to stop."""


class EnqueueOutcome(WordEnum):
    """The outcome of one job of an enqueue. The numbers are those of the wire contract."""

    STORED = 0
    KEPT = 1
    REPLACED = 2


class HeartbeatOutcome(WordEnum):
    """The outcome of one heartbeat. The numbers are those of the wire contract."""

    OK = 0
    LOST = 1
    CANCEL = 2
    """As OK, and the job is to stop."""

    UNREACHABLE = 3
    """Its shard cannot be asked now. No store says this."""


class RescheduleOutcome(WordEnum):
    """The outcome of one job of a reschedule. The numbers are those of the wire contract."""

    RESCHEDULED = 0
    IN_PROGRESS = 1
    ENDED = 2
    NOT_FOUND = 3
    CHANGED = 4
    """It was updated at another time than the one named."""
