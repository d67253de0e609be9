"""Settings of queues from a file, for people who keep them in version control: read again when it changes.

`[defaults]` counts for all queues, `[queues.NAME]` for one; the keys are those of settings.py. The file makes no
queue. A file with mistakes changes nothing: the last good one goes on counting.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from pinlater.config.loader import ConfigInvalid, Mistake
from pinlater.model import QUEUE_NAME_ALLOWED, is_queue_name
from pinlater.queues.layers import Layer, as_layer
from pinlater.queues.settings import known_key
from pinlater.written import toml_of

_log = structlog.get_logger("pinlater.queues")

_TABLES = ("defaults", "queues")


class FileLayers(NamedTuple):
    """The layers of a file: that of all queues, and those of some."""

    defaults: Layer
    queues: Mapping[str, Layer]


class QueueFile:
    """A file that can be read, at least at first: else ConfigInvalid, with all mistakes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._stamp = self._content_stamp()
        try:
            self.layers = read_layers(self.path)
        except OSError as error:
            allowed = f"a file that can be read ({error.strerror})"
            raise ConfigInvalid([Mistake("queue-file", str(path), allowed, "the configuration")]) from error

    def read_again(self) -> bool:
        """Whether the file changed, and says something else. What is wrong with it is logged once."""
        stamp = self._content_stamp()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            layers = read_layers(self.path)
        except OSError as error:
            _log.error("queue_file_not_read", file=str(self.path), reason=error.strerror)
        except ConfigInvalid as invalid:
            _log.error("queue_file_invalid", file=str(self.path), mistakes=[str(each) for each in invalid.mistakes])
        else:
            was, self.layers = self.layers, layers
            _log.info("queue_file_read", file=str(self.path), queues=len(layers.queues))
            return was != layers
        return False

    def _content_stamp(self) -> tuple[int, int, int] | None:
        """A stamp, another one where the file has other content; None: there is no file."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


def read_layers(path: Path) -> FileLayers:
    """OSError; ConfigInvalid."""
    try:
        tables = toml_of(path.read_bytes())
    except ValueError as error:
        raise ConfigInvalid([Mistake("queue-file", str(path), f"TOML ({error})", str(path))]) from error
    mistakes: list[Mistake] = []
    for name in tables.keys() - set(_TABLES):
        mistakes.append(Mistake(name, tables[name], "the tables defaults and queues.NAME", str(path)))
    defaults = _layer("defaults", tables.get("defaults", {}), path, mistakes)
    queues = {}
    of_queues = tables.get("queues", {})
    if not isinstance(of_queues, dict):
        mistakes.append(Mistake("queues", of_queues, "tables queues.NAME", str(path)))
        of_queues = {}
    for name, table in of_queues.items():
        if not is_queue_name(name):
            allowed = f"the name of a queue: {QUEUE_NAME_ALLOWED}"
            mistakes.append(Mistake(f"queues.{name}", name, allowed, str(path)))
        queues[name] = _layer(f"queues.{name}", table, path, mistakes)
    _refuse_chains(queues, path, mistakes)
    if mistakes:
        raise ConfigInvalid(mistakes)
    return FileLayers(defaults, queues)


def _layer(place: str, table: object, path: Path, mistakes: list[Mistake]) -> Layer:
    if not isinstance(table, dict):
        mistakes.append(Mistake(place, table, "a table", str(path)))
        return {}
    values: dict[str, Any] = {}
    for key, value in table.items():
        setting, allowed = known_key(key)
        if setting is not None:
            try:
                values[setting.field] = setting.kind.parse(value)
                continue
            except ValueError:
                allowed = setting.kind.allowed
        mistakes.append(Mistake(f"{place}.{key}", value, allowed, str(path)))
    return as_layer(values)


def _refuse_chains(queues: Mapping[str, Layer], path: Path, mistakes: list[Mistake]) -> None:
    for name, layer in queues.items():
        target = layer.get("dead_letter_queue", "")
        if target and (target == name or queues.get(target, {}).get("dead_letter_queue")):
            allowed = "another queue, which has none of its own"
            mistakes.append(Mistake(f"queues.{name}.dead_letter_queue", target, allowed, str(path)))
