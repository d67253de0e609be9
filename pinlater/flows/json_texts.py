"""The JSON of payloads and results, which is kept as it came."""

from __future__ import annotations

import msgspec


def json_mistake(text: bytes) -> str:
    """Why a text is no JSON; "" if it is.

    >>> json_mistake(b'{"user": 1}'), json_mistake(b"[1")
    ('', 'Input data was truncated')
    >>> json_mistake(bytes([34, 255, 34]))
    "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"
    """
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return str(error)
    return ""
