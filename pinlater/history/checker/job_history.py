"""The history of one job: what the calls say about it, and the states that it may be in.

Observations are carried out in the order of their ends. Each took effect between its begin and its end, so those that
had begun by then may have come before it: all these orders are tried, and every state that one of them leaves is kept.
No state is left: no order explains what was answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from pinlater.history.checker.job_machine import (
    ABSENT,
    MOST_CHANGED,
    OVER,
    UNKNOWN,
    Key,
    State,
    Surroundings,
    as_changed,
)
from pinlater.history.checker.observations import Contradiction, Contradictions, Moment, Observation

Possibility = tuple[State, frozenset[Observation]]
"""A state, and those observations not at their ends yet that have led to it."""

MOST_TRIED = 5_000
"""States that one step of the search looks at; beyond these the job is not judged."""

MOST_LOGGED = 240
"""Observations of a job that are kept, for the shortest part; beyond these the older half is forgotten."""

_NONE: frozenset[Observation] = frozenset()


class TooManyOrders(Exception):
    """The search was given up."""


def carry(
    possible: Sequence[Possibility],
    observation: Observation,
    rivals: Sequence[Observation],
    around: Surroundings,
    reasons: Contradictions = None,
) -> list[Possibility]:
    """What is possible at the end of an observation. `rivals`: others that may come before it. TooManyOrders."""
    exact = around.has_one_clock
    if not rivals and len(possible) == 1 and not (possible[0][1] or observation.is_optional or around.many_changed):
        after = observation.after(possible[0][0], around, reasons)
        return [(each, _NONE) for each in (after if len(after) == 1 else dict.fromkeys(after))]
    found: dict[Possibility, None] = {}
    seen: set[Possibility] = set()
    todo: list[Possibility] = []
    for state, done in possible:
        if observation in done:
            found[state, done - {observation}] = None
        else:
            todo.append((state, done))
    while todo:
        here = todo.pop()
        if here in seen:
            continue
        seen.add(here)
        if len(seen) + len(found) > MOST_TRIED:
            raise TooManyOrders
        state, done = here
        if around.many_changed:
            changed = as_changed(state, observation.end_ms, around)
            if len(changed) > MOST_CHANGED:
                raise TooManyOrders
            todo.extend((each, done) for each in changed)
        if observation.is_optional:
            found[here] = None
        for later in observation.after(state, around, reasons):
            found[later, done] = None
        for rival in rivals:
            if rival not in done and (exact or not _waits(rival, rivals, done)):
                todo.extend((later, done | {rival}) for later in rival.after(state, around))
    return _earliest(found)


def _waits(rival: Observation, rivals: Sequence[Observation], done: frozenset[Observation]) -> bool:
    """Whether another one comes before it that was not carried out yet."""
    return any(other not in done and other.precedes(rival, exact=False) for other in rivals if other is not rival)


def rivals_of(observation: Observation, others: Iterable[Observation], around: Surroundings) -> list[Observation]:
    """Those of these that may have been carried out before it."""
    exact = around.has_one_clock
    return [
        other
        for other in others
        if other.begin_ms <= observation.end_ms and not observation.precedes(other, exact=exact)
    ]


def _earliest(found: Iterable[Possibility]) -> list[Possibility]:
    """Of those that differ by their moment alone, the earliest, which allows all that the later ones do."""
    best: dict[tuple[object, ...], Possibility] = {}
    for each in found:
        state, done = each
        key = (state[0], *state[2:], done)
        before = best.get(key)
        if before is None or state.since_ms < before[0].since_ms:
            best[key] = each
    return list(best.values())


class JobHistory:
    """One job. `is_foreign`: its enqueue is not in the history; `hidden_before`: see `Surroundings.hidden`."""

    __slots__ = (
        "_base",
        "_log",
        "_open_ended",
        "_possible",
        "_waiting",
        "descriptor",
        "ended_by",
        "group",
        "hidden_before",
        "is_foreign",
        "key",
        "last",
        "last_ms",
        "notes_seen",
        "touched_ms",
    )

    def __init__(
        self, descriptor: str, *, is_foreign: bool, hidden_before: int = 0, state: State | None = None
    ) -> None:
        self.descriptor = descriptor
        self.is_foreign = is_foreign
        self.hidden_before = hidden_before
        self.key: Key | None = None
        self.group: str | None = None
        """Its group, "" for none; None: not known."""

        self.ended_by: Observation | None = None
        """Of a job that had ended before the log begins: what ended it."""

        self.last: Observation | None = None
        """What was carried out last."""

        self.last_ms = -inf
        self.notes_seen = 0
        self.touched_ms = inf
        """When the first call began that may have changed it, behind its enqueue."""

        start = state or (UNKNOWN if is_foreign else ABSENT)
        self._possible: list[Possibility] = [(start, _NONE)]
        self._base = self._possible
        self._waiting: list[Observation] = []
        self._open_ended: list[Observation] = []
        self._log: list[Observation] = []

    @property
    def states(self) -> list[State]:
        return [state for state, _ in self._possible]

    @property
    def is_fresh(self) -> bool:
        """Nothing was carried out yet."""
        return self.last is None and self._base is self._possible

    @property
    def is_at_rest(self) -> bool:
        """Nothing waits to be carried out."""
        return not self._waiting and not self._open_ended

    @property
    def log(self) -> Sequence[Observation]:
        """What was carried out, as far as it is kept, in order; then what may be at any time."""
        return [*self._log, *self._open_ended]

    @property
    def open_ended(self) -> Sequence[Observation]:
        """What may be carried out at any time."""
        return self._open_ended

    @property
    def base(self) -> Sequence[Possibility]:
        """What was possible before the log."""
        return self._base

    def has_begun(self, at_ms: float) -> bool:
        """Whether a call that may change it was under way then, or may be carried out at any time."""
        return bool(self._open_ended) or any(each.begin_ms <= at_ms and not each.reads for each in self._waiting)

    def resume(self, last: Observation) -> None:
        """It had ended by this, and goes on."""
        self.ended_by = self.last = last
        self.touched_ms = -inf
        self.last_ms = last.end_ms

    def was_enqueued(self) -> None:
        """Its enqueue is in the history after all."""
        if self.is_fresh:
            self.is_foreign = False
            self._possible = self._base = [(ABSENT, done) for _, done in self._possible]

    def observe(self, observation: Observation) -> None:
        """To be carried out by `settle`; observations with ends come in the order of these."""
        if not observation.reads and not observation.stores and observation.begin_ms < self.touched_ms:
            self.touched_ms = observation.begin_ms
        if observation.end_ms == inf:
            self._open_ended.append(observation)
        else:
            waiting = self._waiting
            waiting.append(observation)
            if len(waiting) > 1 and waiting[-2].end_ms > observation.end_ms:
                waiting.sort(key=lambda each: each.end_ms)

    def under_way(self, at_ms: float) -> list[Observation]:
        """What had begun by then, and was not carried out yet."""
        return [each for each in (*self._waiting, *self._open_ended) if each.begin_ms <= at_ms]

    def fell_back(
        self, under_way: Sequence[Observation], at_ms: float, around: Surroundings, *, is_known: bool
    ) -> None:
        """Its store is as it was earlier. What was under way may have been carried out before, and may have been lost
        with that. `is_known`: no other call since that earlier moment was about it. TooManyOrders.
        """
        possible = carry(self._possible, Moment(at_ms), under_way, around)
        done_by_then = dict.fromkeys(done for _, done in possible)
        if is_known:
            pairs = ((state, later) for state, done in possible for later in done_by_then if done <= later)
            self._possible = _earliest(pairs)
        else:
            self._possible = [(UNKNOWN, done) for done in done_by_then]
        self._base, self._log = self._possible, []

    def next_ms(self) -> float | None:
        """The end of the next observation to be carried out."""
        return self._waiting[0].end_ms if self._waiting else None

    def settle(self, around: Surroundings) -> tuple[Observation, list[Contradiction]] | None:
        """Carries out the next observation. None: it can be explained; else it, and why it cannot. TooManyOrders."""
        observation = self._waiting.pop(0)
        rivals: Sequence[Observation] = ()
        if self._waiting or self._open_ended:
            rivals = rivals_of(observation, [*self._waiting, *self._open_ended], around)
        before = self._possible
        possible = carry(before, observation, rivals, around)
        if not possible:
            reasons: list[Contradiction] = []
            carry(before, observation, rivals, around, reasons)
            return observation, reasons
        self._possible = possible
        self._keep(observation)
        if self._open_ended:
            self._drop_spent()
        return None

    def contradicted(self) -> None:
        """A contradiction was found: nothing is known from here on."""
        self._waiting.clear()
        self._open_ended.clear()
        self._possible = self._base = [(UNKNOWN, _NONE)]
        self._log = []

    def all_over(self) -> bool:
        """Whether it has ended in every case."""
        return all(state.phase in OVER for state, _ in self._possible)

    def _keep(self, observation: Observation) -> None:
        log = self._log
        log.append(observation)
        self.last = observation
        if observation.end_ms > self.last_ms:
            self.last_ms = observation.end_ms
        if len(log) > MOST_LOGGED and self.is_at_rest:
            # what was possible then is not kept: the part begins with what is possible now
            self._base, self._log = self._possible, []

    def _drop_spent(self) -> None:
        """Calls without an end that cannot do anything any more, since the claim they name is over."""
        spent = [
            each
            for each in self._open_ended
            if not any(each.may_act(state) for state, done in self._possible if each not in done)
            and not any(_brings(waiting, each) for waiting in self._waiting)
        ]
        if spent:
            gone = frozenset(spent)
            self._log.extend(spent)
            self._open_ended = [each for each in self._open_ended if each not in gone]
            self._possible = _earliest([(state, done - gone) for state, done in self._possible])


def _brings(waiting: Observation, spent: Observation) -> bool:
    """Whether one that waits may lead to a state in which the other acts."""
    return waiting.begin_ms <= spent.begin_ms or not waiting.reads
