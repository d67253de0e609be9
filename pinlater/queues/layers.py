"""Where the settings of a queue come from, one over the other, and what counts in the end. Pure.

For a queue, the first of these that has a setting gives it: what a command set for this queue, the file's table for
it, what a command set for all queues, the file's defaults, the server's own configuration. What tells of a pause (who,
why, since and until when) comes from where `paused` comes from, and from nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from pinlater.backends.base import ConfigEntry
from pinlater.queues.settings import BY_NAME, QueueSettings

_log = structlog.get_logger("pinlater.queues")

DEFAULTS = "@defaults"
"""The record of what is set for all queues."""

OF_A_PAUSE = ("paused_by", "paused_at_ms", "paused_why", "paused_until_ms")
_PLAIN = QueueSettings()

Layer = Mapping[str, Any]
"""Values by the names of the fields of QueueSettings; what is not in it, it does not say."""


def as_layer(values: Mapping[str, Any]) -> Layer:
    """The values of one place, with all of a pause or nothing of it."""
    layer = {field: value for field, value in values.items() if field not in OF_A_PAUSE}
    if "paused" in layer:
        layer |= {field: values.get(field, getattr(_PLAIN, field)) for field in OF_A_PAUSE}
    return layer


def texts_of(record: ConfigEntry | None) -> dict[str, str]:
    """What a record sets, as people write it, by key."""
    try:
        texts = json.loads(record.text)["set"] if record is not None and not record.is_deleted else {}
        return {str(key): str(text) for key, text in texts.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}


def layer_of(record: ConfigEntry | None) -> Layer:
    """What a record sets. What this version does not understand, a newer server wrote: left out, and logged."""
    values: dict[str, Any] = {}
    for key, text in texts_of(record).items():
        try:
            values[BY_NAME[key].field] = BY_NAME[key].kind.parse(text)
        except (KeyError, ValueError):
            _log.warning("queue_setting_not_understood", queue=record.name if record else "", key=key, value=text)
    return as_layer(values)


def combined(base: QueueSettings, layers: Iterable[Layer]) -> QueueSettings:
    """`base`, with what each layer says in its place, the last layer having the last word."""
    values: dict[str, Any] = {}
    for layer in layers:
        values.update(layer)
    return replace(base, **values) if values else base


class Layers:
    """The layers of all queues. `records` are those that win; a queue without any layer has the settings for all."""

    def __init__(self, server: QueueSettings) -> None:
        self.server = server
        self.file_defaults: Layer = {}
        self.of_file: Mapping[str, Layer] = {}
        self.defaults: Layer = {}
        self.of_queue: dict[str, Layer] = {}

    def take(self, name: str, record: ConfigEntry | None) -> None:
        """The record of a queue, or of all, as it is now."""
        layer = layer_of(record)
        if name == DEFAULTS:
            self.defaults = layer
        elif layer:
            self.of_queue[name] = layer
        else:
            self.of_queue.pop(name, None)

    def for_all(self) -> QueueSettings:
        return self._bounded(combined(self.server, (self.file_defaults, self.defaults)))

    def special(self, live: Iterable[str]) -> dict[str, QueueSettings]:
        """The settings of all queues that have other ones than all. `live`: the queues that are there.

        A queue that is the dead-letter queue of another one, or of itself, has none: also where two places that know
        nothing of each other say so.
        """
        for_all = self.for_all()
        found = {
            name: self._bounded(combined(for_all, (self.of_file.get(name, {}), self.of_queue.get(name, {}))))
            for name in self.of_file.keys() | self.of_queue.keys()
        }
        targets = {found.get(name, for_all).dead_letter_queue for name in live} - {""}
        for name in targets:
            settings = found.get(name, for_all)
            if settings.dead_letter_queue:
                found[name] = replace(settings, dead_letter_queue="")
        return found

    def _bounded(self, settings: QueueSettings) -> QueueSettings:
        if settings.max_body_bytes <= self.server.max_body_bytes:
            return settings
        return replace(settings, max_body_bytes=self.server.max_body_bytes)

    def own_graves(self) -> dict[str, str]:
        """The dead-letter queues that are set for a queue by its name."""
        names = self.of_file.keys() | self.of_queue.keys()
        said = {name: {**self.of_file.get(name, {}), **self.of_queue.get(name, {})} for name in names}
        return {name: str(layer.get("dead_letter_queue", "")) for name, layer in said.items()}

    def sources(self, name: str) -> Iterable[tuple[str, Layer]]:
        """The layers of a queue, or of all, by the word for where they come from, the first counts."""
        if name != DEFAULTS:
            yield "queue", self.of_queue.get(name, {})
            yield "file", self.of_file.get(name, {})
        yield "default", self.defaults
        yield "file default", self.file_defaults
