"""The body of a job as other languages can write and read it: a first line, then one map. docs/workers-bodies.md.

PINLATER/1 application/json
{"job": "thumbnail", "args": ["a.jpg"], "kwargs": {"size": 200}, "headers": {}, "snoozes": 0}
"""

from __future__ import annotations

import numbers
import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import msgspec

from pinlater.job_body import (
    CONTENT_TYPES,
    DECODERS,
    ENCODINGS,
    FIRST_LINE,
    FIRST_LINES,
    UNREADABLE,
    VERSION,
    Encoding,
    EnvelopeMap,
    named_encoding,
)
from pinlater_workers.errors import BodyInvalid
from pinlater_workers.pydantic_models import is_model, write_model

__all__ = ["ENCODINGS", "Encoding", "Envelope", "next_body", "plain", "read_envelope", "write_envelope"]

TAGS_HEADER = "pinlater-tags"
"""Tells the job its tags, a line each."""

VERSION_TYPE = "PINLATER/"
"""What the name of the type begins with for a body of a later version. No type has a name with a slash."""


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """Which job, with what. `args` and `kwargs` are plain values, as JSON or MessagePack have them.

    `headers` travel with the job: a trace context, whatever middleware adds. `snoozes`: how often it was put off.
    `attempts`: how many this job has, where its producer said another number than its type's; else 0.
    """

    job: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    headers: dict[str, str] = {}
    snoozes: int = 0
    encoding: Encoding = "json"
    attempts: int = 0


def plain(value: Any) -> Any:
    """For msgspec: what a value that it does not know is written as. TypeError: nothing."""
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, str):
        return str(value)  # the handle of a job, and any other kind of text
    if is_model(type(value)):
        return write_model(value)
    if isinstance(value, numbers.Integral):
        return int(value)  # of a class of its own, as numpy's are
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational):
        return float(value)
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()  # a truth value or a time
    raise TypeError(f"a {type(value).__qualname__} cannot be part of a body")


ENCODERS: dict[Encoding, Callable[[Any], bytes]] = {
    "json": msgspec.json.Encoder(enc_hook=plain).encode,
    "msgpack": msgspec.msgpack.Encoder(enc_hook=plain).encode,
}

_STAND_IN = "?"
"""For arguments. The name of the job, which is written before them, has no such character."""


def write_envelope(envelope: Envelope) -> bytes:
    """The body. TypeError, ValueError, OverflowError or RecursionError: a value that the encoding does not have."""
    attempts = envelope.attempts
    written = EnvelopeMap(envelope.job, envelope.args, envelope.kwargs, envelope.headers, envelope.snoozes, attempts)
    return FIRST_LINES[envelope.encoding] + ENCODERS[envelope.encoding](written)


def write_around(
    job: str, headers: dict[str, str], attempts: int, encoding: Encoding, *, named: bool
) -> tuple[bytes, bytes]:
    """What stands before and after the arguments in the bodies of one job that differ by nothing else, written by
    ENCODERS: a list of one or more, or, where they are `named`, a dict.
    """
    args, kwargs = ([], {_STAND_IN: None}) if named else ([_STAND_IN], {})
    encode = ENCODERS[encoding]
    body = encode(EnvelopeMap(job, args, kwargs, headers, 0, attempts))
    before, _, after = body.partition(encode(kwargs or args))
    return FIRST_LINES[encoding] + before, after


def read_envelope(body: bytes) -> Envelope | None:
    """None: no body of ours. BodyInvalid: the first line is ours, and what follows cannot be read.

    A higher version than ours is a job of a type that nobody here knows, named after the version.
    """
    for ours, line in FIRST_LINES.items():
        if body.startswith(line):
            encoding, start = ours, len(line)
            break
    else:
        match = FIRST_LINE.match(body)
        if match is None:
            return None
        if int(match[1]) > VERSION:
            return Envelope(f"{VERSION_TYPE}{int(match[1])}")
        encoding, start = _encoding(match), match.end()
    try:
        found = DECODERS[encoding](memoryview(body)[start:])
    except UNREADABLE as error:
        raise BodyInvalid(f"a body of {CONTENT_TYPES[encoding]} that cannot be read: {error}") from error
    args, kwargs, headers = found.args or [], found.kwargs or {}, found.headers or {}
    return Envelope(found.job, args, kwargs, headers, found.snoozes, encoding, found.attempts)


def _encoding(match: re.Match[bytes]) -> Encoding:
    """BodyInvalid: none of ours."""
    known = named_encoding(match)
    if known is None or int(match[1]) < 1:
        allowed = " or ".join(CONTENT_TYPES.values())
        raise BodyInvalid(f"a body that begins with {match[0]!r}; allowed: version {VERSION}, {allowed}")
    return known


def next_body(old: Envelope, body: bytes, snoozes: int) -> Envelope:
    """ValueError: `body` has no envelope, or none that can be read, and so no worker could run it."""
    try:
        new = read_envelope(body)
    except BodyInvalid as error:
        raise ValueError(f"a new body for job {old.job} that no worker can read: {error}") from error
    if new is None:
        raise ValueError(f"a new body for job {old.job} without an envelope; make it with {old.job}.body(...)")
    headers, attempts = {**old.headers, **new.headers}, new.attempts or old.attempts
    return msgspec.structs.replace(new, headers=headers, snoozes=snoozes, attempts=attempts)
