"""The ways to say a retry policy in a decorator or in a file."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from pinlater_workers.durations import parse_duration
from pinlater_workers.importing import import_object
from pinlater_workers.retry import Delays, Function, Policy, RetryRules
from pinlater_workers.retry_text import parse_policy

RetryOption = (
    Policy | RetryRules | str | Sequence[float | str | timedelta] | Callable[[int, BaseException], float | None]
)


def retry_policy(value: object) -> Policy | RetryRules:
    """A policy, rules, a text, a list of durations, or a function of (attempt, error). ValueError or TypeError."""
    if isinstance(value, Policy | RetryRules):
        return value
    if isinstance(value, str):
        return parse_policy(value)
    if isinstance(value, Sequence):
        return Delays(tuple(parse_duration(delay) for delay in value))
    if callable(value) and not isinstance(value, type):
        return Function(value)
    raise TypeError


def retry_policies(value: object) -> dict[type[BaseException], Policy]:
    """Types of exception, in a file by their names, and a policy for each. ValueError or TypeError."""
    if not isinstance(value, Mapping):
        raise TypeError
    found = {}
    for name, said in value.items():
        policy = retry_policy(said)
        if isinstance(policy, RetryRules):
            raise TypeError(f"{name} has rules; a policy is wanted")
        found[_exception(name)] = policy
    return found


def _exception(name: object) -> type[BaseException]:
    kind = name
    if isinstance(name, str):
        kind = import_object(name, "retry_on") if ":" in name else getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise TypeError(f"{name!r} is no type of exception")
    return kind
