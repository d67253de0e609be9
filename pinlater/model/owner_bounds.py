"""Bounds on what one identity may keep stored: of each kind, how many of those that it has made.

Who made something is its owner. What was made where nobody is known, or before owners were kept, has none, and counts
for nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

MAX_OWNER_CHARS = 200


class OwnedKind(StrEnum):
    """What is counted. A role bounds it by `max-KIND`, a server for every identity by `max-identity-KIND`."""

    FLOWS = "flows"
    FLOW_ITEMS = "flow-items"
    QUEUES = "queues"
    SCHEDULES = "schedules"
    TOKENS = "tokens"

    @property
    def limit(self) -> str:
        """The bound, as the metrics name it."""
        return f"identity_{self.replace('-', '_')}"

    @property
    def words(self) -> str:
        return "items of flows" if self is OwnedKind.FLOW_ITEMS else str(self)


class OwnerBounds(NamedTuple):
    """In the order of OwnedKind; 0 is no bound."""

    flows: int = 0
    flow_items: int = 0
    queues: int = 0
    schedules: int = 0
    tokens: int = 0

    def of(self, kind: OwnedKind) -> int:
        return self[tuple(OwnedKind).index(kind)]

    def widened(self, others: Iterable[OwnerBounds]) -> OwnerBounds:
        """The highest of what the others say of each kind; these, where they say nothing."""
        highest = [max(bounds, default=0) for bounds in zip(*others, strict=True)] or [0] * len(self)
        return OwnerBounds(*(bound or own for bound, own in zip(highest, self, strict=True)))


NO_BOUNDS = OwnerBounds()


class OwnedCount(NamedTuple):
    """How many of a kind an identity has, and may have; `used` None: it is not known now, `limit` 0: any number."""

    kind: OwnedKind
    used: int | None
    limit: int


class IdentityUsage(NamedTuple):
    """What an identity has made that is there."""

    identity: str
    stored: list[OwnedCount]

    @property
    def share(self) -> float:
        """Of the bound that it is nearest to."""
        return max((each.used / each.limit for each in self.stored if each.used and each.limit), default=0.0)


def owner_name(identity: str) -> str:
    """As it is kept beside what was made; names in certificates may be long.

    >>> owner_name("token:web"), len(owner_name("cert:" + "x" * 1_000))
    ('token:web', 200)
    """
    if len(identity) <= MAX_OWNER_CHARS:
        return identity
    digest = sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{identity[: MAX_OWNER_CHARS - 65]}~{digest}"
