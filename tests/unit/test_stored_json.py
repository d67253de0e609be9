"""What servers read back from stores is of another version, or of another hand, now and then: nothing ends for it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Any

import msgspec
import pytest

from pinlater.access.tokens import read_token
from pinlater.alarms.alarm_entries import StandingEntry, decode_entry_as
from pinlater.backends.base import ConfigEntry, KvEntry
from pinlater.backends.group_rules import NO_GROUP_RULES, read_group_rules
from pinlater.cluster import counts, lease
from pinlater.cluster.worker_entries import decode_entry
from pinlater.queues.breaker_record import OpenBreaker, ProbeSlot, SlotState, read_open_breaker, read_slot
from pinlater.queues.breaker_rule import BreakerRule
from pinlater.queues.directory import is_dequeue_only
from pinlater.queues.group_rules_book import GroupLimit, GroupRulesBook
from pinlater.queues.layers import texts_of
from pinlater.queues.owned_entries import owner_of
from pinlater.queues.quota_balancer import read_allocation
from pinlater.schedules.record import read_record
from pinlater.shards.keys.homes_record import parse_record
from pinlater.stored_json import MAX_PACKED_BYTES, read_packed, read_stored
from pinlater.transfers.export_file import FRAME, MAGIC, ExportBroken, ExportReader
from tests.unit.breaking import HeldClock

VERSION = "1790000000000000-0123abcd"
DEEP = "[" * 50_000
OPENED = OpenBreaker(VERSION, 1, "why", "1")
RULE = BreakerRule(50, 10, 60_000, 5_000)
FIRST_SLOT = ProbeSlot(VERSION, SlotState.RESTING, 5_001, entry_version=1)


def entry(text: str) -> ConfigEntry:
    return ConfigEntry("@x/name", VERSION, text)


def kv(text: str) -> KvEntry:
    return KvEntry(text.encode(), 1, 10**15)


def packed(text: str) -> bytes:
    return zlib.compress(text.encode())


def leases(text: str) -> dict[str, lease.Lease]:
    table = lease.LeaseTable()
    table.take("1", {"here/1": kv(text)}, 0)
    return table.newest(1)


def refused(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def outcome(text: str) -> Any:
        try:
            return read(text)
        except ValueError:
            return "refused"

    return outcome


WITH_NUMBERS = '{"%s": %s, "why": "", "place": "", "hash": "", "roles": [], "by": "", "shares": {}, "retired": false}'
READERS: dict[str, tuple[Callable[[str], Any], Any]] = {
    "token": (lambda text: read_token(entry(text)), None),
    "schedule": (lambda text: read_record(entry(text)), None),
    "open breaker": (lambda text: read_open_breaker(entry(text)), None),
    "slot": (lambda text: read_slot(kv(text), OPENED, RULE), FIRST_SLOT),
    "allocation": (lambda text: read_allocation(kv(text)), None),
    "settings": (lambda text: texts_of(entry(text)), {}),
    "owner": (lambda text: owner_of(entry(text)), ""),
    "shard": (lambda text: is_dequeue_only(entry(text)), False),
    "rules of groups": (read_group_rules, NO_GROUP_RULES),
    "homes": (refused(parse_record), "refused"),
    "lease": (leases, {}),
    "counts": (refused(lambda text: counts.decode(packed(text))), "refused"),
    "workers": (refused(lambda text: decode_entry(packed(text or "x"))), "refused"),
    "alarms": (lambda text: decode_entry_as(StandingEntry, packed('{"x":' + text)), None),
}


@pytest.mark.parametrize(
    "text",
    [DEEP, "1e999", "Infinity", '{"a": NaN}', '"\\ud800"', "7", "[]", "{", ""],
    ids=["deep", "high", "infinite", "nan", "half", "number", "list", "cut", "empty"],
)
@pytest.mark.parametrize("name", READERS)
def test_a_text_of_another_form_counts_for_nothing(name: str, text: str) -> None:
    read, nothing = READERS[name]
    assert read(text) == nothing


@pytest.mark.parametrize(
    ("name", "key"), [("token", "at"), ("open breaker", "opened_ms"), ("allocation", "version"), ("schedule", "from")]
)
def test_a_number_without_end_is_none(name: str, key: str) -> None:
    read, nothing = READERS[name]
    assert read(WITH_NUMBERS % (key, "Infinity")) == nothing
    assert read(WITH_NUMBERS % (key, "1e999")) == nothing


@pytest.mark.parametrize(
    "changed",
    [{"cron": 5}, {"timezone": 1.5}, {"timezone": {}}, {"tags": "abc"}, {"every_ms": "soon"}, {"body": 7}],
    ids=str,
)
def test_a_schedule_with_a_field_of_another_type_is_not_read(changed: dict[str, Any]) -> None:
    stored = {"cron": "* * * * *", "created": 1, "updated": 2, "by": "me", "from": 3, "generation": "1"}
    assert read_record(entry(json.dumps(stored))) is not None
    assert read_record(entry(json.dumps(stored | changed))) is None


def test_limits_that_a_newer_version_allows_count_for_nothing() -> None:
    book = GroupRulesBook({}, HeldClock())
    rules = {"acme": {"concurrency": "99999999999999", "rate": "2/s"}, "other": {"rate": "much"}, "third": 7}
    for text in (json.dumps({"groups": rules}), json.dumps({"groups": {}, "patterns": [[1.5, {"rate": "2/s"}]]})):
        book.take(ConfigEntry("@groups/mail", VERSION, text))
        assert book.most_at_once("mail", GroupLimit()) == GroupLimit().at_once
    del rules["third"]
    book.take(ConfigEntry("@groups/mail", VERSION, json.dumps({"groups": rules})))
    assert book.most_at_once("mail", GroupLimit(concurrency=5)) >= 5


def test_few_bytes_that_unpack_to_many_are_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        read_packed(zlib.compress(b" " * (MAX_PACKED_BYTES + 1)))
    with pytest.raises(ValueError, match="cut"):
        read_packed(zlib.compress(b"[1, 2, 3]")[:-5])


def test_what_is_written_is_read() -> None:
    value = {"a": [1, 2.5, -(2**70), None, True, "\ud800"], "": {}}
    assert read_stored(json.dumps(value)) == read_packed(zlib.compress(json.dumps(value).encode())) == value


def exported(*contents: tuple[bytes, bytes]) -> BytesIO:
    out = MAGIC
    for number, (kind, content) in enumerate(contents):
        checksum = zlib.crc32(content, zlib.crc32(kind + number.to_bytes(4, "big")))
        out += FRAME.pack(kind, number, len(content), checksum) + content
    return BytesIO(out)


HEADER = b'{"export_id":"e","shard_id":"1","store_id":"s","level":0,"made_at_ms":1,"jobs":0}'


@pytest.mark.parametrize(
    "contents",
    [
        [(b"H", b"\xff")],
        [(b"H", b"7")],
        [(b"H", b'{"export_id":1}')],
        [(b"H", DEEP.encode())],
        [(b"H", HEADER), (b"E", b"{")],
        [(b"H", HEADER), (b"E", b"{}")],
        [(b"H", HEADER), (b"E", b'{"totals":[],"last_id":1}')],
        [(b"H", HEADER), (b"E", b'{"totals":"{}","last_id":1}')],
        *[[(b"H", HEADER), (b"B", zlib.compress(msgspec.msgpack.encode(each)))] for each in (1.5, [1], ["job", 7])],
        [(b"H", HEADER), (b"B", zlib.compress(b"\x91" * 50_000))],
    ],
    ids=range(12),
)
def test_an_export_of_another_form_says_what_to_do(contents: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(ExportBroken, match=r"export again|use a newer one"):
        list(ExportReader(exported(*contents)).blocks())
