"""Files about flows: a flow in TOML, items as lines of JSON. A mistake names the file, the table or line, the key."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import click
import msgspec

from pinlater.cli.times import seconds_or_duration_ms
from pinlater.durations import allowed_durations
from pinlater.errors import RequestInvalid
from pinlater.flows.flow_limits import MAX_ITEMS, MAX_PAYLOAD_BYTES, check_item
from pinlater.model import MAX_TIME_MS
from pinlater.model.flow_words import (
    Applet,
    AppletKind,
    CompletionCallback,
    NewFlow,
    NewItem,
    OnFailure,
    Stage,
)
from pinlater.queues.settings import known_or_near
from pinlater.written import toml_of

T = TypeVar("T")

NOW, MANUAL, BY_PARENT = "now", "manual", "parent"
_LIST = "list"
_OF_FLOW = ("name", "dedupe_key", "metadata", "ttl", "on_complete", "on_failure", "stage")
_OF_CALLBACK = ("queue", "job", "url")
_OF_APPLET = ("job", "queue")
_OF_STAGE = (
    *("name", "job", "queue", "parent", "payload", "applet", "max_failures", "backoff", "max_backoff", "priority"),
    *("seal", "final", "items", "dedupe_key_from", "serialize_key_from", "tags", "group"),
)
_ON_FAILURE = {each.name.lower().replace("_", "-"): each for each in OnFailure}
_KINDS: Mapping[type, str] = {
    str: "a text in quotes",
    int: "a whole number",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}
_MAX_LINE = 2 * MAX_PAYLOAD_BYTES
"""With keys, and as it is written."""


# -- the keys of items -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ItemKeys:
    """Where the keys of items come from: fields of their payloads, as in `user.id`, "" for none. `keyed`: a line is an
    object of payload and keys.
    """

    dedupe_from: str = ""
    serialize_from: str = ""
    keyed: bool = False

    @property
    def are_named(self) -> bool:
        """Items have dedupe keys, as far as can be seen before they are read."""
        return bool(self.dedupe_from) or self.keyed

    def item(self, text: bytes) -> NewItem:
        """ValueError: it is none."""
        dedupe_key = serialize_key = ""
        if self.keyed:
            try:
                line = msgspec.json.decode(text, type=_KeyedLine)
            except (msgspec.MsgspecError, RecursionError) as error:
                raise ValueError(f"no object of payload, dedupe_key and serialize_key ({error})") from None
            text, dedupe_key, serialize_key = bytes(line.payload), line.dedupe_key, line.serialize_key
        made = NewItem(text, dedupe_key, serialize_key)
        try:
            check_item(made)
            if self.dedupe_from or self.serialize_from:
                payload = msgspec.json.decode(text)
                made = NewItem(
                    text,
                    _field(payload, self.dedupe_from) if self.dedupe_from else dedupe_key,
                    _field(payload, self.serialize_from) if self.serialize_from else serialize_key,
                )
                check_item(made)
        except RequestInvalid as error:
            raise ValueError(error.message) from None
        return made


class _KeyedLine(msgspec.Struct, forbid_unknown_fields=True):
    payload: msgspec.Raw
    dedupe_key: str = ""
    serialize_key: str = ""


def _field(payload: Any, path: str) -> str:
    """A text or a number in it, as a key. ValueError: it is not there."""
    found = payload
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            raise ValueError(f"the payload has no {path}, which is to be a key")
        found = found[name]
    if isinstance(found, bool) or not isinstance(found, str | int) or found == "":
        raise ValueError(f"{path} is {_shown(found)}, and no key; allowed: a text or a whole number")
    return str(found)


# -- lines of items ----------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    number: int
    item: NewItem


def read_lines(stream: BinaryIO, name: str, keys: ItemKeys) -> Iterator[Line]:
    """One item per line, read as they are needed; empty lines are left out. UsageError, behind those before it."""
    number = 0
    while text := stream.readline(_MAX_LINE + 1):
        number += 1
        if number == 1:
            text = text.removeprefix(BOM_UTF8)
        if not text.strip():
            continue
        try:
            if len(text) > _MAX_LINE:
                raise ValueError(f"more than {_MAX_LINE} bytes; allowed: a payload of up to {MAX_PAYLOAD_BYTES}")
            yield Line(number, keys.item(text.strip()))
        except ValueError as error:
            raise click.UsageError(f"{name}, line {number}: {error}") from None


# -- a flow in TOML ----------------------------------------------------------------------------------------------------


def read_flow(path: Path, name: str | None) -> NewFlow:
    """A `name` that is given counts before that of the file. UsageError."""
    try:
        written = toml_of(path.read_bytes())
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{path}: no UTF-8 ({error.reason} at byte {error.start})") from None
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{path}: no TOML ({error})") from None
    top = _Table(str(path), written, _OF_FLOW)
    stages = [
        _read_stage(_Table(f"{path}: [[stage]] {_named(each, number)}", each, _OF_STAGE))
        for number, each in enumerate(top.tables("stage"), 1)
    ]
    if not stages:
        raise click.UsageError(f"{path}: there is no stage; each is a table [[stage]] with a name and a queue")
    if sum(len(each.items) for each in stages) > MAX_ITEMS:
        raise click.UsageError(
            f"{path}: more than {MAX_ITEMS:,} items; more come as lines of JSON, by --items or `pinlater flow add`"
        )
    return NewFlow(
        name=name or top.text("name", required=True),
        stages=[each.stage for each in stages],
        dedupe_key=top.text("dedupe_key"),
        metadata=_texts(top.table("metadata", None)),
        on_complete=_read_callback(top.table("on_complete", _OF_CALLBACK)),
        on_failure=top.choice("on_failure", _ON_FAILURE, OnFailure.GO_ON),
        ttl_ms=top.duration("ttl", 7 * 24 * 3_600_000),
        items={each.stage.name: each.items for each in stages if each.items},
        sealed=[each.stage.name for each in stages if each.is_sealed],
    )


class _StageTable(NamedTuple):
    stage: Stage
    items: Sequence[NewItem]
    is_sealed: bool


def _read_stage(table: _Table) -> _StageTable:
    parent = table.text("parent")
    seals = {MANUAL: MANUAL, BY_PARENT: BY_PARENT} if parent else {MANUAL: MANUAL, NOW: NOW}
    seal = table.choice("seal", seals, BY_PARENT if parent else MANUAL)
    backoff_ms = table.duration("backoff", 1_000)
    stage = Stage(
        name=table.text("name", required=True),
        job=table.text("job"),
        queue=table.text("queue", required=True),
        parent=parent,
        applet=_read_applet(table, parent),
        max_failures=table.number("max_failures", 0),
        backoff_ms=backoff_ms,
        max_backoff_ms=table.duration("max_backoff", max(3_600_000, backoff_ms)),
        is_final=table.flag("final"),
        keeps_open=bool(parent) and seal == MANUAL,
        priority=table.number("priority", 1),
        tags=tuple(map(str, table.take("tags", list, []))),
        group=table.text("group"),
    )
    return _StageTable(stage, _read_items(table), seal == NOW)


def _read_applet(table: _Table, parent: str) -> Applet:
    expression, applet = table.text("payload"), table.values.get("applet")
    if not parent and (expression or applet is not None):
        key = "payload" if expression else "applet"
        raise table.mistake(f"{key} makes items out of those of the parent, and the stage has none")
    if expression and applet is not None:
        raise table.mistake("give one of payload and applet")
    if expression:
        return Applet(AppletKind.MAP, expression)
    if applet is None:
        return Applet()
    if applet == _LIST:
        return Applet(AppletKind.LIST)
    if not isinstance(applet, dict):
        raise table.wrong("applet", '"list", or { job = "…", queue = "…" }')
    made_by = table.table("applet", _OF_APPLET)
    assert made_by is not None
    return Applet(AppletKind.JOB, job=made_by.text("job", required=True), queue=made_by.text("queue", required=True))


def _read_items(table: _Table) -> list[NewItem]:
    keys = ItemKeys(table.text("dedupe_key_from"), table.text("serialize_key_from"))
    items = []
    for number, value in enumerate(table.take("items", list, []), 1):
        try:
            items.append(keys.item(json.dumps(value, allow_nan=False, default=_time_text).encode()))
        except ValueError as error:
            raise table.mistake(f"item {number}: {error}") from None
    return items


def _read_callback(table: _Table | None) -> CompletionCallback | None:
    if table is None:
        return None
    callback = CompletionCallback(*map(table.text, _OF_CALLBACK))
    if bool(callback.url) == bool(callback.queue):
        raise table.mistake("give either queue, with the job, or url")
    return callback


def _texts(table: _Table | None) -> dict[str, str]:
    return {} if table is None else {key: table.text(key) for key in table.values}


class _Table:
    """A table of the file. Keys that it cannot have are refused, each with the nearest one that it can.

    `known`: None where any will do.
    """

    def __init__(self, where: str, values: object, known: Sequence[str] | None) -> None:
        self._where = where
        if not isinstance(values, dict):
            raise self.mistake(f"{_shown(values)} is no table")
        self.values: dict[str, Any] = values
        for key in values:
            if known is not None and key not in known:
                more = "; it stands above the stages" if known is _OF_STAGE and key in _OF_FLOW else ""
                raise self.mistake(f"{_shown(key)} is unknown{more}; allowed: {known_or_near(key, known)}")

    def mistake(self, text: str) -> click.UsageError:
        return click.UsageError(f"{self._where}: {text}")

    def wrong(self, key: str, allowed: str) -> click.UsageError:
        return self.mistake(f"{key} is {_shown(self.values[key])}; allowed: {allowed}")

    def take(self, key: str, kind: type[T], default: T) -> T:
        value = self.values.get(key, default)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.wrong(key, _KINDS[kind])
        return value

    def text(self, key: str, *, required: bool = False) -> str:
        found = self.take(key, str, "")
        if required and not found:
            raise self.mistake(f"it has no {key}")
        return found

    def number(self, key: str, default: int) -> int:
        return self.take(key, int, default)

    def flag(self, key: str) -> bool:
        return self.take(key, bool, False)

    def duration(self, key: str, default_ms: int) -> int:
        text = self.text(key)
        try:
            return seconds_or_duration_ms(text, 0) if text else default_ms
        except ValueError:
            raise self.wrong(key, allowed_durations(0, MAX_TIME_MS)) from None

    def choice(self, key: str, choices: Mapping[str, T], default: T) -> T:
        word = self.text(key)
        if word and word not in choices:
            raise self.wrong(key, ", ".join(choices))
        return choices[word] if word else default

    def table(self, key: str, known: Sequence[str] | None) -> _Table | None:
        return _Table(f"{self._where}: {key}", self.values[key], known) if key in self.values else None

    def tables(self, key: str) -> list[object]:
        return list(self.take(key, list, []))


def _named(table: object, number: int) -> str:
    """How a stage is called: by its name, or by its place where it has none."""
    name = table.get("name") if isinstance(table, dict) else None
    return name if isinstance(name, str) and name else str(number)


def _time_text(value: object) -> str:
    assert isinstance(value, date | datetime | time)
    return value.isoformat()


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "…"
