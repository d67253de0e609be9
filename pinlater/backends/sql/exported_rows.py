"""All that an SQL store holds, read as rows of an export in one transaction, which sees one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pinlater.backends.requests import StoredState
from pinlater.backends.sql.extensions import HeldKeys
from pinlater.backends.sql.records import HAS_ENTRY, IN_CHAIN, REFERENCE_BIT
from pinlater.backends.sql.session import Row, Session
from pinlater.backends.sql.successors import BEHIND_NAMES, FIRST_NAME, successor_name
from pinlater.backends.store_transfer import (
    BYTES_PER_BLOCK,
    NOT_EXPORTED,
    ROWS_PER_BLOCK,
    ChainRow,
    ConfigRow,
    ExportBlock,
    JobMore,
    KeyRow,
    KvRow,
    QuotaRow,
    ResultRow,
    blocks_of_few,
)

IN_PROGRESS, FAILED, IN_LINE = int(StoredState.IN_PROGRESS), int(StoredState.FAILED), int(StoredState.IN_LINE)


def exported_blocks(session: Session, now_ms: int) -> Iterator[ExportBlock]:
    """See StoreTransfer.blocks. What is left of deleted queues is left out."""
    session.snapshot()
    queues: dict[int, str] = {}
    made: dict[str, int] = {}
    for queue_id, name, created_at_ms in session.rows("export_queues"):
        queues[queue_id], made[name] = name, created_at_ms
    config = [ConfigRow(*row)._replace(created_at_ms=made.get(row[0])) for row in session.rows("export_config")]
    yield from blocks_of_few("config", config)
    quotas = session.rows("export_quotas")
    yield from blocks_of_few("quota", [QuotaRow(queues[row[0]], *row[1:]) for row in quotas if row[0] in queues])
    entries = session.rows("export_kv", (now_ms,))
    yield from blocks_of_few(
        "kv", [KvRow(row[0], row[1], bytes(row[2]), row[3]) for row in entries if row[0] not in NOT_EXPORTED]
    )
    yield from _jobs(session, queues)
    yield from _results(session, queues)
    yield from _keys(session, queues)
    yield from _chains(session, queues)
    yield from blocks_of_few("mark", [(bytes(name), bytes(mark)) for name, mark in session.rows("export_firings")])
    yield from _references(session)


def _ranges(session: Session, kind: str) -> Iterator[tuple[int, int]]:
    """Ranges of ids, from behind one up to another, whose bodies come to no more than a block has."""
    after = 0
    while True:
        ((count, total, last),) = session.rows(f"export_{kind}_page", (after, ROWS_PER_BLOCK))
        if not count:
            return
        if total > BYTES_PER_BLOCK:
            start, total = after, 0
            for job_id, size in session.rows(f"export_{kind}_sizes", (after, ROWS_PER_BLOCK)):
                if total and total + size > BYTES_PER_BLOCK:
                    yield start, after
                    start, total = after, 0
                total += size
                after = job_id
            after = start
        yield after, last
        after = last


def _jobs(session: Session, queues: Mapping[int, str]) -> Iterator[ExportBlock]:
    """What few jobs have is read apart: each column of a row takes its time, also where nothing is in it."""
    for ids in _ranges(session, "job"):
        links, extensions = (
            {row[0]: row[1:] for row in session.rows(f"export_{table}", ids)} for table in ("links", "extensions")
        )
        jobs = [
            _job(row, queues[row[1]], links.get(row[0], _NO_LINK), extensions.get(row[0], _NO_EXTENSION))
            for row in session.exported_jobs(ids)
            if row[1] in queues
        ]
        if jobs:
            yield ExportBlock("job", jobs)


def _job(row: Row, queue: str, link: Row, extension: Row) -> Row:
    state, expires_at_ms, body, flags, keys = row[2], row[12], row[16], row[17], row[18]
    if state == IN_LINE:
        row = (*row[:2], int(StoredState.PENDING), *row[3:])
    awaits_letter = False
    if expires_at_ms is not None and state != IN_PROGRESS:
        awaits_letter, expires_at_ms = state == FAILED, None
    more = None
    if flags is not None or awaits_letter or link is not _NO_LINK:
        more = _more(awaits_letter, flags or 0, keys, link, extension)
    return (row[0], queue, *row[2:12], expires_at_ms, *row[13:16], bytes(body), None if more == _NO_MORE else more)


_NO_LINK = (None,) * 8
_NO_EXTENSION = (None,) * 7
_NO_MORE = JobMore()


def _more(awaits_letter: bool, flags: int, held: bytes | None, link: Row, extension: Row) -> JobMore:
    keys = HeldKeys() if held is None else HeldKeys.load(bytes(held))
    origin, origin_attempts, moved_to, undelivered, its_attempts, its_run_after_ms, attempts, log = link
    timeout_ms, expires_at_ms, cancelled_by, fraction, progress, progress_at_ms, tags = extension
    return JobMore(
        awaits_letter,
        flags < 0,
        origin,
        origin_attempts,
        moved_to,
        None if undelivered is None else (undelivered, its_attempts, its_run_after_ms),
        bytes(attempts) if attempts else None,
        bytes(log) if log else None,
        *keys[:6],
        bool(keys.names or keys.serialize_key) and not flags & (HAS_ENTRY | IN_CHAIN),
        timeout_ms,
        expires_at_ms,
        cancelled_by,
        fraction,
        progress,
        progress_at_ms,
        bytes(tags) if tags else None,
        keys.group,
    )


def _results(session: Session, queues: Mapping[int, str]) -> Iterator[ExportBlock]:
    """What a result tells of a job that is gone is what a lookup of it says."""
    for ids in _ranges(session, "result"):
        results = []
        for row in session.rows("export_results", ids):
            job_id, queue_id, priority, remaining, ended_at_ms, expires_at_ms, size, result = row[:8]
            created_at_ms, run_after_ms, allowed = row[8:]
            if created_at_ms is None:
                created_at_ms = run_after_ms = job_id // 1000
                allowed = remaining
            if queue_id in queues:
                results.append(
                    ResultRow(
                        *(job_id, queues[queue_id], priority, created_at_ms, run_after_ms, ended_at_ms, allowed),
                        *(remaining, expires_at_ms, bool(size & REFERENCE_BIT), bytes(result)),
                    )
                )
        if results:
            yield ExportBlock("result", results)


def _keys(session: Session, queues: Mapping[int, str]) -> Iterator[ExportBlock]:
    """A row of a dedupe key has its successor too."""
    successors = {
        (queue_id, bytes(name)): (job_id, priority)
        for queue_id in queues
        for name, job_id, priority in session.rows("export_successors", (queue_id, FIRST_NAME, BEHIND_NAMES))
    }
    queue_id, name = 0, b""
    while rows := session.rows("export_keys", (queue_id, queue_id, name, FIRST_NAME, ROWS_PER_BLOCK)):
        queue_id, name = rows[-1][0], bytes(rows[-1][1])
        keys = [
            _key(row, queues[row[0]], successors.get((row[0], successor_name(bytes(row[1]))), (0, 0)))
            for row in rows
            if row[0] in queues
        ]
        if keys:
            yield ExportBlock("key", keys)


def _key(row: Row, queue: str, successor: tuple[int, int]) -> KeyRow:
    _, name, job_id, priority, slot, window_ms, is_send_id, outcome, until_ms, is_kept, elsewhere = row
    text = bytes(name)[1:]
    dedupe, serialize, send = b"", b"", b""
    if is_send_id:
        send = text
    else:
        length, _, both = text.partition(b":")
        serialize, dedupe = both[: int(length)], both[int(length) :]
    rest = (job_id, priority, slot, window_ms, outcome, until_ms, bool(is_kept), elsewhere)
    return KeyRow(queue, dedupe, serialize, send, *rest, *successor)


def _chains(session: Session, queues: Mapping[int, str]) -> Iterator[ExportBlock]:
    """The first job of a chain behind a barrier waits too. `slot` of a row here may be old: that of the job counts."""
    after = b""
    while rows := session.rows("export_chains", (after, ROWS_PER_BLOCK)):
        after = bytes(rows[-1][0])
        chains = []
        for key, job_id, place, queue_id, priority, slot, since_ms, barrier, waiting, held in rows:
            if queue_id in queues:
                slot = slot if held is None else HeldKeys.load(bytes(held)).slot
                chain = ChainRow(bytes(key), since_ms, "", queues[queue_id], job_id, priority, place, slot, waiting)
                chains.append(chain if not barrier else chain.behind_barrier(barrier))
        if chains:
            yield ExportBlock("chain", chains)


def _references(session: Session) -> Iterator[ExportBlock]:
    for kind, statement in (("shared", "export_shared"), ("dropped", "all_dropped_references")):
        after = b""
        while rows := session.rows(statement, (after, ROWS_PER_BLOCK)):
            after = bytes(rows[-1][0])
            yield ExportBlock(kind, [(bytes(row[0]), *row[1:]) for row in rows])
