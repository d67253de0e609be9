"""The format of the worker framework's bodies, and their content as people read it. docs/workers-bodies.md.

A first line, then one map in JSON or MessagePack. Servers never look into bodies; commands and pages show them.
`pinlater_workers.envelope` writes and reads them for workers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from pinlater.redaction import MASK

VERSION = 1

Encoding = Literal["json", "msgpack"]
ENCODINGS: tuple[Encoding, ...] = ("json", "msgpack")
CONTENT_TYPES: dict[Encoding, str] = {"json": "application/json", "msgpack": "application/msgpack"}

FIRST_LINES: dict[Encoding, bytes] = {
    encoding: f"PINLATER/{VERSION} {name}\n".encode() for encoding, name in CONTENT_TYPES.items()
}
"""As they are written; FIRST_LINE reads those of other languages and versions too."""

FIRST_LINE = re.compile(rb"PINLATER/([0-9]{1,9}) +([^\n]{1,100})\n")

SECRET_HEADER = "pinlater-secret"
"""The arguments that no display shows: names, and of arguments by position their indices from 0, with spaces between.

A header, as workers of earlier versions keep every header where they write a body anew.
"""

TAGS_HEADER = "pinlater-tags"
"""The tags of a job, a line each."""

ITEM_HEADER, FLOW_HEADER = "pinlater-item", "pinlater-flow"
"""Of a job that carries an item of a flow: the item's number, and the flow's id. The stage decides over its attempts,
and its result is JSON.
"""

SECRET_MASK = MASK
"""In place of each of them."""

SHORTEST_SECRET = 4
"""A shorter text is in too many others."""

_NAMED = {name: encoding for encoding, name in CONTENT_TYPES.items()}


class EnvelopeMap(msgspec.Struct, omit_defaults=True, gc=False):
    """The map. Some languages write null for an empty list or map."""

    job: str
    args: list[Any] | None = []
    kwargs: dict[str, Any] | None = {}
    headers: dict[str, str] | None = {}
    snoozes: Annotated[int, msgspec.Meta(ge=0)] = 0
    attempts: Annotated[int, msgspec.Meta(ge=0)] = 0


DECODERS: dict[Encoding, Callable[[memoryview], EnvelopeMap]] = {
    "json": msgspec.json.Decoder(EnvelopeMap).decode,
    "msgpack": msgspec.msgpack.Decoder(EnvelopeMap).decode,
}


def call_body(job: str, arguments: list[Any] | dict[str, Any]) -> bytes:
    """The body of a call, in JSON. `arguments`: in order, or by name. ValueError: there can be no such type of job.

    >>> call_body("resize", {"size": 200})
    b'PINLATER/1 application/json\\n{"job":"resize","kwargs":{"size":200}}'
    """
    if not job.strip() or not job.isprintable() or "/" in job:
        raise ValueError(f"{job[:80]!r} is no type of job")
    call = EnvelopeMap(job, kwargs=arguments) if isinstance(arguments, dict) else EnvelopeMap(job, arguments)
    return FIRST_LINES["json"] + msgspec.json.encode(call)


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder of msgspec raises for bytes that cannot be read, or are not of the form wanted."""


def unreadable_text(error: Exception) -> str:
    """What is wrong with bytes that a decoder could not read, for whoever sent them.

    >>> unreadable_text(RecursionError("maximum recursion depth exceeded"))
    'it is nested too deep'
    >>> unreadable_text(UnicodeDecodeError("utf-8", b"abc", 1, 2, "invalid start byte"))
    'a text in it is not UTF-8'
    """
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, UnicodeDecodeError) or str(error) == "Invalid UTF-8 encoded string":  # msgspec 0.22 and 0.23
        return "a text in it is not UTF-8"
    return str(error)


def named_encoding(match: re.Match[bytes]) -> Encoding | None:
    """That of a first line as other languages may write it. None: none of these."""
    content_type = match[2].decode("utf-8", "replace").partition(";")[0].strip().lower()
    return _NAMED.get(content_type)


@dataclass(frozen=True, slots=True)
class BodyDescription:
    """What a body says. Values are those of JSON, whatever the encoding; secret ones are SECRET_MASK unless asked for.

    `headers` lack the one that names the secrets. `snoozes`: how often the job was put off.
    """

    job: str
    args: list[Any]
    kwargs: dict[str, Any]
    headers: dict[str, str]
    snoozes: int
    encoding: Encoding

    @property
    def traceparent(self) -> str:
        """ "": it belongs to no trace."""
        return self.headers.get("traceparent", "")

    def call_text(self, max_chars: int = 200) -> str:
        """The call as Python would write it, cut to so many characters. It may hold any character of the arguments.

        >>> BodyDescription("resize", ["a.jpg"], {"size": 200}, {}, 0, "json").call_text()
        "resize('a.jpg', size=200)"
        """
        parts: list[str] = []
        left = max_chars
        for name, value in [("", each) for each in self.args] + list(self.kwargs.items()):
            part = (f"{name}=" if name else "") + (SECRET_MASK if value == SECRET_MASK else _shown(value))
            parts.append(part)
            left -= len(part) + 2
            if left < 0:
                break
        text = f"{self.job}({', '.join(parts)})"
        return text if len(text) <= max_chars else text[: max(0, max_chars - 3)] + "..."


def _shown(value: object) -> str:
    try:
        return repr(value)
    except RecursionError:
        return "..."


def secret_values(body: bytes) -> list[str]:
    """The texts in the arguments that are marked secret, the longest first; those that are too short to be told from
    other text are left out.
    """
    if SECRET_HEADER.encode() not in body:
        return []
    whole, masked = describe_body(body, with_secrets=True), describe_body(body)
    if whole is None or masked is None:
        return []
    values = [value for value, shown in zip(whole.args, masked.args, strict=True) if shown == SECRET_MASK]
    values += [whole.kwargs[name] for name, shown in masked.kwargs.items() if shown == SECRET_MASK]
    texts = {text for text in _texts(values) if len(text) >= SHORTEST_SECRET and text != SECRET_MASK}
    return sorted(texts, key=len, reverse=True)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def describe_body(body: bytes, *, with_secrets: bool = False) -> BodyDescription | None:
    """None: no body of the framework, one of a later version, or one that cannot be read.

    >>> describe_body(b'PINLATER/1 application/json\\n{"job": "resize", "args": ["a.jpg"]}').call_text()
    "resize('a.jpg')"
    >>> describe_body(b"plain text") is None
    True
    """
    match = FIRST_LINE.match(body)
    if match is None or int(match[1]) != VERSION:
        return None
    encoding = named_encoding(match)
    if encoding is None:
        return None
    try:
        found = DECODERS[encoding](memoryview(body)[match.end() :])
        args = msgspec.to_builtins(found.args or [], str_keys=True, enc_hook=repr)
        kwargs = msgspec.to_builtins(found.kwargs or {}, str_keys=True, enc_hook=repr)
    except (*UNREADABLE, TypeError, ValueError):
        return None
    headers = dict(found.headers or {})
    secrets = set(headers.pop(SECRET_HEADER, "").split())
    if secrets and not with_secrets:
        args = [SECRET_MASK if str(index) in secrets else value for index, value in enumerate(args)]
        kwargs = {name: SECRET_MASK if name in secrets else value for name, value in kwargs.items()}
    return BodyDescription(found.job, args, kwargs, headers, found.snoozes, encoding)
