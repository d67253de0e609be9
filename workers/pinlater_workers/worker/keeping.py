"""The claims of this worker: which the heartbeat process keeps alive, and what becomes of one that is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from pinlater_workers.heartbeat.link import Heartbeats
from pinlater_workers.running import Running, Why
from pinlater_workers.worker.leases import Leases
from pinlater_workers.worker.quick import QUICK_S, Quick
from pinlater_workers.worker.results import Result


class Keeping:
    """Leases, and the process that is told of them. `lost` is told of those whose heartbeats fail or that are lost.

    `queues`: where claims for `source` are kept alive that the process was not told of, while a job holds up this one.
    So those of jobs that most likely end at once are told late; without `queues`, as soon as they are taken.
    `is_answered` says whether a job does not run any more, but has a result that is on its way.
    """

    def __init__(self, servers: Sequence[str], source: str, lease_s: float, queues: Sequence[str] = ()) -> None:
        self._leases = Leases(lease_s)
        self._quick = Quick()
        self.ran = self._quick.note
        """To be told of each attempt at a job of a type that has ended, and after how long."""
        self._may_be_late = bool(queues)
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
        late = self._late(runnings)
        if late:
            self._leases.take_quick(late, good_s)
        if len(late) < len(runnings):
            at_once = [each for each in runnings if each not in set(late)] if late else runnings
            self._heartbeats.watch(self._leases.take(at_once, good_s))

    def _late(self, runnings: Sequence[Running]) -> list[Running]:
        """Where a server names no claims, nobody finds those that were not told."""
        if not self._may_be_late:
            return []
        quick = self._quick.names
        return [each for each in runnings if each.type and each.type.name in quick and each.job.claim_descriptor]

    def tell_late(self, now_s: float) -> None:
        """Of those that have not ended at once."""
        told = self._leases.no_more_quick(now_s - QUICK_S)
        for watched in told:
            running = self._leases.of(watched)
            if running.type is not None:
                self._quick.note(running.type.name, now_s - running.began_s)
        self._heartbeats.watch(told)

    def hand_over_all(self) -> None:
        """At once: a connection is gone, or is about to go, that claims may be tied to."""
        self._heartbeats.watch(self._leases.at_once())

    def keep(self, results: Iterable[Result]) -> None:
        """Without an end: no server has these results yet."""
        self._heartbeats.watch(self._leases.keep(running for running, _ in results))

    def end(self, results: Iterable[Result]) -> None:
        """A server has these results, or they are given up."""
        self._heartbeats.forget(self._leases.end([running for running, _ in results]))

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
            self._leases.end([running])
        self.lost(running, why)

    def _hear_end(self, number: int) -> None:
        """Its job has ended under this claim: by an ack of ours, or, while it still runs, by somebody else."""
        self._hear(number, Why.CLAIM_LOST)
