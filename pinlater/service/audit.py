"""The audit of changes: author, change and time. Every change by an operator is noted on all shards, and read from all
that answer.

An entry is written after the change, and never fails it: one that no shard took stands in the log in full. What was
refused is noted too, apart from the changes. The latest entries of each identity are kept a second time, under its own
name: one that fills the audit takes the place of its own entries there, and of nobody else's.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from dataclasses import asdict
from operator import methodcaller
from typing import Any, NamedTuple

import structlog

from pinlater.background_tasks import BackgroundTasks
from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.model import AuditEntry
from pinlater.shards.handle import answers, ask_all
from pinlater.shards.shard_set import ShardSet
from pinlater.stored_json import read_stored

_log = structlog.get_logger("pinlater.audit")


class Part(NamedTuple):
    """Some of the entries, with a bound of their own, so that no flood of one part takes the place of another."""

    kind: str
    keep: int


PROTECTED = Part("audit", 10_000)
"""Changes that need the admin password; in stores of before, all changes."""

OPEN = Part("audit-open", 10_000)
"""Changes that every caller may make."""

REFUSED = Part("audit-refused", 1_000)

EACH_KEEPS = 200
"""Entries of one identity that no other one can take the place of."""

_IDENTITIES = Part("audit-identities", 500)
"""The identities that have such entries, by the end of their kinds."""

_NOTED_FOR_MS = 86_400_000
"""The time for which a process does not store again that an identity has entries."""

_KINDS_AT_ONCE = 16

_KEEP_MS = 90 * 86_400_000
_MAX_DETAIL_CHARS = 2_000
_PATIENCE_S = 0.5
"""How long a change waits for its entry to be written; what takes longer goes on by itself."""


class Audit:
    """The record of all changes by operators, and of refused ones. `server` is the name of this one."""

    def __init__(self, members: ShardSet, clock: Clock, server: str) -> None:
        self._members = members
        self._clock = clock
        self._server = server
        self._last_micros = 0
        self._writing = BackgroundTasks()
        self._noted_ms: dict[str, int] = {}
        """The identities of which this process has said that they have entries, and when."""

    async def write(self, who: str, action: str, target: str, detail: str = "", *, part: Part) -> None:
        """Record a change that was made. Raises nothing."""
        entry = AuditEntry(self._clock.now_ms(), who, action, target, detail[:_MAX_DETAIL_CHARS], self._server)
        _log.info("change", **asdict(entry))
        await asyncio.wait([self._begin(entry, part)], timeout=_PATIENCE_S)

    def refused(self, who: str, action: str, target: str, detail: str = "") -> None:
        """Record what somebody tried and was not allowed. It is written later."""
        entry = AuditEntry(self._clock.now_ms(), who, action, target, detail[:_MAX_DETAIL_CHARS], self._server)
        _log.warning("refused", **asdict(entry))
        self._begin(entry, REFUSED)

    def _begin(self, entry: AuditEntry, part: Part) -> asyncio.Task[None]:
        return self._writing.start(self._write(self._name(entry.at_ms), entry, part))

    def _name(self, at_ms: int) -> str:
        """Later entries of this process have higher names, also within one millisecond."""
        self._last_micros = max(at_ms * 1000, self._last_micros + 1)
        return f"{self._last_micros:016d}-{secrets.token_hex(4)}"

    async def _write(self, name: str, entry: AuditEntry, part: Part) -> None:
        body = json.dumps(asdict(entry)).encode()
        expires_ms = entry.at_ms + _KEEP_MS
        outcomes = await ask_all(
            self._members.healthy(),
            lambda shard: shard.kv_put(part.kind, name, body, expires_ms, entry.at_ms, keep=part.keep),
        )
        if all(isinstance(outcome, PinLaterError) for outcome in outcomes):
            reasons = [outcome.message for outcome in outcomes if isinstance(outcome, PinLaterError)]
            _log.error("change_not_recorded", reasons=reasons, **asdict(entry))
        identity = _identity(entry.who)
        if identity:
            await self._write_own(identity, name, body, expires_ms, entry.at_ms, part)

    async def _write_own(self, identity: str, name: str, body: bytes, expires_ms: int, at_ms: int, part: Part) -> None:
        """The entry once more, among those of its identity. A shard that is away has the one for all, if at all."""
        of_identity = hashlib.sha256(identity.encode()).hexdigest()[:16]
        if at_ms - self._noted_ms.get(of_identity, at_ms - _NOTED_FOR_MS) >= _NOTED_FOR_MS:
            if len(self._noted_ms) >= _IDENTITIES.keep:
                self._noted_ms.clear()
            self._noted_ms[of_identity] = at_ms
            await ask_all(
                self._members.healthy(),
                lambda shard: shard.kv_put(
                    _IDENTITIES.kind,
                    of_identity,
                    identity.encode()[:200],
                    expires_ms + _NOTED_FOR_MS,
                    at_ms,
                    keep=_IDENTITIES.keep,
                ),
            )
        kind = _own_kind(part, of_identity)
        await ask_all(
            self._members.healthy(),
            lambda shard: shard.kv_put(kind, name, body, expires_ms, at_ms, keep=EACH_KEEPS),
        )

    async def drain(self) -> None:
        """Wait until all entries are written."""
        await self._writing.drain()

    async def read(self, limit: int, before_ms: int | None) -> list[AuditEntry]:
        """Up to `limit` entries of before a time, the latest first, from the shards that answer."""
        self._members.require_any()
        now_ms = self._clock.now_ms()
        identities = await self._read_kind(_IDENTITIES.kind, now_ms)
        parts = (PROTECTED, OPEN, REFUSED)
        kinds = [part.kind for part in parts]
        kinds += [_own_kind(part, of_identity) for of_identity in identities for part in parts]
        bodies: dict[str, bytes] = {}
        for start in range(0, len(kinds), _KINDS_AT_ONCE):
            some = kinds[start : start + _KINDS_AT_ONCE]
            for found in await asyncio.gather(*[self._read_kind(kind, now_ms) for kind in some]):
                bodies |= found
        entries: list[AuditEntry] = []
        for name in sorted(bodies, reverse=True):
            entry = _entry(bodies[name])
            if entry is None:
                continue
            if before_ms is None or entry.at_ms < before_ms:
                entries.append(entry)
            if len(entries) == limit:
                break
        return entries

    async def _read_kind(self, kind: str, now_ms: int) -> dict[str, bytes]:
        """Its entries by name, from the shards that answer."""
        found = await ask_all(self._members.healthy(), methodcaller("kv_list", kind, now_ms))
        return {name: each.body for entries in answers(found) for name, each in entries.items()}


def _identity(who: str) -> str:
    """That which a caller has proved, as an entry has it in front of what the caller calls itself; "" for none.

    >>> _identity("token:web (me)"), _identity("cert:web.example (token:boss)"), _identity("me (token:boss)")
    ('token:web', 'cert:web.example', '')
    """
    identity, is_proved, _ = who.partition(" (")
    return identity if is_proved and identity.startswith(("token:", "cert:")) else ""


def _own_kind(part: Part, of_identity: str) -> str:
    return f"{part.kind}:{of_identity}"


def _entry(body: bytes) -> AuditEntry | None:
    """The entry that this text holds; fields that another version of a server added are left out. None: it has
    another form.
    """
    try:
        fields: dict[str, Any] = read_stored(body)
        texts = {key: str(fields.get(key, "")) for key in ("who", "action", "target", "detail", "server")}
        return AuditEntry(at_ms=int(fields.get("at_ms", 0)), **texts)
    except (ValueError, TypeError, AttributeError):
        return None
