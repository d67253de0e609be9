"""What is read back from stores, folders and the other servers of a cluster, as somebody else may have written it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Any

import msgspec

from pinlater.access.tokens import TokenRecord, read_token
from pinlater.alarms.alarm_entries import SentEntry, StandingEntry, decode_entry_as, encode_entry
from pinlater.backends.base import ConfigEntry, KvEntry, LevelCounts
from pinlater.backends.group_rules import read_group_rules
from pinlater.cluster import counts, lease
from pinlater.cluster.worker_entries import SeenWorker, decode_entry, encode_worker
from pinlater.dashboard.body_view import body_view, preview_of, value_view
from pinlater.job_body import describe_body, secret_values
from pinlater.model import Misfire, Schedule, WorkerReport
from pinlater.model.alarm_views import Alarm, Severity
from pinlater.queues.breaker_record import OpenBreaker, ProbeSlot, SlotState, read_open_breaker, read_slot
from pinlater.queues.breaker_rule import BreakerRule
from pinlater.queues.directory import is_dequeue_only, is_given_up
from pinlater.queues.group_rules_book import GroupLimit, GroupRulesBook
from pinlater.queues.layers import layer_of
from pinlater.queues.owned_entries import owner_of
from pinlater.queues.quota_balancer import QuotaAllocation, read_allocation
from pinlater.schedules.record import ScheduleRecord, read_record
from pinlater.shards.keys.homes_record import HomesRecord, parse_record
from pinlater.transfers.export_file import FRAME, MAGIC, ExportBroken, ExportHeader, ExportReader
from pinlater_workers.envelope import Envelope, next_body, read_envelope, write_envelope
from pinlater_workers.errors import BodyInvalid
from tests.fuzz.bytes_changed import changed_bytes, changed_json
from tests.fuzz.readers import Reader, target_of
from tests.unit.breaking import HeldClock

NOW_MS = 1_790_000_000_000
VERSION = "1790000000000000-0123abcd"
_RULE = BreakerRule(50, 10, 60_000, 5_000)
_OPENED = OpenBreaker(VERSION, NOW_MS, "too many failures", "s1")
_SLOT = ProbeSlot(VERSION, SlotState.OUT, NOW_MS, "claim", "mail:s1:p1:1790000000000001")
_LEVELS = {1: LevelCounts(3, 1, 2, 4, 5, NOW_MS)}
_COUNTS = counts.ShardCounts(NOW_MS, {"mail": counts.QueueCounts(NOW_MS, _LEVELS, NOW_MS)})
_LEASE = lease.Lease(
    server="here",
    process="1",
    address="127.0.0.1:9010",
    started_ms=NOW_MS,
    renewed_ms=NOW_MS,
    renewal=3,
    is_ready=True,
    counters={"mail": (1, 2)},
)
_ALARM = Alarm("no_worker", "mail", Severity.WARNING, "no worker", NOW_MS, "mail")


def _entry(name: str, read: Callable[[ConfigEntry], Any]) -> Callable[[bytes], Any]:
    return lambda data: read(ConfigEntry(name, VERSION, data.decode()))


def _kv(read: Callable[[KvEntry], Any]) -> Callable[[bytes], Any]:
    return lambda data: read(KvEntry(data, 1, NOW_MS + 60_000))


def _packed(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    return lambda data: read(zlib.compress(data, 1))


def _unpacked(data: bytes) -> bytes:
    return zlib.decompress(data)


def _firings(record: ScheduleRecord | None) -> None:
    """What a server asks of a record that it has read. ValueError: no timetable that it knows."""
    if record is not None:
        record.firings().after(NOW_MS)
        record.firings().latest(NOW_MS, 0)
        record.silent_until_ms(record.fired_ms(record.mark(NOW_MS)), NOW_MS)
        record.text()


def _rules_book(entry: ConfigEntry) -> None:
    book = GroupRulesBook({}, HeldClock())
    queue = book.take(entry)
    book.settings(queue, "acme", GroupLimit())
    book.most_at_once(queue, GroupLimit())
    book.any_paused(queue)


def _worker_views(data: bytes) -> None:
    for each in decode_entry(data):
        each.view(include_running=True)


def _lease_table(data: bytes) -> None:
    """What a server asks of the leases of others."""
    table = lease.LeaseTable()
    table.take("1", {"here/1": KvEntry(data, 1, NOW_MS + 60_000)}, 0)
    for each in table.newest(NOW_MS).values():
        _ = each.name, each.knows, each.tiers


def _kind_of_block(number: int, of: int) -> bytes:
    return b"H" if number == 0 else b"E" if number == of - 1 else b"B"


def _exported(data: bytes) -> bytes:
    """A file with right checksums around a header and blocks, each a line of JSON."""
    out = [MAGIC]
    lines = data.split(b"\n")
    for number, line in enumerate(lines):
        kind, content = _kind_of_block(number, len(lines)), line
        if kind == b"B":
            try:
                content = zlib.compress(msgspec.msgpack.encode(msgspec.json.decode(line)))
            except (msgspec.DecodeError, ValueError, OverflowError, RecursionError):
                content = zlib.compress(line)
        checksum = zlib.crc32(content, zlib.crc32(kind + number.to_bytes(4, "big")))
        out.append(FRAME.pack(kind, number, len(content), checksum) + content)
    return b"".join(out)


def _read_export(data: bytes) -> None:
    for _ in ExportReader(BytesIO(data)).blocks():
        pass


def _read_envelope(body: bytes) -> None:
    found = read_envelope(body)
    if found is not None:
        write_envelope(found)


def _shown_body(body: bytes) -> None:
    described = describe_body(body)
    if described is not None:
        described.call_text()
    describe_body(body, with_secrets=True)
    secret_values(body)
    body_view(body)
    value_view(body)
    preview_of(body)


_ENVELOPES = (
    write_envelope(
        Envelope("thumbnail", ["a.jpg", 1], {"size": 2.5}, {"traceparent": "00-1-1-01", "pinlater-secret": "0 size"}, 1)
    ),
    write_envelope(Envelope("thumbnail", ["a.jpg", None], {"size": [b"1"]}, {}, 0, "msgpack")),
    b'PINLATER/1 application/json; charset=utf-8\n{"job": "x", "args": null}',
    b"PINLATER/2 application/json\n{}",
)
_HEADER = ExportHeader("id", "1", "store", 2, NOW_MS, 7)
_EXPORT = b"\n".join(
    (
        msgspec.json.encode(_HEADER),
        b'["config",[["mail","' + VERSION.encode() + b'","",1]]]',
        json.dumps(
            {"totals": json.dumps({"rows": {"job": 1}, "jobs": {}, "waiting": 0, "last_id": 1}), "last_id": 1}
        ).encode(),
    )
)
_SCHEDULE = Schedule(
    name="nightly",
    queue="mail",
    body=b"x",
    cron="30 3 * * 1-5",
    timezone="Europe/Berlin",
    tags=("a",),
    misfire=Misfire.RUN_ALL,
)

ENTRIES = (
    Reader(
        "a schedule",
        _entry("@schedule:nightly", lambda each: _firings(read_record(each))),
        (ScheduleRecord(schedule=_SCHEDULE, version=VERSION, counts_from_ms=3, generation="1").text().encode(),),
        (ValueError,),
        True,
    ),
    Reader(
        "a token",
        _entry("@token:web", read_token),
        (TokenRecord("web", "0" * 64, ("viewer",), "me", 1, 2).text().encode(),),
        (),
        True,
    ),
    Reader("an open breaker", _entry("@breaker:mail", read_open_breaker), (_OPENED.text().encode(),), (), True),
    Reader(
        "settings of a queue",
        _entry("mail", layer_of),
        (b'{"set":{"paused":"true","max_in_progress":"3","max_jobs_per_second":"7/s"}}',),
        (),
        True,
    ),
    Reader("an owner", _entry("mail", owner_of), (b'{"owner":"token:web"}',), (), True),
    Reader(
        "a shard's use",
        _entry("@shard:1", lambda each: (is_dequeue_only(each), is_given_up(each))),
        (b'{"dequeue_only":true}',),
        (),
        True,
    ),
    Reader(
        "rules of groups",
        lambda data: read_group_rules(data.decode()),
        (
            b'{"groups":{"acme":{"weight":"3","paused":"true","paused_until":"5"}},"patterns":[["a*",{"weight":"2"}]],"home":"1"}',
        ),
        (),
        True,
    ),
    Reader(
        "a book of rules",
        _entry("@groups:mail", _rules_book),
        (b'{"groups":{"acme":{"weight":"3","concurrency":"4"}},"patterns":[["a*",{"rate":"2/s"}]]}',),
        (),
        True,
    ),
    Reader(
        "a record of homes",
        lambda data: parse_record(data.decode()),
        (HomesRecord(("1", "2"), (("1",),), True, ("3",)).text().encode(),),
        (ValueError,),
        True,
    ),
    Reader("an allocation", _kv(read_allocation), (QuotaAllocation(3, 10, {"1": 5, "2": 5}).body(),)),
    Reader("a probe's slot", _kv(lambda each: read_slot(each, _OPENED, _RULE)), (_SLOT.body(),)),
    Reader("a lease", _lease_table, (lease.encode(_LEASE),)),
    Reader("counts", _packed(counts.decode), (_unpacked(counts.encode(_COUNTS)),), (ValueError,)),
    Reader(
        "counts of ended jobs",
        _packed(lambda each: counts.decode(counts.encode(_COUNTS), each)),
        (_unpacked(counts.encode_ended(_COUNTS)),),
        (ValueError,),
    ),
    Reader(
        "counts of limited jobs",
        _packed(lambda each: counts.decode(counts.encode(_COUNTS), limited=each)),
        (b'{"mail":[5,{"1":2}]}',),
        (ValueError,),
    ),
    Reader(
        "workers",
        _packed(_worker_views),
        (
            encode_worker(
                SeenWorker(WorkerReport(id="id", name="name", host="host", pid=7, up_ms=9), NOW_MS, "token:web")
            ),
        ),
        (ValueError,),
    ),
    Reader(
        "alarms that stand",
        _packed(lambda each: decode_entry_as(StandingEntry, each)),
        (_unpacked(encode_entry(StandingEntry("here/1", NOW_MS, (_ALARM,)))),),
    ),
    Reader(
        "alarms that were sent",
        _packed(lambda each: decode_entry_as(SentEntry, each)),
        (_unpacked(encode_entry(SentEntry((_ALARM,)))),),
    ),
    Reader("an export's header and end", lambda data: _read_export(_exported(data)), (_EXPORT,), (ExportBroken,)),
)
BYTES = (
    Reader(
        "workers",
        _worker_views,
        (zlib.compress(encode_worker(SeenWorker(WorkerReport(id="id", name="n", host="h", pid=1, up_ms=9), NOW_MS))),),
        (ValueError,),
    ),
    Reader("counts", counts.decode, (counts.encode(_COUNTS),), (ValueError,)),
    Reader(
        "alarms that stand",
        lambda data: decode_entry_as(StandingEntry, data),
        (encode_entry(StandingEntry("here/1", NOW_MS)),),
    ),
    Reader("an export", _read_export, (_exported(_EXPORT),), (ExportBroken,)),
)
BODIES = (
    Reader("the body of a job, for a worker", _read_envelope, _ENVELOPES, (BodyInvalid,)),
    Reader("a new body", lambda data: next_body(Envelope("x"), data, 1), _ENVELOPES, (ValueError,)),
    Reader("the body of a job, for people", _shown_body, (*_ENVELOPES, b'{"a":[1,"x"]}', b"plain", b"\xff\0")),
)
TARGETS = (
    target_of("stored-entries", "what servers keep in stores, in JSON", ENTRIES, changed_json),
    target_of("stored-bytes", "what servers keep in stores and files, by its bytes", BYTES, changed_bytes),
    target_of(
        "bodies",
        "bodies of jobs, which only their producers made",
        BODIES,
        changed_bytes,
        (
            b"PINLATER/1 application/json\n",
            b"PINLATER/1 application/msgpack\n",
            b'"args":',
            b'"kwargs":',
            b'"headers":{"pinlater-secret":"0"}',
            b"\x81\xa3job\xa1x",
            b"[[[[",
            b"\xdd\xff\xff\xff\xff",
            b"\xc7\x08\xff",
        ),
    ),
)
