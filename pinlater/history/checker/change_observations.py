"""The observations of calls that store and change jobs: enqueue, cancel, reschedule."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from math import inf

from pinlater.history.checker.job_machine import (
    ENDED,
    Phase,
    State,
    Surroundings,
    reach,
    removed,
    rescheduled,
)
from pinlater.history.checker.observations import (
    GONE,
    PENDING,
    CallMark,
    Contradiction,
    Contradictions,
    Observation,
    moved_on,
    running,
    state_in_words,
    wire_time_text,
)
from pinlater.model import CancelOutcome, RescheduleOutcome


class ObservedEnqueue(Observation):
    """The job was stored. `may_stand`: a copy of the request, or one with the same send id, may have stored it."""

    __slots__ = ("attempts", "body", "due_ms", "may_stand", "over_ms")
    stores = True

    def __init__(
        self,
        call: CallMark,
        begin_ms: float,
        end_ms: float,
        *,
        due_ms: float | None,
        attempts: int | None,
        over_ms: float = inf,
        body: str | None = None,
        may_stand: bool = False,
        is_optional: bool = False,
    ) -> None:
        super().__init__(call, begin_ms, end_ms, is_optional)
        self.due_ms = due_ms
        self.attempts = attempts
        self.over_ms = over_ms
        self.body = body
        self.may_stand = may_stand

    def after(self, state: State, around: Surroundings, reasons: Contradictions = None) -> Sequence[State]:
        if state.phase is Phase.ABSENT:
            at_ms = self._at_ms(state)
            due_ms = -inf if self.due_ms is None else self.due_ms
            return (
                State(
                    Phase.PENDING,
                    at_ms,
                    due_ms,
                    self.attempts,
                    self.attempts,
                    over_ms=self.over_ms,
                    body=self.body,
                    to_stop=False,
                ),
            )
        if state.phase is Phase.UNKNOWN or self.may_stand:
            return (state,)
        if reasons is not None:
            reasons.append(Contradiction(1, "id", "two enqueues were answered with this descriptor"))
        return ()

    def may_act(self, state: State) -> bool:
        return state.phase is Phase.ABSENT

    def text(self) -> str:
        due = "" if self.due_ms is None else f", run_after {wire_time_text(self.due_ms)}"
        return f"stored it with {self.attempts} attempts{due}"

    def relaxed(self) -> Observation:
        relaxed = copy(self)
        relaxed.due_ms = relaxed.over_ms = -inf
        relaxed.attempts = relaxed.body = None
        relaxed.is_optional = True
        return relaxed


class ObservedCancel(Observation):
    """A cancel by name. `stops`: it asks what runs to stop."""

    __slots__ = ("is_resent", "outcome", "stops")

    def __init__(
        self,
        call: CallMark,
        begin_ms: float,
        end_ms: float,
        *,
        outcome: CancelOutcome,
        stops: bool,
        is_resent: bool = False,
        is_optional: bool = False,
    ) -> None:
        super().__init__(call, begin_ms, end_ms, is_optional)
        self.outcome = outcome
        self.stops = stops
        self.is_resent = is_resent

    def after(self, state: State, around: Surroundings, reasons: Contradictions = None) -> Sequence[State]:
        if self.is_optional:
            return self._effects(state, around)
        if state.phase is Phase.MOVED:
            return (state,)
        found = self._answered(state, around)
        if self.is_resent:
            found = [*found, *self._effects(state, around)]
        if not found and reasons is not None:
            rule = "lost" if self.outcome is CancelOutcome.NOT_FOUND and state.phase is not Phase.ABSENT else "state"
            text = f"the cancel was answered {self.outcome.name} when the job was {state_in_words(state)}"
            reasons.append(Contradiction(2, rule, text))
        return found

    def _answered(self, state: State, around: Surroundings) -> Sequence[State]:
        outcome, until_ms = self.outcome, self.end_ms
        if outcome is CancelOutcome.CANCELLED:
            return self._at(reach(state, PENDING, until_ms, around), remove=True)
        if outcome is CancelOutcome.IN_PROGRESS:
            if self.stops and not around.may_move:
                return ()
            return self._at(running(state, until_ms, around))
        if outcome is CancelOutcome.REQUESTED:
            found = self._at(running(state, until_ms, around))
            return [each if each.phase is Phase.UNKNOWN else each._replace(to_stop=True) for each in found]
        if outcome is CancelOutcome.ENDED:
            return self._at(reach(state, ENDED, until_ms, around))
        if state.phase is Phase.ABSENT:
            return (state,)
        return self._at(reach(state, GONE, until_ms, around))

    def _at(self, states: Sequence[State], *, remove: bool = False) -> list[State]:
        found = []
        for state in states:
            at_ms = self._at_ms(state)
            if at_ms <= self.end_ms:
                found.append(removed(state, at_ms) if remove else moved_on(state, at_ms))
        return found

    def _effects(self, state: State, around: Surroundings) -> list[State]:
        found = self._at(reach(state, PENDING, self.end_ms, around), remove=True)
        if self.stops:
            requested = self._at(running(state, self.end_ms, around))
            found += [each._replace(to_stop=True) for each in requested if each.phase is Phase.RUNNING]
        return found

    def text(self) -> str:
        requested = "cancelled it or asked it to stop" if self.stops else "cancelled it"
        return f"{requested}: {'no outcome' if self.is_optional else self.outcome.name}"


class ObservedReschedule(Observation):
    """A change of a pending job; also what a REPLACE does, whose `outcome` is RESCHEDULED. `is_bounded`: it is perhaps
    postponed by less than that.
    """

    __slots__ = ("attempts", "body", "due_ms", "has_condition", "is_bounded", "is_resent", "outcome", "replaces")

    def __init__(
        self,
        call: CallMark,
        begin_ms: float,
        end_ms: float,
        *,
        outcome: RescheduleOutcome,
        due_ms: float | None = None,
        body: str | None = None,
        attempts: int | None = None,
        has_condition: bool = False,
        is_bounded: bool = False,
        replaces: bool = False,
        is_resent: bool = False,
        is_optional: bool = False,
    ) -> None:
        super().__init__(call, begin_ms, end_ms, is_optional)
        self.outcome = outcome
        self.due_ms = due_ms
        self.body = body
        self.attempts = attempts
        self.has_condition = has_condition
        self.is_bounded = is_bounded
        self.replaces = replaces
        self.is_resent = is_resent

    def after(self, state: State, around: Surroundings, reasons: Contradictions = None) -> Sequence[State]:
        if self.is_optional:
            return [self._changed(each) for each in reach(state, PENDING, self.end_ms, around)]
        if state.phase is Phase.MOVED:
            return (state,)
        found = [each for each in self._answered(state, around) if each.since_ms <= self.end_ms]
        if self.is_resent:
            found += [self._changed(each) for each in reach(state, PENDING, self.end_ms, around)]
        if not found and reasons is not None:
            name = "REPLACED" if self.replaces else self.outcome.name
            rule = "lost" if name == "NOT_FOUND" and state.phase is not Phase.ABSENT else "state"
            reasons.append(Contradiction(2, rule, f"it was answered {name} when the job was {state_in_words(state)}"))
        return found

    def _answered(self, state: State, around: Surroundings) -> list[State]:
        outcome, until_ms = self.outcome, self.end_ms
        if outcome is RescheduleOutcome.RESCHEDULED:
            return [self._changed(each) for each in reach(state, PENDING, until_ms, around)]
        if outcome is RescheduleOutcome.IN_PROGRESS:
            found = running(state, until_ms, around)
        elif outcome is RescheduleOutcome.ENDED:
            found = reach(state, ENDED, until_ms, around)
        elif outcome is RescheduleOutcome.CHANGED:
            found = reach(state, PENDING, until_ms, around) if self.has_condition else ()
        elif state.phase is Phase.ABSENT:
            return [state]
        else:
            found = reach(state, GONE, until_ms, around)
        return [moved_on(each, self._at_ms(each)) for each in found]

    def _changed(self, state: State) -> State:
        if state.phase is Phase.UNKNOWN:
            return state
        at_ms = self._at_ms(state)
        due_ms = -inf if self.replaces and self.due_ms is None else self.due_ms
        return rescheduled(state, at_ms, due_ms, self.body, self.attempts, is_bounded=self.is_bounded)

    def text(self) -> str:
        outcome = "no outcome" if self.is_optional else "REPLACED" if self.replaces else self.outcome.name
        return f"{'replaced' if self.replaces else 'rescheduled'} it: {outcome}"
