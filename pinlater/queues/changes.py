"""The change of a queue's settings by a command, checked. Pure; every mistake is a RequestInvalid."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pinlater.backends.base import ConfigEntry
from pinlater.errors import RequestInvalid
from pinlater.queues.settings import BY_NAME, OF_A_PAUSE, QueueSetting, QueueSettings, SettingTable, known_key
from pinlater.setting_kinds import Size
from pinlater.sizes import size_text

MAX_TEXT_CHARS = 1_000
"""The most characters of a setting: every server keeps all settings in memory."""

_PAUSE_KEYS = frozenset(setting.name for setting in BY_NAME.values() if setting.field in OF_A_PAUSE)


Update = Callable[[ConfigEntry | None], "str | None"]
"""From the entry that is there to the text of the next one, "" for its end; None: it is right as it is."""


class ValidationContext(NamedTuple):
    """The facts that a change is checked against: the queues that are there, where the dead letters of each go, for
    which of them that is set by name, and what the server is configured with.
    """

    names: set[str]
    targets: Mapping[str, str]
    named_targets: Mapping[str, str]
    server: QueueSettings


class Author(NamedTuple):
    """The author of a change, and its time."""

    who: str
    now_ms: int


def changed(
    before: Mapping[str, str],
    set: Mapping[str, str],
    unset: Iterable[str],
    by: Author,
    table: SettingTable = BY_NAME,
) -> dict[str, str]:
    """The texts of settings after a change, each as `QueueSetting.text` writes it. `table`: which there are."""
    after = dict(before)
    for key in unset:
        _known(key, table)
        after.pop(key, None)
        if key == "paused":
            _no_pause(after)
    texts = {}
    for key, text in set.items():
        setting = _known(key, table)
        if len(text) > MAX_TEXT_CHARS:
            raise RequestInvalid.of(key, text, f"up to {MAX_TEXT_CHARS} characters")
        try:
            texts[key] = setting.text(setting.kind.parse(text))
        except ValueError:
            raise RequestInvalid.of(key, text, setting.kind.allowed) from None
        if len(texts[key]) > MAX_TEXT_CHARS:
            raise RequestInvalid.of(key, text, f"up to {MAX_TEXT_CHARS} characters")
    if "paused" in texts:
        _no_pause(after)
    after |= texts
    if texts.get("paused") == "true":
        after |= {"paused_by": by.who, "paused_at": str(by.now_ms)}
    if after.get("paused") != "true":
        for key in texts.keys() & _PAUSE_KEYS:
            raise RequestInvalid.of(key, texts[key], "only together with paused=true")
        _no_pause(after)
    ends = texts.get("paused_until", "none")
    if ends != "none" and int(ends) <= by.now_ms:
        raise RequestInvalid.of("paused_until", ends, f"a time to come, after {by.now_ms}, or none")
    return after


def _known(key: str, table: SettingTable) -> QueueSetting:
    setting, allowed = known_key(key, table)
    if setting is None:
        raise RequestInvalid.of("a setting's name", key, allowed)
    return setting


def _no_pause(texts: dict[str, str]) -> None:
    for key in _PAUSE_KEYS:
        texts.pop(key, None)


def check(name: str, set: Mapping[str, str], context: ValidationContext) -> None:
    """Check values that are right by themselves against this queue, this server and other queues. RequestInvalid."""
    body_text = set.get("max_body", "")
    most = context.server.max_body_bytes
    if body_text and Size(0, 2**63).parse(body_text) > most:
        raise RequestInvalid.of("max_body", body_text, f"at most {size_text(most)}, the server's own bound")
    target = set.get("dead_letter_queue", "")
    if target:
        _check_target(name, target, context)


def _check_target(name: str, target: str, context: ValidationContext) -> None:
    key = "dead_letter_queue"
    if target == name:
        raise RequestInvalid.of(key, target, "another queue than the queue itself")
    if target not in context.names:
        raise RequestInvalid.of(key, target, f"a queue that exists (`pinlater queue create {target}` makes it)")
    if context.named_targets.get(target, ""):
        allowed = f"a queue that has none of its own (it has {context.named_targets[target]})"
        raise RequestInvalid.of(key, target, allowed)
    sources = sorted(queue for queue, its in context.targets.items() if its == name)
    if sources:
        allowed = f"nothing: {name} is itself the dead-letter queue of {some(sources)}"
        raise RequestInvalid.of(key, target, allowed)


def some(names: list[str]) -> str:
    """A few names, for a message.

    >>> some(["a", "b", "c", "d", "e", "f"])
    'a, b, c, d, e and 1 more'
    """
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def entry_text(texts: Mapping[str, str]) -> str:
    """The text of an entry that sets so."""
    return json.dumps({"set": dict(sorted(texts.items()))}, separators=(",", ":"))
