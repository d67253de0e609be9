"""The settings in effect for each queue, from the layers that set them. Pure.

For a queue, the first of these that has a setting gives it: what a command set for this queue, the file's table for
it, what a command set for all queues, the file's defaults, the server's own configuration. What tells of a pause (who,
why, since and until when) comes from where `paused` comes from, and from nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import structlog

from pinlater.backends.base import ConfigEntry, DeadLetterTarget, EndRules, PerQueue, Retention
from pinlater.model import Job, QueueView, SettingView
from pinlater.queues.breaker_rule import BreakerRule
from pinlater.queues.settings import BREAKER, BY_NAME, OF_A_PAUSE, SETTINGS, QueueSettings
from pinlater.stored_json import read_stored

T = TypeVar("T")
_log = structlog.get_logger("pinlater.queues")

DEFAULTS = "@defaults"
"""The entry of what is set for all queues."""

_PLAIN = QueueSettings()
_ATTEMPTS = Job(b"").attempts_allowed
"""The attempts of a dead letter, where its queue says nothing."""

Layer = Mapping[str, Any]
"""Values by the names of the fields of QueueSettings; what is not in it, it does not say."""


def as_layer(values: Mapping[str, Any]) -> Layer:
    """The values of one place, with all of a pause or nothing of it."""
    layer = {field: value for field, value in values.items() if field not in OF_A_PAUSE}
    if "paused" in layer:
        layer |= {field: values.get(field, getattr(_PLAIN, field)) for field in OF_A_PAUSE}
    return layer


def texts_of(entry: ConfigEntry | None) -> dict[str, str]:
    """The texts of the settings that an entry has, as people write them, by key."""
    try:
        texts = read_stored(entry.text)["set"] if entry is not None and not entry.is_deleted else {}
        return {str(key): str(text) for key, text in texts.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}


def layer_of(entry: ConfigEntry | None) -> Layer:
    """The settings that an entry has. What a newer server wrote and this one does not know is left out, and logged."""
    values: dict[str, Any] = {}
    for key, text in texts_of(entry).items():
        try:
            values[BY_NAME[key].field] = BY_NAME[key].kind.parse(text)
        except (KeyError, ValueError):
            _log.warning("queue_setting_not_understood", queue=entry.name if entry else "", key=key, value=text)
    return as_layer(values)


def combined(base: QueueSettings, layers: Iterable[Layer]) -> QueueSettings:
    """`base`, with what each layer says in its place, the last layer having the last word."""
    values: dict[str, Any] = {}
    for layer in layers:
        values.update(layer)
    return replace(base, **values) if values else base


class Layers:
    """The layers of all queues; a queue without any layer of its own has the defaults."""

    def __init__(self, server: QueueSettings) -> None:
        self.server = server
        self.file_defaults: Layer = {}
        self.file_queues: Mapping[str, Layer] = {}
        self._set_defaults: Layer = {}
        self._set_queues: dict[str, Layer] = {}

    def take(self, name: str, entry: ConfigEntry | None) -> None:
        """The entry of a queue, or of DEFAULTS, as it is now."""
        layer = layer_of(entry)
        if name == DEFAULTS:
            self._set_defaults = layer
        elif layer:
            self._set_queues[name] = layer
        else:
            self._set_queues.pop(name, None)

    def defaults(self) -> QueueSettings:
        return self._bounded(combined(self.server, (self.file_defaults, self._set_defaults)))

    def overrides(self, live: Iterable[str]) -> dict[str, QueueSettings]:
        """The settings of all queues that differ from the defaults. `live`: the queues that are there.

        A queue that is the dead-letter queue of another one, or of itself, has none: also where two places that know
        nothing of each other say so.
        """
        defaults = self.defaults()
        found = {
            name: self._bounded(combined(defaults, (self.file_queues.get(name, {}), self._set_queues.get(name, {}))))
            for name in self.file_queues.keys() | self._set_queues.keys()
        }
        targets = {found.get(name, defaults).dead_letter_queue for name in live} - {""}
        for name in targets:
            settings = found.get(name, defaults)
            if settings.dead_letter_queue:
                found[name] = replace(settings, dead_letter_queue="")
        return found

    def _bounded(self, settings: QueueSettings) -> QueueSettings:
        bound = self.server.max_body_bytes
        if max(settings.max_body_bytes, settings.max_result_bytes) <= bound:
            return settings
        max_body_bytes, max_result_bytes = min(settings.max_body_bytes, bound), min(settings.max_result_bytes, bound)
        return replace(settings, max_body_bytes=max_body_bytes, max_result_bytes=max_result_bytes)

    def named_targets(self) -> dict[str, str]:
        """The dead-letter queues that are set for a queue by its name."""
        names = self.file_queues.keys() | self._set_queues.keys()
        merged = {name: {**self.file_queues.get(name, {}), **self._set_queues.get(name, {})} for name in names}
        return {name: str(layer.get("dead_letter_queue", "")) for name, layer in merged.items()}

    def sources(self, name: str) -> Iterable[tuple[str, Layer]]:
        """The layers of a queue, or of all, by the word for where they come from, the first counts."""
        if name != DEFAULTS:
            yield "queue", self._set_queues.get(name, {})
            yield "file", self.file_queues.get(name, {})
        yield "default", self._set_defaults
        yield "file default", self.file_defaults


def queue_view(
    name: str, version: str, settings: QueueSettings, layers: Layers, *, holds_dead_letters: bool
) -> QueueView:
    """Every setting as people write it, and where it comes from. `settings` are those that count for the queue now."""
    sources = list(layers.sources(name))
    if settings.paused and settings.paused_by == BREAKER:
        sources = [("breaker", {"paused": True, **dict.fromkeys(OF_A_PAUSE)}), *sources]
    return QueueView(
        name,
        version,
        {
            each.name: SettingView(
                each.text(getattr(settings, each.field)),
                next((source for source, layer in sources if each.field in layer), "server"),
            )
            for each in SETTINGS
        },
        holds_dead_letters,
    )


class DerivedSettings:
    """What follows from the settings of all queues together: asked for many times a second, worked out once per change.

    Of the queues `names`: `defaults`, but for those in `overrides`.
    """

    def __init__(self, names: Set[str], defaults: QueueSettings, overrides: Mapping[str, QueueSettings]) -> None:
        self._names = names
        self._defaults = defaults
        self._overrides = overrides

    def _settings(self, queue: str) -> QueueSettings:
        return self._overrides.get(queue, self._defaults)

    @cached_property
    def end_rules(self) -> PerQueue[EndRules]:
        """The rules for ends of attempts; only the queues that differ from the defaults are named."""
        return self._per_queue(_end_rules_of)

    @cached_property
    def retention(self) -> PerQueue[Retention]:
        """The times to live of ended jobs; only the queues that differ from the defaults are named."""
        return self._per_queue(_retention_of)

    def _per_queue(self, rule: Callable[[QueueSettings], T]) -> PerQueue[T]:
        default = rule(self._defaults)
        of = {name: rule(settings) for name, settings in self._overrides.items()}
        return PerQueue(default, {name: each for name, each in of.items() if each != default})

    @cached_property
    def dead_letter_targets(self) -> Mapping[str, DeadLetterTarget]:
        """The targets of dead letters, by queue; a letter gets the attempts of the target's own `max_attempts`."""
        found = {}
        for name in self._names:
            target = self._settings(name).dead_letter_queue
            if target and not self._settings(name).flow_items:
                attempts = self._settings(target).max_attempts
                found[name] = DeadLetterTarget(target, _ATTEMPTS if attempts is None else attempts)
        return found

    @cached_property
    def dead_letter_queues(self) -> Set[str]:
        """Those that others name as such."""
        return frozenset(target.queue for target in self.dead_letter_targets.values())

    @cached_property
    def flow_queues(self) -> Set[str]:
        """Into which items of flows come."""
        return frozenset(name for name in self._names if self._settings(name).flow_items)

    @cached_property
    def group_bounded(self) -> Set[str]:
        """Whose groups have a maximum of jobs that wait."""
        return frozenset(name for name in self._names if self._settings(name).group_max_pending is not None)

    @cached_property
    def group_limited(self) -> Set[str]:
        """Whose groups have limits."""
        return frozenset(name for name in self._names if self._settings(name).limits_groups)

    @cached_property
    def limited(self) -> Set[str]:
        """The queues that have a maximum of jobs in progress."""
        return frozenset(name for name in self._names if self._settings(name).max_in_progress is not None)

    @cached_property
    def breaker_rules(self) -> Mapping[str, BreakerRule]:
        """The rules of circuit breakers, by queue; a queue without one is left out."""
        rules = ((name, self._settings(name).pause_on_failures) for name in self._names)
        return {name: rule for name, rule in rules if rule is not None}

    @cached_property
    def bounded(self) -> Set[str]:
        """The queues that have a maximum of pending jobs."""
        return frozenset(name for name in self._names if self._settings(name).max_pending is not None)


def _end_rules_of(settings: QueueSettings) -> EndRules:
    return EndRules(
        crash_budget=0 if settings.flow_items else settings.crash_budget,
        keep_succeeded=settings.succeeded_ttl_ms > 0,
        keep_failed=settings.failed_ttl_ms > 0,
        dead_letters=settings.dead_letter_queue != "" and not settings.flow_items,
        result_ttl_ms=settings.result_ttl_ms,
        lists_expired=settings.flow_items,
    )


def _retention_of(settings: QueueSettings) -> Retention:
    return Retention(settings.succeeded_ttl_ms, settings.failed_ttl_ms)
