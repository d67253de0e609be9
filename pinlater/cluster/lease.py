"""What one server process says of itself in the stores, and what it has counted: a note of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from pinlater.model import ServerView

COUNTED = ("enqueued", "dequeued", "succeeded", "failed", "retried")
"""What is counted per queue, in the order of the numbers in `Lease.counters`; each since the process began."""

MAX_QUEUES = 500
"""A lease has the counters of so many queues at most."""


class ServerName(NamedTuple):
    """A server process: its server's id, its own id there, where others reach it, and when it began."""

    server: str
    process: str
    address: str
    started_ms: int

    @property
    def note(self) -> str:
        """The name of its lease."""
        return f"{self.server}/{self.process}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A process as of `renewed_ms`, by its own clock; `renewal` counts. `trouble` says why it is not ready, or what is
    wrong with the clocks where it is.

    `maintains`, `shards_in` and `shards_out` are shard ids: one that a process was not configured with is in neither of
    the latter. `shards_full` are those in use that lack room for new jobs; an earlier version does not say which.
    `more` is what the parts of the process want others to know.
    """

    server: str
    process: str
    address: str
    started_ms: int
    renewed_ms: int
    renewal: int
    is_ready: bool
    trouble: str = ""
    maintains: tuple[str, ...] = ()
    shards_in: tuple[str, ...] = ()
    shards_out: tuple[str, ...] = ()
    shards_full: tuple[str, ...] = ()
    counters: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.server}/{self.process}"

    @property
    def age(self) -> tuple[int, int]:
        """Of two leases of one name the one with the greater is newer, also where the clock was set back meanwhile."""
        return self.started_ms, self.renewal

    def view(self) -> ServerView:
        """For operators."""
        return ServerView(
            self.server,
            self.process,
            self.address,
            self.started_ms,
            self.renewed_ms,
            self.is_ready,
            self.trouble,
            list(self.maintains),
            list(self.shards_out),
            self.more.get("overflow_jobs"),
            list(self.shards_full),
        )


_OWN = tuple(each.name for each in fields(Lease) if each.name != "more")


def encode(lease: Lease) -> bytes:
    """The body of its note."""
    plain = asdict(lease)
    return json.dumps({**plain.pop("more"), **plain}, separators=(",", ":")).encode()


def decode(body: bytes) -> Lease:
    """What `encode` made, in this version or another one. ValueError."""
    try:
        plain = json.loads(body)
        own = {key: plain.pop(key) for key in _OWN if key in plain}
        return Lease(
            **own
            | {
                "maintains": tuple(own["maintains"]),
                "shards_in": tuple(own["shards_in"]),
                "shards_out": tuple(own["shards_out"]),
                "shards_full": tuple(own.get("shards_full", ())),
                "counters": {queue: tuple(numbers) for queue, numbers in own["counters"].items()},
                "more": plain,
            }
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a lease") from error
