"""The columns of a job, each list named once, the statements they stand in, and rows <-> the objects of the model.

A statement of a .sql file begins with a line `-- name: NAME`; other comments are dropped, and `{new_job}` and the like
are filled in from the lists here. A new field of a job is a column in the two schemas with its upgrade, a name in these
lists, and a line where rows are made and read below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files

from pinlater.backends.group_rules import GROUP_RULES_PREFIX
from pinlater.backends.requests import LIVE_STATES, STORED_STATES, StoredState
from pinlater.backends.sql.schema_version import (
    EXTENDED_VERSION,
    GROUPS_VERSION,
    REFERENCES_VERSION,
    SCHEMA_VERSION,
    SUCCESSORS_VERSION,
)
from pinlater.backends.sql.session import NewJob, Row, Session
from pinlater.model import MAX_STATUS_CHARS, MAX_TIME_MS, DequeuedJob, Job, JobInfo, descriptor_prefix
from pinlater.model.body_reference import BodyReference, body_length

NEW_JOB = (
    *("id", "queue_id", "state", "priority", "run_after_ms", "attempts_allowed", "attempts_remaining"),
    *("created_at_ms", "updated_at_ms", "custom_status", "body_bytes", "body"),
)
"""What a row has when it comes in; `new_jobs` makes the values, but for the state, which is PENDING."""

OWN_TIMEOUT, EXPIRES, HAS_ENTRY, IN_CHAIN, STOPPING, SHOWN, HAS_WINDOW, TIERED = 1, 2, 4, 8, 16, 32, 64, -128
"""The bits of a job's `extended`: what it has in other tables, so that nobody looks there in vain. A claim time-out of
its own; an expiry; a dedupe key or a send id; a serialize key; a request to stop, a successor or the place of one
(successors.py), or of a job that ended a row in `pinlater_cancelled`; something to show (progress, or the
keys of a dead letter, tags, a group); an entry that counts beyond the job's end; a reference in place of its body, the
sign of the column's byte. NULL: nothing, as of nearly all jobs.

All bits are taken. HAS_WINDOW without HAS_ENTRY says that there are tags: with HAS_ENTRY what a job has is read at its
removal in any case.
"""

REFERENCE_BIT = 1 << 31
"""In the size of a result: it is a reference, and the rest is the size of what it refers to."""

WAITING, CANCELLED, REPLAYED = int(StoredState.WAITING), int(StoredState.CANCELLED), int(StoredState.REPLAYED)
IN_LINE = int(StoredState.IN_LINE)
"""Plain numbers, as all that is given to a driver."""

STATES_OF = {state: tuple(map(int, stored)) for state, stored in STORED_STATES.items()}
LIVE = tuple(map(int, LIVE_STATES))
STATE_SHOWN = {state: shown for shown, states in STATES_OF.items() for state in states}

CANDIDATE = (
    *("id", "priority", "run_after_ms", "attempts_allowed", "attempts_remaining", "created_at_ms", "extended"),
    "body_bytes",
    "CASE WHEN body_bytes <= 4096 AND (extended IS NULL OR extended >= 0) THEN body END",
)
"""What a claim hands out; `dequeued_jobs` reads it. A large body is read only once it is known to be handed out, and so
is a reference, which is for `bodies` to tell.
"""

IN_PROGRESS = ("id", "priority", "attempts_remaining", "crashes", "claim_descriptor", "extended")
"""What ends a claim looks at these, and at one or two more."""

INFO = (
    *("id", "state", "priority", "attempts_allowed", "attempts_remaining", "custom_status", "created_at_ms"),
    *("run_after_ms", "updated_at_ms", "claim_descriptor", "claimed_at_ms"),
    *("CASE WHEN state = 1 THEN claim_expires_at_ms END", "finished_at_ms", "crashes", "body_bytes"),
    *("origin", "moved_to", "extended"),
)
"""All that is known of a job; `job_info` reads it."""

TRAIL = ("id", "state", "run_after_ms", "claimed_at_ms", "finished_at_ms", "claim_descriptor", "attempts")
"""What tells the attempts of a job; trails.py reads it."""

CLAIM = ("claim_descriptor", "claimed_at_ms", "claim_timeout_ms", "claim_expires_at_ms")
"""What a job has that is under a claim, and loses with it."""

DEAD_LETTER_PENDING_MS = 1 << 60
"""The claim expiry of a FAILED job that waits to become a dead letter: later than any time there is.

It should be a column of its own. It stays in this one because servers of the version before use the same tables during
a rolling upgrade. Whatever takes the job out of FAILED clears it, so a mark never outlives what it is for, and a job
that is not marked pays nothing. FAILED with a `claim_expires_at_ms` that is not NULL is this mark, so `INFO` shows an
expiry in IN_PROGRESS alone.
"""

_NEW_NUMBER = {"sqlite.sql": "?", "mysql.sql": "%d", "postgres.sql": "%s"}
_NEW_TEXT = {"sqlite.sql": "?", "mysql.sql": "%%s", "postgres.sql": "%s"}
"""Placeholders in the row of a new job. For MySQL Python writes the numbers: that the driver looks at each value costs
10 us a job.
"""

_BOUND = {"sqlite.sql": "?", "mysql.sql": "%s", "postgres.sql": "%s"}
_WITH_HISTORY = {
    "sqlite.sql": "prepend_status(custom_status, ?)",
    "mysql.sql": "LEFT(CONCAT(%s, custom_status), 5000)",
    "postgres.sql": "pinlater_prepend(custom_status, %s)",
}
"""The status of a copy, behind a line of history."""

EXTENSION = (
    *("job.id", "job.queue_id", "job.job_keys", "extension.claim_timeout_ms", "extension.expires_at_ms"),
    *("extension.cancelled_by", "extension.fraction", "extension.progress", "extension.progress_at_ms"),
    "extension.tags",
)
LIVE_KEY_ENTRY = ("queue_id", "name", "job_id", "priority", "slot", "window_ms", "is_send_id", "outcome")
KEY_ENTRY = (*LIVE_KEY_ENTRY, "until_ms", "remove_at_ms", "elsewhere")

EXPORTED_NUMBERS = (
    *("id", "queue_id", "state", "priority", "run_after_ms", "attempts_allowed", "attempts_remaining", "crashes"),
    *("created_at_ms", "updated_at_ms"),
)
EXPORTED_REST = (*CLAIM[1:], "finished_at_ms", CLAIM[0], "custom_status", "body", "extended", "job_keys")
"""All that `pinlater_jobs` has of a job; exported_rows.py reads it."""

IMPORTED_JOB = (*EXPORTED_NUMBERS, *(EXPORTED_REST[:6]), "body_bytes", *EXPORTED_REST[6:])
"""The same with the size of its body; imported_rows.py makes the values."""

QUEUE_STORAGE = (
    *(
        "autovacuum_vacuum_scale_factor = 0.02",
        "autovacuum_vacuum_threshold = 5000",
        "autovacuum_vacuum_cost_delay = 0",
    ),
    *("autovacuum_vacuum_insert_scale_factor = 0.2", "autovacuum_analyze_scale_factor = 0.1"),
)
"""How PostgreSQL keeps a table whose rows change a few times and go: dead rows go soon, and at full speed."""

_COLUMNS = {
    "extension": ", ".join(EXTENSION),
    "key_entry": ", ".join(KEY_ENTRY),
    "live_key_entry": ", ".join(LIVE_KEY_ENTRY),
    "forever": str(MAX_TIME_MS),
    "exported_numbers": ", ".join(EXPORTED_NUMBERS),
    "exported_rest": ", ".join(EXPORTED_REST),
    "imported_job": ", ".join(IMPORTED_JOB),
    "new_job": ", ".join(NEW_JOB),
    "stored_job": ", ".join([column for column in NEW_JOB if column != "state"]),
    "candidate": ", ".join(CANDIDATE),
    "in_progress": ", ".join(IN_PROGRESS),
    "info": ", ".join(INFO),
    "trail": ", ".join(TRAIL),
    "no_claim": ", ".join([f"{column} = NULL" for column in CLAIM]),
    "dead_letter_pending_ms": str(DEAD_LETTER_PENDING_MS),
    "queue_storage": ", ".join(QUEUE_STORAGE),
    "schema_version": str(SCHEMA_VERSION),
    "extended_version": str(EXTENDED_VERSION),
    "references_version": str(REFERENCES_VERSION),
    "groups_version": str(GROUPS_VERSION),
    "successors_version": str(SUCCESSORS_VERSION),
}
_MARK = "-- name: "


def load_statements(file_name: str) -> Mapping[str, str]:
    """The statements of one dialect, by name, without comments, with their columns in place: those of common.sql, and
    its own, which come in their stead where the names are alike.
    """
    found: dict[str, list[str]] = {}
    common, own = (files(__package__).joinpath(each).read_text(encoding="utf-8") for each in ("common.sql", file_name))
    name, text = "", common.replace("?", _BOUND[file_name]) + own
    for place, columns in (_COLUMNS | _rows(file_name)).items():
        text = text.replace(f"{{{place}}}", columns)
    for line in text.splitlines():
        if line.startswith(_MARK):
            name = line.removeprefix(_MARK).strip()
            found[name] = []
        elif name:
            found[name].append(line.partition("--")[0].rstrip())
    return {name: "\n".join(filter(None, lines)) for name, lines in found.items()}


def _rows(file_name: str) -> dict[str, str]:
    """The values of a new job, and of a copy, which has of its own what is named here, and the rest of the original."""
    new_text, bound = _NEW_TEXT[file_name], _BOUND[file_name]
    new = {"state": "0", "custom_status": new_text, "body": new_text}
    number = _NEW_NUMBER[file_name]
    extended = {"job_keys": bound, "custom_status": new_text, "body": new_text}
    new_extended = ("job_keys", "extended", *NEW_JOB)
    own = ("id", "queue_id", "run_after_ms", "attempts_allowed", "attempts_remaining", "created_at_ms", "updated_at_ms")
    copied = dict.fromkeys(own, bound) | {"state": "0", "custom_status": _WITH_HISTORY[file_name]}
    return {
        "new_job_row": f"({', '.join([new.get(column, number) for column in NEW_JOB])})",
        "new_extended_job_row": f"({', '.join([extended.get(column, number) for column in new_extended])})",
        "copied_job": ", ".join([copied.get(column, column) for column in NEW_JOB]),
        "group_rules_version": _GROUP_RULES_VERSION.format(_GROUP_RULES_NAME[file_name]),
    }


_GROUP_RULES_NAME = dict.fromkeys(("sqlite.sql", "postgres.sql"), f"'{GROUP_RULES_PREFIX}' || queue.name") | {
    "mysql.sql": f"CONCAT('{GROUP_RULES_PREFIX}', queue.name)"
}
_GROUP_RULES_VERSION = """(SELECT COALESCE((SELECT rules.version FROM pinlater_records rules
    WHERE rules.name = {} AND rules.version >
        COALESCE((SELECT deleted_version FROM pinlater_records WHERE pinlater_records.name = queue.name), '')), '')
    FROM pinlater_virtual_times turns WHERE turns.queue_id = queue.id LIMIT 1)"""
"""Of what an earlier queue of the name had for rules nothing counts."""


def parts(statement: str) -> list[str]:
    """The single statements of a script, which are parted by a semicolon at the end of a line."""
    return [part for part in (text.strip() for text in f"{statement}\n".split(";\n")) if part]


def tables_of(schema: str) -> list[str]:
    """The names of the tables that a script makes."""
    return re.findall(r"^CREATE TABLE IF NOT EXISTS (\w+)", schema, re.MULTILINE)


class Descriptors(dict[int, str]):
    """What stands before the ids in the descriptors of one queue, by priority."""

    def __init__(self, queue: str, shard_id: str) -> None:
        self._queue = queue
        self._shard_id = shard_id

    def __missing__(self, priority: int) -> str:
        prefix = self[priority] = descriptor_prefix(self._queue, self._shard_id, priority)
        return prefix

    def of(self, priority: int, job_id: int) -> str:
        return f"{self[priority]}{job_id}"


def new_jobs(jobs: Sequence[Job], queue_id: int, first_id: int, now_ms: int) -> list[NewJob]:
    """A row per job, with ids from `first_id` on."""
    return [
        (
            job_id,
            queue_id,
            job.priority,
            now_ms if job.run_after_ms is None else job.run_after_ms,
            job.attempts_allowed,
            job.attempts_allowed,
            now_ms,
            now_ms,
            job.custom_status[:MAX_STATUS_CHARS],
            len(job.body),
            job.body,
        )
        for job_id, job in enumerate(jobs, first_id)
    ]


def new_extended_job(
    job: Job, keys: bytes | None, flags: int, state: int, queue_id: int, job_id: int, now_ms: int
) -> NewJob:
    """The row of a job with keys, as `new_jobs` makes one, with the keys and `extended` in front, and its state."""
    return (
        keys,
        flags,
        job_id,
        queue_id,
        state,
        job.priority,
        now_ms if job.run_after_ms is None else job.run_after_ms,
        job.attempts_allowed,
        job.attempts_allowed,
        now_ms,
        now_ms,
        job.custom_status[:MAX_STATUS_CHARS],
        body_length(job.body),
        job.body,
    )


def dequeued_jobs(
    rows: Iterable[Row],
    large: Mapping[int, bytes],
    descriptors: Descriptors,
    claim: str,
    expires_at_ms: int,
    new: type[DequeuedJob] = DequeuedJob,
) -> list[DequeuedJob]:
    """The jobs of these rows of `candidates`; `large` has, by id, the bodies that were too large to come with them."""
    return [
        new(
            f"{descriptors[priority]}{job_id}",
            large[job_id] if body is None else body,
            priority,
            allowed,
            remaining,
            run_after_ms,
            created_at_ms,
            claim,
            expires_at_ms,
        )
        for job_id, priority, run_after_ms, allowed, remaining, created_at_ms, _, _, body in rows
    ]


def job_info(row: Row, descriptors: Descriptors, body: bytes | None) -> JobInfo:
    """The description of a job, from its row of `infos`."""
    job_id, state = row[:2]
    info = JobInfo(descriptors.of(row[2], job_id), STATE_SHOWN[state], *row[2:14])
    info.date_last_change()
    info.body = body
    info.origin, info.moved_to = row[15:17]
    if state == CANCELLED:
        info.cancelled = True
    if state == REPLAYED:
        info.moved_to, info.replayed_to = None, info.moved_to
    return info


def bodies(session: Session, ids: Sequence[int]) -> dict[int, bytes]:
    """The bodies of these jobs."""
    return {
        job_id: BodyReference(body) if extended and extended < 0 else bytes(body)
        for job_id, body, extended in session.rows_of("bodies", (), sorted(ids))
    }


def how_many_fit(sizes: Iterable[int], max_bytes: int) -> int:
    """How many of the first come to no more than `max_bytes`; the first one always does.

    >>> how_many_fit([9, 1, 1], 10), how_many_fit([11, 1], 10), how_many_fit([], 10)
    (2, 1, 0)
    """
    fitting = total = 0
    for size in sizes:
        total += size
        if total > max_bytes and fitting:
            break
        fitting += 1
    return fitting
