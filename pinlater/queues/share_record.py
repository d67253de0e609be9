"""The record of how a queue's claims are split: one note per queue, on the shard that is drawn to it most.

Which shard that is depends on the shards there are, so it can change while servers still differ about them. Then the
record is retired where it was, before a new one is written: whoever still writes to the old one loses the race. A
retired record stays readable for a day, so that a crash between the two leaves something to go on from, and says where
it moved to: a server that does not know that shard yet must not begin another one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from pinlater.backends.base import KvEntry
from pinlater.clock import Clock
from pinlater.model import MAX_TIME_MS
from pinlater.shards.handle import ShardHandle

KIND = "share"
_KEEP_RETIRED_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class ShareRecord:
    """As of `version`, no more than `shares` claims are alive on each shard. `maximum` is what they were split by;
    `note_version` that of the note it was read from (0: there is none); `moved_to` the shard of the record after a
    retired one.
    """

    version: int
    maximum: int | None = None
    shares: dict[str, int] = field(default_factory=dict)
    is_retired: bool = False
    note_version: int = 0
    moved_to: str = ""

    def body(self) -> bytes:
        words = {
            "version": self.version,
            "maximum": self.maximum,
            "shares": self.shares,
            "retired": self.is_retired,
            "to": self.moved_to,
        }
        return json.dumps(words).encode()


def read(note: KvEntry | None) -> ShareRecord | None:
    """None where there is no note, or none that can be understood."""
    if note is None:
        return None
    try:
        words = json.loads(note.body)
        shares = {str(shard): int(share) for shard, share in words["shares"].items()}
        is_retired, moved_to = bool(words["retired"]), str(words.get("to", ""))
        return ShareRecord(int(words["version"]), words["maximum"], shares, is_retired, note.version, moved_to)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


async def write(member: ShardHandle, queue: str, record: ShareRecord, clock: Clock) -> bool:
    """Put it in the place of what it was made from; False where another one is there by now."""
    now_ms = clock.now_ms()
    expires_at_ms = now_ms + _KEEP_RETIRED_MS if record.is_retired else MAX_TIME_MS
    body, expected = record.body(), record.note_version
    return await member.shard.kv_put(KIND, queue, body, expires_at_ms, now_ms, expected_version=expected) > 0


async def retire_elsewhere(
    home: ShardHandle, members: list[ShardHandle], queue: str, clock: Clock
) -> ShareRecord | None:
    """The newest record that any shard has, with version 0 where there is none; from now on all other shards say that
    it is at home.

    None: another process is faster. Errors are those of the shards, all of which are needed.
    """
    newest = ShareRecord(0)
    at_home = 0
    for member in members:
        notes = await member.shard.kv_list(KIND, clock.now_ms())
        note = notes.get(queue)
        found = read(note) or ShareRecord(0, note_version=note.version if note else 0)
        if member is home:
            at_home = found.note_version
        elif not found.is_retired or found.moved_to != home.shard.shard_id:
            retired = replace(found, is_retired=True, moved_to=home.shard.shard_id)
            if not await write(member, queue, retired, clock):
                return None
        if found.version > newest.version:
            newest = found
    return replace(newest, maximum=None, is_retired=False, note_version=at_home, moved_to="")
