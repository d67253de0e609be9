"""The limits of what few jobs have: keys, expiries, time-outs of their own, send ids. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import lru_cache

from pinlater import job_limits
from pinlater.errors import RequestInvalid
from pinlater.model import (
    CONTROL_CHAR,
    MAX_GROUP_BYTES,
    MAX_KEY_BYTES,
    MAX_SEND_ID_BYTES,
    MAX_TAG_BYTES,
    MAX_TAGS,
    WHILE_KEPT,
    ExtendedJob,
    Job,
    KeyRef,
    OnDuplicate,
    ReplaceRunning,
)

MAX_DEDUPE_FOR_MS = MAX_REPLACE_WITHIN_MS = 3_650 * 86_400_000
_KEEP, _REPLACE, _REJECT = OnDuplicate.KEEP, OnDuplicate.REPLACE, OnDuplicate.REJECT  # looking a member up is a call
_KEEP_RUNNING = ReplaceRunning.KEEP
_PLAIN_FIELDS = tuple(each.name for each in fields(Job))


def extended_jobs(jobs: Sequence[Job], max_claim_timeout_ms: int) -> list[ExtendedJob]:
    """The jobs of one request as the stores get them; those without anything of this kind too. RequestInvalid.

    The jobs that share a send id get one of their own each, `SEND_ID/PLACE`.
    """
    checked = [_checked(job if type(job) is ExtendedJob else _extended(job), max_claim_timeout_ms) for job in jobs]
    if len(checked) > 1:
        _refuse_unsafe(checked)
    places: defaultdict[str, int] = defaultdict(int)
    for index, job in enumerate(checked):
        if job.send_id:
            checked[index] = replace(job, send_id=f"{job.send_id}/{places[job.send_id]}")
            places[job.send_id] += 1
    return checked


def _extended(job: Job) -> ExtendedJob:
    if isinstance(job, ExtendedJob):
        return job
    return ExtendedJob(**{name: getattr(job, name) for name in _PLAIN_FIELDS})


def _checked(job: ExtendedJob, max_claim_timeout_ms: int) -> ExtendedJob:
    if job.dedupe_key:
        key_text("dedupeKey", job.dedupe_key)
    elif job.on_duplicate is not _KEEP:
        raise RequestInvalid.of("onDuplicate", job.on_duplicate.name, "KEEP, of a job without a dedupeKey")
    if job.replace_running is not _KEEP_RUNNING or job.replace_within_ms is not None:
        _check_replace_rules(job)
    if job.serialize_key:
        key_text("serializeKey", job.serialize_key)
    if job.send_id:
        _text("sendId", job.send_id, MAX_SEND_ID_BYTES)
    if not WHILE_KEPT <= job.dedupe_for_ms <= MAX_DEDUPE_FOR_MS:
        raise RequestInvalid.of("dedupeForMillis", job.dedupe_for_ms, f"-1 to {MAX_DEDUPE_FOR_MS}")
    if job.tags:
        read_tags(job.tags)
    if job.group:
        read_group(job.group)
    timeout_ms, expires_at_ms = job.claim_timeout_ms, job.expires_at_ms
    if timeout_ms is None and expires_at_ms is None:
        return job
    if timeout_ms is not None:
        timeout_ms = min(timeout_ms, max_claim_timeout_ms) if timeout_ms > 0 else None
    expires_at_ms = job_limits.run_at("expiresAtMillis", expires_at_ms)
    if timeout_ms == job.claim_timeout_ms and expires_at_ms == job.expires_at_ms:
        return job
    return replace(job, claim_timeout_ms=timeout_ms, expires_at_ms=expires_at_ms)


def _check_replace_rules(job: ExtendedJob) -> None:
    if job.on_duplicate is not _REPLACE:
        given = "replaceWithinMillis" if job.replace_running is _KEEP_RUNNING else "replaceRunning"
        allowed = f"REPLACE, with a dedupeKey, where {given} is given"
        raise RequestInvalid.of("onDuplicate", job.on_duplicate.name, allowed)
    within_ms = job.replace_within_ms
    if within_ms is not None and not 1 <= within_ms <= MAX_REPLACE_WITHIN_MS:
        raise RequestInvalid.of("replaceWithinMillis", within_ms, f"1 to {MAX_REPLACE_WITHIN_MS}")


def _refuse_unsafe(jobs: Sequence[ExtendedJob]) -> None:
    """Several jobs may be stored in part where they have several homes: sending them again must then be safe."""
    if _REJECT in [job.on_duplicate for job in jobs]:
        raise RequestInvalid.of("onDuplicate", OnDuplicate.REJECT.name, "REJECT in a request of one job only")
    if "" not in [job.dedupe_key or job.send_id for job in jobs]:
        return
    homes = {job.serialize_key or (job.dedupe_key, job.send_id) for job in jobs}
    if len(homes) > 1:
        without = next(index for index, job in enumerate(jobs) if not (job.dedupe_key or job.send_id))
        allowed = "one, or a sendId, for each job, where those of a request do not all have the same keys, or none"
        raise RequestInvalid.of(f"dedupeKey of job {without + 1}", "", allowed)


def key_text(field: str, key: str) -> None:
    """A key that a caller may give to a job."""
    _text(field, key, MAX_KEY_BYTES)
    if is_of_server(key):
        allowed = "a text without @ in front; those are the keys of jobs that servers make, as of flows and schedules"
        raise RequestInvalid.of(field, key, allowed)


def is_of_server(key: str | None) -> bool:
    """A key that only servers give to jobs: of items and callbacks of flows, of firings of schedules. No version has
    let a caller give one.

    >>> is_of_server("@flow/7"), is_of_server("flow@7"), is_of_server(None)
    (True, False, False)
    """
    return key is not None and key.startswith("@")


def read_keys(keys: Sequence[KeyRef]) -> None:
    """Keys that name jobs to be looked at. RequestInvalid."""
    for key in keys:
        if not any(key):
            raise RequestInvalid.of("a key", tuple(key), "a dedupeKey, a serializeKey, or both")
        for field, text in zip(("dedupeKey", "serializeKey"), key, strict=True):
            if text:
                _text(field, text, MAX_KEY_BYTES)


def changed_keys(keys: Sequence[KeyRef]) -> None:
    """Keys that name jobs to be changed: each has a dedupe key, and none is the server's. RequestInvalid."""
    for key in keys:
        if not key.dedupe_key:
            raise RequestInvalid.of("a key", tuple(key), "a dedupeKey")
        for field, text in zip(("dedupeKey", "serializeKey"), key, strict=True):
            if text:
                key_text(field, text)


def read_tags(tags: Sequence[str], field: str = "tags") -> None:
    """Tags that a job gets, or by which jobs are found. RequestInvalid."""
    if len(tags) > MAX_TAGS:
        raise RequestInvalid.of(f"the length of {field}", len(tags), f"at most {MAX_TAGS}: leave some out")
    for tag in tags:
        _plain_text(f"a tag of {field}", tag, MAX_TAG_BYTES)
    if len(set(tags)) < len(tags):
        twice = next(tag for place, tag in enumerate(tags) if tag in tags[:place])
        raise RequestInvalid.of(field, twice, "each tag once")


@lru_cache(maxsize=1024)
def read_group(group: str) -> None:
    """A group that a job gets. RequestInvalid. Jobs of a batch have few of them; a refused one is not kept."""
    _plain_text("group", group, MAX_GROUP_BYTES)


def _plain_text(field: str, text: str, max_bytes: int) -> None:
    _text(field, text, max_bytes)
    if CONTROL_CHAR.search(text):
        raise RequestInvalid.of(field, text, "a text without control characters, as a line break is one")


def _text(field: str, text: str, max_bytes: int) -> None:
    try:
        length = len(text if text.isascii() else text.encode())
    except UnicodeEncodeError:
        length = 0
    if not 1 <= length <= max_bytes:
        raise RequestInvalid.of(field, text, f"1 to {max_bytes} bytes of UTF-8")
