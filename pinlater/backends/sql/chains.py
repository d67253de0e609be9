"""The jobs of a serialize key, in the order of their places: the first may be handed out, the others wait.

A place is an id, given out when the job came in or came back. Whoever changes the jobs of a key has locked the row of
its chain; rows of chains are locked in the order of their keys.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pinlater.backends.extended import Barrier, BlockedChain
from pinlater.backends.sql.session import Row, Session
from pinlater.model import descriptor_prefix

Freed = dict[str, list[int]]
"""The run_afters of jobs that became the first of their keys, by queue."""


class Chain(NamedTuple):
    """A row of `chains`: the first job of a key. `behind` a shard id: it waits too, as long as the barrier stands."""

    serialize_key: bytes
    job_id: int
    place: int
    queue_id: int
    since_ms: int
    behind: str
    waiting: int | None
    """How many wait behind the first; None: nobody."""


class Member(NamedTuple):
    """A job that comes into the chain of its key, at the end."""

    serialize_key: bytes
    place: int
    job_id: int
    queue_id: int
    priority: int
    slot: int
    behind: str = ""


class Joining:
    """Jobs that come into chains, in order, until `write`. The keys' chains are locked by making this.

    Without `reads_keys` it takes the keys for new, and `write` says whether they were.
    """

    def __init__(self, session: Session, keys: Iterable[bytes], now_ms: int, *, reads_keys: bool = True) -> None:
        self._session = session
        self._now_ms = now_ms
        self._put = "put_chains" if reads_keys else "add_chains"
        found = locked(session, keys) if reads_keys else {}
        self._live = {key: (chain.since_ms, chain.queue_id) for key, chain in found.items()}
        self._new: list[Member] = []
        self._behind: list[Member] = []

    def is_live(self, serialize_key: bytes) -> bool:
        """Whether a job of the key is live."""
        return serialize_key in self._live

    def add(self, member: Member) -> bool:
        """Whether it waits."""
        if member.serialize_key in self._live:
            self._behind.append(member)
            return True
        self._live[member.serialize_key] = self._now_ms, member.queue_id
        self._new.append(member)
        return bool(member.behind)

    def write(self) -> bool:
        """Whether all went well; else the caller takes the jobs back (see `untake`)."""
        new, behind, now_ms = self._new, self._behind, self._now_ms
        self._new, self._behind = [], []
        rows = [(m.serialize_key, m.job_id, m.place, m.queue_id, m.priority, m.slot, now_ms, m.behind) for m in new]
        rows.sort()
        if self._session.put(self._put, rows) < len(rows) and self._put == "add_chains":
            return False
        self._session.put("put_barriers", [(m.serialize_key, m.behind) for m in new if m.behind])
        self._session.put("put_waiting", [(m.serialize_key, m.place, m.job_id) for m in behind])
        counts = Counter(m.serialize_key for m in behind)
        self._session.put("add_blocked", [(key, counts[key], *self._live[key]) for key in sorted(counts)])
        return True

    def untake(self, first_id: int) -> None:
        """Take away what a `write` that went wrong has added: chains of jobs from that id on."""
        self._session.run_in("untake_chains", (), self._live, first_id)


def locked(session: Session, keys: Iterable[bytes]) -> dict[bytes, Chain]:
    return {row[0]: Chain(*row) for row in session.rows_in("chains", (), keys)}


def leave(session: Session, leaving: Iterable[tuple[bytes, int]], now_ms: int, freed: Freed) -> None:
    """Take the jobs with these keys and places out of their chains, and free those that become the first."""
    per_key: dict[bytes, list[int]] = defaultdict(list)
    for key, place in leaving:
        per_key[key].append(place)
    found = locked(session, per_key)
    behind = {key: [place for place in per_key[key] if place != found[key].place] for key in found}
    _drop_waiting(session, {key: places for key, places in behind.items() if places}, found)
    heads = [chain for key, chain in found.items() if chain.place in per_key[key]]
    if heads:
        _follow(session, heads, now_ms, freed)


def _drop_waiting(session: Session, behind: Mapping[bytes, Sequence[int]], found: Mapping[bytes, Chain]) -> None:
    if not behind:
        return
    places = sorted(place for each in behind.values() for place in each)
    for start in range(0, len(places), _PLACES):
        session.run_in("remove_waiting", (), behind, session.bound(places[start : start + _PLACES]))
    session.put(
        "add_blocked",
        [(key, -len(each), found[key].since_ms, found[key].queue_id) for key, each in sorted(behind.items())],
    )
    session.run_in("drop_unblocked", (), behind)


_PLACES = 500


def _follow(session: Session, heads: Sequence[Chain], now_ms: int, freed: Freed) -> None:
    """Whoever is next in each chain is the first now; a chain without one is gone. Most are."""
    behind = {head.serialize_key: head.behind for head in heads}
    rows = session.rows_in("next_in_chains", (), [head.serialize_key for head in heads if head.waiting])
    following = {row[0] for row in rows}
    gone = [key for key in behind if key not in following]
    session.run_in("remove_chains", (), gone)
    session.run_in("remove_barriers", (), [key for key in gone if behind[key]])
    if not rows:
        return
    places = sorted(row[1] for row in rows)
    for start in range(0, len(places), _PLACES):
        session.run_in("remove_waiting", (), following, session.bound(places[start : start + _PLACES]))
    session.put("put_chains", [(row[0], row[2], row[1], row[3], row[4], 0, now_ms, "") for row in rows])
    session.put("add_blocked", [(row[0], -1, now_ms, row[3]) for row in sorted(rows)])
    session.run_in("drop_unblocked", (), following)
    free(session, [(row[2], row[3], row[5]) for row in rows if not behind[row[0]]], freed)


def free(session: Session, jobs: Sequence[Row], freed: Freed) -> None:
    """WAITING to PENDING, and into `freed`: jobs as (id, queue id, run_after)."""
    session.run_of("free_waiting", (), sorted(job_id for job_id, _, _ in jobs))
    names: dict[int, str | None] = dict(
        session.rows_of("names_of_queues", (), sorted({queue_id for _, queue_id, _ in jobs}))
    )
    for _, queue_id, run_after_ms in jobs:
        name = names.get(queue_id)
        if name is not None:
            freed.setdefault(name, []).append(run_after_ms)


# -- queries -------------------------------------------------------------------------------------------------------


def firsts(session: Session, keys: Iterable[bytes]) -> dict[bytes, str]:
    """The descriptor of the first job of each key that has one; a key whose jobs all wait behind a barrier has none."""
    return {
        key: f"{descriptor_prefix(queue, session.shard_id, priority)}{job_id}"
        for key, queue, priority, job_id in session.rows_in("chain_heads", (), keys)
    }


def blocked_chains(session: Session, limit: int, now_ms: int) -> list[BlockedChain]:
    rows = dict.fromkeys(session.rows("most_blocked", (limit,)) + session.rows("longest_blocked", (limit,)))
    heads = firsts(session, [row[0] for row in rows])
    return [
        BlockedChain(key.decode(), heads[key], waiting, since_ms) for key, waiting, since_ms in rows if key in heads
    ]


def has_chains(session: Session, serialize_keys: Sequence[str]) -> list[bool]:
    keys = [key.encode() for key in serialize_keys]
    live = {row[0] for row in session.rows_in("live_chains", (), keys)}
    return [key in live for key in keys]


def list_barriers(session: Session, limit: int) -> list[Barrier]:
    return [Barrier(key.decode(), shard_id) for key, shard_id in session.rows("barriers", (limit,))]


def lift_barriers(session: Session, barriers: Sequence[Barrier], now_ms: int) -> Freed:
    """Only a barrier to the shard that is named."""
    named = {barrier.serialize_key.encode(): barrier.shard_id for barrier in barriers}
    lifted = {key: chain for key, chain in locked(session, named).items() if chain.behind == named[key]}
    session.run_in("open_chains", (now_ms,), lifted)
    session.run_in("remove_barriers", (), lifted)
    freed: Freed = {}
    ids = sorted(chain.job_id for chain in lifted.values())
    free(session, session.rows_of("run_afters", (), ids), freed)
    return freed
