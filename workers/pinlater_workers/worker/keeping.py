"""The claims of this worker: which the heartbeat process keeps alive, and what becomes of one that is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from pinlater_workers.heartbeat.link import Heartbeats
from pinlater_workers.running import Running, Why
from pinlater_workers.worker.leases import Leases
from pinlater_workers.worker.results import Result


class Keeping:
    """Leases, and the process that is told of them. `lost` is told of those whose heartbeats fail or that are lost.

    `queues`: where claims for `source` are kept alive that this process cannot read of, while a job holds it up.
    `is_answered` says whether a job does not run any more, but has a result that is on its way.
    """

    def __init__(self, servers: Sequence[str], source: str, lease_s: float, queues: Sequence[str] = ()) -> None:
        self._leases = Leases(lease_s)
        self._heartbeats = Heartbeats(servers, source, lease_s, self._hear, self._hear_end, queues=queues)
        self.lost: Callable[[Running, Why], None] = lambda running, why: None
        self.is_answered: Callable[[Running], bool] = lambda running: False

    async def open(self) -> None:
        await self._heartbeats.open()

    async def close(self) -> None:
        await self._heartbeats.close()

    @property
    def holds_any(self) -> bool:
        return bool(self._leases)

    def take(self, runnings: Sequence[Running], good_s: float) -> None:
        """The claims of a dequeue, answered at `good_s`; kept alive from now on, whatever holds up this process."""
        self._heartbeats.watch(self._leases.take(runnings, good_s))

    def hand_over_all(self) -> None:
        """At once: a connection is gone, or is about to go, that claims may be tied to."""
        self._heartbeats.watch(self._leases.at_once())

    def keep(self, results: Iterable[Result]) -> None:
        """Without an end: no server has these results yet."""
        self._heartbeats.watch(self._leases.keep(running for running, _ in results))

    def end(self, results: Iterable[Result]) -> None:
        """A server has these results, or they are given up."""
        end = self._leases.end
        self._heartbeats.forget([number for running, _ in results if (number := end(running)) is not None])

    def has_expired(self, running: Running) -> bool:
        """Surely, by what is known of its claim."""
        return self._leases.has_expired(running, time.monotonic())

    def _hear(self, number: int, why: Why) -> None:
        """Of a job that has ended here nothing is lost yet: its result is sent until a server answers, or the claim has
        surely expired. Where the claim is another's by now, that answer comes too, and changes nothing.
        """
        running = self._leases.find(number)
        if running is None or self.is_answered(running):
            return
        if why is Why.CLAIM_LOST:
            self._leases.end(running)
        self.lost(running, why)

    def _hear_end(self, number: int) -> None:
        """Its job has ended under this claim: by an ack of ours, or, while it still runs, by somebody else."""
        self._hear(number, Why.CLAIM_LOST)
