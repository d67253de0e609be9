"""The machine of one job: its states, and the steps that it takes without a call.

A state says what the job may be now, at the earliest since when. Times in it are bounds, so that one state stands for
all moments at which its last step may have happened; whoever wants it to be otherwise adds another state.

Steps that no call shows: a claim expires or is requeued, a claim that nobody received comes and goes, the job expires,
it is pruned, and an operator's call about many jobs changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import floor, inf
from typing import NamedTuple

UNDELIVERED_MS = 500
"""A hand-out that nobody received is requeued so long before its claim expires."""

HIDDEN = "?"
"""The descriptor of a claim that no caller has heard of."""

MOST_CHANGED = 300
"""States that calls about many jobs may make of one; beyond these the job is not judged."""

_FOREVER_MS = 1e18
"""Later than all that has an end: what never comes does not come by then."""

_MOST_STEPS = 8
"""Between two calls about a job: claimed, expired, failed, retried, cancelled, pruned."""


class Phase(Enum):
    ABSENT = "not stored yet"
    PENDING = "pending"
    RUNNING = "in progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    GONE = "gone"
    MOVED = "moved to another shard"
    UNKNOWN = "unknown"


class State(NamedTuple):
    """One possibility. None stands for what is not known."""

    phase: Phase
    since_ms: float = -inf
    """The earliest moment at which it may be so."""

    due_ms: float = -inf
    """Its run_after, at the earliest; -inf where no call named one: it is due at once, by whatever clock."""

    attempts: int | None = None
    allowed: int | None = None
    crashes: int = 0
    claim: str = ""
    expires_ms: float = -inf
    """When the claim may expire, at the earliest."""

    requeue_ms: float = -inf
    """When the claim may be requeued, at the earliest."""

    timeout_ms: float = 0.0
    """For how long a renewal holds, at the least."""

    over_ms: float = -inf
    """When the job itself may expire."""

    ended_ms: float = -inf
    """When it ended, at the earliest; of a job that was removed -inf."""

    body: str | None = None
    result: str | None = None
    to_stop: bool | None = None
    was_over: bool = False
    """The claim was renewed when it may have expired already."""
    is_followed: bool = False
    """A successor may wait for it: then it ends as cancelled where it would be pending again."""

    @property
    def may_be_cancelled(self) -> bool:
        """Whether it may end as cancelled where it would be pending again."""
        return self.to_stop is not False or self.is_followed


ABSENT = State(Phase.ABSENT)
UNKNOWN = State(Phase.UNKNOWN)

ENDED = frozenset((Phase.SUCCEEDED, Phase.FAILED))
OVER = frozenset((Phase.SUCCEEDED, Phase.FAILED, Phase.GONE))
OPEN = frozenset((Phase.PENDING, Phase.RUNNING))


Key = tuple[str, str, str]
"""A dedupe key: its queue, itself, and the serialize key that goes with it."""


class Change(Enum):
    """What an operator's call does to the jobs that it finds."""

    RETRY = "retry"
    DELETE = "delete"
    CANCEL = "cancel"
    STOP = "stop"
    REPLAY = "replay"
    RESCHEDULE = "reschedule"
    FOLLOW = "follow"


@dataclass(frozen=True, slots=True)
class ManyChanged:
    """A call that may have changed any of some jobs of a queue, once, between its begin and its end: those that an
    operator's filter finds, or those of a key.
    """

    change: Change
    begin_ms: float
    end_ms: float
    priority: int | None = None
    phases: frozenset[Phase] | None = None
    """None: those that the change takes."""

    descriptors: frozenset[str] | None = None
    key: Key | None = None
    attempts: int | None = None
    """Of a retry; None: as many as were allowed."""

    due_ms: float | None = None
    is_bounded: bool = False
    """Of a reschedule: it postpones by less than that, perhaps."""

    body: str | None = None

    def means(self, descriptor: str, key: Key | None, *, is_foreign: bool) -> bool:
        """Whether this job may be one of those. A foreign one may have any key."""
        if self.descriptors is not None and descriptor not in self.descriptors:
            return False
        if self.key is not None and key != self.key and (key is not None or not is_foreign):
            return False
        return self.priority is None or f":p{self.priority}:" in descriptor

    def takes(self, phase: Phase) -> bool:
        return self.phases is None or phase in self.phases


@dataclass(slots=True)
class Surroundings:
    """What lies around a job: what its queue and its cluster do to it."""

    tolerance_ms: float = 0.0
    """How far the clocks of servers and callers may differ."""

    has_one_clock: bool = True
    """Lines stand in the order in which things happened."""

    descriptor: str = ""
    is_foreign: bool = False
    """Its enqueue is not in the history: whoever made it may follow rules of its own (items of flows)."""

    has_items: bool = False
    """Its queue may have items of flows. A result that comes too late for its claim ends the item all the same, and the
    job succeeds when the next claim is over.
    """

    hidden: int = 0
    """So many claims may have been made since it was stored that no answer shows."""

    crash_budget: int | None = None
    """The smallest that its queue may have had; None: not known."""

    succeeded_ttl_ms: float = 0.0
    failed_ttl_ms: float = 0.0
    result_ttl_ms: float = 0.0
    """The shortest that they may have been; 0: not known."""

    many_changed: list[ManyChanged] = field(default_factory=list)
    may_move: bool = False
    """Its shard is being emptied, or is an overflow shard."""


def whole_ms(ms: float) -> float:
    """As servers write a time down: in whole milliseconds, the fraction cut off."""
    return floor(ms) if ms > -inf else ms


def steps(state: State, until_ms: float, around: Surroundings) -> list[State]:
    """The states that it may be in after one step by itself, at `until_ms` at the latest."""
    found: list[State] = []
    phase = state.phase
    until_ms = min(until_ms, _FOREVER_MS)
    if phase is Phase.RUNNING:
        _claim_ends(state, until_ms, around, found)
    elif phase is Phase.PENDING:
        at_ms = max(state.since_ms, state.over_ms - around.tolerance_ms)
        if at_ms <= until_ms:
            found.append(ended(state, Phase.FAILED, at_ms))
        elif _may_fail_unseen(state, around):
            found.append(ended(state, Phase.FAILED, state.since_ms))
        if around.hidden and _may_be_of_an_ended_item(around):
            found.append(ended(state, Phase.SUCCEEDED, state.since_ms))
        if around.may_move:
            found.append(State(Phase.MOVED, state.since_ms))
        if around.is_foreign:
            # a dead letter goes with a retry of its job, an item with its flow
            found.append(removed(state, state.since_ms))
    elif phase in ENDED:
        ttl_ms = around.succeeded_ttl_ms if phase is Phase.SUCCEEDED else around.failed_ttl_ms
        at_ms = max(state.since_ms, state.ended_ms + ttl_ms - around.tolerance_ms)
        if at_ms <= until_ms:
            found.append(state._replace(phase=Phase.GONE, since_ms=at_ms))
    for many in around.many_changed:
        at_ms = max(state.since_ms, many.begin_ms)
        if at_ms <= until_ms and at_ms <= many.end_ms:
            _changed(state, many, at_ms, around, found)
    return found


def reach(state: State, phases: frozenset[Phase], until_ms: float, around: Surroundings) -> Sequence[State]:
    """The states in these phases that it may have come to by itself; itself where it is in one, or not known."""
    if state.phase is Phase.UNKNOWN or (state.phase in phases and not around.many_changed):
        return (state,)
    found: dict[State, None] = {state: None} if state.phase in phases else {}
    seen: set[State] = {state}
    at = [state]
    for _ in range(_MOST_STEPS):
        later = [each for before in at for each in steps(before, until_ms, around) if each not in seen]
        later = list(dict.fromkeys(later))
        if not later:
            break
        seen.update(later)
        found.update((each, None) for each in later if each.phase in phases)
        at = later
    return tuple(found)


def as_changed(state: State, until_ms: float, around: Surroundings) -> Sequence[State]:
    """What calls about many jobs may have made of it that left it in its phase."""
    found: dict[State, None] = {}
    at = [state]
    while at and len(found) <= MOST_CHANGED:
        later = [each for before in at for each in steps(before, until_ms, around)]
        at = [each for each in later if each.phase is state.phase and each not in found and each != state]
        found.update(dict.fromkeys(at))
    return tuple(found)


def ended(state: State, phase: Phase, at_ms: float, result: str | None = None) -> State:
    """The job has ended in this phase."""
    return state._replace(
        phase=phase,
        since_ms=at_ms,
        ended_ms=whole_ms(at_ms),
        attempts=None,
        claim="",
        expires_ms=-inf,
        requeue_ms=-inf,
        timeout_ms=0.0,
        was_over=False,
        result=result,
    )


def pending(state: State, at_ms: float, due_ms: float, attempts: int | None) -> State:
    """It is PENDING again."""
    return state._replace(
        phase=Phase.PENDING,
        since_ms=at_ms,
        due_ms=due_ms,
        attempts=attempts,
        claim="",
        expires_ms=-inf,
        requeue_ms=-inf,
        timeout_ms=0.0,
        was_over=False,
    )


def rescheduled(
    state: State,
    at_ms: float,
    due_ms: float | None,
    body: str | None,
    attempts: int | None,
    *,
    is_bounded: bool = False,
) -> State:
    """A pending job has what is given anew. `is_bounded`: it is perhaps postponed by less than that."""
    if is_bounded and due_ms is not None:
        due_ms = min(due_ms, state.due_ms)
    return state._replace(
        since_ms=at_ms,
        due_ms=state.due_ms if due_ms is None else due_ms,
        body=state.body if body is None else body,
        attempts=state.attempts if attempts is None else attempts,
        allowed=state.allowed if attempts is None else attempts,
    )


def removed(state: State, at_ms: float) -> State:
    """By a call."""
    return state._replace(phase=Phase.GONE, since_ms=at_ms, ended_ms=-inf, claim="", attempts=None)


def unseen_claim(state: State, around: Surroundings, claim: str = HIDDEN, expires_ms: float = -inf) -> State:
    """A pending job is under a claim that no answer of a dequeue shows: it comes back by itself."""
    if claim == HIDDEN and not around.hidden:
        expires_ms = inf
    return state._replace(phase=Phase.RUNNING, claim=claim, expires_ms=expires_ms, requeue_ms=-inf, timeout_ms=0.0)


def attempts_fit(state: State, observed: int | None, around: Surroundings) -> bool:
    """Whether a job may have so many attempts left, in view of claims that nobody heard of."""
    if state.attempts is None or observed is None:
        return True
    return state.attempts - around.hidden <= observed <= state.attempts


def _claim_ends(state: State, until_ms: float, around: Surroundings, found: list[State]) -> None:
    at_ms = max(state.since_ms, state.expires_ms)
    if at_ms <= until_ms:
        left = None if state.attempts is None else state.attempts - 1
        if state.to_stop is not True and (left is None or left > 0):
            found.append(pending(state, at_ms, -inf, left)._replace(crashes=state.crashes + 1))
        used_up = around.crash_budget is None or 0 < around.crash_budget <= state.crashes + 1 + around.hidden
        if state.may_be_cancelled or left is None or left <= 0 or used_up:
            found.append(ended(state, Phase.FAILED, at_ms))
    if _may_be_of_an_ended_item(around):
        # who ends its claim had found it expired, and records that first: a renewal meanwhile does not keep it
        found.append(ended(state, Phase.SUCCEEDED, state.since_ms))
        if state.was_over:
            found.append(ended(state, Phase.FAILED, state.since_ms))
    at_ms = max(state.since_ms, state.requeue_ms)
    if at_ms <= until_ms:
        if state.to_stop is not True:
            found.append(pending(state, at_ms, state.due_ms, state.attempts))
        if state.may_be_cancelled:
            found.append(ended(state, Phase.FAILED, at_ms))


def _may_be_of_an_ended_item(around: Surroundings) -> bool:
    return around.is_foreign and around.has_items


def _may_fail_unseen(state: State, around: Surroundings) -> bool:
    """Claims that nobody heard of expired, and took what attempts there were."""
    if not around.hidden:
        return False
    budget = around.crash_budget
    used_up = budget is None or 0 < budget <= state.crashes + around.hidden
    return used_up or state.attempts is None or state.attempts <= around.hidden


def _changed(state: State, many: ManyChanged, at_ms: float, around: Surroundings, found: list[State]) -> None:
    change, phase = many.change, state.phase
    if not many.takes(phase):
        return
    if (change is Change.DELETE and phase not in (Phase.ABSENT, Phase.GONE)) or (
        change is Change.CANCEL and phase is Phase.PENDING
    ):
        found.append(removed(state, at_ms))
    elif change is Change.STOP and phase is Phase.RUNNING and not state.to_stop:
        found.append(state._replace(since_ms=at_ms, to_stop=True))
    elif change is Change.FOLLOW and phase is Phase.RUNNING and not state.is_followed:
        found.append(state._replace(since_ms=at_ms, is_followed=True))
    elif change is Change.STOP and phase is Phase.PENDING and around.hidden:
        found.append(unseen_claim(state, around)._replace(since_ms=at_ms, to_stop=True))
    elif change is Change.REPLAY and phase in (Phase.PENDING, Phase.FAILED):
        found.append(removed(state, at_ms))
    elif change is Change.RETRY and phase is Phase.FAILED:
        attempts = many.attempts or state.allowed
        due_ms = -inf if many.due_ms is None else many.due_ms
        retried = pending(state, at_ms, due_ms, attempts)
        found.append(retried._replace(crashes=0, to_stop=False, is_followed=False, ended_ms=-inf))
    elif change is Change.RESCHEDULE and phase is Phase.PENDING:
        found.append(rescheduled(state, at_ms, many.due_ms, many.body, many.attempts, is_bounded=many.is_bounded))
