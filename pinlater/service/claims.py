"""The names of claims: `SERVER:PROCESS:START:COUNTER:SOURCE`, each used for one dequeue call only.

A claim that is bound to its caller's connection says so in its counter, with its time-out in ms: `42r30000`. So every
server that gets a checkpoint which names it knows that it is to be bound, although nothing is shared but the store.
"""

from __future__ import annotations

from itertools import count

from pinlater.model import CLAIM_PARTS_BEFORE_SOURCE

_BOUND = "r"
_MOST_DIGITS = 16
"""A caller can name any claim; int() refuses thousands of digits."""


class ClaimTokens:
    """Names that no other server, process or start of it makes. A colon in the server's name becomes a dash."""

    def __init__(self, server: str, process: int | str, started_ms: int) -> None:
        self.server = server
        self._prefix = f"{server.replace(':', '-')}:{str(process).replace(':', '-')}:{started_ms}:"
        self._counter = count(1)

    def next(self, source: str, lease_ms: int | None = None) -> str:
        """`lease_ms`: the time-out of a claim that is bound to its connection."""
        if lease_ms is None:
            return f"{self._prefix}{next(self._counter)}:{source}"
        return f"{self._prefix}{next(self._counter)}{_BOUND}{lease_ms}:{source}"


def lease_of(claim_descriptor: str) -> int | None:
    """The time-out in ms of a claim that is bound to its connection; None: it is not.

    >>> lease_of("web-1:4711:1790000000000:42r30000:worker:7"), lease_of("web-1:4711:1790000000000:42:worker")
    (30000, None)
    """
    parts = claim_descriptor.split(":", CLAIM_PARTS_BEFORE_SOURCE)
    if len(parts) <= CLAIM_PARTS_BEFORE_SOURCE:
        return None
    _, _, lease_ms = parts[CLAIM_PARTS_BEFORE_SOURCE - 1].partition(_BOUND)
    return int(lease_ms) if lease_ms.isdecimal() and len(lease_ms) <= _MOST_DIGITS else None
