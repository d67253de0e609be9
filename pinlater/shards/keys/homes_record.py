"""The record of the homes of keys, and what follows from it. Pure.

Keys hash to slots, slots to shards by rendezvous hashing. Which shards these are is one config entry, the same for all
servers, and not each server's own configuration. When they change, keys that live where they lived before go on living
there: so a record also has the memberships before it, as long as a key may live by one of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from pinlater.model import ExtendedJob, KeyRef
from pinlater.shards.rendezvous import rendezvous_pick
from pinlater.stored_json import read_stored

HOMES = "@homes"
"""The name of the config entry. Its version is the epoch that keyed calls name."""

SLOTS = 4_096
SCHEDULE_KEY = "@schedule/"
"""Before NAME/TIME, the dedupe key of a firing: it lives where its schedule does."""

Membership = tuple[str, ...]
"""Shard ids."""


@dataclass(frozen=True, slots=True)
class HomesRecord:
    """`before`: the memberships before `members` by which keys may live, the newest first.

    `is_opening`: until all shards of the newest of these know this record, slots whose home is another now are refused.
    `gone`: shards that were given up, or are configured nowhere; what lived there is lost.
    """

    members: Membership
    before: tuple[Membership, ...] = ()
    is_opening: bool = False
    gone: Membership = ()

    def text(self) -> str:
        """The text of the config entry, which `parse_record` reads."""
        fields = {"members": self.members, "before": self.before, "opening": self.is_opening, "gone": self.gone}
        return json.dumps(fields, separators=(",", ":"))


def parse_record(text: str) -> HomesRecord:
    """The record that this text of `HomesRecord.text` holds. ValueError where it holds none."""
    try:
        fields = read_stored(text)
        before = tuple(tuple(map(str, each)) for each in fields["before"])
        gone = tuple(map(str, fields["gone"]))
        record = HomesRecord(tuple(map(str, fields["members"])), before, fields["opening"] is True, gone)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a record of homes") from error
    if not record.members:
        raise ValueError("a record of homes without members")
    return record


def home_of(slot: int, members: Membership) -> str:
    """The member where the keys of a slot live.

    >>> [home_of(slot, ("1", "2", "3")) for slot in range(8)]
    ['2', '1', '3', '2', '1', '3', '3', '3']
    """
    home = rendezvous_pick(f"slot/{slot}", members)
    assert home is not None
    return home


class Places(NamedTuple):
    """Where the keys of a slot live: `home`, but for those that still live at one of `former`, the newest first.

    `is_moving`: nothing of it may be stored until a change of the homes is over.
    """

    home: str
    former: tuple[str, ...] = ()
    is_moving: bool = False


class HomeTable:
    """A record by slots; each slot is worked out once. `version` is that of the config entry, "" for none."""

    def __init__(self, record: HomesRecord, version: str = "") -> None:
        self.record = record
        self.version = version
        self._places: list[Places | None] = [None] * SLOTS

    @property
    def is_settled(self) -> bool:
        """Whether each key can live at one place only."""
        return not self.record.before

    def places(self, slot: int) -> Places:
        found = self._places[slot]
        if found is None:
            found = self._places[slot] = self._find(slot)
        return found

    def _find(self, slot: int) -> Places:
        record = self.record
        home = home_of(slot, record.members)
        before = [home_of(slot, members) for members in record.before]
        former = tuple(dict.fromkeys(each for each in before if each != home and each not in record.gone))
        return Places(home, former, record.is_opening and before[:1] != [home])

    def takes_jobs(self, shard_id: str) -> bool:
        """Whether it is a home now; one that was is being emptied, if it is no member any more."""
        return shard_id in self.record.members


def _slot(key: bytes) -> int:
    return crc32(key) % SLOTS


def slot_of(queue: str, dedupe_key: str, serialize_key: str, send_id: str = "") -> int:
    """The slot of a job. With a serialize key it lives where that does, else by its dedupe key, else by its send id
    without the place that the job has in its request.

    >>> slot_of("mail", "", "", "x/1") == slot_of("sms", "", "", "x/2"), slot_of("mail", "a", "") < SLOTS
    (True, True)
    """
    if serialize_key:
        return _slot(b"s:" + serialize_key.encode())
    if dedupe_key.startswith(SCHEDULE_KEY):
        return slot_of_schedule(dedupe_key[len(SCHEDULE_KEY) :].rpartition("/")[0])
    if dedupe_key:
        return _slot(f"d:{queue}:{dedupe_key}".encode())
    return _slot(b"i:" + (send_id.rpartition("/")[0] or send_id).encode())


def slot_of_schedule(name: str) -> int:
    """The slot whose home has the firings of a schedule, and its mark."""
    return _slot(f"{SCHEDULE_KEY}{name}".encode())


def slot_of_job(queue: str, job: ExtendedJob) -> int:
    """0 for a job without keys, which lives anywhere."""
    return slot_of(queue, job.dedupe_key, job.serialize_key, job.send_id) if job.is_keyed else 0


def slot_of_key(queue: str, key: KeyRef) -> int:
    return slot_of(queue, key.dedupe_key, key.serialize_key)
