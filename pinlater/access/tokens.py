"""The tokens of the cluster as one process knows them: entries `@token/NAME` that all shards agree on, each with the
hash of a token. A token that is made or revoked counts in every process when that has read it, twice a second.

A token is 32 random bytes, so a plain hash keeps it: nobody can try them all.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from operator import methodcaller

import structlog

from pinlater.backends.base import ConfigEntry
from pinlater.clock import Clock
from pinlater.errors import PinLaterError, RequestInvalid
from pinlater.model import MAX_TIME_MS, TokenView
from pinlater.model.callers import MAX_ROLES, MAX_TOKENS, TOKEN_NAME_ALLOWED, is_role_name, is_token_name
from pinlater.queues.directory import ChangeResult, QueueDirectory
from pinlater.shards.handle import answers, ask_all
from pinlater.shards.shard_set import ShardSet
from pinlater.stored_json import read_stored

_log = structlog.get_logger("pinlater.access")

TOKEN_PREFIX = "@token/"
USE_KNOWN_WITHIN_MS = 600_000
"""How long after its use a token may be shown as not used since."""

LOOK_AGAIN_S = 0.2
_USES = "token-use"
_KEEP_USES_MS = 400 * 86_400_000
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)


def token_hash(token: str) -> str:
    """What is kept of a token."""
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token as of one version."""

    name: str
    hash: str
    roles: tuple[str, ...]
    made_by: str = ""
    made_at_ms: int = 0
    expires_ms: int | None = None

    def text(self) -> str:
        """The text of its entry."""
        record = {"hash": self.hash, "roles": list(self.roles), "by": self.made_by, "at": self.made_at_ms}
        return json.dumps(record | ({} if self.expires_ms is None else {"expires": self.expires_ms}))


def read_token(entry: ConfigEntry | None) -> TokenRecord | None:
    """The record of an entry; None where there is none, or it cannot be read, which is logged."""
    if entry is None or entry.is_deleted:
        return None
    name = entry.name.removeprefix(TOKEN_PREFIX)
    try:
        record = read_stored(entry.text)
        expires = record.get("expires")
        return TokenRecord(
            name,
            str(record["hash"]),
            tuple(map(str, record["roles"])),
            str(record["by"]),
            int(record["at"]),
            None if expires is None else int(expires),
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        _log.warning("token_not_understood", token=name, error=type(error).__name__)
        return None


class TokenBook:
    """The tokens of one process. `on_change` is called when some came, went or changed."""

    def __init__(
        self,
        directory: QueueDirectory,
        members: ShardSet,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._directory = directory
        self._members = members
        self._clock = clock
        self._monotonic = monotonic
        self._refreshed_s = -LOOK_AGAIN_S
        self._records: dict[str, TokenRecord] = {}
        self._by_hash: dict[str, TokenRecord] = {}
        self._used_ms: dict[str, int] = {}
        """When each was used last in this process, for those that were."""
        self._published_ms: dict[str, int] = {}
        directory.on_records(TOKEN_PREFIX, self._on_records)

    def __len__(self) -> int:
        return len(self._records)

    def find(self, hash: str) -> TokenRecord | None:
        """The token of that hash; it may have ended."""
        return self._by_hash.get(hash)

    def named(self, name: str) -> TokenRecord | None:
        """It may have ended."""
        return self._records.get(name)

    async def look_again(self) -> bool:
        """For a token that is not known: it may have been made at another server a moment ago. Whether it was looked,
        which is at most a few times a second, however many ask. Raises nothing.
        """
        now_s = self._monotonic()
        if now_s - self._refreshed_s < LOOK_AGAIN_S:
            return False
        self._refreshed_s = now_s
        return await self._directory.refresh()

    def used(self, hash: str, now_ms: int) -> None:
        """The token of that hash was shown."""
        record = self._by_hash.get(hash)
        if record is not None:
            self._used_ms[record.name] = now_ms

    def _on_records(self, entries: Iterable[ConfigEntry]) -> None:
        for entry in entries:
            name = entry.name.removeprefix(TOKEN_PREFIX)
            before = self._records.pop(name, None)
            if before is not None and self._by_hash.get(before.hash) is before:
                del self._by_hash[before.hash]
            record = read_token(entry)
            if record is not None:
                self._records[name] = self._by_hash[record.hash] = record
        self.on_change()

    async def change(self, new: TokenRecord, *, replace: bool, owner: str = "") -> ChangeResult:
        """`owner`: whose it is, if it is new. RequestInvalid, LimitReached, NoHealthyShards."""
        _check(new, self._clock.now_ms())
        if len(self._records) >= MAX_TOKENS and new.name not in self._records:
            raise RequestInvalid.of("the number of tokens", len(self._records) + 1, f"at most {MAX_TOKENS}")

        def update(before: ConfigEntry | None) -> str | None:
            had = read_token(before)
            if had is not None and had.hash == new.hash and had.roles == new.roles and had.expires_ms == new.expires_ms:
                return None
            if had is not None and not replace:
                raise RequestInvalid.of("name", new.name, "one of no token yet, or replace, which revokes that one")
            other = self._by_hash.get(new.hash)
            if other is not None and other.name != new.name:
                raise RequestInvalid.of("tokenHash", "that", f"another one: the token {other.name} has it")
            return new.text()

        return await self._directory.change_record(TOKEN_PREFIX + new.name, update, new.made_by, owner)

    async def delete(self, name: str, who: str) -> ChangeResult:
        """One that is not there is no error. RequestInvalid, NoHealthyShards."""
        if not is_token_name(name):
            raise RequestInvalid.of("name", name, TOKEN_NAME_ALLOWED)
        return await self._directory.change_record(
            TOKEN_PREFIX + name, lambda before: None if before is None or before.is_deleted else "", who
        )

    async def views(self) -> list[TokenView]:
        """All, by name, as operators see them."""
        await self._directory.refresh()
        used_ms = await self._uses()
        return [
            TokenView(
                each.name, list(each.roles), each.made_by, each.made_at_ms, each.expires_ms, used_ms.get(each.name)
            )
            for _, each in sorted(self._records.items())
        ]

    async def _uses(self) -> dict[str, int]:
        now_ms = self._clock.now_ms()
        found = await ask_all(self._members.healthy(), methodcaller("kv_list", _USES, now_ms))
        used_ms = dict(self._used_ms)
        for entries in answers(found):
            for name, each in entries.items():
                used_ms[name] = max(used_ms.get(name, 0), int(each.body))
        made_at_ms = {name: each.made_at_ms for name, each in self._records.items()}
        return {name: at_ms for name, at_ms in used_ms.items() if at_ms >= made_at_ms.get(name, at_ms + 1)}

    async def note_uses(self) -> None:
        """To be called now and then: tells the shards which tokens were used, each at most once in ten minutes. Raises
        nothing.
        """
        published_ms = self._published_ms
        due = {
            name: used_ms
            for name, used_ms in self._used_ms.items()
            if name not in published_ms or used_ms >= published_ms[name] + USE_KNOWN_WITHIN_MS
        }
        for name, used_ms in due.items():
            outcomes = await ask_all(
                self._members.healthy(),
                methodcaller("kv_put", _USES, name, b"%d" % used_ms, used_ms + _KEEP_USES_MS, used_ms),
            )
            if not all(isinstance(outcome, PinLaterError) for outcome in outcomes):
                published_ms[name] = used_ms
        for name in self._used_ms.keys() - self._records.keys():
            self._used_ms.pop(name, None)
            published_ms.pop(name, None)


def _check(new: TokenRecord, now_ms: int) -> None:
    if not is_token_name(new.name):
        raise RequestInvalid.of("name", new.name, TOKEN_NAME_ALLOWED)
    if _HASH.fullmatch(new.hash) is None:
        raise RequestInvalid.of("tokenHash", "what it is", "the SHA-256 of the token, as 64 digits 0-9 a-f")
    if not 1 <= len(new.roles) <= MAX_ROLES or not all(map(is_role_name, new.roles)):
        raise RequestInvalid.of("roles", list(new.roles), f"1 to {MAX_ROLES} names of letters, digits, _ and -")
    if new.expires_ms is not None and not now_ms < new.expires_ms <= MAX_TIME_MS:
        raise RequestInvalid.of("expiresAtMillis", new.expires_ms, "a time that is yet to come, in milliseconds")
