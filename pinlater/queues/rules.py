"""What the settings of queues say about jobs that end, and about those that ended. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from pinlater.backends.base import DeadLetterTarget, EndRules, PerQueue, Retention
from pinlater.model import Job
from pinlater.queues.settings import QueueSettings

T = TypeVar("T")

_ATTEMPTS = Job(b"").attempts_allowed
"""Of a dead letter, where its queue says nothing."""


def end_rules(for_all: QueueSettings, special: Mapping[str, QueueSettings]) -> PerQueue[EndRules]:
    """What the ends of attempts mean; only the queues that differ are named."""
    return _per_queue(_end_rules_of, for_all, special)


def retention(for_all: QueueSettings, special: Mapping[str, QueueSettings]) -> PerQueue[Retention]:
    """How long ended jobs are kept; only the queues that differ are named."""
    return _per_queue(_retention_of, for_all, special)


def graves(names: Iterable[str], settings: Callable[[str], QueueSettings]) -> dict[str, DeadLetterTarget]:
    """Where the dead letters of each queue go. A dead-letter queue's own `max_attempts` says how many attempts."""
    found = {}
    for name in names:
        target = settings(name).dead_letter_queue
        if target:
            attempts = settings(target).max_attempts
            found[name] = DeadLetterTarget(target, _ATTEMPTS if attempts is None else attempts)
    return found


def _per_queue(
    rule: Callable[[QueueSettings], T], for_all: QueueSettings, special: Mapping[str, QueueSettings]
) -> PerQueue[T]:
    default = rule(for_all)
    of = {name: rule(settings) for name, settings in special.items()}
    return PerQueue(default, {name: each for name, each in of.items() if each != default})


def _end_rules_of(settings: QueueSettings) -> EndRules:
    return EndRules(
        crash_budget=settings.crash_budget,
        keep_succeeded=settings.succeeded_ttl_ms > 0,
        keep_failed=settings.failed_ttl_ms > 0,
        dead_letters=settings.dead_letter_queue != "",
    )


def _retention_of(settings: QueueSettings) -> Retention:
    return Retention(settings.succeeded_ttl_ms, settings.failed_ttl_ms)
