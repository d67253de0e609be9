"""The observations of a worker: a job was handed out, acked, checkpointed, or its claim renewed."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from math import inf

from pinlater.history.checker.job_machine import (
    ENDED,
    OPEN,
    UNDELIVERED_MS,
    Phase,
    State,
    Surroundings,
    attempts_fit,
    ended,
    pending,
    reach,
    steps,
    whole_ms,
)
from pinlater.history.checker.observations import (
    PENDING,
    CallMark,
    Contradiction,
    Contradictions,
    Observation,
    renewed,
    state_in_words,
    wire_time_text,
)
from pinlater.model import AckOutcome, HeartbeatOutcome, claim_source

_RECEIVED_MS = 1_000.0
"""An answer that a caller read so long before was acknowledged."""


class ObservedClaim(Observation):
    """A dequeue handed it out. `expires_ms`: as the answer says; None: it does not."""

    __slots__ = (
        "allowed",
        "attempts",
        "body",
        "claim",
        "due_ms",
        "expires_ms",
        "is_bound",
        "is_confirmed",
    )

    def __init__(
        self,
        call: CallMark,
        begin_ms: float,
        end_ms: float,
        *,
        claim: str,
        expires_ms: float | None = None,
        attempts: int | None = None,
        allowed: int | None = None,
        due_ms: float | None = None,
        body: str | None = None,
        is_bound: bool = False,
        is_confirmed: bool = False,
        is_optional: bool = False,
    ) -> None:
        super().__init__(call, begin_ms, end_ms, is_optional)
        self.claim = claim
        self.expires_ms = expires_ms
        self.attempts = attempts
        self.allowed = allowed
        self.due_ms = due_ms
        self.body = body
        self.is_bound = is_bound
        self.is_confirmed = is_confirmed

    @property
    def is_held(self) -> bool:
        """Whether the caller has it for certain: it is not taken back as one that nobody received."""
        if self.is_bound or self.is_confirmed or self.expires_ms is None:
            return False
        return self.end_ms + _RECEIVED_MS < self.expires_ms - UNDELIVERED_MS

    def after(self, state: State, around: Surroundings, reasons: Contradictions = None) -> Sequence[State]:
        before = reach(state, PENDING, self.end_ms, around)
        if not before:
            if reasons is not None:
                reasons.append(self._refused(state))
            return ()
        return [each for found in before for each in self._claimed(found, around, reasons)]

    def brings(self, other: Observation) -> bool:
        return bool(self.claim) and getattr(other, "claim", "") == self.claim

    def _claimed(self, state: State, around: Surroundings, reasons: Contradictions) -> Sequence[State]:
        slack_ms = around.tolerance_ms
        at_ms = max(state.since_ms, self.begin_ms, state.due_ms - slack_ms)
        if self.due_ms is not None:
            at_ms = max(at_ms, self.due_ms - slack_ms)
        reason: Contradiction | None = None
        if self.is_optional:
            at_ms = min(at_ms, max(state.since_ms, self.begin_ms))
        elif at_ms > self.end_ms:
            reason = Contradiction(5, "early", f"it was handed out {at_ms - self.end_ms:g} ms before its run_after")
        elif self.due_ms is not None and self.due_ms < state.due_ms - slack_ms:
            text = (
                f"its run_after is {wire_time_text(self.due_ms)} where {wire_time_text(state.due_ms)} or later was set"
            )
            reason = Contradiction(6, "early", text)
        elif state.phase is Phase.PENDING and state.over_ms + slack_ms <= at_ms:
            if state.over_ms > -inf:
                reason = Contradiction(
                    5, "expired", f"it was handed out although it expired at {wire_time_text(state.over_ms)}"
                )
        elif not attempts_fit(state, self.attempts, around):
            text = f"{self.attempts} attempts remain by the answer, and {state.attempts} by the calls before"
            reason = Contradiction(7, "attempts", text)
        elif state.body is not None and self.body is not None and state.body != self.body:
            reason = Contradiction(8, "body", f"its body is {self.body or 'empty'} and was {state.body or 'empty'}")
        if reason is not None:
            if reasons is not None:
                reasons.append(reason)
            return ()
        is_known = state.phase is Phase.PENDING
        expires_ms = at_ms if self.expires_ms is None else max(at_ms, self.expires_ms - slack_ms)
        timeout_ms = 0.0 if self.expires_ms is None else max(0.0, self.expires_ms - self.end_ms - slack_ms)
        requeue_ms = expires_ms - UNDELIVERED_MS
        if self.is_bound:
            expires_ms = requeue_ms = -inf
        elif self.is_confirmed:
            requeue_ms = -inf
        elif self.end_ms + _RECEIVED_MS < requeue_ms:
            requeue_ms = inf
        attempts, body = state.attempts if self.attempts is None else self.attempts, self.body
        if around.is_foreign:
            attempts = body = None
        return (
            State(
                Phase.RUNNING,
                at_ms,
                state.due_ms,
                attempts,
                self.allowed or state.allowed,
                state.crashes,
                self.claim,
                expires_ms,
                requeue_ms,
                timeout_ms,
                state.over_ms,
                -inf,
                body if state.body is None else state.body,
                None,
                state.to_stop if is_known else None,
            ),
        )

    def _refused(self, state: State) -> Contradiction:
        if state.phase is Phase.RUNNING:
            if state.claim == self.claim:
                return Contradiction(4, "claim", f"the claim {self.claim} was made twice")
            left_ms = state.expires_ms - self.end_ms
            return Contradiction(4, "twice", f"it was handed out while another claim had {left_ms:.0f} ms left")
        if state.phase in ENDED:
            return Contradiction(3, "ended", f"it was handed out when it had {state.phase.value}")
        if state.phase is Phase.GONE:
            return Contradiction(3, "gone", "it was handed out when it had been removed")
        return Contradiction(2, "state", f"it was handed out when it was {state.phase.value}")

    def may_act(self, state: State) -> bool:
        return state.phase is not Phase.GONE

    def text(self) -> str:
        left = "" if self.attempts is None else f", {self.attempts} attempts left"
        until = "" if self.expires_ms is None else f", until {wire_time_text(self.expires_ms)}"
        return f"was handed it under {self.claim or 'a claim without a name'}{left}{until}"

    def relaxed(self) -> Observation:
        relaxed = copy(self)
        relaxed.attempts = relaxed.allowed = relaxed.due_ms = relaxed.expires_ms = relaxed.body = None
        relaxed.is_optional = relaxed.is_bound = True
        return relaxed


class ObservedAck(Observation):
    """One ack. `outcome` None: the answer does not say; `must_act`: it says that the ack was not ignored.

    `is_resent`: an earlier copy may have been carried out.
    """

    __slots__ = ("claim", "delay_ms", "is_permanent", "is_resent", "must_act", "outcome", "result", "succeeded")

    def __init__(
        self,
        call: CallMark,
        begin_ms: float,
        end_ms: float,
        *,
        claim: str,
        succeeded: bool,
        outcome: AckOutcome | None,
        delay_ms: float = 0.0,
        is_permanent: bool = False,
        result: str | None = None,
        is_resent: bool = False,
        must_act: bool = False,
        is_optional: bool = False,
    ) -> None:
        super().__init__(call, begin_ms, end_ms, is_optional)
        self.claim = claim
        self.must_act = must_act
        self.succeeded = succeeded
        self.outcome = outcome
        self.delay_ms = delay_ms
        self.is_permanent = is_permanent
        self.result = result
        self.is_resent = is_resent

    def after(self, state: State, around: Surroundings, reasons: Contradictions = None) -> Sequence[State]:
        outcome = self.outcome
        if self.is_optional:
            return self._effects(state, around, None)
        if not self.must_act and outcome in (None, AckOutcome.IGNORED, AckOutcome.UNKNOWN):
            found = self._without_effect(state, around)
            if outcome is not AckOutcome.IGNORED or self.is_resent:
                found = [*found, *self._effects(state, around, None)]
            if not found and reasons is not None:
                reasons.append(Contradiction(3, "ack", "the ack was ignored, and its claim stood"))
            return found
        effects = self._effects(state, around, outcome)
        if not effects and reasons is not None:
            reasons.append(self._refused(state, outcome))
        return effects

    def _counts(self, state: State, around: Surroundings) -> bool:
        """Whether it is under the claim that this ack needs."""
        if state.phase is Phase.UNKNOWN:
            return True
        if state.phase is Phase.RUNNING:
            return not self.claim or state.claim == self.claim
        return state.phase is Phase.PENDING and not self.claim and around.hidden > 0

    def _without_effect(self, state: State, around: Surroundings) -> list[State]:
        if not self._must_count(state):
            return [state]
        return [each for each in steps(state, self.end_ms, around) if not self._must_count(each)]

    def _must_count(self, state: State) -> bool:
        """Whether it is under the claim that this ack needs, for certain."""
        return state.phase is Phase.RUNNING and (not self.claim or state.claim == self.claim)

    def _effects(self, state: State, around: Surroundings, outcome: AckOutcome | None) -> list[State]:
        """What it makes of the state, where that has this outcome; None: any."""
        if not self._counts(state, around):
            return []
        at_ms = max(state.since_ms, self.begin_ms)
        if at_ms > self.end_ms:
            return []
        found: list[State] = []
        # an item of a flow that has its result already ends as a success, whatever its job was acked with
        if (self.succeeded or around.is_foreign) and outcome in (None, AckOutcome.SUCCEEDED):
            result = (self.result or "") if self.succeeded else None
            found.append(ended(state, Phase.SUCCEEDED, at_ms, result))
        if self.succeeded and (self.result is None or outcome is AckOutcome.SUCCEEDED):
            return found
        left = None if state.attempts is None else state.attempts - 1
        is_last = self.is_permanent or (left is not None and left <= 0)
        may_follow = state.is_followed and (around.is_foreign or not is_last)
        if (state.to_stop is not False or may_follow) and outcome in (None, AckOutcome.CANCELLED):
            found.append(ended(state, Phase.FAILED, at_ms)._replace(to_stop=state.to_stop is not False or None))
        if state.to_stop is True:
            return found
        if outcome in (None, AckOutcome.RETRIED) and (around.is_foreign or not is_last):
            is_delayed = self.delay_ms > 0 and not around.is_foreign
            # the server looks at its clock when the call comes, and others may be carried out until this one is
            due_ms = whole_ms(self.begin_ms) + self.delay_ms if is_delayed else -inf
            found.append(pending(state, at_ms, due_ms, left))
        if outcome in (None, AckOutcome.FAILED) and (around.is_foreign or is_last or left is None):
            found.append(ended(state, Phase.FAILED, at_ms)._replace(to_stop=False))
        return found

    def _refused(self, state: State, outcome: AckOutcome | None) -> Contradiction:
        name = "that it had an effect" if outcome is None else outcome.name
        if not self._counts(state, Surroundings(hidden=0)):
            return Contradiction(2, "ack", f"the ack was answered {name} when the job was {state_in_words(state)}")
        if outcome is AckOutcome.CANCELLED or state.to_stop:
            requested = "asked" if state.to_stop else "not asked"
            return Contradiction(4, "stop", f"the ack was answered {name}, and the job was {requested} to stop")
        text = f"the ack was answered {name} with {state.attempts} attempts remaining before it"
        return Contradiction(4, "attempts", text)

    def may_act(self, state: State) -> bool:
        if state.phase is Phase.UNKNOWN:
            return True
        if self.claim:
            return state.phase is Phase.RUNNING and state.claim == self.claim
        return state.phase in OPEN

    def text(self) -> str:
        what = "a success" if self.succeeded else "a permanent failure" if self.is_permanent else "a failure"
        under = f" under {self.claim}" if self.claim else " without a claim"
        outcome = "no outcome" if self.outcome is None or self.is_optional else self.outcome.name
        outcome = "it had an effect" if self.must_act else outcome
        return f"acked {what}{under}: {outcome}"


class ObservedHeartbeat(Observation):
    """One heartbeat."""

    __slots__ = ("claim", "outcome")

    def __init__(
        self,
        call: CallMark,
        begin_ms: float,
        end_ms: float,
        *,
        claim: str,
        outcome: HeartbeatOutcome,
        is_optional: bool = False,
    ) -> None:
        super().__init__(call, begin_ms, end_ms, is_optional)
        self.claim = claim
        self.outcome = outcome

    def after(self, state: State, around: Surroundings, reasons: Contradictions = None) -> Sequence[State]:
        is_held = state.phase is Phase.UNKNOWN or (state.phase is Phase.RUNNING and state.claim == self.claim)
        outcome = self.outcome
        if self.is_optional:
            return (renewed(state, self.begin_ms, self.end_ms),) if is_held else ()
        if outcome is HeartbeatOutcome.UNREACHABLE:
            return (state,)  # it may have been renewed: then its claim lasts longer, and nothing else differs
        if outcome is HeartbeatOutcome.LOST:
            if state.phase is not Phase.RUNNING or not is_held:
                return (state,)
            found = [each for each in steps(state, self.end_ms, around) if each.phase is not Phase.RUNNING]
            if not found and reasons is not None:
                reasons.append(Contradiction(3, "ack", "the heartbeat was answered LOST, and its claim stood"))
            return found
        is_to_stop = outcome is HeartbeatOutcome.CANCEL
        if state.phase is Phase.UNKNOWN:
            return (state,)
        found = []
        if is_held:
            requested = [state]
            if is_to_stop and state.to_stop is False:
                requested = [each for each in steps(state, self.end_ms, around) if each.phase is Phase.RUNNING]
            found = [
                renewed(each, self.begin_ms, self.end_ms)._replace(to_stop=None if around.is_foreign else is_to_stop)
                for each in requested
                if each.to_stop in (None, is_to_stop)
            ]
        if not found and reasons is not None:
            if is_held:
                requested_text = "asked" if state.to_stop else "not asked"
                text = f"the heartbeat was answered {outcome.name}, and the job was {requested_text} to stop"
                reasons.append(Contradiction(4, "stop", text))
            else:
                text = f"the heartbeat was answered {outcome.name} when the job was {state_in_words(state)}"
                reasons.append(Contradiction(2, "ack", text))
        return found

    def may_act(self, state: State) -> bool:
        return state.phase is Phase.UNKNOWN or (state.phase is Phase.RUNNING and state.claim == self.claim)

    def text(self) -> str:
        return f"renewed {self.claim}: {'no outcome' if self.is_optional else self.outcome.name}"


class ObservedCheckpoint(Observation):
    """One checkpoint; its answer does not say whether it had an effect."""

    __slots__ = ("attempts", "body", "claim", "due_ms", "gives_back", "is_resent")

    def __init__(
        self,
        call: CallMark,
        begin_ms: float,
        end_ms: float,
        *,
        claim: str,
        due_ms: float | None = None,
        body: str | None = None,
        attempts: int | None = None,
        gives_back: bool = False,
        is_resent: bool = False,
        is_optional: bool = False,
    ) -> None:
        super().__init__(call, begin_ms, end_ms, is_optional)
        self.is_resent = is_resent
        self.claim = claim
        self.due_ms = due_ms
        self.body = body
        self.attempts = attempts
        self.gives_back = gives_back

    def after(self, state: State, around: Surroundings, reasons: Contradictions = None) -> Sequence[State]:
        if state.phase is Phase.UNKNOWN:
            return () if self.is_optional else (state,)
        if not self._counts(state):
            return () if self.is_optional else (state,)
        at_ms = self._at_ms(state)
        found: list[State] = []
        if at_ms <= self.end_ms:
            found = self._effects(state, at_ms)
        if not self.is_optional:
            found += [each for each in steps(state, self.end_ms, around) if not self._counts(each)]
        return found

    def _counts(self, state: State) -> bool:
        if state.phase is not Phase.RUNNING:
            return False
        return state.claim == self.claim if self.claim else claim_source(state.claim) == self.call.by

    def _effects(self, state: State, at_ms: float) -> list[State]:
        due_ms = -inf if self.due_ms is None else self.due_ms
        changed = renewed(state, self.begin_ms, self.end_ms)._replace(due_ms=due_ms)
        if self.body is not None:
            changed = changed._replace(body=self.body)
        if self.attempts is not None:
            changed = changed._replace(attempts=self.attempts, allowed=self.attempts)
        if not self.gives_back:
            return [changed]
        found = []
        if changed.to_stop is not True:
            found.append(pending(changed, at_ms, due_ms, changed.attempts))
        if changed.may_be_cancelled:
            found.append(ended(changed, Phase.FAILED, at_ms)._replace(to_stop=changed.to_stop is not False or None))
        return found

    def may_act(self, state: State) -> bool:
        return self._counts(state)

    def text(self) -> str:
        under = f" under {self.claim}" if self.claim else ""
        return f"{'gave it back' if self.gives_back else 'checkpointed it'}{under}"
