"""Items as DynamoDB writes them, the keys of the table, and where each kind of item lies.

    pk                          sk                      what
    jQID#PRIORITY#BUCKET        ID                      a job
    kBUCKET                     QID#dKEYS               a dedupe key
                                QID#sSEND-ID            a send id
                                QID#rID                 a result
                                QID#xPRIORITY#ID        the expiry of a job
    cBUCKET                     SERIALIZE-KEY           a serialize key with live jobs
    wSERIALIZE-KEY              PLACE                   a job that waits for another of its key
    b                           SERIALIZE-KEY           a barrier
    fBUCKET                     SCHEDULE                the mark of a schedule
    zBUCKET                     REFERENCE               a reference to a body, and how many hold it
    aKIND, aKIND#QID            END#PARTITION           a mark of the agenda: see agenda.py
    nNAME                       -                       the id of a queue
    qQID                        -                       its name and priorities
                                gNUMBER                 a guard: it goes with the queue
                                quota                   its quota
    g                           QID                     a queue that is gone, and may have left something
    C                           NAME                    a configuration entry
    h                           NUMBER                  the version of the homes of keys, several times
    vNAMESPACE                  NAME                    a key-value entry
    vv                          NAMESPACE               how many there are
    tQUEUE                      -                       a token bucket
    m                           identity, ids, revision the store's own

A QID is the number of one life of a queue: one that is deleted and made again has another.

Two local indexes order the items of a partition: ORDER by the attribute `o`, DUE by `e`; one without it is not there.
"""

from __future__ import annotations

import base64
from typing import Any, NamedTuple
from zlib import crc32

Item = dict[str, Any]
"""An item in Python's own types: text, int, float, bool, bytes, lists of these, sets of int."""

Written = dict[str, Any]
"""An item as DynamoDB writes it."""

ORDER, DUE = "order", "due"
ORDER_KEY, DUE_KEY = "o", "e"
INDEXES = {ORDER: ORDER_KEY, DUE: DUE_KEY}
PROJECTED = ("n", "x", "to", "ra")
"""What the indexes hold beside keys: of a job the length of its body, its expiry, its own time-out, its run_after."""

MARK = "v"
"""The attribute that another value takes in each write."""

LAST = "\U0010ffff"
"""Behind all that may follow in a key."""


class ItemKey(NamedTuple):
    pk: str
    sk: str = "-"


def write_value(value: Any) -> Any:
    kind = type(value)
    if value is None:
        return {"NULL": True}
    if kind is str:
        return {"S": value}
    if kind is bool:
        return {"BOOL": value}
    if kind is bytes:
        return {"B": base64.b64encode(value).decode("ascii")}
    if kind is list or kind is tuple:
        return {"L": [write_value(each) for each in value]}
    if kind is set:
        return {"NS": [str(each) for each in sorted(value)]}
    if isinstance(value, bytes):
        return {"B": base64.b64encode(value).decode("ascii")}
    return {"N": repr(value) if kind is float else str(int(value))}


def read_value(written: Any) -> Any:
    ((kind, value),) = written.items()
    if kind in ("S", "BOOL"):
        return value
    if kind == "N":
        return int(value) if value.lstrip("-").isdecimal() else float(value)
    if kind == "B":
        return base64.b64decode(value)
    if kind == "L":
        return [read_value(each) for each in value]
    if kind == "NS":
        return {int(each) for each in value}
    return None


def write_item(item: Item) -> Written:
    return {name: write_value(value) for name, value in item.items()}


def read_item(written: Written) -> Item:
    return {name: read_value(value) for name, value in written.items()}


def write_key(key: ItemKey) -> Written:
    return {"pk": {"S": key.pk}, "sk": {"S": key.sk}}


# -- where things lie ----------------------------------------------------------------------------------------------


def at(time_ms: int) -> str:
    """A time in a key: all of one length, so that their texts are in the order of their times."""
    return f"{time_ms:016d}"


class ItemPlaces:
    """The keys of a table with so many buckets."""

    def __init__(self, buckets: int) -> None:
        self.buckets = buckets

    def spread(self, text: str) -> int:
        return crc32(text.encode()) % self.buckets

    def partition(self, qid: str, priority: int, bucket: int) -> str:
        return f"j{qid}#{priority}#{bucket}"

    def partitions(self, qid: str, priority: int) -> list[str]:
        return [self.partition(qid, priority, bucket) for bucket in range(self.buckets)]

    def bucket_of(self, job_id: int) -> int:
        return (job_id * 2_654_435_761 >> 12) % self.buckets

    def job(self, qid: str, priority: int, job_id: int) -> ItemKey:
        return ItemKey(self.partition(qid, priority, self.bucket_of(job_id)), str(job_id))

    def all_of(self, kind: str) -> list[str]:
        return [f"{kind}{bucket}" for bucket in range(self.buckets)]

    def _keyed(self, name: str) -> ItemKey:
        return ItemKey(f"k{self.spread(name)}", name)

    def dedupe(self, qid: str, dedupe_key: str, serialize_key: str) -> ItemKey:
        """The length keeps the two apart."""
        return self._keyed(f"{qid}#d{len(serialize_key)}:{serialize_key}{dedupe_key}")

    def send(self, qid: str, send_id: str) -> ItemKey:
        return self._keyed(f"{qid}#s{send_id}")

    def result(self, qid: str, job_id: int) -> ItemKey:
        return self._keyed(f"{qid}#r{job_id}")

    def expiry(self, qid: str, priority: int, job_id: int) -> ItemKey:
        return self._keyed(f"{qid}#x{priority}#{job_id}")

    def chain(self, serialize_key: str) -> ItemKey:
        return ItemKey(f"c{self.spread(serialize_key)}", serialize_key)

    def waiting(self, serialize_key: str, place: int) -> ItemKey:
        return ItemKey(f"w{serialize_key}", at(place))

    def barrier(self, serialize_key: str) -> ItemKey:
        return ItemKey("b", serialize_key)

    def firing(self, schedule: str) -> ItemKey:
        return ItemKey(f"f{self.spread(schedule)}", schedule)

    def reference(self, reference: bytes) -> ItemKey:
        name = reference.hex()
        return ItemKey(f"z{self.spread(name)}", name)


def qid_of(partition: str) -> str:
    """Whose jobs lie there."""
    return partition[1:].partition("#")[0]


def priority_of(partition: str) -> int:
    return int(partition.split("#")[1])
