"""The ways to say a retry policy in a decorator or in a file."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence

from pinlater_workers.importing import import_object
from pinlater_workers.retry import Delays, Function, Policy, RetryRules


def retry_policy(value: object) -> Policy | RetryRules:
    """A policy, rules, a text, a list of seconds, or a function of (attempt, error). ValueError or TypeError."""
    if isinstance(value, Policy | RetryRules):
        return value
    if isinstance(value, Sequence):
        return Delays(tuple(value))
    if callable(value):
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
