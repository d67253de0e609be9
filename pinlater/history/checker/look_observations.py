"""The observations that change nothing of a job: it was seen, or another one got its key or its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from pinlater.history.checker.job_machine import (
    ENDED,
    HIDDEN,
    OPEN,
    OVER,
    Phase,
    State,
    Surroundings,
    attempts_fit,
    reach,
    unseen_claim,
)
from pinlater.history.checker.observations import (
    GONE,
    NOT_RUNNING,
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

_PHASES = (Phase.PENDING, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED)


class Seen(NamedTuple):
    """A job as an answer shows it. None: it does not say."""

    phase: Phase
    claim: str = ""
    expires_ms: float | None = None
    attempts: int | None = None
    due_ms: float | None = None
    body: str | None = None
    result: str | None = None
    cancelled: bool | None = None
    has_moved: bool = False
    lacks_result: bool = False
    """It has none, and was not left out for its size."""

    ended_ms: float = 0.0
    """0: long ago, for all that the answer says."""


def seen_job(info: Mapping[str, Any]) -> Seen | None:
    """A job as an answer shows it; None: in no state that is known."""
    number = info.get("jobState")
    if not isinstance(number, int) or not 0 <= number < len(_PHASES):
        return None
    return Seen(
        _PHASES[number],
        info.get("claimDescriptor") or "",
        info.get("claimExpiresAtMillis"),
        info.get("attemptsRemaining"),
        info.get("runAfterTimestampMillis"),
        None if info.get("bodyLeftOut") else info.get("body"),
        None if info.get("resultLeftOut") else info.get("result"),
        bool(info.get("cancelled")),
        bool(info.get("movedTo")),
        "result" not in info and not info.get("resultLeftOut"),
        info.get("finishedAtMillis") or 0.0,
    )


class ObservedLookup(Observation):
    """A look at the job; `seen` None: it was not there. `with_result`: results were asked for."""

    __slots__ = ("seen", "with_result")
    reads = True

    def __init__(
        self, call: CallMark, begin_ms: float, end_ms: float, *, seen: Seen | None, with_result: bool = False
    ) -> None:
        super().__init__(call, begin_ms, end_ms)
        self.seen = seen
        self.with_result = with_result

    def after(self, state: State, around: Surroundings, reasons: Contradictions = None) -> Sequence[State]:
        found = self._found(state, around, reasons)
        return [each for each in found if each.since_ms <= self.end_ms]

    def _found(self, state: State, around: Surroundings, reasons: Contradictions) -> Sequence[State]:
        seen = self.seen
        if seen is None:
            if state.phase in (Phase.ABSENT, Phase.UNKNOWN, Phase.MOVED):
                return (state,)
            gone = reach(state, GONE, self.end_ms, around)
            if not gone and reasons is not None:
                reasons.append(Contradiction(3, "lost", f"it was not there when it was {state_in_words(state)}"))
            return [moved_on(each, self._at_ms(each)) for each in gone]
        moved = []
        if state.phase is Phase.MOVED:
            return (state,)
        if seen.has_moved and state.phase is not Phase.ABSENT and (around.may_move or seen.phase is not Phase.FAILED):
            moved.append(State(Phase.MOVED, self._at_ms(state)))
            if seen.phase is not Phase.FAILED:
                return moved
        before = self._reached(state, seen, around)
        if not before and not moved and reasons is not None:
            reasons.append(
                Contradiction(
                    2, "state", f"it was {_phase_text(seen)} by the answer when it was {state_in_words(state)}"
                )
            )
        return moved + [each for reached in before for each in self._agrees(reached, seen, around, reasons)]

    def _reached(self, state: State, seen: Seen, around: Surroundings) -> Sequence[State]:
        if seen.phase is Phase.RUNNING:
            if not seen.claim:
                return running(state, self.end_ms, around)
            if state.phase is Phase.RUNNING and state.claim in (seen.claim, HIDDEN):
                return (state,)
            expires_ms = -inf if seen.expires_ms is None else seen.expires_ms - around.tolerance_ms
            return [
                each if each.phase is Phase.UNKNOWN else unseen_claim(each, around, seen.claim, expires_ms)
                for each in reach(state, PENDING, self.end_ms, around)
            ]
        if seen.phase is Phase.SUCCEEDED and state.phase is Phase.GONE and self.with_result:
            return (state,) if state.result is not None or state.ended_ms > -inf else ()
        return reach(state, frozenset((seen.phase,)), self.end_ms, around)

    def _agrees(self, state: State, seen: Seen, around: Surroundings, reasons: Contradictions) -> Sequence[State]:
        at_ms = self._at_ms(state)
        if state.phase is Phase.UNKNOWN:
            return (self._learnt(seen, at_ms, around),)
        reason: Contradiction | None = None
        if seen.phase in OPEN and not attempts_fit(state, seen.attempts, around):
            text = f"{seen.attempts} attempts remain by the answer, and {state.attempts} by the calls before"
            reason = Contradiction(6, "attempts", text)
        elif seen.body is not None and state.body is not None and seen.body != state.body:
            reason = Contradiction(7, "body", f"its body is {seen.body or 'empty'} and was {state.body or 'empty'}")
        elif seen.phase is Phase.SUCCEEDED and None not in (seen.result, state.result) and seen.result != state.result:
            text = f"its result is {seen.result or 'empty'}, and its success brought {state.result or 'none'}"
            reason = Contradiction(7, "result", text)
        elif seen.lacks_result and self.with_result and state.result and self._is_kept(state, around):
            text = f"it has no result, and its success brought {state.result}"
            reason = Contradiction(7, "result", text)
        elif seen.phase is Phase.FAILED and seen.cancelled and not state.may_be_cancelled:
            reason = Contradiction(5, "stop", "it is cancelled, and was not asked to stop")
        elif (
            seen.phase is Phase.PENDING and seen.due_ms is not None and seen.due_ms < state.due_ms - around.tolerance_ms
        ):
            text = (
                f"its run_after is {wire_time_text(seen.due_ms)} where {wire_time_text(state.due_ms)} or later was set"
            )
            reason = Contradiction(6, "early", text)
        if reason is not None:
            if reasons is not None:
                reasons.append(reason)
            return ()
        known = moved_on(state, at_ms)
        if seen.attempts is not None and state.attempts is not None and seen.attempts != state.attempts:
            known = known._replace(attempts=seen.attempts) if seen.phase in OPEN else known
        if seen.phase is Phase.SUCCEEDED and state.result is None and seen.result is not None:
            known = known._replace(result=seen.result)
        return (known,)

    def _is_kept(self, state: State, around: Surroundings) -> bool:
        """Whether the result of the job is still there for certain."""
        return self.end_ms <= state.ended_ms + around.result_ttl_ms - around.tolerance_ms

    def _learnt(self, seen: Seen, at_ms: float, around: Surroundings) -> State:
        """What is known of a job of which nothing was known."""
        if seen.phase is Phase.RUNNING:
            # nobody knows how its claim is kept, or who has it
            return State(Phase.UNKNOWN)
        attempts = None if around.is_foreign or seen.phase not in OPEN else seen.attempts
        ended_ms = min(seen.ended_ms, at_ms) if seen.phase in ENDED else -inf
        body = None if around.is_foreign else seen.body
        return State(seen.phase, at_ms, attempts=attempts, body=body, result=seen.result, ended_ms=ended_ms)

    def text(self) -> str:
        return "saw that it was not there" if self.seen is None else f"saw it {_phase_text(self.seen)}"


class ObservedDryRun(Observation):
    """A dry run of a dequeue showed it."""

    __slots__ = ()
    reads = True

    def after(self, state: State, around: Surroundings, reasons: Contradictions = None) -> Sequence[State]:
        found = []
        for each in reach(state, PENDING, self.end_ms, around):
            at_ms = max(each.since_ms, self.begin_ms, each.due_ms - around.tolerance_ms)
            if at_ms <= self.end_ms:
                found.append(moved_on(each, at_ms))
        if not found and reasons is not None:
            reasons.append(
                Contradiction(2, "state", f"a dry run showed it as eligible when it was {state_in_words(state)}")
            )
        return found

    def text(self) -> str:
        return "was shown it by a dry run"


class KeyTaken(Observation):
    """An enqueue named it as the job that has its key. `window_ms` 0: only while it is live."""

    __slots__ = ("window_ms",)
    reads = True

    def __init__(self, call: CallMark, begin_ms: float, end_ms: float, *, window_ms: float) -> None:
        super().__init__(call, begin_ms, end_ms)
        self.window_ms = window_ms

    def after(self, state: State, around: Surroundings, reasons: Contradictions = None) -> Sequence[State]:
        phase = state.phase
        is_taken = phase in OPEN or phase in (Phase.MOVED, Phase.UNKNOWN)
        if self.window_ms and (phase in ENDED or (phase is Phase.GONE and state.ended_ms > -inf)):
            is_taken = True
        # where it is taken now, it may have come to another of these states before that moment: it stays as it is
        found = (state,) if is_taken else reach(state, OPEN, self.end_ms, around)
        found = [each for each in found if self._at_ms(each) <= self.end_ms]
        if not found and reasons is not None:
            reasons.append(
                Contradiction(2, "key", f"it was named as the job of its key when it was {state_in_words(state)}")
            )
        return found

    def text(self) -> str:
        return "was answered that it has the key"


class KeyFree(Observation):
    """Another job got its key, or its place: it had ended by then, so long ago. `window_ms` -1: and was removed."""

    __slots__ = ("other", "rule", "window_ms")
    reads = True

    def __init__(
        self,
        call: CallMark,
        begin_ms: float,
        end_ms: float,
        *,
        other: str,
        rule: str = "key",
        window_ms: float = 0.0,
    ) -> None:
        super().__init__(call, begin_ms, end_ms)
        self.other = other
        self.rule = rule
        self.window_ms = window_ms

    def after(self, state: State, around: Surroundings, reasons: Contradictions = None) -> Sequence[State]:
        if state.phase in (Phase.UNKNOWN, Phase.MOVED):
            return (state,)
        if state.phase is Phase.ABSENT and self.rule != "chain":
            return (state,)
        over = (GONE if self.window_ms < 0 else OVER) | {Phase.MOVED}
        found = []
        for each in reach(state, over, self.end_ms, around):
            at_ms = self._at_ms(each)
            if self.window_ms > 0 and each.ended_ms > -inf:
                at_ms = max(at_ms, each.ended_ms + self.window_ms - around.tolerance_ms)
            if at_ms <= self.end_ms:
                found.append(moved_on(each, at_ms))
        if not found and reasons is not None:
            verb = "was handed out" if self.rule == "chain" else "was stored"
            reasons.append(
                Contradiction(2, self.rule, f"{self.other} {verb} when this one was {state_in_words(state)}")
            )
        return found

    def text(self) -> str:
        what = "was handed" if self.rule == "chain" else "was answered that it had stored"
        return f"{what} {self.other}"


class NotRunning(Observation):
    """Another job of its serialize key was handed out: at that moment it was not in progress."""

    __slots__ = ("other",)
    reads = True

    def __init__(self, call: CallMark, begin_ms: float, end_ms: float, *, other: str) -> None:
        super().__init__(call, begin_ms, end_ms)
        self.other = other

    def after(self, state: State, around: Surroundings, reasons: Contradictions = None) -> Sequence[State]:
        found = [each for each in reach(state, NOT_RUNNING, self.end_ms, around) if self._at_ms(each) <= self.end_ms]
        if not found and reasons is not None:
            reasons.append(
                Contradiction(2, "chain", f"{self.other} was handed out when this one was {state_in_words(state)}")
            )
        return found

    def text(self) -> str:
        return f"was handed {self.other}"


def _phase_text(seen: Seen) -> str:
    if seen.phase is Phase.RUNNING:
        return f"in progress under {seen.claim}"
    return "cancelled" if seen.cancelled else seen.phase.value
