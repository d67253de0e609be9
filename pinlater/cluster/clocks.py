"""The time that a server uses: its own clock's, unless those of its stores and of other servers outvote it.

Every clock is compared with one that nobody sets: the time at which the process began, counted on by the kernel. So a
clock that is set changes nothing before it was judged, and what a store said before it went out stays true. See
decision 5 in docs/semantics.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import structlog

from pinlater.clock import passed_ns
from pinlater.cluster.lease import Lease
from pinlater.shards.handle import ShardHandle

_log = structlog.get_logger("pinlater.cluster")
TOLERANCE_MS = 1_000

JUMP_REMEMBERED_MS = 3_600_000
"""For this long after a jump the old time still counts, and so does the report of a server that left during a
disagreement. A daemon that keeps the clock asks for the time every half an hour at least, so a jump that was wrong is
undone by then.
"""

CONFIRM_MS = 3_000
CONFIRM_RENEWALS = 3
"""A new reading replaces the old one after this time, and after so many renewals of the lease; until then both count.

The two figures that it is worked out from, the server's and ours of the same store, may be of different times: where
that store was set in between, the server seems to have been. A lease that is read now may be of before, and is so for
as long as it counts where its server died.
"""

KEY = "clocks"
"""Where a lease says how far each store's clock is ahead of its server's: at least, at most."""

_EVENTS = {"outvoted": "clock_outvoted", "open": "clocks_differ", "jumped": "time_uncertain"}
_NS = 1_000_000
_SHARP_NS = 20_000


class Reading(NamedTuple):
    """A clock is ahead of the steady one by `low_ms` to `high_ms`: closer it cannot be measured."""

    name: str
    low_ms: int
    high_ms: int

    def gap_ms(self, other: Reading) -> int:
        """By how much the two surely differ."""
        return max(0, self.low_ms - other.high_ms, other.low_ms - self.high_ms)


class ClockVerdict(NamedTuple):
    """`way`: "own" (our clock is right), "outvoted" (others agree that it is not), "open" (no majority agrees), or
    "jumped" (it was set, and nobody else can tell which time is right). Then the time is between the two.
    """

    way: str
    low_ms: int
    high_ms: int


def vote(own: Reading, others: Sequence[Reading], tolerance_ms: int) -> ClockVerdict:
    """Our own clock, where a majority of all is near it; else the largest group near each other, where that is a
    majority; else all from the first to the last.
    """
    everyone = [own, *others]
    near = [each for each in everyone if own.gap_ms(each) <= tolerance_ms]
    if 2 * len(near) > len(everyone):
        return ClockVerdict("own", own.low_ms, own.high_ms)
    group = _largest_group(everyone, tolerance_ms)
    if 2 * len(group) > len(everyone):
        return ClockVerdict("outvoted", *_hull(group))
    return ClockVerdict("open", *_hull(everyone))


def _largest_group(readings: Sequence[Reading], tolerance_ms: int) -> list[Reading]:
    """Marzullo's algorithm: the point in most of the intervals, each wider by half the tolerance on both sides."""
    first_ends = (each.high_ms for each in readings)  # the end of some interval is in as many as any point
    return max(
        ([each for each in readings if each.low_ms - tolerance_ms <= end_ms <= each.high_ms] for end_ms in first_ends),
        key=len,
    )


def _narrowest(readings: Iterable[Reading]) -> Reading:
    return min(readings, key=lambda each: each.high_ms - each.low_ms)


def _hull(readings: Iterable[Reading]) -> tuple[int, int]:
    readings = list(readings)
    return min(each.low_ms for each in readings), max(each.high_ms for each in readings)


class SteadyClock:
    """The time of this machine when the process began, and what passed since: setting the clock does not touch it."""

    uncertainty_ms = 0

    def __init__(self, began_ns: int, passed_ns: Callable[[], int]) -> None:
        self._began_ns = began_ns
        self._passed_ns = passed_ns

    def now_ms(self) -> int:
        return (self._passed_ns() + self._began_ns) // _NS


class _ServerClock(NamedTuple):
    """The clock of another server: as it is believed, as it was reported last and since when, and when that was.
    `renewals`: of its leases, when it was first reported so.
    """

    believed: Reading
    reported: Reading
    since_ms: int
    at_ms: int
    renewals: Mapping[str, int]

    @property
    def reading(self) -> Reading:
        return Reading(self.reported.name, *_hull((self.believed, self.reported)))


class ClusterClock:
    """The time that a server goes by, as of the last `judge`: `now_ms` is the earliest that it may be.

    While its own clock is right by all it knows, that is its own clock, and `uncertainty_ms` is 0. `wall_ns` is the
    machine's clock, `passed_ns` one that only counts.
    """

    def __init__(
        self,
        tolerance_ms: int = TOLERANCE_MS,
        *,
        wall_ns: Callable[[], int] = lambda: time.time_ns(),
        passed_ns: Callable[[], int] = passed_ns,
    ) -> None:
        self.uncertainty_ms = 0
        self.verdict = ClockVerdict("own", 0, 0)
        self._tolerance_ms = tolerance_ms
        self._wall_ns = wall_ns
        self._passed_ns = passed_ns
        self._own_ns = self._began_ns = self._ahead_ns = self._measured_ns()[0]
        self._own = Reading("this server", 0, 0)
        self.steady = SteadyClock(self._began_ns, passed_ns)
        self._jumps: list[tuple[Reading, int]] = []
        """Times before jumps, and until when each counts."""
        self._before: dict[str, Reading] = {}
        """What the clocks that agreed with ours before it jumped said then."""
        self._servers: dict[str, _ServerClock] = {}
        self._disagreeing: set[str] = set()
        self._warning = ""

    def now_ms(self) -> int:
        return (self._passed_ns() + self._ahead_ns) // _NS

    @property
    def correction_ms(self) -> int:
        """How far the time that counts is ahead of this machine's clock; 0 while that is right."""
        return (self._ahead_ns - self._own_ns) // _NS

    def warning(self) -> str:
        """Which clocks differ by more than the tolerance, and what this server does about it; "" where all is well."""
        return self._warning

    def describe(self, members: Iterable[ShardHandle]) -> Mapping[str, Any]:
        """For the lease: how far the clocks of the stores that are in are ahead of this machine's."""
        readings = _of_shards(member for member in members if member.is_healthy)
        own_ms = self._own.low_ms
        return {KEY: {shard: [each.low_ms - own_ms, each.high_ms - own_ms] for shard, each in readings.items()}}

    # -- judging -----------------------------------------------------------------------------------------------------

    def judge(self, members: Sequence[ShardHandle], leases: Iterable[Lease] = (), server: str = "") -> None:
        """Look at all clocks anew: ours, those of the stores as pings found them, and those that others report."""
        self._look()
        now_ms = self.steady.now_ms()
        for member in members:
            member.machine_ahead_ms = self._own.low_ms
        shards = _of_shards(members)
        self._read_leases(leases, server, shards, now_ms)
        others = [*shards.values(), *(known.reading for known in self._servers.values())]
        self._settle_jumps(now_ms)
        if not self._jumps:
            self._before = {each.name: each for each in others if self._agrees(each)}
        witnesses = [each for each in others if not self._jumped_along(each)]
        if self._jumps and not witnesses:
            verdict = ClockVerdict("jumped", *_hull([self._own, *(was for was, _ in self._jumps)]))
        else:
            verdict = vote(self._own, witnesses, self._tolerance_ms)
        self._go_by(verdict, others)
        self._describe_disagreement(members, others)

    def _agrees(self, reading: Reading) -> bool:
        return self._own.gap_ms(reading) <= self._tolerance_ms

    def _settle_jumps(self, now_ms: int) -> None:
        """A jump that was undone is forgotten, with those that came after it, and so is one that is long past."""
        undone = next((place for place, (was, _) in enumerate(self._jumps) if self._agrees(was)), None)
        self._jumps = [jump for jump in self._jumps[:undone] if now_ms < jump[1]]

    def _jumped_along(self, reading: Reading) -> bool:
        """It agreed with ours before the jump and does so after it: it is on this machine, and no other clock."""
        before = self._before.get(reading.name) if self._jumps else None
        return before is not None and self._agrees(reading) and before.gap_ms(reading) > self._tolerance_ms

    def _look(self) -> None:
        """At the machine's own clock."""
        own_ns, blur_ns = self._measured_ns()
        if not 0 <= self._own_ns - own_ns < blur_ns:  # else it is the same, and was seen more sharply before
            self._own_ns = own_ns
        before, ahead_ms = self._own, (self._own_ns - self._began_ns) // _NS
        self._own = Reading(before.name, ahead_ms, ahead_ms)
        jump_ms = ahead_ms - before.low_ms
        if abs(jump_ms) > self._tolerance_ms:
            _log.error("clock_jumped", by_ms=jump_ms, tolerance_ms=self._tolerance_ms)
            self._jumps.append((before, self.steady.now_ms() + JUMP_REMEMBERED_MS))

    def _measured_ns(self) -> tuple[int, int]:
        """How far the machine's clock is ahead of what has passed, at least, and by how much that may be too little."""
        best = (0, 0)
        for turn in range(5):
            before_ns, wall_ns, after_ns = self._passed_ns(), self._wall_ns(), self._passed_ns()
            if turn == 0 or after_ns - before_ns < best[1]:
                best = wall_ns - after_ns, after_ns - before_ns
            if best[1] < _SHARP_NS:
                break
        return best

    def _read_leases(self, leases: Iterable[Lease], server: str, shards: Mapping[str, Reading], now_ms: int) -> None:
        """What the leases report of other servers' clocks. One that is gone is forgotten, but not while clocks differ:
        when a wrong clock is reported no more, no other one becomes right by that.
        """
        found: dict[str, list[Reading]] = {}
        renewals: dict[str, dict[str, int]] = {}
        for lease in leases:
            if lease.server != server and (readings := list(_of_server(lease, shards))):
                found.setdefault(lease.server, []).extend(readings)
                renewals.setdefault(lease.server, {})[lease.name] = lease.renewal
        for name, readings in found.items():
            self._servers[name] = self._taken(self._servers.get(name), readings, renewals[name], now_ms)
        for name in self._servers.keys() - found.keys():
            if self.verdict.way == "own" or now_ms - self._servers[name].at_ms >= JUMP_REMEMBERED_MS:
                del self._servers[name]

    def _taken(
        self, known: _ServerClock | None, readings: Sequence[Reading], renewals: Mapping[str, int], now_ms: int
    ) -> _ServerClock:
        """`readings`: one for each store, any of which may have been set. One that says what is believed is enough."""
        expected = [] if known is None else self._near(known.believed, readings)
        if known is None or expected:
            reported = _narrowest(expected) if expected else self._likeliest(readings)
            return _ServerClock(reported, reported, now_ms, now_ms, renewals)
        reported = self._likeliest(readings)
        is_news = reported.gap_ms(known.reported) > self._tolerance_ms
        since_ms = now_ms if is_news else known.since_ms
        since = renewals if is_news else {**renewals, **known.renewals}
        is_confirmed = now_ms - since_ms >= CONFIRM_MS and any(
            renewal - since[lease] >= CONFIRM_RENEWALS for lease, renewal in renewals.items()
        )
        return _ServerClock(reported if is_confirmed else known.believed, reported, since_ms, now_ms, since)

    def _near(self, believed: Reading, readings: Iterable[Reading]) -> list[Reading]:
        return [each for each in readings if each.gap_ms(believed) <= self._tolerance_ms]

    def _likeliest(self, readings: Sequence[Reading]) -> Reading:
        """The sharpest of those that most stores lead to; without a majority all of them."""
        group = _largest_group(readings, self._tolerance_ms)
        return _narrowest(group) if 2 * len(group) > len(readings) else Reading(readings[0].name, *_hull(readings))

    def _go_by(self, verdict: ClockVerdict, others: Sequence[Reading]) -> None:
        if verdict.way != self.verdict.way:
            clocks = {each.name: each.low_ms - self._own.low_ms for each in others}
            width_ms = verdict.high_ms - verdict.low_ms
            if verdict.way == "own":
                _log.info("clock_trusted")
            else:
                earliest_ms = verdict.low_ms - self._own.low_ms
                _log.error(_EVENTS[verdict.way], earliest_ms=earliest_ms, uncertain_by_ms=width_ms, ahead_ms=clocks)
        self.verdict = verdict
        if verdict.way == "own":
            self._ahead_ns, self.uncertainty_ms = self._own_ns, 0
        else:
            self._ahead_ns = self._began_ns + verdict.low_ms * _NS
            self.uncertainty_ms = verdict.high_ms - verdict.low_ms

    # -- saying so ---------------------------------------------------------------------------------------------------

    def _describe_disagreement(self, members: Iterable[ShardHandle], others: Iterable[Reading]) -> None:
        found = []
        for member in members:
            if member.is_healthy and member.shard.has_own_clock and not self._agrees_in_log(member):
                found.append(self._differs(f"shard {member.shard.shard_id}", member.store_ahead_ms))
        way, low_ms, high_ms = self.verdict
        if way == "open":
            for each in others:
                if each.name.startswith("server ") and not self._agrees(each):
                    found.append(self._differs(each.name, each.low_ms - self._own.low_ms))
            found.append(f"no majority of the clocks agrees: {_by_both(high_ms - low_ms)}")
        elif way == "jumped":
            found.append(f"the clock of this server was set, and no other can be read: {_by_both(high_ms - low_ms)}")
        elif way == "outvoted":
            apart_ms = min(low_ms - self._own.low_ms, high_ms - self._own.low_ms, key=abs)
            side = "behind" if apart_ms < 0 else "ahead of"
            found.append(
                f"this server's clock is outvoted: it uses the time of the others, {abs(apart_ms)} ms {side} its own"
            )
        self._warning = "; ".join(found)

    def _differs(self, name: str, ahead_ms: int) -> str:
        side = "ahead of" if ahead_ms > 0 else "behind"
        return f"the clock of {name} is {abs(ahead_ms)} ms {side} this server's, more than {self._tolerance_ms} ms"

    def _agrees_in_log(self, member: ShardHandle) -> bool:
        """About one shard; a change of mind is logged once."""
        shard_id, ahead_ms = member.shard.shard_id, member.store_ahead_ms
        agrees = abs(ahead_ms) <= self._tolerance_ms
        if not agrees and shard_id not in self._disagreeing:
            self._disagreeing.add(shard_id)
            _log.error("clock_disagrees", shard=shard_id, store_ahead_ms=ahead_ms, tolerance_ms=self._tolerance_ms)
        elif agrees and shard_id in self._disagreeing:
            self._disagreeing.discard(shard_id)
            _log.info("clock_agrees", shard=shard_id)
        return agrees


def _by_both(apart_ms: int) -> str:
    return f"jobs are due by the earliest time, claims and delays last by the latest, {apart_ms} ms later"


def _of_shards(members: Iterable[ShardHandle]) -> dict[str, Reading]:
    """What the last pings said, also of stores that are out now. A store without a clock of its own says nothing."""
    readings = {}
    for member in members:
        skew_ms, error_ms = member.skew_ms, member.skew_error_ms
        if error_ms is not None and member.shard.has_own_clock:
            low_ms = skew_ms if skew_ms > 0 else skew_ms - error_ms
            high_ms = skew_ms if skew_ms < 0 else skew_ms + error_ms
            shard_id = member.shard.shard_id
            readings[shard_id] = Reading(f"shard {shard_id}", low_ms, high_ms)
    return readings


def _of_server(lease: Lease, shards: Mapping[str, Reading]) -> Iterable[Reading]:
    """One reading for each store that both know. What cannot be read tells nothing: it is from another version."""
    clocks = lease.more.get(KEY)
    for shard_id, bounds in clocks.items() if isinstance(clocks, dict) else ():
        ours = shards.get(shard_id)
        if ours is not None and isinstance(bounds, list) and [type(each) for each in bounds] == [int, int]:
            yield Reading(f"server {lease.server}", ours.low_ms - bounds[1], ours.high_ms - bounds[0])
