"""The words of operators about tiers of bodies: their state, and the runs that sweep, verify and move."""

from __future__ import annotations

from dataclasses import dataclass, field

from pinlater.model.word_enum import WordEnum


class BodiesAction(WordEnum):
    """What a run over bodies does. The numbers are those of the wire contract."""

    SWEEP = 0
    """Delete objects that no job refers to."""

    VERIFY = 1
    """Read every body, and check it against its reference."""

    MOVE = 2
    """Put each body where the rules of now would put it: from shards to tiers, from tier to tier, and back."""


@dataclass(slots=True)
class BodyTier:
    """One tier as a server process sees it. `trouble` says why it is not used now; "" while it is.

    `bodies`, `bytes` and `orphans` are as of `counted_at_ms`, over all shards; None before the first count. An orphan
    is an object older than a day that no job refers to. The latencies are of this process, since it began; the counts
    of fall-backs (bodies that stayed in their shard though a rule names the tier) and of failed reads too.
    """

    name: str
    url: str
    trouble: str = ""
    bodies: int | None = None
    bytes: int | None = None
    orphans: int | None = None
    counted_at_ms: int | None = None
    put_p50_ms: float | None = None
    put_p99_ms: float | None = None
    get_p50_ms: float | None = None
    get_p99_ms: float | None = None
    fallbacks: int = 0
    read_failures: int = 0


@dataclass(slots=True)
class BodyTiers:
    """The tiers, the rules in their order, and what keeps this cluster from using them: live processes that lack one
    of the tiers, as SERVER/PROCESS. `to_delete` counts objects whose jobs are gone, as far as this process knows;
    `strangers` are the store ids of objects that belong to no shard of this cluster.
    """

    tiers: list[BodyTier] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    to_delete: int = 0
    strangers: list[str] = field(default_factory=list)


@dataclass(slots=True)
class BodiesChange:
    """One step of a run over bodies. `continuation` "0" begins the run; each answer has the next one, "-1" at the end.

    `queue` "": all. `tier` "": all. `dry_run`: only say what would be done. `store`, for a sweep: the store id of
    objects that belong to no shard of this cluster; all of these are deleted. `limit`: so many jobs or objects at most
    are looked at in the step.
    """

    action: BodiesAction
    queue: str = ""
    tier: str = ""
    dry_run: bool = False
    store: str = ""
    continuation: str = "0"
    limit: int = 500


@dataclass(slots=True)
class BodiesStep:
    """What a step did.

    `looked_at` counts objects (sweep) or jobs (verify, move), `found` orphans, bodies that cannot be read, or bodies
    that belong elsewhere, `done` what was deleted or moved, `bytes` the bytes of what was found. `troubles` names some
    of what went wrong, a line each.
    """

    continuation: str
    looked_at: int = 0
    found: int = 0
    done: int = 0
    bytes: int = 0
    troubles: list[str] = field(default_factory=list)
