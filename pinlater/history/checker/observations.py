"""Observations: what one call says about one job, which states it allows, and what it makes of them.

The call took effect at one moment between its begin and its end. `after` gives the states behind that moment, none
where the state before it contradicts the answer. A call of unknown outcome is optional: `after` gives what it may have
done, and it may also have done nothing.

claim_observations.py, change_observations.py and look_observations.py have those of each kind of call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from math import inf
from typing import NamedTuple

from pinlater.history.checker.job_machine import (
    OVER,
    Phase,
    State,
    Surroundings,
    reach,
    unseen_claim,
    whole_ms,
)

PENDING = frozenset((Phase.PENDING,))
GONE = frozenset((Phase.GONE, Phase.MOVED))
"""Not there any more, under this name; what has moved is removed when its time to live is over."""

RUNNING = frozenset((Phase.RUNNING,))
NOT_RUNNING = frozenset(Phase) - {Phase.RUNNING, Phase.UNKNOWN}


class Contradiction(NamedTuple):
    """Why a state contradicts a call. The greatest rank says most."""

    rank: int
    rule: str
    text: str


Contradictions = list[Contradiction] | None
"""Where they are collected; None: nobody asks."""


class CallMark:
    """What is kept of a call: who made it, and the places of its lines among all lines."""

    __slots__ = ("began", "by", "ended", "method", "number")

    def __init__(self, number: int, by: str, method: str, began: float) -> None:
        self.number = number
        self.by = by
        self.method = method
        self.began = began
        self.ended = inf


class Observation(ABC):
    """The base: when, by which call, and whether it may have done nothing."""

    __slots__ = ("begin_ms", "call", "end_ms", "is_optional")
    reads = False
    """It changes nothing, whatever the answer."""

    stores = False
    """The job begins with it."""

    def __init__(self, call: CallMark, begin_ms: float, end_ms: float, is_optional: bool = False) -> None:
        self.call = call
        self.begin_ms = begin_ms
        self.end_ms = end_ms
        self.is_optional = is_optional

    @abstractmethod
    def after(self, state: State, around: Surroundings, reasons: Contradictions = None) -> Sequence[State]:
        """The states that the call may have left behind, where the job was in `state` before."""

    def precedes(self, other: Observation, *, exact: bool) -> bool:
        """Whether this was over when the other began. `exact`: lines stand in their order."""
        if self.call.ended >= other.call.began:
            return False
        return exact or self.call.by == other.call.by or self.brings(other)

    def brings(self, other: Observation) -> bool:
        """Whether the other names what this one answered with."""
        return False

    def may_act(self, state: State) -> bool:
        """Of an optional one: whether it may still do something."""
        return state.phase not in OVER

    def relaxed(self) -> Observation | None:
        """What it may have done, if nothing is known of its answer; None: nothing."""
        if self.reads:
            return None
        relaxed = copy(self)
        relaxed.is_optional = True
        return relaxed

    @abstractmethod
    def text(self) -> str:
        """What was asked and answered, for people."""

    def _at_ms(self, state: State) -> float:
        return max(state.since_ms, self.begin_ms)


class Moment(Observation):
    """No call: a moment by which others may have been carried out."""

    __slots__ = ()
    reads = True

    def __init__(self, at_ms: float) -> None:
        super().__init__(CallMark(0, "", "", inf), at_ms, at_ms)

    def after(self, state: State, around: Surroundings, reasons: Contradictions = None) -> Sequence[State]:
        return (state,)

    def text(self) -> str:
        return "nothing"


def renewed(state: State, begin_ms: float, end_ms: float) -> State:
    """Its claim counts anew, by a call between these moments: from its begin on at the earliest, since the server looks
    at its clock when the call comes, and others may be carried out until this one is.
    """
    if state.phase is not Phase.RUNNING:
        return state
    expires_ms = state.expires_ms
    if expires_ms > -inf:
        expires_ms = max(expires_ms, whole_ms(begin_ms) + state.timeout_ms)
    # a renewed claim is expired, not requeued
    requeue_ms = state.requeue_ms if expires_ms == -inf else inf
    was_over = state.was_over or state.expires_ms <= end_ms
    at_ms = max(state.since_ms, begin_ms)
    return state._replace(since_ms=at_ms, expires_ms=expires_ms, requeue_ms=requeue_ms, was_over=was_over)


def moved_on(state: State, at_ms: float) -> State:
    """The same, at a later moment."""
    return state if state.since_ms >= at_ms or state.phase is Phase.UNKNOWN else state._replace(since_ms=at_ms)


def running(state: State, until_ms: float, around: Surroundings) -> Sequence[State]:
    """The states in which it is in progress, under a claim that nobody heard of too."""
    if state.phase is Phase.UNKNOWN or (state.phase is Phase.RUNNING and not around.hidden):
        return (state,)
    found = [
        each if each.phase is Phase.RUNNING else unseen_claim(each, around)
        for each in reach(state, PENDING | RUNNING, until_ms, around)
    ]
    if state.phase is Phase.RUNNING:
        found += [unseen_claim(each, around) for each in reach(state, PENDING, until_ms, around)]
    return found


def state_in_words(state: State) -> str:
    return f"in progress under {state.claim}" if state.phase is Phase.RUNNING else state.phase.value


def wire_time_text(ms: float) -> str:
    return f"{ms:.0f}"
