"""Assignments: the claims of single items, and the ids by which HTTP callers name them.

An id says which job and which claim, so nothing has to be remembered: whichever HTTP process and server get it, the
store compares the claim, of which a part is random. What its holder may do is asked of the server with each call.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from typing import NamedTuple

from pinlater.errors import ItemNotFound, PinLaterError, RequestInvalid
from pinlater.http.caller import is_word
from pinlater.http.problems import NotAssigned, NotThere
from pinlater.http.route import Incoming
from pinlater.model import CLAIM_PARTS_BEFORE_SOURCE, MAX_TIME_MS, ClaimOutcome, is_descriptor
from pinlater.model.flow_words import Assignment

_MAX_ID_CHARS = 2_000

_WHY_NOT = {
    ClaimOutcome.NOT_DUE: "it failed, and its next attempt is not due yet: see when in the item",
    ClaimOutcome.BEHIND: "it is not its turn: an older item of its serialize key is not done",
    ClaimOutcome.IN_PROGRESS: "another worker has it",
    ClaimOutcome.ENDED: "it has succeeded or failed: nothing is left to do",
    ClaimOutcome.LIMITED: "its queue is paused, or at its rate or its maximum in progress",
    ClaimOutcome.GROUP_LIMITED: "its group is at its rate or its maximum in progress",
}


class AssignmentRef(NamedTuple):
    """A job, and the claim under which a worker has it."""

    descriptor: str
    claim_descriptor: str

    @property
    def queue(self) -> str:
        return self.descriptor.partition(":")[0]

    def id(self) -> str:
        """
        >>> AssignmentRef.of(AssignmentRef("mail:s1:p1:1790000000000000", "web:1:1790:4-c0ffee:ada").id()).queue
        'mail'
        """
        return base64.urlsafe_b64encode("\n".join(self).encode()).rstrip(b"=").decode("ascii")

    @classmethod
    def of(cls, text: str) -> AssignmentRef:
        """NotThere: no assignment can have such an id."""
        missing = -len(text) % 4
        try:
            read = base64.b64decode(f"{text}{'=' * missing}", altchars=b"-_", validate=True).decode()
        except (binascii.Error, ValueError):
            read = ""
        descriptor, _, claim = read.partition("\n")
        # without a claim, whoever holds the job would be meant
        if len(text) > _MAX_ID_CHARS or not is_descriptor(descriptor) or claim.count(":") < CLAIM_PARTS_BEFORE_SOURCE:
            raise NotThere("there is no such assignment: its id is what the assignment answered")
        return cls(descriptor, claim)


async def assign(incoming: Incoming, claim_timeout_ms: int | None, worker: str | None = None) -> Assignment:
    """Claim the item that the path names, for a worker of this name. ItemNotFound; NotAssigned: something keeps it from
    that. RequestInvalid: none has such a name.
    """
    number = item_number(incoming.path["item"])
    context = incoming.context
    if worker is not None:
        if not is_word(worker):
            raise RequestInvalid.of("the name of the worker", worker, "1 to 200 printable ASCII characters, no spaces")
        context = replace(context, source=worker)
    assignment = await incoming.api.assign_item(number, claim_timeout_ms=claim_timeout_ms, context=context)
    if assignment.outcome is ClaimOutcome.CLAIMED:
        return assignment
    raise _refused(number, assignment.outcome)


def _refused(number: int, outcome: ClaimOutcome) -> PinLaterError:
    why = _WHY_NOT.get(outcome)
    if why is None:
        raise NotThere(
            f"the job of item {number} is not in its queue now; it is put there again soon: try again", retryable=True
        )
    return NotAssigned(
        f"item {number} cannot be assigned: {why}",
        reason=outcome.name,
        retryable=outcome is not ClaimOutcome.ENDED,
    )


def item_number(text: str) -> int:
    """ItemNotFound: no item can have it."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:17]) <= MAX_TIME_MS and len(text) <= 16):
        raise ItemNotFound(f"there is no item {text[:20]!r}: items have numbers")
    return int(text)
