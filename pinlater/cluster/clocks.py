"""Do this server and its stores agree on the time? See decision 5 in docs/semantics.md."""

from __future__ import annotations

import structlog

from pinlater.shards.member import Member
from pinlater.shards.members import Members

_log = structlog.get_logger("pinlater.cluster")
TOLERANCE_MS = 1_000


class Clocks:
    """Judges each store's clock as the last ping found it. A shard that is out says nothing: its figure is old."""

    def __init__(self, members: Members, tolerance_ms: int = TOLERANCE_MS) -> None:
        self._members = members
        self._tolerance_ms = tolerance_ms
        self._disagreeing: set[str] = set()

    def trouble(self) -> str:
        """By how much, and with which shards, the time is off; "" where all agree: then the server may be ready."""
        return "; ".join(
            f"the clock of shard {member.shard.shard_id} is {abs(member.skew_ms)} ms "
            f"{'ahead of' if member.skew_ms > 0 else 'behind'} this server's, more than {self._tolerance_ms} ms"
            for member in self._members.healthy()
            if not self.agrees(member)
        )

    def agrees(self, member: Member) -> bool:
        """About one shard; a change of mind is logged once."""
        shard_id = member.shard.shard_id
        agrees = abs(member.skew_ms) <= self._tolerance_ms
        if not agrees and shard_id not in self._disagreeing:
            self._disagreeing.add(shard_id)
            _log.error(
                "clock_disagrees", shard=shard_id, store_ahead_ms=member.skew_ms, tolerance_ms=self._tolerance_ms
            )
        elif agrees and shard_id in self._disagreeing:
            self._disagreeing.discard(shard_id)
            _log.info("clock_agrees", shard=shard_id)
        return agrees
