"""Alarms as servers keep them: key-value entries on some shards, with those that stand, those that ended, and mutes.

Those that stand are one entry, on the first two shards that also have the leases, so that what is known of them
outlives a shard. Each that ended is one, up to KEPT_ENDED of them. A mute is one on every shard.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from operator import methodcaller
from typing import Any

import msgspec
import structlog

from pinlater.alarms.judgement import Mute
from pinlater.backends.base import Shard
from pinlater.errors import PinLaterError
from pinlater.job_body import UNREADABLE
from pinlater.model.alarm_views import Alarm
from pinlater.shards.handle import ShardHandle, answers, ask_all

_log = structlog.get_logger("pinlater.alarms")
KIND, ENDED_KIND, MUTE_KIND, SENT_KIND = "alarm", "alarm-ended", "alarm-mute", "alarm-sent"
NAME = "standing"
PLACES = 2
KEPT_ENDED = 200
KEPT_MUTES = 500
_STANDING_FOR_MS = 86_400_000
_ENDED_FOR_MS = 90 * 86_400_000
_UNMUTED_FOR_MS = 30 * 86_400_000
"""As long as a mute may last."""

_MAX_READ_BYTES = 4 * 1024 * 1024


class StandingEntry(msgspec.Struct, frozen=True):
    """What was judged last, and by which process."""

    judged_by: str
    judged_at_ms: int
    alarms: tuple[Alarm, ...] = ()
    more: int = 0


class SentEntry(msgspec.Struct, frozen=True):
    """The alarms that a webhook has sent, and whose end it is to send."""

    alarms: tuple[Alarm, ...] = ()


def encode_entry(thing: StandingEntry | SentEntry | Alarm | Mute) -> bytes:
    """Its body."""
    return zlib.compress(msgspec.json.encode(thing), 1)


def decode_entry_as(kind: Any, body: bytes) -> Any:
    """What `encode_entry` made, in this version or another one; None: it is not understood."""
    try:
        return msgspec.json.decode(zlib.decompressobj().decompress(body, _MAX_READ_BYTES), type=kind)
    except (zlib.error, *UNREADABLE):
        _log.warning("alarms_not_understood", kind=kind.__name__)
        return None


async def put_standing(places: Sequence[ShardHandle], entry: StandingEntry, now_ms: int) -> bool:
    """Whether one shard at least has it now."""
    return await _put(places[:PLACES], methodcaller("kv_put", KIND, NAME, encode_entry(entry), _until(now_ms), now_ms))


def _until(now_ms: int) -> int:
    return now_ms + _STANDING_FOR_MS


async def put_ended(places: Sequence[ShardHandle], alarm: Alarm, now_ms: int) -> None:
    digest = hashlib.sha256("\n".join(alarm.key).encode()).hexdigest()[:12]
    name, body = f"{alarm.ended_ms:015d}-{alarm.name}-{digest}", encode_entry(alarm)
    until_ms = now_ms + _ENDED_FOR_MS
    await _put(places[:PLACES], lambda shard: shard.kv_put(ENDED_KIND, name, body, until_ms, now_ms, keep=KEPT_ENDED))


async def put_sent(places: Sequence[ShardHandle], webhook: str, alarms: Iterable[Alarm], now_ms: int) -> None:
    body = encode_entry(SentEntry(tuple(alarms)))
    await _put(places[:PLACES], methodcaller("kv_put", SENT_KIND, webhook, body, now_ms + _ENDED_FOR_MS, now_ms))


async def read_sent(places: Sequence[ShardHandle], now_ms: int) -> dict[str, tuple[Alarm, ...]]:
    """By webhook, as the first of these shards that answers has it. PinLaterError: none answers."""
    found: dict[str, tuple[Alarm, ...]] = {}
    for entries in reversed(await _read(places[:PLACES], SENT_KIND, now_ms)):
        for webhook, body in entries.items():
            entry = decode_entry_as(SentEntry, body)
            if entry is not None:
                found[webhook] = entry.alarms
    return found


async def put_mute(places: Sequence[ShardHandle], mute: Mute, now_ms: int) -> bool:
    """One that has ended already takes a mute away. Whether one shard at least has it now.

    The end of a mute is kept too: a shard that is out now has the mute when it is back.
    """
    name = f"{mute.name}-{hashlib.sha256(mute.subject.encode()).hexdigest()[:12]}"
    body = encode_entry(mute)
    until_ms = max(mute.until_ms, now_ms + _UNMUTED_FOR_MS)
    return await _put(places, lambda shard: shard.kv_put(MUTE_KIND, name, body, until_ms, now_ms, keep=KEPT_MUTES))


async def read_standing(places: Sequence[ShardHandle], now_ms: int) -> StandingEntry | None:
    """The latest of all that these shards have; None: none has any. PinLaterError: none answers."""
    bodies = {body for entries in await _read(places, KIND, now_ms) for name, body in entries.items() if name == NAME}
    found = [entry for body in bodies if (entry := decode_entry_as(StandingEntry, body)) is not None]
    return max(found, key=lambda entry: entry.judged_at_ms, default=None)


async def read_ended(places: Sequence[ShardHandle], now_ms: int) -> list[Alarm]:
    """The latest first, up to KEPT_ENDED. PinLaterError: no shard answers."""
    bodies: dict[str, bytes] = {}
    for entries in await _read(places, ENDED_KIND, now_ms):
        bodies |= entries
    latest = [bodies[name] for name in sorted(bodies, reverse=True)[:KEPT_ENDED]]
    return [alarm for body in latest if (alarm := decode_entry_as(Alarm, body)) is not None]


async def read_mutes(places: Sequence[ShardHandle], now_ms: int, known: Iterable[Mute] = ()) -> list[Mute]:
    """Each as an operator set it last, also where it has ended: by these shards, and what was known before, as one that
    was out lacks what was set then. PinLaterError: no shard answers.
    """
    bodies = {body for entries in await _read(places[:PLACES], MUTE_KIND, now_ms) for body in entries.values()}
    latest: dict[tuple[str, str], Mute] = {}
    for each in (*known, *filter(None, (decode_entry_as(Mute, body) for body in bodies))):
        before = latest.get((each.name, each.subject))
        if before is None or before.set_ms <= each.set_ms:
            latest[each.name, each.subject] = each
    return [*latest.values()]


async def _put(places: Sequence[ShardHandle], put: Any) -> bool:
    outcomes = await ask_all(places, put)
    for place, outcome in zip(places, outcomes, strict=True):
        if isinstance(outcome, PinLaterError):
            _log.warning("alarms_not_written", shard=place.shard.shard_id, error=outcome.message)
    return any(not isinstance(outcome, PinLaterError) for outcome in outcomes)


async def _read(places: Sequence[ShardHandle], kind: str, now_ms: int) -> list[dict[str, bytes]]:
    """Of those that answer. PinLaterError: none does."""

    async def read(shard: Shard) -> dict[str, bytes]:
        return {name: entry.body for name, entry in (await shard.kv_list(kind, now_ms)).items()}

    return answers(await ask_all(places, read)) if places else []
