"""Waits until a queue or a shard is empty, shows what is left, and stays calm while servers or shards are away."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from pinlater.cli.failures import say
from pinlater.cli.progress import StatusLine
from pinlater.errors import PinLaterError, QueueNotFound, RequestInvalid

_PAUSE_S = 1.0
_SAY_S = 10.0
"""How often what is left is said where there is no terminal that could show it all the time."""

_PATIENCE_S = 60.0
"""So long the servers may fail to answer, one call after the other."""


class Left(NamedTuple):
    """What is left, for people, and whether that is nothing. `unknown`: the shards of which nothing can be said."""

    text: str
    is_empty: bool = False
    unknown: tuple[str, ...] = ()


def wait_until_empty(look: Callable[[], Left], if_interrupted: str) -> Left:
    """Calls `look` until it finds nothing left. What the last look found; PinLaterError where servers stay away.

    Ctrl-C leaves what drains as it is, and says `if_interrupted`.
    """
    line = StatusLine()
    answered_s = said_s = time.monotonic()
    try:
        while True:
            try:
                left = look()
                answered_s = time.monotonic()
            except (QueueNotFound, RequestInvalid):
                raise
            except PinLaterError as error:
                if time.monotonic() - answered_s > _PATIENCE_S:
                    raise
                left = Left(error.message)
            if left.is_empty:
                return left
            line.show(left.text)
            if not sys.stderr.isatty() and time.monotonic() - said_s >= _SAY_S:
                said_s = time.monotonic()
                say(f"{left.text}; waiting")
            time.sleep(_PAUSE_S)
    except KeyboardInterrupt:
        line.clear()
        say(if_interrupted)
        raise
    finally:
        line.clear()
