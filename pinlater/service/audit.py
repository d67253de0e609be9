"""The audit: who changed what, and when. Every change by an operator is noted on all shards, and read from all that
answer.

An entry is written after the change, and never fails it: one that no shard took stands in the log in full. What was
refused is noted too, apart from the changes.
"""

from __future__ import annotations

import asyncio
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

    async def drain(self) -> None:
        """Until all is written."""
        await self._writing.drain()

    async def read(self, limit: int, before_ms: int | None) -> list[AuditEntry]:
        """Up to `limit` entries of before a time, the latest first, from the shards that answer."""
        self._members.require_any()
        now_ms = self._clock.now_ms()
        bodies: dict[str, bytes] = {}
        for kind, _ in (PROTECTED, OPEN, REFUSED):
            found = await ask_all(self._members.healthy(), methodcaller("kv_list", kind, now_ms))
            bodies |= {name: each.body for entries in answers(found) for name, each in entries.items()}
        entries: list[AuditEntry] = []
        for name in sorted(bodies, reverse=True):
            entry = _entry(bodies[name])
            if before_ms is None or entry.at_ms < before_ms:
                entries.append(entry)
            if len(entries) == limit:
                break
        return entries


def _entry(body: bytes) -> AuditEntry:
    """What another version of a server added is left out."""
    told: dict[str, Any] = json.loads(body)
    texts = {key: str(told.get(key, "")) for key in ("who", "action", "target", "detail", "server")}
    return AuditEntry(at_ms=int(told.get("at_ms", 0)), **texts)
