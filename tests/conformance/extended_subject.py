"""Short ways to ask a shard about extended jobs."""

from __future__ import annotations

from typing import Any

from pinlater.backends.base import NO_RULES, ConfigEntry, EndRules, PerQueue
from pinlater.backends.extended import KeyHolder, Offer, Offered, OfferOutcome
from pinlater.model import CancelOutcome, ExtendedJob, JobInfo, KeyRef, new_version
from tests.conformance.subject import NO_BOUND, START_MS, Subject, key_of

SLOT = 17


async def offer(subject: Subject, body: bytes = b"body", *, homes_version: str = "", **fields: Any) -> Offered:
    """Offer one job; fields of Offer and of ExtendedJob."""
    (offered,) = await offer_all(subject, offer_of(body, **fields), homes_version=homes_version)
    return offered


def offer_of(body: bytes = b"body", **fields: Any) -> Offer:
    of_offer = {name: fields.pop(name) for name in tuple(fields) if name in Offer.__slots__}
    return Offer(ExtendedJob(body, **fields), **{"slot": SLOT, **of_offer})


async def offer_all(subject: Subject, *offers: Offer, homes_version: str = "") -> list[Offered]:
    return await subject.shard.enqueue_extended(subject.queue, offers, subject.now_ms, homes_version)


async def store(subject: Subject, body: bytes = b"body", **fields: Any) -> str:
    """Offer one job, which must be stored."""
    offered = await offer(subject, body, **fields)
    assert offered.outcome is OfferOutcome.STORED
    return offered.descriptor


async def newer_homes(subject: Subject) -> tuple[str, str]:
    """Two versions of the homes of keys; the store knows the second one."""
    entries = (await subject.shard.list_config(0, 10_000)).entries
    old = new_version(START_MS, next((each.version for each in entries if each.name == "@homes"), ""))
    new = new_version(START_MS, old)
    await subject.shard.put_config([ConfigEntry("@homes", new)], START_MS)
    return old, new


async def found(subject: Subject, dedupe_key: str = "", serialize_key: str = "") -> str | None:
    holder = await holder_of(subject, dedupe_key, serialize_key)
    return None if holder is None else holder.descriptor


async def holder_of(subject: Subject, dedupe_key: str = "", serialize_key: str = "") -> KeyHolder | None:
    (holder,) = await subject.shard.find_keys(subject.queue, [KeyRef(dedupe_key, serialize_key)])
    return holder


async def stop(subject: Subject, descriptor: str, by: str = "ops") -> CancelOutcome:
    """Cancel a job, also where it is in progress."""
    (outcome,) = await subject.shard.cancel(subject.queue, [key_of(descriptor)], subject.now_ms, by)
    return outcome


async def expire_jobs(subject: Subject, *, limit: int = 100, rules: EndRules = NO_RULES) -> int:
    counts = await subject.shard.expire_jobs(limit, subject.now_ms, PerQueue(rules))
    assert set(counts) <= {subject.queue}
    return counts.get(subject.queue, 0)


async def with_result(subject: Subject, descriptor: str, max_bytes: int = NO_BOUND) -> JobInfo | None:
    (info,) = await subject.shard.lookup(
        subject.queue, [key_of(descriptor)], with_body=False, max_bytes=max_bytes, with_result=True
    )
    return info


async def slots(subject: Subject) -> list[int]:
    return sorted(await subject.shard.key_slots())
