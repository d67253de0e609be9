"""The router of calls that name keys: to the home of each key, and before that to where it may live still."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

from pinlater.backends.extended import KeyHolder, Offer, Offered, OfferOutcome
from pinlater.errors import (
    GroupsNotSupported,
    HomeMoving,
    HomeOut,
    HomesChanged,
    KeysNotYet,
    NoHealthyShards,
    NothingStored,
    OutcomeUnknown,
    PartMissing,
    PinLaterError,
    QueueNotFound,
    ShardConnectionFailed,
)
from pinlater.model import ExtendedJob, Job, JobInfo, KeyRef, ScheduleChange, parse_descriptor
from pinlater.shards.handle import ShardHandle, answers
from pinlater.shards.keys.homes_record import (
    HomesRecord,
    HomeTable,
    Membership,
    Places,
    slot_of,
    slot_of_job,
    slot_of_key,
)
from pinlater.shards.keys.homes_record import slot_of_schedule as slot_of_schedule
from pinlater.shards.shard_set import ShardSet

TRIES = 5
"""The most tries of a call whose store knows newer homes than this process did."""

MOVING_RETRY_MS = 100
MOST_BARRIERS = 10_000
"""On one shard, of which a chain that is in two parts is looked for."""

NO_HOMES = "0"
"""A version below all others."""

_CHAIN_HERE, _NOT_HERE = OfferOutcome.CHAIN_HERE, OfferOutcome.NOT_HERE  # looking a member up is a call
_RUNS_HERE = OfferOutcome.RUNS_HERE
_JOB_FIELDS = tuple(each.name for each in fields(Job))


class Homes(Protocol):
    """The homes of keys, as this process knows them."""

    @property
    def table(self) -> HomeTable | None:
        """The homes of all slots; None: nobody has enqueued a keyed job yet, as far as this process knows."""

    async def begin(self) -> HomeTable:
        """Make the first record, or learn of the one that another process made. NothingStored: not now."""

    def check(self) -> None:
        """KeysNotYet: a live process of the cluster does not know keys."""

    def check_jobs(self, jobs: Sequence[ExtendedJob | ScheduleChange]) -> None:
        """TagsNotYet, GroupsNotYet: a live process of the cluster does not know what one of them has."""

    def check_groups(self) -> None:
        """GroupsNotYet: a live process of the cluster does not know groups."""

    def check_group_limits(self) -> None:
        """GroupsNotYet: a live process of the cluster does not know limits of groups."""

    def check_replace_rules(self) -> None:
        """ReplaceRulesNotYet: a live process of the cluster does not know successors."""

    async def catch_up(self, handle: ShardHandle) -> None:
        """Learn what this shard knows of homes and queues, and tell it what it does not. Raises nothing."""


class FixedHomes:
    """All shards that are configured to take jobs: where a process has its stores for itself."""

    def __init__(self, members: ShardSet) -> None:
        self._members = members
        self._table: HomeTable | None = None

    @property
    def table(self) -> HomeTable | None:
        handles = self._members.all
        ids: Membership = tuple(
            sorted(each.shard.shard_id for each in handles if each.shard.shard_id and each.may_be_home)
        ) or tuple(each.shard.shard_id for each in handles)
        if self._table is None or self._table.record.members != ids:
            self._table = HomeTable(HomesRecord(ids))
        return self._table

    async def begin(self) -> HomeTable:
        raise NoHealthyShards("no shard is known yet", retry_after_ms=1_000)

    def check(self) -> None: ...

    def check_jobs(self, jobs: Sequence[ExtendedJob | ScheduleChange]) -> None: ...

    def check_groups(self) -> None: ...

    def check_group_limits(self) -> None: ...

    def check_replace_rules(self) -> None: ...

    async def catch_up(self, handle: ShardHandle) -> None: ...


@dataclass(slots=True)
class _Placing:
    """One job on its way: `left` are the shards to ask yet, the home the last of them. The answer, or an error.

    `to_probe`: those that only say first whether its dedupe key or send id stands there, and whether its chain does:
    where it is stored goes by the chain alone, of which several shards may have a part.
    """

    offer: Offer
    left: list[str]
    answer: Offered | PinLaterError | None = None
    to_probe: list[str] = field(default_factory=list)
    parts: set[str] = field(default_factory=set)
    """The shards that have a part of its chain."""

    to_ask: list[str] = field(default_factory=list)
    """Those that only say first whether its send id is known there: the window of one goes to the home, also while the
    job that has its dedupe key now lives elsewhere.
    """

    follows: bool = False
    """The job of its dedupe key runs on the next shard, as a probe has said: it is stored there, as its successor."""

    @property
    def next_shard(self) -> str:
        """ "": any one."""
        return (
            self.to_ask[0] if self.to_ask else self.to_probe[0] if self.to_probe else self.left[0] if self.left else ""
        )

    @property
    def next_offer(self) -> Offer:
        """To the next shard."""
        if not self.to_ask:
            return self.offer
        bare = replace(self.offer.job, body=b"", dedupe_key="", serialize_key="")
        return replace(self.offer, job=bare, only_if_known=True, takes_no_jobs=True)

    def probed(self, has_part: bool) -> None:
        """The next shard of `to_probe` has nothing that its keys name, or a part of its chain alone."""
        shard_id, self.follows = self.to_probe.pop(0), False
        if has_part:
            self.parts.add(shard_id)
        if not self.to_probe:
            self.left = [*(each for each in self.left[:-1] if each in self.parts), self.left[-1]]

    def runs_here(self, shard_id: str, *, takes_jobs: bool) -> None:
        """The job of its dedupe key runs on the next shard. Its successor is stored there, too, unless that is being
        emptied, or later jobs of the chain are on another shard, which it would overtake.
        """
        if self.to_probe and takes_jobs and not self.follows:
            self.follows = True
            return
        self.answer = HomeMoving(
            f"the job of its dedupe key runs on shard {shard_id}, and new jobs of its keys are stored elsewhere now: "
            "send it again when that has ended",
            retry_after_ms=MOVING_RETRY_MS,
        )


class KeyRouter:
    """Keyed calls over the shards of a router. Errors: HomeOut, HomeMoving, KeysNotYet; those of the shards."""

    def __init__(self, members: ShardSet, homes: Homes) -> None:
        self._members = members
        self.homes = homes

    def are_known(self) -> bool:
        """Whether all live processes know what few jobs have. Until then nothing of it is stored."""
        try:
            self.homes.check()
        except KeysNotYet:
            return False
        return True

    def check_groups(self) -> None:
        """Whether jobs with groups can be stored, wherever their keys live. GroupsNotYet; GroupsNotSupported."""
        self.homes.check_groups()
        for handle in self._members.all:
            if handle.may_be_home and not handle.shard.has_groups:
                raise GroupsNotSupported.of_shard(handle.shard.shard_id)

    async def may_have_moved(self) -> bool:
        """Whether ended jobs may be on other shards than their keys: many servers share these, and keys are used."""
        if self.homes.table is None:
            await self._look_for_homes()
        table = self.homes.table
        return table is not None and self._is_shared(table)

    def _is_shared(self, table: HomeTable) -> bool:
        return table.version != "" and (len(self._members.all) > 1 or len(table.record.members) > 1)

    @property
    def homes_version(self) -> str:
        """The version of the homes that this process knows. A store that has a higher one refuses a step by these."""
        table = self.homes.table
        return NO_HOMES if table is None else table.version

    def why_not_here(self, shard_id: str, queue: str, job: JobInfo) -> str | None:
        """Why a job that has ended on this shard must not become pending there again; None: it may."""
        table = self.homes.table
        if table is None or not (job.dedupe_key or job.serialize_key):
            return None
        places = table.places(slot_of(queue, job.dedupe_key or "", job.serialize_key or ""))
        if places.is_moving:
            return "the homes of keys are changing, and its key moves: try again in a moment"
        if places.home == shard_id or not self._is_shared(table):
            return None
        return f"its key lives on shard {places.home} now, not on {shard_id}: enqueue its body anew with the same keys"

    # -- enqueue -----------------------------------------------------------------------------------------------------

    async def enqueue(
        self,
        queue: str,
        jobs: Sequence[Job],
        now_ms: int,
        *,
        leaving: str = "",
        schedule: str = "",
        mark: str = "",
        by: str = "",
    ) -> list[Offered]:
        """Offer each job to where its key lives; whole per home, in order. Those without keys go to any one shard.

        `leaving`: the shard where the jobs themselves still are, which is not asked. `schedule`: they are its firing
        with that mark. `by`: who enqueues. Where part of the jobs is stored and part is not, the error says which
        (`job_descriptors`).
        """
        self.homes.check()
        wanted = [job if type(job) is ExtendedJob else _extended(job) for job in jobs]
        if not schedule and not any(job.dedupe_key or job.serialize_key or job.send_id for job in wanted):
            return await self._offer_anywhere(queue, [Offer(job, 0, by=by) for job in wanted], now_ms)
        placed: list[_Placing] = []
        table = self.homes.table or await self.homes.begin()
        if table.is_settled and not leaving and not schedule:
            one_home = _at_one_home(queue, wanted, table)
            if one_home is not None:
                for offer in one_home[1] if by else ():
                    offer.by = by
                try:
                    return await self._offer_at(*one_home, queue, table, now_ms, is_home=True)
                except HomesChanged:  # nothing was stored
                    newer = self.homes.table
                    if newer is None or newer.version <= table.version:
                        raise
                    table = newer
        for job in wanted:
            slot = slot_of_job(queue, job)
            offer = Offer(job, slot, schedule=schedule, mark=mark, by=by)
            placed.append(_placing(offer, job.is_keyed or schedule != "", table, leaving))
        for _ in range(TRIES):
            await self._place(queue, placed, table, now_ms)
            stale = [each for each in placed if isinstance(each.answer, HomesChanged)]
            if not stale:
                break
            newer = self.homes.table
            if newer is None or newer.version <= table.version:
                break
            table = newer
            for each in stale:
                offer = replace(each.offer, only_if_known=False, takes_no_jobs=False, behind="")
                fresh = _placing(offer, True, table, leaving)
                each.offer, each.left, each.answer = fresh.offer, fresh.left, fresh.answer
                each.to_probe, each.parts, each.to_ask = fresh.to_probe, fresh.parts, fresh.to_ask
                each.follows = False
        return _answers_of(placed)

    async def _place(self, queue: str, placed: Sequence[_Placing], table: HomeTable, now_ms: int) -> None:
        """Round by round, each job at the next shard of its own, until all have an answer."""
        while True:
            groups: dict[str, list[_Placing]] = {}
            for each in placed:
                if each.answer is None:
                    groups.setdefault(each.next_shard, []).append(each)
            if not groups:
                return
            if len(groups) == 1:
                ((shard_id, group),) = groups.items()
                await self._offer_group(shard_id, queue, group, table, now_ms)
            else:
                await asyncio.gather(
                    *[self._offer_group(shard_id, queue, group, table, now_ms) for shard_id, group in groups.items()]
                )

    async def _offer_group(
        self, shard_id: str, queue: str, group: Sequence[_Placing], table: HomeTable, now_ms: int
    ) -> None:
        try:
            if not shard_id:
                offered = await self._offer_anywhere(queue, [each.offer for each in group], now_ms)
            else:
                some_at_home = False
                for each in group:
                    is_home = len(each.left) == 1 and not each.to_probe and not each.to_ask
                    some_at_home = some_at_home or is_home
                    each.offer.only_if_known = not is_home
                    each.offer.takes_no_jobs = not is_home and (
                        (bool(each.to_probe) and not each.follows)
                        or each.offer.behind != ""
                        or not table.takes_jobs(shard_id)
                    )
                taking = [each for each in group if each.offer.only_if_known and not each.offer.takes_no_jobs]
                if taking:
                    await self._go_to_newest_part(shard_id, taking)
                behind = [each for each in group if each.offer.behind and not each.offer.only_if_known]
                if behind:
                    await self._refuse_overtaking(shard_id, behind)
                    group = [each for each in group if each.answer is None]
                    if not group:
                        return
                offers = [each.next_offer for each in group]
                offered = await self._offer_at(shard_id, offers, queue, table, now_ms, is_home=some_at_home)
        except PinLaterError as error:
            for each in group:
                each.answer = error.with_traceback(None)
            return
        for each, answer in zip(group, offered, strict=True):
            if each.to_ask and answer.outcome is _NOT_HERE:
                del each.to_ask[0]
            elif each.to_probe and answer.outcome in (_CHAIN_HERE, _NOT_HERE):
                each.probed(answer.outcome is _CHAIN_HERE)
            elif answer.outcome is _CHAIN_HERE and each.offer.behind:
                await self._stay_behind_newest(shard_id, each)
            elif answer.outcome is _CHAIN_HERE:
                each.offer.behind = shard_id
                del each.left[0]
            elif answer.outcome is _NOT_HERE:
                del each.left[0]
            elif answer.outcome is _RUNS_HERE:
                each.runs_here(shard_id, takes_jobs=table.takes_jobs(shard_id))
            else:
                each.answer = answer

    async def _go_to_newest_part(self, shard_id: str, group: Sequence[_Placing]) -> None:
        """A former home that is a member again takes jobs of a chain that lives there yet, unless later ones of it are
        on another shard, behind these: new ones go there.
        """
        chained = [each for each in group if each.offer.job.serialize_key]
        for other in dict.fromkeys(other for each in chained for other in each.left if other != shard_id):
            waiting = await self._keys_that_wait(other, shard_id)
            for each in chained:
                if other in each.left and each.offer.job.serialize_key in waiting:
                    each.offer.takes_no_jobs = True

    async def _stay_behind_newest(self, shard_id: str, placing: _Placing) -> None:
        """A second former home has jobs of the chain: fine where those of the first one wait for them."""
        job, behind = placing.offer.job, placing.offer.behind
        try:
            is_newest = job.serialize_key in await self._keys_that_wait(behind, shard_id)
        except PinLaterError as error:
            placing.answer = error.with_traceback(None)
            return
        if is_newest:
            del placing.left[0]
            return
        placing.answer = HomeMoving(
            f"jobs of its serialize key are on shards {behind} and {shard_id}, neither of which is its home: send it "
            "again when those on one of them have ended",
            retry_after_ms=MOVING_RETRY_MS,
        )

    async def _keys_that_wait(self, shard_id: str, behind: str) -> set[str]:
        """The serialize keys whose jobs on a shard wait for those on another one."""
        barriers = await self._usable(shard_id).shard.list_barriers(MOST_BARRIERS)
        return {barrier.serialize_key for barrier in barriers if barrier.shard_id == behind}

    async def _refuse_overtaking(self, shard_id: str, group: Sequence[_Placing]) -> None:
        """A chain is in two parts at most: where its home has older jobs of it than the shard that its new ones are to
        wait for, as after two drains, new ones wait for the end of those outside. And no two parts wait for each other:
        where that shard has a barrier to the home yet, new ones wait until it is lifted.
        """
        shard = self._usable(shard_id).shard
        parts = {barrier.serialize_key: barrier.shard_id for barrier in await shard.list_barriers(MOST_BARRIERS)}
        for behind in dict.fromkeys(each.offer.behind for each in group):
            waiting = await self._keys_that_wait(behind, shard_id)
            for each in group:
                if each.offer.behind == behind and each.offer.job.serialize_key in waiting:
                    each.answer = HomeMoving(
                        f"jobs of its serialize key on shard {behind} have waited for older ones on its home "
                        f"{shard_id}: send it again in a moment",
                        retry_after_ms=MOVING_RETRY_MS,
                    )
        undecided = [each for each in group if each.answer is None]
        unsure = [each for each in undecided if parts.get(each.offer.job.serialize_key) != each.offer.behind]
        keys = list(dict.fromkeys(each.offer.job.serialize_key for each in unsure))
        live = dict(zip(keys, await shard.has_chains(keys), strict=True)) if keys else {}
        for each in unsure:
            if live[each.offer.job.serialize_key]:
                each.answer = HomeMoving(
                    f"jobs of its serialize key are on shard {each.offer.behind} and, older ones, on its home "
                    f"{shard_id}: send it again when these have ended",
                    retry_after_ms=MOVING_RETRY_MS,
                )

    async def _offer_at(
        self, shard_id: str, offers: Sequence[Offer], queue: str, table: HomeTable, now_ms: int, *, is_home: bool
    ) -> list[Offered]:
        """`is_home`: of one of them at least."""
        handle = self._usable(shard_id)
        if is_home and handle.full:
            raise HomeOut(f"shard {shard_id}, where keys of this call live, has no room for new jobs: {handle.full}")
        try:
            return await handle.shard.enqueue_extended(queue, offers, now_ms, table.version)
        except HomesChanged:
            await self.homes.catch_up(handle)
            raise
        except QueueNotFound:
            await self.homes.catch_up(handle)  # it may be new, or have missed the shard
            return await handle.shard.enqueue_extended(queue, offers, now_ms, table.version)
        except NothingStored as error:
            raise HomeOut(f"shard {shard_id}, where keys of this call live: {error.message}") from error

    async def _offer_anywhere(self, queue: str, offers: Sequence[Offer], now_ms: int) -> list[Offered]:
        """Jobs without keys: as `Router.enqueue`."""
        self._members.require_any()
        handles = [handle for handle in self._members.healthy() if handle.takes_jobs]
        if not handles:
            raise NoHealthyShards("no shard that takes new jobs can be used now", retry_after_ms=1_000)
        random.shuffle(handles)
        failures: list[PinLaterError] = []
        for handle in handles:
            try:
                return await handle.shard.enqueue_extended(queue, offers, now_ms)
            except (NothingStored, QueueNotFound, PartMissing) as error:
                failures.append(error.with_traceback(None))
        answers(failures)
        raise AssertionError("answers() raises where there is none")

    def _usable(self, shard_id: str) -> ShardHandle:
        handle = self._members.by_id(shard_id)
        if handle is None:
            raise HomeOut(f"shard {shard_id}, where keys of this call live, is not in the configuration of this server")
        if not handle.is_healthy:
            handle.refused_calls += 1
            why = handle.last_error or "no answer"
            raise HomeOut(f"shard {shard_id}, where keys of this call live, cannot be used now: {why}")
        return handle

    # -- queries -----------------------------------------------------------------------------------------------------

    async def find_keys(self, queue: str, keys: Sequence[KeyRef]) -> list[KeyHolder | None]:
        """Each key's job, with its successor; None where there is none. HomeOut; QueueNotFound never."""
        table = self.homes.table
        if table is None:
            await self._look_for_homes()
            table = self.homes.table
        if table is None:
            return [None] * len(keys)
        numbers_by_shard: dict[str, list[int]] = {}
        places = [table.places(slot_of_key(queue, key)) for key in keys]
        for number, place in enumerate(places):
            for shard_id in (*place.former, place.home):
                numbers_by_shard.setdefault(shard_id, []).append(number)
        calls = [
            self._find_at(shard_id, queue, [keys[n] for n in numbers]) for shard_id, numbers in numbers_by_shard.items()
        ]
        found: list[dict[str, KeyHolder]] = [{} for _ in keys]
        for (shard_id, numbers), holders in zip(numbers_by_shard.items(), await asyncio.gather(*calls), strict=True):
            for number, holder in zip(numbers, holders, strict=True):
                if holder is not None:
                    found[number][shard_id] = holder
        return [_of_all(key, place, by_shard) for key, place, by_shard in zip(keys, places, found, strict=True)]

    async def _look_for_homes(self) -> None:
        """Another process may have made them a moment ago."""
        for handle in self._members.healthy():
            await self.homes.catch_up(handle)
            if self.homes.table is not None:
                return

    async def _find_at(self, shard_id: str, queue: str, keys: Sequence[KeyRef]) -> list[KeyHolder | None]:
        try:
            return await self._usable(shard_id).shard.find_keys(queue, keys)
        except QueueNotFound:
            return [None] * len(keys)


def _extended(job: Job) -> ExtendedJob:
    if isinstance(job, ExtendedJob):
        return job
    return ExtendedJob(**{name: getattr(job, name) for name in _JOB_FIELDS})


def _at_one_home(queue: str, jobs: Sequence[ExtendedJob], table: HomeTable) -> tuple[str, list[Offer]] | None:
    """The only shard that these jobs concern, with their offers; None: there are several. For a settled table."""
    home, offers = "", []
    for job in jobs:
        if not (job.dedupe_key or job.serialize_key or job.send_id):  # is_keyed, without a call
            return None
        slot = slot_of(queue, job.dedupe_key, job.serialize_key, job.send_id)
        at = table.places(slot).home
        if at != home:
            if home:
                return None
            home = at
        offers.append(Offer(job, slot))
    return (home, offers) if home else None


def _placing(offer: Offer, is_keyed: bool, table: HomeTable, leaving: str) -> _Placing:
    if not is_keyed:
        return _Placing(offer, [])
    places = table.places(offer.slot)
    if places.is_moving:
        error = HomeMoving(
            "the homes of keys are changing, and the key of this job moves: send it again in a moment",
            retry_after_ms=MOVING_RETRY_MS,
        )
        return _Placing(offer, [], error)
    if places.home == leaving:
        return _Placing(offer, [], HomeMoving(f"keys of this call live on shard {leaving} itself"))
    left = [*(each for each in places.former if each != leaving), places.home]
    job = offer.job
    if len(left) == 1:
        return _Placing(offer, left)
    goes_by_two = job.serialize_key and (job.dedupe_key or job.send_id)
    asks = job.send_id and (job.dedupe_key or job.serialize_key)
    return _Placing(offer, left, to_probe=list(left) if goes_by_two else [], to_ask=list(left) if asks else [])


def _of_all(key: KeyRef, places: Places, by_shard: dict[str, KeyHolder]) -> KeyHolder | None:
    """What has this key, of what was found on the shards where it may live: the newest job of a dedupe key, the oldest
    chain of a serialize key; None where none was found.
    """
    if key.dedupe_key:
        return max(by_shard.values(), key=_id_of, default=None)
    order = (*reversed(places.former), places.home)
    return next((by_shard[shard_id] for shard_id in order if shard_id in by_shard), None)


def _id_of(holder: KeyHolder) -> int:
    ref = parse_descriptor(holder.descriptor)
    return 0 if ref is None else ref.id


def _answers_of(placed: Sequence[_Placing]) -> list[Offered]:
    """The answers, in the order of the jobs; or one error for all that have none, which says what is stored."""
    done = [each.answer for each in placed if isinstance(each.answer, Offered)]
    if len(done) == len(placed):
        return done
    failures = list(dict.fromkeys(each.answer for each in placed if isinstance(each.answer, PinLaterError)))
    if not done and len(failures) == 1:
        raise failures[0]
    stands = [each.answer if isinstance(each.answer, Offered) else None for each in placed]
    stands = [None if each is None or each.outcome > OfferOutcome.REPLACED else each for each in stands]
    error = _combined(failures, ["" if each is None else each.descriptor for each in stands] if any(stands) else None)
    error.job_outcomes = [None if each is None else each.outcome for each in stands]
    raise error


def _combined(failures: Sequence[PinLaterError], descriptors: Sequence[str] | None) -> PinLaterError:
    """One error for what kept jobs from being stored. Where others were stored, it never reads as if nothing was."""
    text = "; ".join(failure.message for failure in failures)
    first = failures[0]
    if any(isinstance(failure, OutcomeUnknown) for failure in failures):
        return OutcomeUnknown(text, job_descriptors=descriptors)
    if descriptors is None and all(type(failure) is type(first) for failure in failures):
        return type(first)(text, reason=first.reason, retry_after_ms=first.retry_after_ms)
    reasons = {failure.reason for failure in failures}
    reason = reasons.pop() if len(reasons) == 1 else None
    return ShardConnectionFailed(text, reason=reason, retry_after_ms=first.retry_after_ms, job_descriptors=descriptors)
