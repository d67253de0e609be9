"""The version of a store in Redis, which stands behind the shard id in its identity."""

from __future__ import annotations

import re

EXTENDED_VERSION, REFERENCES_VERSION, GROUPS_VERSION, SUCCESSORS_VERSION = 2, 3, 4, 5
"""Stands behind the shard id in the identity once there were extended jobs, as `1 (version 2)`, while there are
references to bodies, or queues whose jobs have groups, and once a job had a successor: versions before take it for
another shard then, and leave it
alone. What an older version must not open any more gets the next number: 7ab42ca0 refuses that whether or not it was
told an id, those before keys only with an id (or by the record in their data folder).
"""

LAST_VERSION = SUCCESSORS_VERSION

_VERSION_OF_SHARD = re.compile(r"([A-Za-z0-9]*)(?: \(version ([0-9]+)\))?")


def shard_and_version(text: str) -> tuple[str, int]:
    """The shard id of an identity, and the version of the store."""
    found = _VERSION_OF_SHARD.fullmatch(text)
    return (found[1], int(found[2] or 1)) if found else (text, 1)
