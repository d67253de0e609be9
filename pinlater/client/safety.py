"""What it would do to send a call twice; decides which calls the client may send again by itself."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pinlater.model import Ack, Checkpoint


class Safety(Enum):
    """What sending a call twice would do."""

    READ = "changes nothing, and answers quickly"
    SCAN = "changes nothing, and may take long by itself: one attempt has all the time there is"
    REPEAT = "changes something, but twice is as good as once"
    ONCE = "twice is not as good as once: sent again only where the failed call surely changed nothing"


def ack_safety(failed: Sequence[Ack]) -> Safety:
    """An ack of what has ended is a no-op, so twice is as good as once.

    But for a failure that leads to a retry: without a claim to fence it, its second copy could end the next attempt.
    """
    if all(ack.claim_descriptor or ack.permanent for ack in failed):
        return Safety.REPEAT
    return Safety.ONCE


def checkpoint_safety(checkpoints: Sequence[Checkpoint]) -> Safety:
    """A plain heartbeat may be late or doubled; a text put in front, a new body or a job given back may not.

    But for a job given back under a claim that is named: the first copy ends that claim, and the second does nothing.
    """
    return Safety.REPEAT if all(_may_be_doubled(checkpoint) for checkpoint in checkpoints) else Safety.ONCE


def _may_be_doubled(checkpoint: Checkpoint) -> bool:
    if checkpoint.move_to_pending:
        return bool(checkpoint.claim_descriptor)
    return not checkpoint.prepend_status and checkpoint.new_body is None
