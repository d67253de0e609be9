"""Bodies and results in JSON: as UTF-8 text, as a JSON value, or in base64, with the name of the encoding.

A body that is sent as JSON is stored as the bytes that were sent. One that is asked for as JSON or as text, and is
none, comes in the next form that can hold it: text, then base64.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Raw

from pinlater.errors import RequestInvalid
from pinlater.job_body import UNREADABLE, unreadable_text

Encoding = Literal["text", "json", "base64"]

_text = msgspec.json.Decoder(str)
_json = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode

_TEXT_OR_NUMBER = re.compile(rb'"(?:[^"\\\\]|\\\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?')
_EXACT = 2**53


def form_decoder(form: Any) -> Callable[[bytes], Any]:
    """Of a request's body. An integer may be written as 1.0, which is one in JSON Schema.

    >>> form_decoder(dict[str, int])(b'{"a": 1.0, "b": 2e1}')
    {'a': 1, 'b': 20}
    """
    strict = msgspec.json.Decoder(form).decode
    lax = msgspec.json.Decoder(form, strict=False).decode

    def decode(data: bytes) -> Any:
        try:
            return strict(data)
        except msgspec.ValidationError as error:
            plain = _TEXT_OR_NUMBER.sub(_whole, data) if "got `float`" in str(error) else data
            if plain == data:
                raise
        # nothing else may be lax; and what is stored as it was sent is that of the data itself
        strict(plain)
        return lax(data)

    return decode


def _whole(found: re.Match[bytes]) -> bytes:
    text = found[0]
    if text[:1] == b'"' or not {*b".eE"} & {*text}:
        return text
    number = float(text)
    return b"%d" % number if number.is_integer() and abs(number) < _EXACT else text


def from_json(value: Raw, encoding: Encoding, field: str) -> bytes:
    """The bytes that a value stands for. RequestInvalid, which names the field.

    >>> from_json(Raw(b'"hi"'), "text", "body"), from_json(Raw(b'{"a": 1}'), "json", "body")
    (b'hi', b'{"a": 1}')
    >>> from_json(Raw(b'"/w=="'), "base64", "body")
    b'\\xff'
    """
    raw = bytes(value)
    if encoding == "json":
        try:
            _json.decode(raw)
        except UNREADABLE as error:
            raise refusal(field, f"it is no JSON value: {unreadable_text(error)}") from None
        return raw
    try:
        text = _text.decode(raw)
    except UNREADABLE:
        other = f'; "{field}_encoding": "json" sends any JSON value' if encoding == "text" else ""
        raise refusal(field, f"it is no string{other}") from None
    if encoding == "text":
        return text.encode()
    try:
        return binascii.a2b_base64(text.encode(), strict_mode=True)
    except binascii.Error:
        raise refusal(field, "it is no base64, or not padded to a multiple of 4 characters") from None


def to_json(data: bytes, wanted: Encoding) -> tuple[Raw, Encoding]:
    """The value that stands for bytes, and how.

    >>> bytes(to_json(b"hi", "text")[0]), bytes(to_json(b"[1]", "json")[0]), bytes(to_json(b"\\xff", "json")[0])
    (b'"hi"', b'[1]', b'"/w=="')
    """
    if wanted == "json":
        try:
            _json.decode(data)
        except UNREADABLE:
            pass
        else:
            return Raw(data), "json"
    if wanted != "base64":
        try:
            return Raw(_encode(data.decode())), "text"
        except UnicodeDecodeError:
            pass
    return Raw(_encode(base64.b64encode(data).decode("ascii"))), "base64"


def refusal(field: str, why: str) -> RequestInvalid:
    """The error that names the field, of which no more than 100 characters are told."""
    field = field[:100]
    error = RequestInvalid(f"{field}: {why}")
    error.field = field
    return error
