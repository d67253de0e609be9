"""The record of one queue, or of all together, over a minute or an hour, and its packed form. Pure.

A minute in which nothing happened has no record: all that was counted is 0 then, and jobs wait as they did before.
`expanded` puts such minutes back.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

import msgspec

from pinlater.dashboard import duration_buckets

MAX_WORDS = 8
"""Of reasons or types in a record; the others are together."""

MAX_WORD_CHARS = 60
OTHER = "other"


class QueueRecord(msgspec.Struct, array_like=True, gc=False):
    """`counts`: as COUNTED. Jobs that wait or run are the highest numbers of the time, and `oldest_s` the longest time
    that a job was ready.

    Of a sample of jobs: `waits` from when they might run until they were handed out, `runs` from there to the end.
    `reasons`, `types`: what failed, in jobs; where only some could be looked at, `sampled`, these are an estimate.
    `minutes`: of an hour of all queues, how many of it were recorded.
    """

    enqueued: int = 0
    dequeued: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    ready: int = 0
    scheduled: int = 0
    running: int = 0
    blocked: int = 0
    oldest_s: int = 0
    waits: dict[int, int] = {}
    runs: dict[int, int] = {}
    reasons: dict[str, int] = {}
    types: dict[str, int] = {}
    sampled: int = 0
    minutes: int = 0

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        return self.enqueued, self.dequeued, self.succeeded, self.failed, self.retried

    @property
    def events(self) -> int:
        """How busy the queue was."""
        return self.enqueued + self.dequeued + self.succeeded + self.failed + self.retried

    def count(self, numbers: Sequence[int]) -> None:
        """So many jobs more, in the order of COUNTED."""
        self.enqueued += numbers[0]
        self.dequeued += numbers[1]
        self.succeeded += numbers[2]
        self.failed += numbers[3]
        self.retried += numbers[4]

    def see(self, ready: int, scheduled: int, running: int, blocked: int, oldest_s: int) -> None:
        """So many jobs are there."""
        self.ready = max(self.ready, ready)
        self.scheduled = max(self.scheduled, scheduled)
        self.running = max(self.running, running)
        self.blocked = max(self.blocked, blocked)
        self.oldest_s = max(self.oldest_s, oldest_s)

    def merge(self, other: QueueRecord) -> None:
        """The same queue over another time."""
        self.count(other.counts)
        self.see(other.ready, other.scheduled, other.running, other.blocked, other.oldest_s)
        self.merge_samples(other)
        self.minutes += other.minutes

    def merge_samples(self, other: QueueRecord) -> None:
        duration_buckets.add(self.waits, other.waits)
        duration_buckets.add(self.runs, other.runs)
        add_words(self.reasons, other.reasons)
        add_words(self.types, other.types)
        self.sampled += other.sampled


def add_words(into: dict[str, int], more: Mapping[str, int]) -> None:
    for word, jobs in more.items():
        into[word] = into.get(word, 0) + jobs


def fewer_words(words: Mapping[str, int], most: int = MAX_WORDS) -> dict[str, int]:
    """The most frequent ones, and the rest as OTHER.

    >>> fewer_words({"a": 1, "b": 5, "c": 2, "other": 1}, 2)
    {'b': 5, 'c': 2, 'other': 2}
    """
    named = sorted((word for word in words if word != OTHER), key=lambda word: (-words[word], word))
    found = {word: words[word] for word in named[:most]}
    rest = words.get(OTHER, 0) + sum(words[word] for word in named[most:])
    return found | ({OTHER: rest} if rest else {})


def share_words(records: Collection[QueueRecord], room: int) -> None:
    """Leave so many bytes of reasons and types in all. Each record has a like share, and what one needs not is for the
    others: who fails with many words, in however many queues, costs those that have few nothing.

    >>> records = [QueueRecord(reasons={"a" * 50 + str(n): n for n in range(5)}), QueueRecord(reasons={"KeyError": 1})]
    >>> share_words(records, 130)
    >>> [len(record.reasons) for record in records], records[1].reasons
    ([3, 1], {'KeyError': 1})
    """
    left = len(records)
    for record in sorted(records, key=_words_bytes):
        most = MAX_WORDS
        while most and _words_bytes(record) > room // left:
            most -= 1
            record.reasons, record.types = fewer_words(record.reasons, most), fewer_words(record.types, most)
        room -= _words_bytes(record)
        left -= 1


def _words_bytes(record: QueueRecord) -> int:
    return sum(len(word.encode()) + 2 for words in (record.reasons, record.types) for word in words)


def scaled(words: Mapping[str, int], total: int) -> dict[str, int]:
    """The same shares of so many jobs, where only some were looked at. What was seen is never made less.

    >>> scaled({"a": 2, "b": 1}, 10), scaled({"a": 2}, 1)
    ({'a': 7, 'b': 3}, {'a': 2})
    """
    seen = sum(words.values())
    if not seen or total <= seen:
        return dict(words)
    found = {word: jobs * total // seen for word, jobs in words.items()}
    by_rest = sorted(words, key=lambda word: (-(words[word] * total % seen), word))
    for word in by_rest[: total - sum(found.values())]:
        found[word] += 1
    return found


# -- packed ------------------------------------------------------------------------------------------------------------

_encode = msgspec.msgpack.Encoder().encode
_decode_one = msgspec.msgpack.Decoder(QueueRecord).decode
_DEFAULTS = msgspec.structs.astuple(QueueRecord())
_decode_columns = msgspec.msgpack.Decoder(list[list[Any]]).decode
_LEVEL = 6
_BUCKETS = (10, 11)
"""The fields `waits` and `runs`."""
_BYTE = 255
UNREADABLE = (zlib.error, msgspec.MsgspecError, UnicodeDecodeError, ValueError, TypeError, IndexError)
"""What unpacking raises for bytes that are not ours."""


def pack(record: QueueRecord) -> bytes:
    """One record, without the fields at its end that have nothing."""
    values = msgspec.structs.astuple(record)
    size = len(values)
    while size and not values[size - 1]:
        size -= 1
    return _encode(values[:size])


def unpack(packed: bytes) -> QueueRecord:
    return _decode_one(packed)


def pack_series(series: Sequence[tuple[int, QueueRecord]]) -> bytes:
    """Records by their place in an hour or a day: column by column, since what is alike lies together then."""
    columns: list[Any] = list(zip(*(msgspec.structs.astuple(record) for _, record in series), strict=True))
    for at in _BUCKETS if columns else ():
        columns[at] = _dense(columns[at])
    while columns and not any(columns[-1]):
        columns.pop()
    places = [place for place, _ in series]
    return zlib.compress(_encode([places, *(column if any(column) else () for column in columns)]), _LEVEL)


def unpack_series(packed: bytes) -> list[tuple[int, QueueRecord]]:
    """One of UNREADABLE."""
    places, *columns = _decode_columns(zlib.decompress(packed))
    for at in _BUCKETS:
        if at < len(columns) and columns[at]:
            columns[at] = _sparse(len(places), *columns[at])
    values = [column or [default] * len(places) for column, default in zip(columns, _DEFAULTS, strict=False)]
    records = zip(*values, strict=True) if values else ((),) * len(places)
    return [(place, msgspec.convert(record, QueueRecord)) for place, record in zip(places, records, strict=True)]


def _dense(column: Sequence[Mapping[int, int]]) -> tuple[int, bytes]:
    """The lowest bucket, and a byte for each record and bucket from there on. Many durations are made fewer: their
    percentiles stay.
    """
    used = {bucket for buckets in column for bucket in buckets}
    if not used:
        return 0, b""
    low, high = min(used), max(used)
    found = bytearray()
    for buckets in column:
        most = max(buckets.values(), default=0)
        share = 1 if most <= _BYTE else most / _BYTE
        found += bytes(_part(buckets.get(bucket, 0), share) for bucket in range(low, high + 1))
    return low, bytes(found)


def _part(count: int, share: float) -> int:
    return count if share == 1 else min(_BYTE, ceil(count / share))


def _sparse(size: int, low: int, dense: bytes) -> list[duration_buckets.Buckets]:
    width = len(dense) // size
    return [
        {low + at: count for at, count in enumerate(dense[start : start + width]) if count}
        for start in range(0, len(dense), width)
    ]


def expanded(series: Iterable[tuple[int, QueueRecord]], known: Iterable[int]) -> Iterator[tuple[int, QueueRecord]]:
    """A record for each of the minutes that were recorded: where the queue has none, it is as it was before."""
    own = dict(series)
    last: tuple[int, QueueRecord] | None = None
    for minute in known:
        record = own.get(minute)
        if record is not None:
            last = minute, record
        elif last is None:
            record = QueueRecord()
        else:
            before = last[1]
            waited_s = 60 * (minute - last[0]) if before.ready and before.oldest_s else 0
            record = QueueRecord()
            record.see(before.ready, before.scheduled, before.running, before.blocked, before.oldest_s + waited_s)
        yield minute, record
