"""All that a store holds, in rows that mean the same in every kind of store: how a shard is exported and imported.

An export is a row of blocks, in the order of `KINDS`. Stores write them down in the forms of their own; what follows
from the rest (indexes, counts) is no part of them.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from pinlater.backends.requests import StoredState
from pinlater.errors import StoreRefused
from pinlater.stored_json import read_stored

KINDS = ("config", "quota", "kv", "job", "result", "key", "chain", "mark", "shared", "dropped")

ROWS_PER_BLOCK = 2_000
BYTES_PER_BLOCK = 8 << 20
"""Of bodies and results, about: a larger one has a block of its own."""

NOT_EXPORTED = frozenset({"lease", "homes"})
"""Namespaces of what servers that run tell each other: who they are, and the lock for a change of the homes of keys."""

LEASES = "lease"

PLAIN, EXTENDED, REFERENCES, GROUPS, SUCCESSORS = 0, 1, 2, 3, 4
"""What a store has held, which its version says in each kind of store by a number of its own."""

IMPORTING, CLOSED = 1, 2
"""Marks of a store that no server opens: an import into it is not over; it was closed, to be moved."""

MARK_STEP = 1000
"""A mark stands before the three digits of the store's version, so that servers of no version of PinLater open it."""

_CLOSED_STORE = "closed"


class StoreName(NamedTuple):
    """What a store says as its id. One that is closed has another word there, with the random `token` of the closing:
    so servers that have it open take it out at their next ping.
    """

    store_id: str
    token: str = ""

    @property
    def text(self) -> str:
        return f"{_CLOSED_STORE} {self.token} {self.store_id}" if self.token else self.store_id

    @classmethod
    def of(cls, text: str) -> StoreName:
        """
        >>> StoreName.of("closed 1f 5e"), StoreName.of("5e")
        (StoreName(store_id='5e', token='1f'), StoreName(store_id='5e', token=''))
        """
        word, _, rest = text.partition(" ")
        token, _, store_id = rest.partition(" ")
        return cls(store_id, token) if word == _CLOSED_STORE else cls(text)


_NOT_OPEN = {
    IMPORTING: "an import into this store is not over: run `pinlater import` (or `pinlater shard move`) again",
    CLOSED: "this store was closed by `pinlater shard move`: use the one it was moved to, or `shard move --undo`",
}


def refuse_mark(version: int, place: str = "") -> None:
    """StoreRefused where the version says that the store is no server's to open."""
    if version // MARK_STEP in _NOT_OPEN:
        raise StoreRefused(f"{place}{_NOT_OPEN[version // MARK_STEP]}")


def refuse_closed(store_id: str, place: str = "") -> None:
    """StoreRefused where what a store says as its id is that it was closed."""
    if StoreName.of(store_id).token:
        raise StoreRefused(f"{place}{_NOT_OPEN[CLOSED]}")


class ExportBlock(NamedTuple):
    """Rows of one kind, each a tuple."""

    kind: str
    rows: Sequence[Sequence[Any]]


class ConfigRow(NamedTuple):
    """A config entry, in the order in which they came; `created_at_ms` of a queue that is there."""

    name: str
    version: str
    deleted_version: str
    text: str
    created_at_ms: int | None = None


class QuotaRow(NamedTuple):
    queue: str
    quota: int
    version: int


class KvRow(NamedTuple):
    namespace: str
    name: str
    body: bytes
    expires_at_ms: int


class ExportedJob(NamedTuple):
    """A job. `state` is a StoredState; `claim_expires_at_ms` counts in IN_PROGRESS alone; `more` is a JobMore, or None
    as of most.
    """

    id: int
    queue: str
    state: int
    priority: int
    run_after_ms: int
    attempts_allowed: int
    attempts_remaining: int
    crashes: int
    created_at_ms: int
    updated_at_ms: int
    claimed_at_ms: int | None
    claim_timeout_ms: int | None
    claim_expires_at_ms: int | None
    ended_at_ms: int | None
    claim_descriptor: str | None
    status: str
    body: bytes
    more: Sequence[Any] | None = None


class JobMore(NamedTuple):
    """What few jobs have. `awaits_letter`: it failed and is to become a dead letter; `undelivered`: how often in a row
    nobody received it, with its attempts and run_after meanwhile; `attempts` and `log` as packed_trails.py has them;
    `place`: among those of its serialize key, 0 where nobody knows; `shows_keys`: its keys count for nothing;
    `cancelled_by` is None where nobody asked, and "" where the job has had a successor as well; `tags` a line each.
    """

    awaits_letter: bool = False
    is_reference: bool = False
    origin: str | None = None
    origin_attempts: int | None = None
    moved_to: str | None = None
    undelivered: Sequence[int] | None = None
    attempts: bytes | None = None
    log: bytes | None = None
    dedupe_key: bytes = b""
    serialize_key: bytes = b""
    send_id: bytes = b""
    place: int = 0
    slot: int = 0
    dedupe_for_ms: int = 0
    shows_keys: bool = False
    own_timeout_ms: int | None = None
    expires_at_ms: int | None = None
    cancelled_by: str | None = None
    fraction: float | None = None
    progress: str | None = None
    progress_at_ms: int | None = None
    tags: bytes | None = None
    group: bytes = b""

    @property
    def has_keys(self) -> bool:
        return bool(self.dedupe_key or self.serialize_key or self.send_id)


class ResultRow(NamedTuple):
    """A result that is kept, perhaps longer than its job."""

    id: int
    queue: str
    priority: int
    created_at_ms: int
    run_after_ms: int
    ended_at_ms: int
    attempts_allowed: int
    attempts_remaining: int
    expires_at_ms: int
    is_reference: bool
    result: bytes


class KeyRow(NamedTuple):
    """The entry of a dedupe key (with its serialize key) or of a send id. `until_ms`: None while its job is live;
    `window_ms`: how long it counts behind the end; `is_kept`: the job is there; `elsewhere`: of another shard's job.
    `successor_id`: the job that waits for the live one of a dedupe key, 0: none.
    """

    queue: str
    dedupe_key: bytes
    serialize_key: bytes
    send_id: bytes
    job_id: int
    priority: int
    slot: int
    window_ms: int
    outcome: int
    until_ms: int | None
    is_kept: bool
    elsewhere: str | None
    successor_id: int = 0
    successor_priority: int = 0


class ChainRow(NamedTuple):
    """A serialize key with a live job: the first of them, but behind a barrier (a shard id) that is none. `waiting`:
    how many are WAITING.
    """

    serialize_key: bytes
    since_ms: int
    barrier: str
    queue: str
    job_id: int
    priority: int
    place: int
    slot: int
    waiting: int

    def behind_barrier(self, shard_id: str) -> ChainRow:
        """The same where the first job waits too, until its key has no jobs on that shard any more."""
        return self._replace(barrier=shard_id, queue="", job_id=0, priority=0, place=0, waiting=self.waiting + 1)


@dataclass(slots=True)
class TransferTotals:
    """What was written or read so far, by kind; jobs by queue and state as well. `last_id`: the highest one given."""

    rows: Counter[str] = field(default_factory=Counter)
    jobs: dict[str, Counter[str]] = field(default_factory=dict)
    waiting: int = 0
    last_id: int = 0

    def add(self, block: ExportBlock) -> None:
        self.rows[block.kind] += len(block.rows)
        if block.kind == "job":
            for (queue, state), count in Counter(map(_QUEUE_AND_STATE, block.rows)).items():
                self.jobs.setdefault(queue, Counter())[_STATE_NAMES[state]] += count
            self.last_id = max(self.last_id, max(map(_ID, block.rows)))
        elif block.kind == "chain":
            self.waiting += sum(row[-1] for row in block.rows)
        elif block.kind == "key":
            self.waiting += sum(_waits_alone(KeyRow(*row)) for row in block.rows)

    def check_counts(self, found: Mapping[str, Mapping[int, int]]) -> None:
        """StoreRefused where a store does not have the jobs that it took, by queue and number of their state."""
        named = {
            queue: {_STATE_NAMES[state]: count for state, count in counts.items() if count}
            for queue, counts in found.items()
        }
        expected = {queue: dict(counts) for queue, counts in self.jobs.items()}
        if {queue: counts for queue, counts in named.items() if counts} != expected:
            raise StoreRefused(f"the store has other jobs than were brought into it: {named} in place of {expected}")

    def check_chains(self) -> None:
        """StoreRefused where a job waits that no chain leads to: it would wait for ever."""
        waiting = sum(counts[_STATE_NAMES[StoredState.WAITING]] for counts in self.jobs.values())
        if waiting != self.waiting:
            raise StoreRefused(
                f"{waiting} jobs wait for others of their keys, and {self.waiting} of these are in order: "
                "was a queue deleted at this moment? Export again"
            )

    def dump(self) -> str:
        named = {"rows": self.rows, "jobs": self.jobs, "waiting": self.waiting, "last_id": self.last_id}
        return json.dumps(named)

    @classmethod
    def load(cls, text: str | bytes) -> TransferTotals:
        found = read_stored(text)
        jobs = {queue: Counter(counts) for queue, counts in found["jobs"].items()}
        return cls(Counter(found["rows"]), jobs, found["waiting"], found["last_id"])


def _waits_alone(key: KeyRow) -> bool:
    """Whether the key has a successor that waits in no chain."""
    return key.successor_id > 0 and not key.serialize_key


_ID, _QUEUE_AND_STATE = itemgetter(0), itemgetter(1, 2)
_STATE_NAMES = {int(state): state.name for state in StoredState}


@dataclass(slots=True)
class ImportState:
    """How far an import has come, as the store has it: of which export, how many blocks, and what they held."""

    export_id: str
    blocks: int = 0
    totals: TransferTotals = field(default_factory=TransferTotals)

    def dump(self) -> bytes:
        return json.dumps({"export": self.export_id, "blocks": self.blocks, "totals": self.totals.dump()}).encode()

    @classmethod
    def load(cls, text: bytes) -> ImportState:
        found = read_stored(text)
        return cls(found["export"], found["blocks"], TransferTotals.load(found["totals"]))


class StoreFacts(NamedTuple):
    """What a store says of itself. `level`: what it has held; `mark`: IMPORTING, CLOSED or 0; `servers`: the leases of
    server processes that live, as far as this shard knows; `is_empty`: there is no job, and no queue; `token`: of the
    closing, where it is closed.
    """

    shard_id: str
    store_id: str
    level: int
    mark: int
    last_id: int
    servers: Sequence[str]
    is_empty: bool
    token: str


class StoreTransfer(ABC):
    """The export and import of one open shard. The shard is opened with `opens_marked`."""

    is_snapshot: bool
    """Whether `blocks` shows one and the same moment also while servers work on the store."""

    @abstractmethod
    async def facts(self, now_ms: int) -> StoreFacts:
        """What the store says of itself now."""

    @abstractmethod
    async def job_count(self) -> int:
        """About how many jobs there are."""

    @abstractmethod
    def blocks(self, now_ms: int) -> AsyncGenerator[ExportBlock, None]:
        """All that the store holds, in the same blocks each time where nothing has changed. It has to be closed before
        the shard is.
        """

    @abstractmethod
    async def dumped_state(self) -> bytes | None:
        """The dumped state of an import that is not over."""

    async def state(self) -> ImportState | None:
        """How far an import has come that is not over."""
        found = await self.dumped_state()
        return None if found is None else ImportState.load(found)

    async def begin(self, export_id: str) -> ImportState:
        """Mark the store as one that takes an import, and remove what it has."""
        state = ImportState(export_id)
        await self.put_first_state(state.dump())
        return state

    @abstractmethod
    async def put_first_state(self, state: bytes) -> None:
        """Mark the store as IMPORTING, remove what it has, and keep this state, in this order."""

    @abstractmethod
    async def load(self, block: ExportBlock, state: bytes, now_ms: int) -> None:
        """Take one block, and the dumped state behind it, in one step."""

    @abstractmethod
    async def finish(self, state: ImportState, store_id: str, level: int, last_id: int) -> None:
        """Open the store to servers, under this store id."""

    @abstractmethod
    async def set_mark(self, mark: int, token: str = "") -> None:
        """Give the store this mark (0: none), and `token` to what it says as its id."""

    async def close_store(self, token: str) -> None:
        """Mark the store as closed."""
        await self.set_mark(CLOSED, token)

    async def reopen_store(self) -> None:
        """Take back `close_store`, wherever that came to."""
        await self.set_mark(0)

    @abstractmethod
    async def clear(self) -> None:
        """Remove all that PinLater has in the store."""


def store_facts(
    shard_id: str,
    store_name: str,
    version: int,
    versions: Mapping[int, int],
    *,
    last_id: int,
    servers: Iterable[str],
    is_empty: bool,
) -> StoreFacts:
    """What a store says of itself, where its levels have these versions."""
    mark, version = divmod(version, MARK_STEP)
    name = StoreName.of(store_name)
    level = next(level for level, number in versions.items() if number == version)
    return StoreFacts(shard_id, name.store_id, level, mark, last_id, sorted(servers), is_empty, name.token)


def blocks_of_few(kind: str, rows: Sequence[Sequence[Any]]) -> Iterator[ExportBlock]:
    """All rows of a kind of which there are few."""
    for start in range(0, len(rows), ROWS_PER_BLOCK):
        yield ExportBlock(kind, rows[start : start + ROWS_PER_BLOCK])


def transfer_of(shard: Any) -> StoreTransfer:
    """The transfer of an open shard. StoreRefused: its kind of store has none."""
    made = getattr(shard, "transfer", None)
    if made is None:
        raise StoreRefused(
            "a store of this kind is neither exported nor imported: back it up with its own tools (DynamoDB: "
            "point-in-time recovery), and empty it by `pinlater shard drain`"
        )
    found = made()
    assert isinstance(found, StoreTransfer)
    return found
