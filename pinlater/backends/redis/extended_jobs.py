"""The commands on extended jobs: keys, chains, expiry, ends that somebody waits for, and the homes of keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from struct import Struct, pack
from typing import Any

from pinlater.backends.base import EndRules, JobKey, PerQueue
from pinlater.backends.extended import (
    Barrier,
    BlockedChain,
    HeartbeatAnswer,
    HeartbeatRequest,
    KeyHolder,
    KeyWindow,
    Offer,
    Offered,
    OfferOutcome,
    RescheduleRequest,
)
from pinlater.backends.key_windows import WindowText
from pinlater.backends.redis.claim_ends import PLACEHOLDER
from pinlater.backends.redis.key_records import (
    CHAIN_HEAD,
    EXTRA,
    GROUPED,
    KEY_AT,
    KEY_ENTRY,
    OFFER,
    PROGRESS,
    REPLACE_RULES,
    TAG_BYTES,
    TAGGED,
    successor_of,
)
from pinlater.backends.redis.pubsub import PubSub, announcement
from pinlater.backends.redis.records import HEAD, ID, TIERED, Args, first_of_chain, listed_values, named
from pinlater.backends.redis.scripts import ScriptCaller, lowest_id
from pinlater.backends.redis.trail_records import with_log
from pinlater.errors import HomesChanged
from pinlater.model import (
    MAX_KEY_BYTES,
    MAX_STATUS_CHARS,
    HeartbeatOutcome,
    KeyRef,
    OnDuplicate,
    RescheduleOutcome,
    descriptor_prefix,
)
from pinlater.model.body_reference import BodyReference
from pinlater.model.status_text import job_expired_status

_IF_KNOWN, _TAKES_NO_JOBS, _HAS_RULES = 1, 2, 4
_REPLACE = OnDuplicate.REPLACE  # looking a member up is a call
_NO_ID = bytes(ID.size)
_UNTIL_DIGITS = 16
_OUTCOMES = tuple(OfferOutcome)
_PENDING_NOW = 8
"""The number that is added to the outcome of a job that this step made PENDING."""

_STORED = OfferOutcome.STORED
_MOST_ALIKE = 2_000
"""Jobs whose keys a script looks for in one call each."""

_KEY_LENGTHS = [b"d%03d" % length for length in range(MAX_KEY_BYTES + 1)]
_OFFER_WITH_EXTRA = Struct(OFFER.format + EXTRA.format.removeprefix(">"))


class ExtendedCommands(PubSub):
    async def enqueue_extended(
        self, queue: str, offers: Sequence[Offer], now_ms: int, homes_version: str = ""
    ) -> list[Offered]:
        is_deferred = self.defers(queue, [offer.job for offer in offers], now_ms)
        publisher = b"" if is_deferred else self._store.publisher_id
        args: Args = [queue, now_ms, lowest_id(now_ms)]
        grouped = None if homes_version else _grouped_args(offers, now_ms)
        if grouped is not None:
            script, jobs = "enqueue_grouped", [offer.job for offer in offers]
            args += (announcement(publisher, jobs, now_ms) if publisher else b"", *grouped)
        else:
            script, special = "enqueue_extended", list[Offer]()
            args += (publisher, homes_version, len(offers))
            for offer in offers:
                args += _offer_args(offer, now_ms, special)
            if not special:
                args += _all_new_args(offers, now_ms)
        try:
            answer = await self._store.call_queue(script, queue, args)
        except BaseException:
            if is_deferred:  # they may be stored
                self.publish(queue, len(offers))
            raise
        if answer == 0:
            raise HomesChanged.of_store()
        offered = self._offered(queue, offers, answer, now_ms)
        if is_deferred:
            self.deferred.defer(queue, [each.descriptor for each in offered if each.ready_at_ms is not None])
        return offered

    def _offered(self, queue: str, offers: Sequence[Offer], answer: Any, now_ms: int) -> list[Offered]:
        if isinstance(answer, bytes):
            return _all_new(queue, self.shard_id, offers, int(answer), now_ms)
        codes, ids, priorities, elsewhere, nearer = answer
        others = {place - 1: descriptor.decode() for place, descriptor in elsewhere}
        nearer_ms = {place - 1: int(run_after_ms) for place, run_after_ms in nearer}
        offered, shard, at = [], self.shard_id, 0
        for place, code in enumerate(codes):
            job_id = ids[at : at + ID.size]
            at += ID.size
            if job_id == _NO_ID:
                offered.append(Offered(_OUTCOMES[code], others.get(place, "")))
                continue
            ready_at_ms = None
            if code >= _PENDING_NOW:
                ready_at_ms = nearer_ms.get(place, offers[place].job.run_after_ms)
                ready_at_ms = now_ms if ready_at_ms is None else ready_at_ms
            outcome = _OUTCOMES[code % _PENDING_NOW]
            offered.append(Offered(outcome, named(queue, shard, priorities[place], job_id), ready_at_ms))
        return offered

    async def find_keys(self, queue: str, keys: Sequence[KeyRef]) -> list[KeyHolder | None]:
        names = [dedupe_name(key.dedupe_key, key.serialize_key) for key in keys if key.dedupe_key]
        chains = [key.serialize_key for key in keys if not key.dedupe_key]
        answer = await self._store.call_queue("find_keys", queue, [len(names), *names, *chains])
        entries, heads = iter(answer[: len(names)]), iter(answer[len(names) :])
        return [
            _holder(next(entries), queue, self.shard_id) if key.dedupe_key else _first(next(heads), self.shard_id)
            for key in keys
        ]

    async def heartbeat(self, queue: str, heartbeats: Sequence[HeartbeatRequest], now_ms: int) -> list[HeartbeatAnswer]:
        args: Args = [queue, now_ms]
        for each in heartbeats:
            parts = (each.fraction is not None) + 2 * (each.text is not None)
            fraction = -1.0 if each.fraction is None else each.fraction
            progress = PROGRESS.pack(fraction, now_ms) + (each.text or "").encode() if parts else b""
            if each.log_lines:
                progress, parts = with_log(progress, each.log_lines), parts + 4
            args += (each.priority, ID.pack(each.id), each.claim_descriptor, progress, parts)
        return [
            HeartbeatAnswer(HeartbeatOutcome.CANCEL, answer.decode())
            if isinstance(answer, bytes)
            else HeartbeatAnswer(HeartbeatOutcome.OK if answer else HeartbeatOutcome.LOST)
            for answer in await self._store.call_queue("heartbeat", queue, args)
        ]

    async def reschedule(
        self, queue: str, requests: Sequence[RescheduleRequest], now_ms: int
    ) -> list[RescheduleOutcome]:
        args: Args = [queue, now_ms]
        for each in requests:
            args += (each.priority, ID.pack(each.id), *map(_or_nothing, (each.run_after_ms, each.attempts_allowed)))
            kind = 0 if each.body is None else 2 if type(each.body) is BodyReference else 1
            args += (_or_nothing(each.only_if_updated_at_ms), kind, each.body or b"")
        codes: bytes = await self._store.call_queue("reschedule", queue, args)
        return [RescheduleOutcome(int(chr(code))) for code in codes]

    async def taken_keys(self, queue: str, jobs: Sequence[JobKey]) -> list[str | None]:
        args: Args = []
        for priority, job_id in jobs:
            args += (priority, ID.pack(job_id))
        found: list[str | None] = []
        for taken in await self._store.call_queue("taken_keys", queue, args):
            found.append(named_by(taken[1], taken[0].decode() or queue, self.shard_id) if taken else None)
        return found

    async def expire_jobs(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, int]:
        words = job_expired_status(now_ms, PLACEHOLDER).split(str(PLACEHOLDER))
        args: Args = [limit, now_ms, *words, int(rules.default.dead_letters)]
        for queue, own in rules.of.items():
            args += (queue, int(own.dead_letters))
        parts = iter(await self._store.call("expire_jobs", *args))
        return {queue.decode(): count for queue, count in zip(parts, parts, strict=True)}

    async def blocked_chains(self, limit: int, now_ms: int) -> list[BlockedChain]:
        """See KeyStore.blocked_chains. Chains behind a barrier have no first job, and are left out."""
        chains = []
        parts = iter(await self._store.call("blocked_chains", limit))
        for key, head, waiting in zip(parts, parts, parts, strict=True):
            first = first_of_chain(head or b"", self.shard_id)
            if first is not None:
                chains.append(BlockedChain(key.decode(), first, int(waiting), CHAIN_HEAD.unpack_from(head)[0]))
        return chains

    async def last_firings(self, schedules: Sequence[str]) -> list[str | None]:
        marks = await self._store.call("last_firings", *schedules)
        return [mark.decode() if mark else None for mark in marks]

    async def raise_marks(self, marks: Mapping[str, str]) -> None:
        await self._store.call("raise_marks", *[text for each in marks.items() for text in each])


class KeyHomes(ScriptCaller):
    async def key_slots(self) -> Sequence[int]:
        return [int(slot) for slot in await self._store.call("key_slots")]

    async def list_windows(self, limit: int, after: str, now_ms: int) -> list[KeyWindow]:
        """Their names begin with the time when they end to count, so that they are in the order of the index."""
        windows: list[KeyWindow] = []
        until, place = after[:_UNTIL_DIGITS], after[_UNTIL_DIGITS:]
        while True:
            from_place: tuple[Any, ...] = (int(until), place) if until else ("", "")
            flat = await self._store.call("list_windows", limit - len(windows), *from_place)
            parts = iter(flat)
            for member, until_ms, entry in zip(parts, parts, parts, strict=True):
                until, place = f"{int(until_ms):0{_UNTIL_DIGITS}}", member.decode()
                if entry and int(until_ms) > now_ms and KEY_ENTRY.unpack_from(entry, ID.size)[0] == int(until_ms):
                    windows.append(self._window(until, place, entry))
            if not flat or len(windows) >= limit:
                return windows

    def _window(self, until: str, place: str, entry: bytes) -> KeyWindow:
        queue, _, name = place.partition(":")
        _, slot, _, outcome = KEY_ENTRY.unpack_from(entry, ID.size)
        descriptor = named_by(entry, queue, self.shard_id) or ""
        if name[0] == "i":
            text = WindowText(queue, descriptor, send_id=name[1:], outcome=outcome)
        else:
            raw = name.encode()
            end = KEY_AT + int(raw[1:KEY_AT])
            text = WindowText(queue, descriptor, raw[end:].decode(), raw[KEY_AT:end].decode())
        return KeyWindow(until + place, slot, int(until), text.dump())

    async def put_windows(self, windows: Sequence[KeyWindow], now_ms: int) -> None:
        args: Args = [now_ms]
        for window in windows:
            if window.until_ms > now_ms:
                text = WindowText.load(window.text)
                entry = (
                    _NO_ID + KEY_ENTRY.pack(window.until_ms, window.slot, 0, text.outcome) + text.descriptor.encode()
                )
                args += (text.queue, _entry_name(text), window.until_ms, window.slot, entry)
        await self._store.call("put_windows", *args)

    async def drop_windows(self, windows: Sequence[KeyWindow]) -> None:
        args: Args = []
        for window in windows:
            text = WindowText.load(window.text)
            args += (text.queue, _entry_name(text), window.until_ms)
        await self._store.call("drop_windows", *args)

    async def has_chains(self, serialize_keys: Sequence[str]) -> list[bool]:
        return [code == ord("1") for code in await self._store.call("has_chains", *serialize_keys)]

    async def list_barriers(self, limit: int) -> list[Barrier]:
        parts = iter(await self._store.call("list_barriers", limit))
        return [Barrier(key.decode(), shard_id.decode()) for key, shard_id in zip(parts, parts, strict=True)]

    async def lift_barriers(self, barriers: Sequence[Barrier], now_ms: int) -> Mapping[str, Sequence[int]]:
        args: Args = [now_ms]
        for barrier in barriers:
            args += barrier
        parts = iter(await self._store.call("lift_barriers", *args))
        return {queue.decode(): [int(time_ms) for time_ms in times] for queue, times in zip(parts, parts, strict=True)}


def named_by(entry: bytes, queue: str, shard: str) -> str | None:
    """The descriptor of the job that an entry of BASE:keys names."""
    if not entry:
        return None
    if entry[: ID.size] == _NO_ID:
        return entry[ID.size + KEY_ENTRY.size :].decode()
    _, _, priority, _ = KEY_ENTRY.unpack_from(entry, ID.size)
    return named(queue, shard, priority, entry[: ID.size])


def _holder(entry: bytes, queue: str, shard: str) -> KeyHolder | None:
    """The job that an entry of BASE:keys names, with its successor."""
    descriptor = named_by(entry, queue, shard)
    if descriptor is None:
        return None
    job_id, priority = successor_of(entry)
    return KeyHolder(descriptor, named(queue, shard, priority, ID.pack(job_id)) if job_id else "")


def _first(head: bytes, shard: str) -> KeyHolder | None:
    descriptor = first_of_chain(head, shard)
    return None if descriptor is None else KeyHolder(descriptor)


def dedupe_name(dedupe_key: str, serialize_key: str) -> str:
    """What an entry of BASE:keys is called (_extra.lua)."""
    return f"d{len(serialize_key.encode()):03}{serialize_key}{dedupe_key}"


def _entry_name(text: WindowText) -> str:
    return f"i{text.send_id}" if text.send_id else dedupe_name(text.dedupe_key, text.serialize_key)


def _or_nothing(value: int | None) -> int | str:
    return "" if value is None else value


def _all_new(queue: str, shard: str, offers: Sequence[Offer], first: int, now_ms: int) -> list[Offered]:
    """The answer as it is most often: all are stored, and none waits for another."""
    job = offers[0].job
    ready_at_ms = now_ms if job.run_after_ms is None else job.run_after_ms
    prefix = descriptor_prefix(queue, shard, job.priority)
    return [Offered(_STORED, f"{prefix}{job_id}", ready_at_ms) for job_id in range(first, first + len(offers))]


def _grouped_args(offers: Sequence[Offer], now_ms: int) -> Args | None:
    """What enqueue_grouped.lua takes, where the jobs have a group and nothing else that few jobs have, and one priority
    and time; else None.
    """
    if not offers:
        return None
    priority, numbers, which = offers[0].job.priority, dict[str, int](), list[int]()
    for offer in offers:
        job = offer.job
        if (
            not job.group
            or job.priority != priority
            or job.dedupe_key
            or job.serialize_key
            or job.send_id
            or job.tags
            or job.claim_timeout_ms is not None
            or job.expires_at_ms is not None
            or job.dedupe_for_ms
            or offer.only_if_known
            or offer.schedule
        ):
            return None
        which.append(numbers.setdefault(job.group, len(numbers)))
    (_, _, run_after), values = listed_values([offer.job for offer in offers], priority, now_ms)
    if run_after == b"":
        return None
    references = [type(offer.job.body) for offer in offers].count(BodyReference)
    extra = EXTRA.pack(0, 0, 0, 0, priority, GROUPED, 0, 0, 0, 0) + _KEY_LENGTHS[0] + b"i"
    names = [group.encode() for group in numbers]
    about = [text for name in names for text in (name, extra + bytes([len(name)]) + name)]
    return [priority, run_after, references, len(names), *about, pack(f">{len(which)}H", *which), *values]


def _all_new_args(offers: Sequence[Offer], now_ms: int) -> Args:
    """What `all_new` of enqueue_extended.lua takes, where the jobs are alike; else nothing."""
    if not 1 <= len(offers) <= _MOST_ALIKE:
        return []
    first = offers[0].job
    priority, run_after_ms, has_group = first.priority, first.run_after_ms, first.group != ""
    names: list[bytes] = []
    keys: list[str] = []
    for offer in offers:
        job = offer.job
        if (
            job.priority != priority
            or job.run_after_ms != run_after_ms
            or job.send_id
            or job.tags
            or job.expires_at_ms is not None
            or (job.group != "") != has_group
        ):
            return []
        if job.dedupe_key:
            serialize_key = job.serialize_key.encode()
            names.append(_KEY_LENGTHS[len(serialize_key)] + serialize_key + job.dedupe_key.encode())
        if job.serialize_key:
            keys.append(job.serialize_key)
    for listed in (names, keys):
        if listed and len(set(listed)) < len(offers):
            return []
    kinds = (len(names) + len(keys)) // len(offers)
    slots = Counter([offer.slot for offer in offers]) if kinds else {}
    head: Args = [priority, now_ms if run_after_ms is None else run_after_ms, len(names), len(keys), len(slots)]
    references = [type(offer.job.body) for offer in offers].count(BodyReference)
    more = [references] if references else []
    return [*head, *names, *keys, *slots, *[amount * kinds for amount in slots.values()], *more]


def _rules(offer: Offer) -> bytes:
    """REPLACE_RULES of an offer, and what follows them."""
    job, by = offer.job, offer.by.encode()
    return REPLACE_RULES.pack(job.replace_within_ms or 0, job.replace_running, len(by)) + by


def _offer_args(offer: Offer, now_ms: int, special: list[Offer]) -> tuple[bytes, bytes]:
    """What is offered with what the job has beside others, and what BASE:jobs gets of it. `special` gets an offer that
    says more than what to store.
    """
    job = offer.job
    dedupe_key, serialize_key, send_id = job.dedupe_key.encode(), job.serialize_key.encode(), job.send_id.encode()
    group = job.group
    flags = (TAGGED if job.tags else 0) + (GROUPED if group else 0)
    behind = schedule = mark = rules = b""
    options, on_duplicate = 0, job.on_duplicate
    if offer.only_if_known or offer.takes_no_jobs or offer.behind or offer.schedule:
        options = _IF_KNOWN * offer.only_if_known + _TAKES_NO_JOBS * offer.takes_no_jobs
        behind, schedule = offer.behind.encode(), offer.schedule.encode()
        mark = offer.mark.encode() if schedule else b""
        special.append(offer)
    if on_duplicate is _REPLACE and (job.replace_running or job.replace_within_ms is not None):
        options, rules = options + _HAS_RULES, _rules(offer)
        special.append(offer)
    about = _OFFER_WITH_EXTRA.pack(
        now_ms if job.run_after_ms is None else job.run_after_ms,
        on_duplicate,
        options,
        len(behind),
        len(schedule),
        len(mark),
        job.claim_timeout_ms or 0,
        job.expires_at_ms or 0,
        job.dedupe_for_ms,
        offer.slot,
        job.priority,
        flags,
        len(dedupe_key),
        len(serialize_key),
        len(send_id),
        0,
    )
    if behind or schedule or rules:
        about = about[: OFFER.size] + behind + schedule + mark + rules + about[OFFER.size :]
    status = job.custom_status[:MAX_STATUS_CHARS].encode()
    level = job.priority + TIERED if type(job.body) is BodyReference else job.priority
    value = HEAD.pack(now_ms, job.attempts_allowed, level, len(status)) + status + job.body
    about += _KEY_LENGTHS[len(serialize_key)] + serialize_key + dedupe_key + b"i" + send_id
    if group:
        text = group.encode()
        about += bytes([len(text)]) + text
    if job.tags:
        tags = "\n".join(job.tags).encode()
        about += tags + TAG_BYTES.pack(len(tags))
    return about, value
