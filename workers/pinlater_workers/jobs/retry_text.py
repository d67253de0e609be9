"""Retry policies as text, for files and command lines.

    default                                     default step=10s cap=1h retries=10 jitter=0.1
    constant delay=30s retries=5                linear step=10s
    exponential first=1s factor=2 cap=1h        delays 1s 5s 1m
    never                                       mail.policies:by_provider retries=3

A number alone is seconds. `retries`, `cap` and `jitter` go with each of them; what is not said is as in
pinlater_workers.jobs.retry. The last form names a function of (attempt, error), or a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any

from pinlater.durations import parse_duration, seconds_text
from pinlater_workers.imports import import_object
from pinlater_workers.jobs.retry import Constant, Default, Delays, Exponential, Function, Linear, Never, Policy

_COMMON: dict[str, Callable[[str], Any]] = {"retries": int, "cap": parse_duration, "jitter": float}
_DURATIONS = ("delay", "step", "first", "cap_s")
_FORMS: dict[str, tuple[type[Policy], dict[str, Callable[[str], Any]]]] = {
    "default": (Default, {"step": parse_duration}),
    "constant": (Constant, {"delay": parse_duration}),
    "linear": (Linear, {"step": parse_duration}),
    "exponential": (Exponential, {"first": parse_duration, "factor": float}),
    "delays": (Delays, {}),
    "never": (Never, {}),
}
_WORDS = {kind: word for word, (kind, _) in _FORMS.items()}
ALLOWED = f"{', '.join(_FORMS)}, or MODULE:FUNCTION"


def parse_policy(text: str) -> Policy:
    """ValueError: not of these forms, or a number that means nothing. ConfigurationError: nothing to import there.

    >>> parse_policy("exponential first=1s factor=3 cap=1h")
    Exponential(retries=10, cap_s=3600.0, jitter=0.1, first=1.0, factor=3.0)
    """
    word, *rest = text.split() or [""]
    if ":" in word:
        return _imported(word, _options(rest, _COMMON))
    if word not in _FORMS:
        raise ValueError(f"a retry policy {text!r}; allowed: {ALLOWED}")
    kind, own = _FORMS[word]
    given: list[Any] = []
    if kind is Delays:
        given = [tuple(parse_duration(each) for each in rest if "=" not in each)]
        rest = [each for each in rest if "=" in each]
    options = _options(rest, {**own, **_COMMON})
    try:
        return kind(*given, **options)
    except TypeError:
        needed = {field.name for field in fields(kind) if field.default is MISSING}
        missing = " and ".join(f"{name}=..." for name in own if name in needed and name not in options)
        raise ValueError(f"a retry policy {text!r}; it needs {missing}") from None


def policy_text(policy: Policy) -> str:
    """What `parse_policy` reads as this policy; of a function its name.

    >>> policy_text(Exponential(1, cap_s=60))
    'exponential first=1s cap=1m'
    """
    if isinstance(policy, Function):
        parts = [f"{policy.answer.__module__}:{getattr(policy.answer, '__qualname__', policy.answer)}"]
    else:
        parts = [_WORDS[type(policy)]]
    if isinstance(policy, Delays):
        parts += [seconds_text(delay) for delay in policy.delays]
    for name in ("delay", "step", "first", "factor", "retries", "cap_s", "jitter"):
        value = getattr(policy, name, None)
        if value is not None and value != _default_of(policy, name):
            text = seconds_text(value) if name in _DURATIONS else f"{value:g}"
            parts.append(f"{name.removesuffix('_s')}={text}")
    return " ".join(parts)


def _imported(spec: str, options: Mapping[str, Any]) -> Policy:
    found = import_object(spec, "retry")
    if isinstance(found, Policy):
        return replace(found, **options)
    if not callable(found) or isinstance(found, type):
        raise ValueError(f"a retry policy {spec!r}; it is no function of (attempt, error), and no policy")
    return Function(found, **options)


def _options(parts: Sequence[str], known: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals or name not in known:
            raise ValueError(f"{part!r} in a retry policy; allowed: {', '.join(f'{name}=...' for name in known)}")
        try:
            options["cap_s" if name == "cap" else name] = known[name](value)
        except ValueError as error:
            raise ValueError(f"{part!r} in a retry policy: {error}") from None
    return options


def _default_of(policy: Policy, name: str) -> object:
    if isinstance(policy, Delays) and name == "retries":
        return len(policy.delays)
    return next(field.default for field in fields(policy) if field.name == name)
