"""The texts that name a job, a claim, and a version of a record."""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple

_QUEUE_NAME = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)


def is_queue_name(name: str) -> bool:
    return _QUEUE_NAME.fullmatch(name) is not None


class JobRef(NamedTuple):
    """The parts of a job descriptor, `QUEUE:sSHARD:pPRIORITY:ID`."""

    queue: str
    shard: str
    priority: int
    id: int


_DESCRIPTOR = re.compile(r"([A-Za-z0-9_]{1,64}):s([A-Za-z0-9]{1,16}):p([1-9][0-9]{0,2}):([1-9][0-9]{15})", re.ASCII)


def parse_descriptor(text: str) -> JobRef | None:
    """The parts of a descriptor in its one canonical form, or None for any other text.

    >>> parse_descriptor("mail:s2:p1:1790000000000000")
    JobRef(queue='mail', shard='2', priority=1, id=1790000000000000)
    >>> parse_descriptor("mail:s2:p01:17") is None
    True
    """
    match = _DESCRIPTOR.fullmatch(text)
    if match is None:
        return None
    queue, shard, priority, job_id = match.groups()
    return JobRef(queue, shard, int(priority), int(job_id))


def descriptor_prefix(queue: str, shard: str, priority: int) -> str:
    """What stands before the id in the descriptors of one queue, shard and priority; stores append the 16 digits."""
    return f"{queue}:s{shard}:p{priority}:"


CLAIM_PARTS_BEFORE_SOURCE = 4
"""A claim descriptor is `SERVER:PROCESS:START:COUNTER:SOURCE`; the first four never contain a colon, the source may."""


def claim_source(claim_descriptor: str) -> str:
    """The `source` of the caller that a claim was made for: all that follows the fourth colon.

    >>> claim_source("web-1:4711:1790000000000:42:worker:7")
    'worker:7'
    """
    return claim_descriptor.split(":", CLAIM_PARTS_BEFORE_SOURCE)[CLAIM_PARTS_BEFORE_SOURCE]


RECORD_VERSION = re.compile(r"[0-9]{16}-[0-9a-f]{8}", re.ASCII)


def new_version(now_ms: int, above: str = "") -> str:
    """A version for a change that is made now, higher than `above`, and like no other one.

    >>> new_version(0, "1790000000000000-0123abcd")[:17]
    '1790000000000001-'
    """
    micros = max(now_ms * 1000, int(above[:16]) + 1 if above else 0)
    return f"{micros:016d}-{secrets.token_hex(4)}"


def version_ms(version: str) -> int:
    """When a version was made."""
    return int(version[:16]) // 1000
