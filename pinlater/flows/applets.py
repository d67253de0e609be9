"""Applets: what makes the payloads of a child stage's items out of an item that has succeeded."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jmespath
import msgspec
from jmespath.exceptions import JMESPathError

from pinlater.errors import RequestInvalid
from pinlater.model.flow_words import Applet, AppletKind

MAX_CHILDREN = 1_000
MAX_CHILD_BYTES = 64 * 1024


class AppletFailed(Exception):
    """The children cannot be made; the message says why."""


def children_of(applet: Applet, payload: bytes, result: bytes) -> list[bytes]:
    """The payloads, in order, each JSON. AppletFailed."""
    try:
        parent = {"payload": msgspec.json.decode(payload), "result": msgspec.json.decode(result)}
    except msgspec.DecodeError as error:
        raise AppletFailed(f"the result is no JSON: {error}") from None
    if applet.kind is AppletKind.PASS:
        made: Any = [parent]
    elif applet.kind is AppletKind.LIST:
        made = parent["result"]
    else:
        try:
            made = compiled(applet.expression).search(parent)
        except JMESPathError as error:
            raise AppletFailed(f"{applet.expression}: {error}") from None
    items = made if isinstance(made, list) else [] if made is None else [made]
    if len(items) > MAX_CHILDREN:
        raise AppletFailed(f"it makes {len(items)} items of one; allowed: {MAX_CHILDREN}")
    encoded = [msgspec.json.encode(item) for item in items]
    longest = max(map(len, encoded), default=0)
    if longest > MAX_CHILD_BYTES:
        raise AppletFailed(f"an item has {longest} bytes; allowed: {MAX_CHILD_BYTES}")
    return encoded


@lru_cache(maxsize=1_000)
def compiled(expression: str) -> Any:
    """JMESPathError: it is none."""
    return jmespath.compile(expression)


def check_expression(stage: str, expression: str) -> None:
    """RequestInvalid."""
    try:
        compiled(expression)
    except JMESPathError as error:
        raise RequestInvalid.of(f"the expression of stage {stage}", expression, f"JMESPath ({error})") from None
