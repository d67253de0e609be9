"""The job that carries an item to a worker: its body, its keys, its attempts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from pinlater.flows.ends import WaitingItem
from pinlater.job_body import CONTENT_TYPES, FLOW_HEADER, ITEM_HEADER, TAGS_HEADER, VERSION
from pinlater.model import ExtendedJob

_KEY_PREFIX = "@flow/"
_FIRST_LINE = f"PINLATER/{VERSION} {CONTENT_TYPES['json']}\n".encode()
_JSON_SPACES = b" \t\r\n"


def item_job(item: WaitingItem, *, by_flow: bool = False) -> ExtendedJob:
    """An object becomes the arguments by their names, any other payload the only argument. Where the stage names no
    type of job the body is the payload. `by_flow`: the group of an item without one is its flow.
    """
    stage = item.stage
    headers = {ITEM_HEADER: str(item.number), FLOW_HEADER: item.flow_id}
    if stage.tags:
        headers[TAGS_HEADER] = "\n".join(stage.tags)
    return ExtendedJob(
        envelope(stage.job, item.payload, headers) if stage.job else item.payload,
        stage.priority,
        item.retry_ms,
        stage.max_failures + 1 - item.failures % (stage.max_failures + 1),  # a retry begins a round of tries
        dedupe_key=item_key(item.number),
        serialize_key=item.serialize_key,
        tags=stage.tags,
        group=item.group or (item.flow_id if by_flow else ""),
    )


def item_key(number: int) -> str:
    """The dedupe key of its job."""
    return f"{_KEY_PREFIX}{number}"


def item_number(dedupe_key: str | None) -> int:
    """The item whose job has this key; 0: none."""
    if dedupe_key is None or not dedupe_key.startswith(_KEY_PREFIX):
        return 0
    number = dedupe_key.removeprefix(_KEY_PREFIX)
    return int(number) if number.isdecimal() else 0


def envelope(job: str, payload: bytes, headers: Mapping[str, str]) -> bytes:
    """The body of a job of a type that workers know, with JSON as its arguments."""
    is_object = payload.lstrip(_JSON_SPACES)[:1] == b"{"
    arguments = b'"kwargs":%b' % payload if is_object else b'"args":[%b]' % payload
    return b'%b{"job":%b,%b,"headers":%b}' % (
        _FIRST_LINE,
        _as_json(job),
        arguments,
        msgspec.json.encode(headers),
    )


@lru_cache(maxsize=1_000)
def _as_json(text: str) -> bytes:
    return msgspec.json.encode(text)
