"""The ways from server processes to what they share: how long they take, what fails on them, and how many calls went.

A place is a store, by its shard id, or something else that processes share (`FLOWS`, `TIER`, an overflow shard). A way
to it is well, or `REFUSED` (the place is dead: every call fails at once), or `LOST` (packets vanish: a call gets no
answer, and fails as OUTCOME_UNKNOWN when its connection is given up). Beside that single calls can go wrong (`Noise`).

A call that came to its place was carried out, whether or not its answer came back, and whatever became of the process
that made it.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

from pinlater.backends.base import OPERATIONS, NoEvents, Notification, OnNotification, Shard, ShardEvents
from pinlater.backends.deferred_notifications import DeferredNotifications, can_wait
from pinlater.backends.extended import Offer, Offered
from pinlater.background_tasks import BackgroundTasks
from pinlater.errors import NothingStored, OutcomeUnknown, PinLaterError
from pinlater.model import Job
from tests.simulation.calls import CLAIMS
from tests.simulation.store import ENQUEUES, SimulatedStore
from tests.simulation.virtual_time import as_process

ONE_WAY_S = (0.000_1, 0.000_4)
"""What a packet takes, at least and at most."""

LATE_S = (0.2, 12.0)
"""What one takes that is late: also longer than anybody waits for its answer."""

GIVEN_UP_S = 15.0
"""So long a connection hangs before its driver gives it up."""

CALL_S, ENTRY_S = 0.000_03, 0.000_003
"""What a store takes for a call, and for each lease or job in its answer: one after the other, as Redis does."""

FLOWS, TIER = "flows", "tier"
"""The database of flows, and the store of bodies."""


class Way(Enum):
    WELL = "well"
    REFUSED = "refused"
    LOST = "lost"


@dataclass(frozen=True)
class Noise:
    """The parts of all calls that come late, that were carried out and have no answer, and that never arrive."""

    late: float = 0.0
    unanswered: float = 0.0
    refused: float = 0.0


QUIET = Noise()


class Tally:
    """All calls of a run, by operation, process and place, and a hash of their order and times."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str, str]] = Counter()
        self.notifications: Counter[tuple[str, str]] = Counter()
        """By the process that got them and the shard that sent them."""
        self.empty_claims = 0
        """Claims that a store carried out and that brought no job."""
        self._trace = blake2b(digest_size=16)

    def note(self, operation: str, process: str, place: str) -> None:
        self.calls[operation, process, place] += 1
        self.trace(f"{operation} {process} {place}")

    def trace(self, what: str) -> None:
        self._trace.update(f"{asyncio.get_running_loop().time():.9f} {what}\n".encode())

    def hash(self) -> str:
        """The same for two runs only where everything happened at the same time in the same order."""
        return self._trace.hexdigest()

    def by_operation(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for (operation, _, _), calls in self.calls.items():
            counts[operation] += calls
        return counts


class Network:
    """All stores, and the state of each way to them."""

    def __init__(self, stores: list[SimulatedStore], flows_file: Path) -> None:
        self.stores: dict[str, SimulatedStore] = {}
        self.tally = Tally()
        self.noise = QUIET
        self.slow: dict[str, float] = {}
        """Places that take so many times as long for all."""
        self._ways: dict[tuple[str, str], Way] = {}
        self._down: dict[str, Way] = {}
        self._dead: set[str] = set()
        self._free_at: dict[str, float] = {}
        self._subscribed: dict[tuple[str, str], dict[str, OnNotification]] = {}
        """By shard and queue: the processes, and whom to tell."""
        self._remote: dict[tuple[str, str], RemoteStore] = {}
        self._nobody = as_process("")
        self.objects: dict[str, tuple[bytes, int]] = {}
        """Those of the tier: bodies, and when each came."""
        self.flows_file = flows_file
        self.locks: dict[Path, str] = {}
        """Of files: the processes that hold them."""

        self.ports = count(40_000)
        """Those that are free on all machines."""

        self.listen: Callable[[str, Callable[[socket.socket], None]], None] = lambda address, adopt: None
        self.leave: Callable[[str], None] = lambda address: None
        """How servers take connections of each other, if they can."""

        for store in stores:
            self.add(store)

    def add(self, store: SimulatedStore) -> None:
        self.stores[store.shard_id] = store
        store.publish = partial(self._publish, store.shard_id)

    def way(self, process: str, place: str) -> Way:
        return self._down.get(place) or self._ways.get((process, place), Way.WELL)

    def cut(self, process: str, place: str, way: Way) -> None:
        """From one process to one place."""
        self._ways[process, place] = way
        self._break_subscriptions(process, place)

    def mend(self, process: str, place: str) -> None:
        self._ways.pop((process, place), None)

    def cut_store(self, place: str, way: Way) -> None:
        """From all processes."""
        self._down[place] = way
        for process in {each for (shard, _), told in self._subscribed.items() if shard == place for each in told}:
            self._break_subscriptions(process, place)

    def mend_store(self, place: str) -> None:
        self._down.pop(place, None)

    def store_moved(self, shard_id: str) -> None:
        """Another machine has taken over: the processes that can reach it learn of it."""
        for (process, shard), remote in self._remote.items():
            if shard == shard_id and process not in self._dead and self.way(process, shard) is Way.WELL:
                as_process(process).run(asyncio.get_running_loop().call_soon, remote.events.store_moved)

    def kill(self, process: str) -> None:
        """Nothing of a process that died comes to a place any more; what is on its way arrives."""
        self._dead.add(process)
        for told in self._subscribed.values():
            told.pop(process, None)
        for key in [key for key in self._remote if key[0] == process]:
            del self._remote[key]

    def is_dead(self, process: str) -> bool:
        return process in self._dead

    def heal(self) -> None:
        """All is well again; a store that was slow has soon done what waits there."""
        self._free_at.clear()
        self._ways.clear()
        self._down.clear()
        self.slow.clear()
        self.noise = QUIET

    def _break_subscriptions(self, process: str, place: str) -> None:
        for (shard, _), told in self._subscribed.items():
            if shard == place and (on_event := told.pop(process, None)) is not None:
                as_process(process).run(asyncio.get_running_loop().call_soon, on_event, None)

    # -- one call ----------------------------------------------------------------------------------------------------

    async def call(self, process: str, place: str, name: str, carry_out: Callable[[], Any]) -> Any:
        """What `carry_out` returns or raises at the place. NothingStored, OutcomeUnknown: of the way."""
        if process in self._dead:
            raise NothingStored("the process is dead")
        self.tally.note(name, process, place)
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Any] = loop.create_future()
        noise = self.noise
        luck = 1.0 if noise is QUIET else random.random()
        if luck < noise.refused:
            return await self._failed(NothingStored(f"{place}: the connection was refused"), 0.0)
        is_late = luck < noise.refused + noise.late
        travels_s = random.uniform(*(LATE_S if is_late else ONE_WAY_S))
        is_answered = not noise.refused + noise.late <= luck < noise.refused + noise.late + noise.unanswered
        way = self.way(process, place)
        if way is Way.REFUSED:
            return await self._failed(NothingStored(f"{place}: the connection was refused"), travels_s)
        if way is Way.LOST:
            return await self._failed(OutcomeUnknown(f"{place}: the connection was given up"), GIVEN_UP_S)
        loop.call_later(travels_s, self._arrive, process, place, carry_out, answered, is_answered, context=self._nobody)
        return await answered

    async def _failed(self, error: PinLaterError, after_s: float) -> Any:
        await asyncio.sleep(after_s)
        raise error

    def _arrive(
        self,
        process: str,
        place: str,
        carry_out: Callable[[], Any],
        answered: asyncio.Future[Any],
        is_answered: bool,
    ) -> None:
        way = self.way(process, place)
        if way is not Way.WELL:
            after_s = GIVEN_UP_S if way is Way.LOST else 0.0
            self._answer_later(after_s, answered, None, OutcomeUnknown(f"{place}: the connection broke"))
            return
        answer, error = None, None
        try:
            answer = carry_out()
        except Exception as failure:
            error = failure
        after_s = self._work_s(place, answer) + random.uniform(*ONE_WAY_S)
        asyncio.get_running_loop().call_later(
            after_s, self._back, process, place, answered, answer, error, is_answered, context=self._nobody
        )

    def _back(
        self,
        process: str,
        place: str,
        answered: asyncio.Future[Any],
        answer: Any,
        error: Exception | None,
        is_answered: bool,
    ) -> None:
        way = self.way(process, place)
        if way is Way.WELL and is_answered:
            self._answer(answered, answer, error)
        else:
            after_s = GIVEN_UP_S if way is Way.LOST else 0.0
            self._answer_later(after_s, answered, None, OutcomeUnknown(f"{place}: the connection broke"))

    def _answer_later(self, after_s: float, answered: asyncio.Future[Any], answer: Any, error: Exception) -> None:
        asyncio.get_running_loop().call_later(after_s, self._answer, answered, answer, error, context=self._nobody)

    def _answer(self, answered: asyncio.Future[Any], answer: Any, error: Exception | None) -> None:
        if answered.done():  # nobody waits any more
            return
        if error is None:
            answered.set_result(answer)
        else:
            answered.set_exception(error)

    def _work_s(self, place: str, answer: Any) -> float:
        """How long the answer waits there: stores do one thing at a time."""
        now_s = asyncio.get_running_loop().time()
        takes_s = CALL_S + ENTRY_S * (len(answer) if isinstance(answer, list | dict) else 0)
        takes_s *= self.slow.get(place, 1.0)
        free_s = self._free_at[place] = max(now_s, self._free_at.get(place, 0.0)) + takes_s
        return free_s - now_s

    # -- stores --------------------------------------------------------------------------------------------------------

    def remote(self, process: str, shard_id: str) -> RemoteStore:
        """The store as this process reaches it."""
        made = self._remote[process, shard_id] = RemoteStore(self, process, shard_id)
        return made

    def carry_out(self, process: str, shard_id: str, name: str, args: Any, kwargs: Any, notifies: bool) -> Any:
        """A call of a store, at the moment at which it arrives there."""
        store = self.stores[shard_id]
        answer = store.call(name, args, kwargs, process, notifies=notifies)
        if OPERATIONS[name].claims and not any(answer if name == "claim" else answer[1]):
            self.tally.empty_claims += 1
        if store.freed:
            return _Freeing(answer, store.freed)
        return answer

    async def subscribe(self, process: str, shard_id: str, queue: str, on_event: OnNotification | None) -> bool:
        self.tally.note("subscribe", process, shard_id)
        told = self._subscribed.setdefault((shard_id, queue), {})
        if on_event is None:
            told.pop(process, None)
            return False
        if not self.stores[shard_id].notifies or self.way(process, shard_id) is not Way.WELL or process in self._dead:
            return False
        told[process] = on_event
        return True

    async def publish_left(self, process: str, shard_id: str, queue: str, jobs: int) -> None:
        """Jobs of which nobody was notified are still there."""
        event = Notification(jobs, None)
        with suppress(PinLaterError):
            await self.call(process, shard_id, "publish", partial(self._publish, shard_id, queue, event, process))

    def _publish(self, shard_id: str, queue: str, event: Notification, by: str) -> None:
        loop = asyncio.get_running_loop()
        for process in self._subscribed.get((shard_id, queue), {}):
            if process != by:
                as_process(process).run(
                    loop.call_later, random.uniform(*ONE_WAY_S), self._deliver, process, shard_id, queue, event
                )

    def _deliver(self, process: str, shard_id: str, queue: str, event: Notification) -> None:
        on_event = self._subscribed.get((shard_id, queue), {}).get(process)
        if on_event is not None:
            self.tally.notifications[process, shard_id] += 1
            on_event(event)


class _Freeing:
    """The answer of a call that freed jobs behind others of their serialize keys."""

    def __init__(self, answer: Any, freed: list[Any]) -> None:
        self.answer, self.freed = answer, freed


def _ready(stored: Sequence[str | Offered]) -> list[str]:
    """The jobs of an enqueue that may be handed out."""
    names = [each if isinstance(each, str) else each.descriptor for each in stored]
    waits = [isinstance(each, Offered) and each.ready_at_ms is None for each in stored]
    return [name for name, is_waiting in zip(names, waits, strict=True) if not is_waiting]


class RemoteStore(Shard):
    """A store as one process reaches it."""

    keeps_order = False
    has_own_clock = True

    def __init__(self, network: Network, process: str, shard_id: str) -> None:
        self.shard_id = shard_id
        self.events: ShardEvents = NoEvents()
        self._network, self._process = network, process
        self._deferred = DeferredNotifications(self._publish)
        self._publishing = BackgroundTasks()
        for name in OPERATIONS:
            setattr(self, name, self._method(name))

    def _method(self, name: str) -> Callable[..., Any]:
        network, process, shard_id = self._network, self._process, self.shard_id

        async def call(*args: Any, **kwargs: Any) -> Any:
            label = f"{name} {args[0]}" if name.startswith("kv_") else name
            is_deferred = name in ENQUEUES and self._defers(*args)
            carry_out = partial(network.carry_out, process, shard_id, name, args, kwargs, not is_deferred)
            try:
                answer = await network.call(process, shard_id, label, carry_out)
            except BaseException:
                if is_deferred:
                    self._publish(args[0], len(args[1]))
                raise
            if isinstance(answer, _Freeing):
                for queue, run_after_ms in answer.freed:
                    self.events.jobs_freed(queue, run_after_ms)
                answer = answer.answer
            if is_deferred:
                self._deferred.defer(args[0], _ready(answer))
            elif name in CLAIMS:
                for jobs in answer if name == "claim" else answer[1]:
                    self._deferred.claimed(jobs)
            return answer

        return call

    def _defers(self, queue: str, stored: Sequence[Job | Offer], now_ms: int, homes_version: str = "") -> bool:
        """As on Redis: see `PubSub.defers`."""
        jobs = [each.job if isinstance(each, Offer) else each for each in stored]
        if not self._network.stores[self.shard_id].notifies or not can_wait(jobs, now_ms):
            return False
        return self.events.claims_at_once(queue, len(jobs))

    def _publish(self, queue: str, jobs: int) -> None:
        self._publishing.start(self._network.publish_left(self._process, self.shard_id, queue, jobs))

    async def subscribe(self, queue: str, on_event: OnNotification | None) -> bool:
        return await self._network.subscribe(self._process, self.shard_id, queue, on_event)

    async def close(self) -> None:
        """There is nothing to close."""
