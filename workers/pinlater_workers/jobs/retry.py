"""Retry policies. A policy is pure: the attempt that failed and its error in, a delay out.

    Default        the first five retries linear (10 s to 50 s), then doubling (100 s, 200 s, ...); 10 retries
    Constant       the same delay each time
    Linear         a step more each time
    Exponential    `factor` times more each time
    Delays         a list; its length is the number of retries
    Function       whatever a function of (attempt, error) says; None: no retry
    Never          no retry

Attempts count from 1; all times are seconds. `retries`: so many at most, unless the type of job says how many attempts
it has. `cap_s`: no delay is longer. `jitter`: a delay is drawn from that share below to that share above what it is,
and never above the cap. docs/workers-retries.md lists the delays.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType

from pinlater.schedule import Delay, delay_seconds

CAP_S = 3600.0
"""The cap of the policies that grow by themselves."""

LONGEST_S = 10 * 365 * 86_400.0
"""Above any cap: what a store can hold as a time."""

MANY = 1_000_000
"""More attempts, retries or a greater factor than anything asks for."""

AS_LONG = -1
"""Delays only: as many retries as the list is long."""

Answer = Callable[[int, BaseException], Delay | None]


@dataclass(frozen=True, slots=True)
class Policy(ABC):
    """A retry policy: a rule for delays. ValueError, when it is made, for invalid numbers."""

    retries: int = field(default=10, kw_only=True)
    cap_s: float = field(default=LONGEST_S, kw_only=True)
    jitter: float = field(default=0.1, kw_only=True)

    def __post_init__(self) -> None:
        _check("retries", self.retries, 0, MANY)
        _check("cap", self.cap_s, 0, LONGEST_S)
        _check("jitter", self.jitter, 0, 1)

    @abstractmethod
    def base_s(self, attempt: int, error: BaseException) -> float | None:
        """The delay after this attempt before cap and jitter, whatever `retries` says; None: no retry."""

    def plain_s(self, attempt: int, error: BaseException) -> float | None:
        """The delay without jitter."""
        delay_s = self.base_s(max(1, attempt), error)
        return None if delay_s is None else min(delay_s, self.cap_s)

    def delay_s(
        self, attempt: int, error: BaseException, rng: Random | None, retries: int | None = None
    ) -> float | None:
        """The delay after this attempt; None: no retry. `retries` replaces the policy's own; `rng` None: no jitter."""
        if attempt > (self.retries if retries is None else retries):
            return None
        delay_s = self.plain_s(attempt, error)
        if not delay_s or not self.jitter or rng is None:
            return delay_s
        return rng.uniform(delay_s * (1 - self.jitter), min(delay_s * (1 + self.jitter), self.cap_s))


@dataclass(frozen=True, slots=True)
class Constant(Policy):
    """A retry policy with the same `delay` each time."""

    delay: float

    def __post_init__(self) -> None:
        Policy.__post_init__(self)
        _check("delay", self.delay, 0, LONGEST_S)

    def base_s(self, attempt: int, error: BaseException) -> float:
        return self.delay


@dataclass(frozen=True, slots=True)
class Linear(Policy):
    """A retry policy with a delay of `step`, then two steps, then three."""

    step: float
    cap_s: float = field(default=CAP_S, kw_only=True)

    def __post_init__(self) -> None:
        Policy.__post_init__(self)
        _check("step", self.step, 0, LONGEST_S)

    def base_s(self, attempt: int, error: BaseException) -> float:
        return self.step * min(attempt, MANY)


@dataclass(frozen=True, slots=True)
class Exponential(Policy):
    """A retry policy with a delay of `first`, then `factor` times the one before."""

    first: float
    factor: float = 2.0
    cap_s: float = field(default=CAP_S, kw_only=True)

    def __post_init__(self) -> None:
        Policy.__post_init__(self)
        _check("first", self.first, 0, LONGEST_S)
        _check("factor", self.factor, 1, MANY)

    def base_s(self, attempt: int, error: BaseException) -> float:
        return _grown(self.first, self.factor, attempt - 1)


@dataclass(frozen=True, slots=True)
class Default(Policy):
    """The default retry policy: linear for five retries, for what mends itself soon; then exponential."""

    step: float = 10.0
    cap_s: float = field(default=CAP_S, kw_only=True)

    LINEAR = 5

    def __post_init__(self) -> None:
        Policy.__post_init__(self)
        _check("step", self.step, 0, LONGEST_S)

    def base_s(self, attempt: int, error: BaseException) -> float:
        if attempt <= self.LINEAR:
            return self.step * attempt
        return _grown(self.step * self.LINEAR, 2.0, attempt - self.LINEAR)


@dataclass(frozen=True, slots=True)
class Delays(Policy):
    """A retry policy with these delays in order; further retries repeat the last one."""

    delays: Sequence[float]
    retries: int = field(default=AS_LONG, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "delays", tuple(self.delays))
        if not self.delays:
            raise ValueError("a list of no delays; for no retry write never (in code Never())")
        for delay in self.delays:
            _check("delay", delay, 0, LONGEST_S)
        if self.retries == AS_LONG:
            object.__setattr__(self, "retries", len(self.delays))
        Policy.__post_init__(self)

    def base_s(self, attempt: int, error: BaseException) -> float:
        return self.delays[min(attempt, len(self.delays)) - 1]


@dataclass(frozen=True, slots=True)
class Function(Policy):
    """`answer(attempt, error)`: seconds, a text as in "5m", a timedelta, or None for no retry. No jitter, unless it is
    asked for.
    """

    answer: Answer
    jitter: float = field(default=0.0, kw_only=True)

    def base_s(self, attempt: int, error: BaseException) -> float | None:
        answer = self.answer(attempt, error)
        return None if answer is None else delay_seconds(answer)


@dataclass(frozen=True, slots=True)
class Never(Policy):
    """The retry policy without retries."""

    retries: int = field(default=0, kw_only=True)

    def base_s(self, attempt: int, error: BaseException) -> None:
        return None


@dataclass(frozen=True, slots=True)
class RetryRules:
    """A policy, and others for some types of exception: the most specific type counts."""

    default: Policy
    on: Mapping[type[BaseException], Policy] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    @property
    def retries(self) -> int:
        """The number of retries that any of them allows."""
        return max(self.default.retries, *(policy.retries for policy in self.on.values()), 0)

    def policy(self, error: BaseException) -> Policy:
        if self.on:
            for kind in type(error).__mro__:
                found = self.on.get(kind)
                if found is not None:
                    return found
        return self.default

    def delay_s(
        self, attempt: int, error: BaseException, rng: Random | None, retries: int | None = None
    ) -> float | None:
        """The delay after this attempt; None: no retry. `retries` replaces the default's; `rng` None: no jitter."""
        policy = self.policy(error)
        return policy.delay_s(attempt, error, rng, retries if policy is self.default else None)


def delays(policy: Policy, attempts: int) -> list[float]:
    """The waits of a type of job with so many attempts, without jitter; fewer where the policy itself ends before."""
    error = Exception("an example")
    waits: list[float] = []
    for attempt in range(1, attempts):
        wait_s = policy.plain_s(attempt, error)
        if wait_s is None:
            break
        waits.append(wait_s)
    return waits


def _grown(first: float, factor: float, times: int) -> float:
    try:
        return min(first * math.pow(factor, min(times, MANY)), LONGEST_S)
    except OverflowError:
        return LONGEST_S if first else 0.0


def _check(name: str, value: float, least: float, most: float) -> None:
    if not isinstance(value, int | float):
        raise ValueError(
            f"{name} of a retry policy is {value!r:.100}; allowed: a number, in seconds where it is a time; texts "
            "stand in a policy that is a text, as in 'constant delay=30s' or 'delays 1s 5m'"
        )
    if not least <= value <= most:
        raise ValueError(f"{name} of a retry policy is {value!r}; allowed: {least:,.10g} to {most:,.10g}")


DEFAULT_RETRY = RetryRules(Default())
