"""The reference that stands in a job's place of a body, where the body itself lies in a tier of the server's.

A tier is an object store beside the shards (see docs/bodies.md). Stores keep a reference with a mark of its own in the
job's record, never inside the body: bytes of a user that look like a reference are bytes.
"""

from __future__ import annotations

import secrets
from enum import IntFlag
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

HEAD = Struct(">IBHI8s12s")
"""Length of the body, BodyRule, the time in milliseconds (its upper two bytes, the lower four), id, hash. Behind it
stand the name of the tier and, behind a colon, that of the queue in which the body came.

The length comes first: stores count a reference as so many bytes where a call bounds the bytes of bodies.
"""

LENGTH_BYTES = 4


class BodyRule(IntFlag):
    """Why a body went to its tier: what the rule that applied asks for. The numbers are those of the stores."""

    NONE = 0
    SIZE = 1
    DELAY = 2
    QUEUE = 4
    CALLER = 8
    SETTING = 16
    """The rule is a setting of the queue."""

    MOVED = 32
    """It was moved there by a command."""


class ReferenceParts(NamedTuple):
    """What a reference says. `stored_at_ms` is the time in the object's name."""

    tier: str
    queue: str
    stored_at_ms: int
    id: str
    length: int
    rule: BodyRule
    digest: bytes


def body_digest(body: bytes) -> bytes:
    """The hash that is checked when a body is read: 12 bytes of BLAKE2b. Four more would take 16 bytes more of a Redis,
    whose memory comes in steps.
    """
    return blake2b(body, digest_size=12).digest()


class BodyReference(bytes):
    """A reference as stores keep it: opaque bytes for them, but for its length.

    >>> reference = BodyReference.new("s3", "mails", b"x" * 5_000, 1_700_000_000_000, BodyRule.SIZE)
    >>> reference.length, reference.parts.tier, reference.parts.queue
    (5000, 's3', 'mails')
    """

    __slots__ = ()

    @classmethod
    def new(cls, tier: str, queue: str, body: bytes, now_ms: int, rule: BodyRule) -> BodyReference:
        """The reference of a body that is stored at `now_ms`, with a new random id."""
        head = HEAD.pack(len(body), rule, now_ms >> 32, now_ms & 0xFFFFFFFF, secrets.token_bytes(8), body_digest(body))
        return cls(head + f"{tier}:{queue}".encode())

    @property
    def length(self) -> int:
        """The bytes of the body."""
        return int.from_bytes(self[:LENGTH_BYTES], "big")

    @property
    def parts(self) -> ReferenceParts:
        length, rule, upper, lower, name, digest = HEAD.unpack_from(self)
        tier, _, queue = self[HEAD.size :].decode().partition(":")
        return ReferenceParts(tier, queue, upper << 32 | lower, name.hex(), length, BodyRule(rule), digest)

    @property
    def text(self) -> str:
        """For people: TIER::QUEUE::TIME::ID, the time in milliseconds."""
        parts = self.parts
        return f"{parts.tier}::{parts.queue}::{parts.stored_at_ms}::{parts.id}"

    @property
    def why(self) -> str:
        """For people: what the rule asked for, as in "size, delay"."""
        return ", ".join(str(each.name).lower() for each in self.parts.rule)

    @property
    def described(self) -> str:
        """For people: where it is, and why there."""
        return f"{self.text} ({self.why})"


def body_length(body: bytes) -> int:
    """The bytes of a body, wherever it lies."""
    return body.length if isinstance(body, BodyReference) else len(body)
