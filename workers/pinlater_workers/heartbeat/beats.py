"""One beat of claims, and the schedule of beats.

A beat is a heartbeat call for each queue, which says what became of each claim. A server of an earlier version has no
such call: there it is a checkpoint for each queue, then a lookup.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from types import MappingProxyType

from pinlater.client.async_client import AsyncClient
from pinlater.errors import MethodUnknown, PinLaterError, ShardConnectionFailed
from pinlater.model import (
    Checkpoint,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatOutcome,
    JobInfo,
    JobState,
    NumberedCommand,
    WorkerReport,
    parse_descriptor,
)
from pinlater_workers.heartbeat.messages import HeartbeatEntry, ProgressEntry

CLAIMS_PER_CALL = 1_000
ASK_AGAIN_S = 60.0
"""Whether a server has the heartbeat call by now."""

Part = Sequence[HeartbeatEntry]

LONGEST_INTERVAL_S = 10.0
LONGEST_MARGIN_S = 2.0
LONGEST_SILENCE_S = 2.5
LONGEST_RETRY_S = 1.0
FAILURES_TOLD = 2


@dataclass(slots=True)
class BeatResult:
    """Numbers of claims. `good`: there, and beaten; `lost`: gone; `ended`: the job has succeeded or failed, and nobody
    claimed it after; `failed`: nobody knows, and `detail` says why; `cancelled`: among the good ones, those whose jobs
    are to stop, and who asked for it.
    """

    good: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    cancelled: dict[int, str] = field(default_factory=dict)
    detail: str = ""

    def of(self, info: JobInfo | None, claim: str) -> list[int]:
        """The list for that claim of a job that looks so; None: there is no such job.

        `claim` "": the server does not tell workers their claims. Then any job in progress is taken for held.
        """
        if info is None or (claim and info.claim_descriptor != claim):
            return self.lost
        if info.state is JobState.IN_PROGRESS:
            return self.good
        return self.ended if claim else self.lost

    def note(self, number: int, answer: HeartbeatAnswer) -> None:
        """Of a heartbeat call; LOST is not, since that has to be looked up."""
        if answer.outcome is HeartbeatOutcome.UNREACHABLE:
            self.failed.append(number)
            self.detail = "its shard cannot be asked now"
        else:
            self.good.append(number)
            if answer.outcome is HeartbeatOutcome.CANCEL:
                self.cancelled[number] = answer.cancelled_by

    def failing(self, part: Part, error: Exception) -> None:
        self.failed += [entry.number for entry in part]
        self.detail = str(error)


class HeartbeatCalls:
    """The heartbeat calls of one client; while its servers have none, MethodUnknown, at once. `commanded` hears what
    the worker is to do whose report went along.
    """

    def __init__(
        self, client: AsyncClient, commanded: Callable[[NumberedCommand], None] = lambda command: None
    ) -> None:
        self.client = client
        self._commanded = commanded
        self._unknown_until_s = -math.inf

    async def heartbeat(
        self, queue: str, heartbeats: Sequence[Heartbeat], report: WorkerReport | None, timeout_s: float
    ) -> list[HeartbeatAnswer]:
        """MethodUnknown: the server is of an earlier version; it may be replaced any time."""
        if monotonic() < self._unknown_until_s:
            raise MethodUnknown("heartbeatJobs")
        try:
            answers = await self.client.heartbeat(queue, heartbeats, worker=report, timeout=timeout_s)
        except MethodUnknown:
            self._unknown_until_s = monotonic() + ASK_AGAIN_S
            raise
        command = getattr(answers, "command", None)
        if command is not None:
            self._commanded(command)
        return answers


async def beat(
    calls: HeartbeatCalls,
    claims: Sequence[HeartbeatEntry],
    timeout_s: float,
    report: WorkerReport | None = None,
    progress: Mapping[int, ProgressEntry] = MappingProxyType({}),
) -> BeatResult:
    """Every claim is in one list of the outcome. Each call takes `timeout_s` at most; where a shard is out, two rounds.
    A beat that is taken binds its claim to the connection it came by. The first call carries the report. `progress`: of
    the claims of these numbers.
    """
    outcome = BeatResult()
    reports = iter((report,))
    older: list[HeartbeatEntry] = []
    gone: list[HeartbeatEntry] = []

    async def heartbeat(part: Part) -> None:
        beats = []
        for entry in part:
            made = progress.get(entry.number)
            sent = Heartbeat(entry.descriptor, entry.claim)
            if made is not None:
                sent.fraction, sent.text, sent.log_lines = made.fraction, made.text, made.log_lines
            beats.append(sent)
        carried = next(reports, None)
        try:
            answers = await calls.heartbeat(part[0].queue, beats, carried, timeout_s)
        except MethodUnknown:
            older.extend(part)
            return
        for entry, answer in zip(part, answers, strict=True):
            if answer.outcome is HeartbeatOutcome.LOST:
                gone.append(entry)
            else:
                outcome.note(entry.number, answer)

    async def look(part: Part) -> None:
        """Whether the job has ended under its claim, as it has where an ack went before this beat."""
        await _look(calls.client, part, timeout_s, outcome)

    named = [entry for entry in claims if entry.claim]
    older += [entry for entry in claims if not entry.claim]
    await _each(heartbeat, _parts(named, lambda entry: entry.queue), outcome)
    await _each(look, _parts(gone, lambda entry: ""), outcome)
    if older:
        await _beat_older(calls.client, older, timeout_s, report, outcome)
    return outcome


async def _beat_older(
    client: AsyncClient, claims: Sequence[HeartbeatEntry], timeout_s: float, report: WorkerReport | None, to: BeatResult
) -> None:
    """By the calls of earlier versions, which know of no cancelled jobs and no progress.

    A checkpoint names the run_after that the job has, as one without a time sets it to now, and when the job was
    planned for would be lost.
    """
    beaten: list[HeartbeatEntry] = []
    reports = iter((report,))

    async def checkpoint(part: Part) -> None:
        kept = [
            Checkpoint(entry.descriptor, run_after_ms=entry.run_after_ms or None, claim_descriptor=entry.claim)
            for entry in part
        ]
        await client.checkpoint(part[0].queue, kept, worker=next(reports, None), timeout=timeout_s)
        beaten.extend(part)

    async def look(part: Part) -> None:
        await _look(client, part, timeout_s, to)

    await _each(checkpoint, _parts(claims, lambda entry: entry.queue), to)
    await _each(look, _parts(beaten, lambda entry: ""), to)


async def _look(client: AsyncClient, part: Part, timeout_s: float, to: BeatResult) -> None:
    found = await client.lookup([entry.descriptor for entry in part], timeout=timeout_s)
    for entry in part:
        to.of(found.get(entry.descriptor), entry.claim).append(entry.number)


def _parts(claims: Iterable[HeartbeatEntry], of: Callable[[HeartbeatEntry], object]) -> list[Part]:
    """By what `of` says, and no more than a call takes."""
    grouped: dict[object, list[HeartbeatEntry]] = {}
    for entry in claims:
        grouped.setdefault(of(entry), []).append(entry)
    return [
        group[start : start + CLAIMS_PER_CALL]
        for group in grouped.values()
        for start in range(0, len(group), CLAIMS_PER_CALL)
    ]


async def _each(call: Callable[[Part], Awaitable[None]], parts: Iterable[Part], outcome: BeatResult) -> None:
    await asyncio.gather(*(_whole_or_by_shard(call, part, outcome) for part in parts))


async def _whole_or_by_shard(call: Callable[[Part], Awaitable[None]], part: Part, outcome: BeatResult) -> None:
    """Where one shard is out, the claims on the others go by themselves."""
    try:
        await call(part)
    except ShardConnectionFailed as error:
        shards = _parts(part, _shard)
        if len(shards) == 1:
            outcome.failing(part, error)
        else:
            await asyncio.gather(*(_one_shard(call, on_shard, outcome) for on_shard in shards))
    except PinLaterError as error:
        outcome.failing(part, error)


async def _one_shard(call: Callable[[Part], Awaitable[None]], part: Part, outcome: BeatResult) -> None:
    try:
        await call(part)
    except PinLaterError as error:
        outcome.failing(part, error)


def _shard(entry: HeartbeatEntry) -> object:
    ref = parse_descriptor(entry.descriptor)
    return ref and ref.shard


def usual_interval_s(lease_s: float) -> float:
    """The time between two beats of a claim, where nothing fails."""
    return min(lease_s / 3, LONGEST_INTERVAL_S)


def silence_s(lease_s: float) -> float:
    """A worker that has said nothing for so long may have claims that it cannot read of."""
    return min(LONGEST_SILENCE_S, lease_s / 4)


def surely_held_s(lease_s: float) -> float:
    """How long after a good beat a claim is taken for held: a little less than its lease."""
    return lease_s - min(LONGEST_MARGIN_S, lease_s / 8)


class _Claim:
    __slots__ = ("cancelled", "counted_s", "due_s", "entry", "failures", "good_s", "progress")

    def __init__(self, entry: HeartbeatEntry) -> None:
        self.entry = entry
        self.good_s = entry.good_s
        self.due_s = entry.from_s
        self.failures = 0
        self.counted_s = -math.inf
        self.cancelled = False
        self.progress: ProgressEntry | None = None


class BeatSchedule:
    """All claims of one worker, by number. Times are seconds of one monotonic clock."""

    def __init__(self, lease_s: float, interval_s: float) -> None:
        self._interval_s = interval_s
        self._retry_s = min(LONGEST_RETRY_S, interval_s / 4)
        self._held_s = surely_held_s(lease_s)
        self._lease_s = lease_s
        self._claims: dict[int, _Claim] = {}
        self._lost: dict[tuple[str, str], float] = {}

    def __len__(self) -> int:
        return len(self._claims)

    def entries(self) -> Iterator[HeartbeatEntry]:
        """All that are watched."""
        return (claim.entry for claim in self._claims.values())

    def watch(self, claims: Iterable[HeartbeatEntry]) -> None:
        """Due from their `from_s` on, also where they are watched already; what is known of those stays."""
        known = self._claims
        for entry in claims:
            claim = known.get(entry.number)
            if claim is None:
                known[entry.number] = _Claim(entry)
            else:
                claim.entry = entry
                claim.due_s = entry.from_s

    def note_progress(self, progress: Iterable[ProgressEntry]) -> None:
        """A beat of these is due at once, and says so."""
        for entry in progress:
            claim = self._claims.get(entry.number)
            if claim is not None:
                claim.progress = entry if claim.progress is None else claim.progress.followed_by(entry)

    def take_progress(self, numbers: Iterable[int]) -> dict[int, ProgressEntry]:
        """What a beat of these claims is to say."""
        taken: dict[int, ProgressEntry] = {}
        for number in numbers:
            claim = self._claims.get(number)
            if claim is not None and claim.progress is not None:
                taken[number], claim.progress = claim.progress, None
        return taken

    def progress_failed(self, progress: Mapping[int, ProgressEntry], numbers: Iterable[int]) -> None:
        """The beat of these failed: the next one says it, unless there is newer progress."""
        for number in numbers:
            claim, made = self._claims.get(number), progress.get(number)
            if claim is not None and made is not None:
                claim.progress = made if claim.progress is None else made.followed_by(claim.progress)

    def cancelled(self, numbers: Iterable[int]) -> list[int]:
        """The jobs of these are to stop: those of which that is news."""
        news = []
        for number in numbers:
            claim = self._claims.get(number)
            if claim is not None and not claim.cancelled:
                claim.cancelled = True
                news.append(number)
        return news

    def forget(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._claims.pop(number, None)

    def lose(self, numbers: Iterable[int], now_s: float) -> None:
        """These are gone, or are to expire: forgotten, but still known for two leases, in which they surely have."""
        self._lost = {key: lost_s for key, lost_s in self._lost.items() if lost_s > now_s - 2 * self._lease_s}
        for number in numbers:
            claim = self._claims.pop(number, None)
            if claim is not None:
                self._lost[claim.entry.descriptor, claim.entry.claim] = now_s

    def known(self) -> set[tuple[str, str]]:
        """Descriptor and claim descriptor of all that are watched, or were lost of late."""
        return {(claim.entry.descriptor, claim.entry.claim) for claim in self._claims.values()} | self._lost.keys()

    def all_due(self, now_s: float) -> None:
        """A connection is gone that claims which were beaten may be bound to."""
        for claim in self._claims.values():
            claim.due_s = min(claim.due_s, max(claim.entry.from_s, now_s))

    def take_due(self, now_s: float) -> list[HeartbeatEntry]:
        """The claims to be beaten now; where there are any, also those due soon. They are due again an interval later.

        None before its `from_s`, or after its `until_s`.
        """
        alive = [each for each in self._claims.values() if each.entry.from_s <= now_s < each.entry.until_s]
        if not any(claim.due_s <= now_s for claim in alive):
            telling = [claim for claim in alive if claim.progress is not None and not claim.failures]
            for claim in telling:
                claim.due_s = now_s + self._interval_s
            return [claim.entry for claim in telling]
        taken = []
        for claim in alive:
            if claim.due_s <= now_s + self._interval_s / 2 or claim.progress is not None:
                claim.due_s = now_s + self._interval_s
                taken.append(claim.entry)
        return taken

    def beaten(self, numbers: Iterable[int], began_s: float) -> None:
        """A beat that began then was good for these."""
        for number in numbers:
            claim = self._claims.get(number)
            if claim is not None:
                claim.good_s = max(claim.good_s, began_s)
                claim.failures = 0
                claim.counted_s = -math.inf

    def failed(self, numbers: Iterable[int], began_s: float, now_s: float) -> list[int]:
        """A beat that began then failed for these; it is tried again soon. Those that failed twice in a row.

        Tries within one interval count as one failed beat.
        """
        twice = []
        for number in numbers:
            claim = self._claims.get(number)
            if claim is None or claim.good_s > began_s:
                continue
            claim.due_s = min(claim.due_s, now_s + self._retry_s)
            if now_s - claim.counted_s >= self._interval_s:
                claim.counted_s = now_s
                claim.failures += 1
                if claim.failures == FAILURES_TOLD:
                    twice.append(number)
        return twice

    def take_lost(self, now_s: float) -> list[int]:
        """The claims without a good beat for so long that they may have expired; they are forgotten."""
        lost = [number for number, claim in self._claims.items() if now_s >= claim.good_s + self._held_s]
        if lost:
            self.lose(lost, now_s)
        return lost

    def next_s(self) -> float:
        """When there is something to do again; infinite: not before there is news."""
        return min(
            (min(claim.good_s + self._held_s, self._next_beat_s(claim)) for claim in self._claims.values()),
            default=math.inf,
        )

    def _next_beat_s(self, claim: _Claim) -> float:
        due_s = claim.due_s if claim.progress is None or claim.failures else -math.inf
        return due_s if due_s < claim.entry.until_s else math.inf
