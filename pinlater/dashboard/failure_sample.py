"""The reason and the type of a failed job, from its status and its body, and how long jobs waited and ran. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pinlater.dashboard import duration_buckets
from pinlater.dashboard.queue_record import MAX_WORD_CHARS, OTHER, QueueRecord, add_words
from pinlater.job_body import describe_body
from pinlater.job_filters.filter_fields import SERVER_ERRORS
from pinlater.model import JobInfo, JobState

_WITHOUT_END = set(SERVER_ERRORS)
"""These were not ended by their worker, so how long they ran says nothing."""

_ATTEMPT = re.compile(
    r"""^(?:
        attempt\ \d+(?:\ of\ \d+)?:\ (?P<type>[A-Za-z_][\w.<>]*)(?=[:,;]|\ [\[(]|$)
      | (?P<plain>[A-Za-z_][\w.]*(?:Error|Exception|Failure|Timeout))(?=:|$)
      | \[(?P<server>claim\ expired|claim\ released|failed:\ crash\ budget|failed:\ EXPIRED)
    )""",
    re.MULTILINE | re.VERBOSE,
)
"""A line of the worker framework, one of a program's own that names its exception, or one of the server."""

_OF_SERVER = {begin: name for name, begin in SERVER_ERRORS.items()}


def reason_of(status: str) -> str:
    """By the last line that tells of a failure.

    >>> reason_of("attempt 1 of 2: KeyError: 'a' [..]\\nattempt 2 of 2: mail.Refused (mail.py:4 in send) [..]\\n  File")
    'mail.Refused'
    >>> reason_of("[claim expired at 5, attempts remaining 0]\\n"), reason_of("it did not work"), reason_of("")
    ('claim expired', 'other', 'other')
    """
    lines = list(_ATTEMPT.finditer(status))
    if not lines:
        return OTHER
    found = lines[-1]
    if found["server"]:
        return _OF_SERVER[found["server"]]
    return str(found["type"] or found["plain"])[:MAX_WORD_CHARS]


def error_lines(status: str) -> dict[str, str]:
    r"""The kinds of error that a status tells of, each with the last line that does.

    >>> error_lines("attempt 1 of 2: KeyError: 'a'\nattempt 2 of 2: KeyError: 'b'\n  File\n[claim expired at 5, x]")
    {'KeyError': "attempt 2 of 2: KeyError: 'b'", 'claim expired': '[claim expired at 5, x]'}
    """
    found = {}
    for line in _ATTEMPT.finditer(status):
        name = _OF_SERVER[line["server"]] if line["server"] else str(line["type"] or line["plain"])[:MAX_WORD_CHARS]
        found[name] = status[line.start() :].partition("\n")[0]
    return found


def type_of(body: bytes | None) -> str:
    """As the envelope of the worker framework says; other bodies have none.

    >>> type_of(b'PINLATER/1 application/json\\n{"job": "resize"}'), type_of(b"plain"), type_of(None)
    ('resize', 'other', 'other')
    """
    described = None if body is None else describe_body(body)
    return OTHER if described is None or not described.job else described.job[:MAX_WORD_CHARS]


def sample_of(jobs: Iterable[JobInfo], types: Mapping[str, str]) -> QueueRecord:
    """What these jobs say, as a record that has a sample alone. `types`: by descriptor, where a body was read."""
    record = QueueRecord()
    waits, runs = [], []
    for job in jobs:
        reason = ""
        if job.state is JobState.FAILED and not job.cancelled:
            reason = reason_of(job.custom_status)
            record.sampled += 1
            add_words(record.reasons, {reason: 1})
            if job.descriptor in types:
                add_words(record.types, {types[job.descriptor]: 1})
        if job.claimed_at_ms is not None:
            waits.append(max(0, job.claimed_at_ms - max(job.run_after_ms, job.created_at_ms)))
            if job.finished_at_ms is not None and reason not in _WITHOUT_END:
                runs.append(max(0, job.finished_at_ms - job.claimed_at_ms))
    record.waits, record.runs = duration_buckets.buckets_of(waits), duration_buckets.buckets_of(runs)
    return record
