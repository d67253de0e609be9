"""The limits of flows; each mistake is a RequestInvalid that says what is allowed."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from pinlater.errors import RequestInvalid
from pinlater.extended_limits import read_tags
from pinlater.job_body import unreadable_text
from pinlater.model import MAX_KEY_BYTES
from pinlater.model.flow_words import AppletKind, NewFlow, NewItem, Stage
from pinlater.model.group_template import TEMPLATE, template_parts

MAX_STAGES, MAX_DEPTH = 64, 16
MAX_ITEMS, MAX_PAYLOAD_BYTES, MAX_CALL_BYTES = 1_000, 64 * 1024, 4 * 1024 * 1024
MAX_METADATA, MAX_METADATA_BYTES = 64, 16 * 1024
MAX_FAILURES = 99
MAX_KEY_CHARS, MAX_URL_CHARS, MAX_EXPRESSION_CHARS = 200, 2_000, 2_000
DAY_MS = 86_400_000
MAX_BACKOFF_MS, MAX_TTL_MS = 30 * DAY_MS, 3650 * DAY_MS

STEP_BYTES = MAX_PAYLOAD_BYTES
"""Of JSON that is read at once, which takes some milliseconds at most: it becomes 20 times as large in memory."""

NAME_ALLOWED = "1 to 200 letters, digits, ., _ and -"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}", re.ASCII)
_URL = re.compile(rf"[!-\[\]-~]{{0,{MAX_URL_CHARS}}}")
_TEXT = re.compile(r"[^\x00\ud800-\udfff]*")
_KEY = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]*")
_JOB = re.compile(r"[^\s\x00-\x1f\ud800-\udfff]{0,200}")


def check_flow(new: NewFlow) -> None:
    """Of all that can be seen without a database."""
    deque(flow_checks(new), maxlen=0)


def check_items(items: Sequence[NewItem]) -> None:
    """Of one call."""
    deque(item_checks(items), maxlen=0)


def flow_checks(new: NewFlow) -> Iterator[None]:
    """`check_flow` in steps of a few milliseconds."""
    _check_name("the name of the flow", new.name)
    _check_key("dedupeKey", new.dedupe_key)
    if not 1 <= len(new.stages) <= MAX_STAGES:
        raise RequestInvalid.of("the number of stages", len(new.stages), f"1 to {MAX_STAGES}")
    for stage in new.stages:
        _check_stage(stage)
    _check_tree(new.stages)
    size = sum(
        len(key.encode("utf-8", "replace")) + len(str(new.metadata[key]).encode("utf-8", "replace"))
        for key in new.metadata
    )
    if len(new.metadata) > MAX_METADATA or size > MAX_METADATA_BYTES:
        allowed = f"up to {MAX_METADATA} entries and {MAX_METADATA_BYTES} bytes"
        raise RequestInvalid.of("metadata", f"{len(new.metadata)} entries, {size} bytes", allowed)
    for text in (*new.metadata, *new.metadata.values()):
        if not _TEXT.fullmatch(text):
            raise RequestInvalid.of("metadata", text, "texts that are UTF-8, without \\0")
    if not 0 <= new.ttl_ms <= MAX_TTL_MS:
        raise RequestInvalid.of("ttlMillis", new.ttl_ms, f"0 to {MAX_TTL_MS}")
    names = {stage.name for stage in new.stages}
    for name in (*new.items, *new.sealed):
        if name not in names:
            raise RequestInvalid.of("the name of a stage", name, f"one of this flow: {', '.join(sorted(names))[:500]}")
    yield from item_checks([item for items in new.items.values() for item in items])
    callback = new.on_complete
    if callback is None:
        return
    if bool(callback.url) == bool(callback.queue):
        raise RequestInvalid("the callback needs either a queue or a URL")
    if not _URL.fullmatch(callback.url):  # whatever reads it reads the same host
        allowed = f"up to {MAX_URL_CHARS} printable ASCII characters without spaces and backslashes"
        raise RequestInvalid.of("the URL of the callback", callback.url, allowed)
    if not _JOB.fullmatch(callback.job):
        raise RequestInvalid.of("the job of the callback", callback.job, "up to 200 characters without spaces")


def item_checks(items: Sequence[NewItem]) -> Iterator[None]:
    """`check_items` in such steps."""
    if len(items) > MAX_ITEMS:
        raise RequestInvalid.of("the number of items in one call", len(items), f"up to {MAX_ITEMS}: send several calls")
    size, stops_at = 0, STEP_BYTES
    for number, item in enumerate(items, 1):
        check_item(item, f"item {number}")
        size += len(item.payload)
        if size > stops_at:
            stops_at = size + STEP_BYTES
            yield
    if size > MAX_CALL_BYTES:
        allowed = f"up to {MAX_CALL_BYTES} bytes: send several calls"
        raise RequestInvalid.of("the payloads of one call", f"{size} bytes", allowed)


def check_item(item: NewItem, name: str = "the item") -> None:
    """`name` is what a mistake calls it."""
    if len(item.payload) > MAX_PAYLOAD_BYTES:
        size = f"{len(item.payload)} bytes"
        raise RequestInvalid.of(f"the payload of {name}", size, f"up to {MAX_PAYLOAD_BYTES}")
    mistake = json_mistake(item.payload)
    if mistake:
        raise RequestInvalid.of(f"the payload of {name}", item.payload[:50], f"JSON ({mistake})")
    _check_key("dedupeKey", item.dedupe_key)
    _check_key("serializeKey", item.serialize_key)


def _check_stage(stage: Stage) -> None:
    _check_name("the name of a stage", stage.name)
    if not _JOB.fullmatch(stage.job):
        raise RequestInvalid.of(f"the job of stage {stage.name}", stage.job, "up to 200 characters without spaces")
    if not 0 <= stage.max_failures <= MAX_FAILURES:
        raise RequestInvalid.of(f"maxFailures of stage {stage.name}", stage.max_failures, f"0 to {MAX_FAILURES}")
    if not 0 <= stage.backoff_ms <= stage.max_backoff_ms <= MAX_BACKOFF_MS:
        raise RequestInvalid.of(
            f"backoffMillis and maxBackoffMillis of stage {stage.name}",
            (stage.backoff_ms, stage.max_backoff_ms),
            f"0 to {MAX_BACKOFF_MS}, the second one no smaller",
        )
    read_tags(stage.tags, f"the tags of stage {stage.name}")
    if stage.group:
        try:
            template_parts(stage.group)
        except ValueError as error:
            raise RequestInvalid.of(f"the group of stage {stage.name}", stage.group, f"{TEMPLATE} ({error})") from None
    applet = stage.applet
    if len(applet.expression) > MAX_EXPRESSION_CHARS:
        raise RequestInvalid.of(
            f"the expression of stage {stage.name}", applet.expression, f"up to {MAX_EXPRESSION_CHARS} characters"
        )
    if applet.kind is AppletKind.MAP and not applet.expression:
        raise RequestInvalid(f"stage {stage.name} makes its items by an expression, and has none")
    if applet.kind is AppletKind.JOB and not (
        stage.parent and applet.job and applet.queue and _JOB.fullmatch(applet.job)
    ):
        raise RequestInvalid(f"stage {stage.name} makes its items by a job, and needs a parent, the job and its queue")


def _check_tree(stages: Sequence[Stage]) -> None:
    parents = {stage.name: stage.parent for stage in stages}
    if len(parents) < len(stages):
        raise RequestInvalid("two stages of the flow have the same name")
    for name in parents:
        path = [name]
        while parents[path[-1]]:
            above = parents[path[-1]]
            if above not in parents:
                raise RequestInvalid.of(f"the parent of stage {path[-1]}", above, "a stage of this flow, or nothing")
            if above in path:
                raise RequestInvalid(f"the stages {', '.join(path)} are each other's parents")
            path.append(above)
        if len(path) > MAX_DEPTH:
            raise RequestInvalid.of("the depth of the flow", len(path), f"up to {MAX_DEPTH} stages below each other")


def is_flow_name(name: str) -> bool:
    """Whether a flow or a stage may have it. Hidden stages have others."""
    return _NAME.fullmatch(name) is not None


def _check_name(field: str, name: str) -> None:
    if not is_flow_name(name):
        raise RequestInvalid.of(field, name, NAME_ALLOWED)


def _check_key(field: str, key: str) -> None:
    # not every database tells keys apart that end in spaces
    is_text = len(key) <= MAX_KEY_CHARS and _KEY.fullmatch(key) and len(key.encode()) <= MAX_KEY_BYTES
    if not is_text or key.startswith("@") or key.endswith(" "):
        allowed = (
            f"up to {MAX_KEY_CHARS} characters, and {MAX_KEY_BYTES} bytes of UTF-8, without @ in front, spaces at the "
            "end, and control characters"
        )
        raise RequestInvalid.of(field, key, allowed)


_GRAMMAR = msgspec.json.Decoder(msgspec.Raw)


def json_mistake(text: bytes) -> str:
    """Why a payload or a result, which is kept as it came, is no JSON; "" if it is.

    >>> json_mistake(b'{"user": 1}'), json_mistake(b"[1")
    ('', 'Input data was truncated')
    >>> json_mistake(bytes([34, 255, 34]))
    'a text in it is not UTF-8'
    """
    try:
        if len(text) <= STEP_BYTES:
            msgspec.json.decode(text)
        else:  # by its grammar alone, which makes nothing of it
            _GRAMMAR.decode(text)
            text.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return unreadable_text(error)
    return ""
