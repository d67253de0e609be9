"""The ways from server processes to stores: how long they take, what fails on them, and how many calls went.

A way is well, or `REFUSED` (the store is dead: every call fails at once), or `LOST` (the packets vanish: a call gets no
answer, and fails as OUTCOME_UNKNOWN when its connection is given up). A call that came to its store was carried out,
whether or not its answer came back.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from enum import Enum
from functools import partial
from hashlib import blake2b
from typing import Any

from pinlater.backends.base import OPERATIONS, NoEvents, Notification, OnNotification, Shard, ShardEvents
from pinlater.errors import NothingStored, OutcomeUnknown
from tests.simulation.store import SimulatedStore

ONE_WAY_S = (0.000_1, 0.000_4)
"""What a packet takes, at least and at most."""

GIVEN_UP_S = 15.0
"""So long a connection hangs before its driver gives it up."""

CALL_S, ENTRY_S = 0.000_03, 0.000_003
"""What a store takes for a call, and for each lease or job in its answer: one after the other, as Redis does."""


class Way(Enum):
    WELL = "well"
    REFUSED = "refused"
    LOST = "lost"


class Tally:
    """All calls of a run, by operation, process and shard, and a hash of their order and times."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str, str]] = Counter()
        self.notifications: Counter[tuple[str, str]] = Counter()
        """By the process that got them and the shard that sent them."""
        self._trace = blake2b(digest_size=16)

    def note(self, operation: str, process: str, shard_id: str) -> None:
        self.calls[operation, process, shard_id] += 1
        self.trace(f"{operation} {process} {shard_id}")

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

    def __init__(self, stores: list[SimulatedStore]) -> None:
        self.stores = {store.shard_id: store for store in stores}
        self.tally = Tally()
        self.slow: dict[str, float] = {}
        """Stores that take so many times as long for all."""
        self._ways: dict[tuple[str, str], Way] = {}
        self._stores_down: dict[str, Way] = {}
        self._dead: set[str] = set()
        self._free_at: dict[str, float] = dict.fromkeys(self.stores, 0.0)
        self._subscribed: dict[tuple[str, str], dict[str, OnNotification]] = {}
        """By shard and queue: the processes, and whom to tell."""
        for store in stores:
            store.publish = partial(self._publish, store.shard_id)

    def way(self, process: str, shard_id: str) -> Way:
        return self._stores_down.get(shard_id) or self._ways.get((process, shard_id), Way.WELL)

    def cut(self, process: str, shard_id: str, way: Way) -> None:
        """From one process to one store."""
        self._ways[process, shard_id] = way
        self._break_subscriptions(process, shard_id)

    def cut_store(self, shard_id: str, way: Way) -> None:
        """From all processes."""
        self._stores_down[shard_id] = way
        for process in {each for (shard, _), told in self._subscribed.items() if shard == shard_id for each in told}:
            self._break_subscriptions(process, shard_id)

    def kill(self, process: str) -> None:
        """Nothing of a process that died comes to a store any more; what is on its way arrives."""
        self._dead.add(process)

    def heal(self) -> None:
        """All is well again; a store that was slow has soon done what waits there."""
        self._free_at = dict.fromkeys(self.stores, 0.0)
        self._ways.clear()
        self._stores_down.clear()
        self.slow.clear()

    def forget(self, process: str) -> None:
        """A process that died hears nothing any more."""
        for told in self._subscribed.values():
            told.pop(process, None)

    def _break_subscriptions(self, process: str, shard_id: str) -> None:
        for (shard, _), told in self._subscribed.items():
            if shard == shard_id and (on_event := told.pop(process, None)) is not None:
                on_event(None)

    # -- one call ----------------------------------------------------------------------------------------------------

    async def call(self, process: str, shard_id: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if process in self._dead:
            raise NothingStored("the process is dead")
        self.tally.note(f"{name} {args[0]}" if name.startswith("kv_") else name, process, shard_id)
        await self._travel(process, shard_id)
        store = self.stores[shard_id]
        if name == "enqueue":
            kwargs["me"] = process
        answer = getattr(store, name)(*args, **kwargs)
        await self._work(shard_id, answer)
        await self._travel(process, shard_id, is_answer=True)
        return answer

    async def _travel(self, process: str, shard_id: str, *, is_answer: bool = False) -> None:
        await asyncio.sleep(random.uniform(*ONE_WAY_S))
        way = self.way(process, shard_id)
        if way is Way.REFUSED:
            raise (OutcomeUnknown if is_answer else NothingStored)(f"shard {shard_id}: the connection was refused")
        if way is Way.LOST:
            await asyncio.sleep(GIVEN_UP_S)
            raise OutcomeUnknown(f"shard {shard_id}: the connection was given up")

    async def _work(self, shard_id: str, answer: Any) -> None:
        """Stores do one thing at a time."""
        now_s = asyncio.get_running_loop().time()
        takes_s = CALL_S + ENTRY_S * (len(answer) if isinstance(answer, list | dict) else 0)
        takes_s *= self.slow.get(shard_id, 1.0)
        self._free_at[shard_id] = max(now_s, self._free_at[shard_id]) + takes_s
        await asyncio.sleep(self._free_at[shard_id] - now_s)

    # -- notifications -----------------------------------------------------------------------------------------------

    async def subscribe(self, process: str, shard_id: str, queue: str, on_event: OnNotification | None) -> bool:
        self.tally.note("subscribe", process, shard_id)
        told = self._subscribed.setdefault((shard_id, queue), {})
        if on_event is None:
            told.pop(process, None)
            return False
        if not self.stores[shard_id].notifies or self.way(process, shard_id) is not Way.WELL:
            return False
        told[process] = on_event
        return True

    def _publish(self, shard_id: str, queue: str, event: Notification, by: str) -> None:
        loop = asyncio.get_running_loop()
        for process in self._subscribed.get((shard_id, queue), {}):
            if process != by:
                loop.call_later(random.uniform(*ONE_WAY_S), self._deliver, process, shard_id, queue, event)

    def _deliver(self, process: str, shard_id: str, queue: str, event: Notification) -> None:
        on_event = self._subscribed.get((shard_id, queue), {}).get(process)
        if on_event is not None:
            self.tally.notifications[process, shard_id] += 1
            on_event(event)


class RemoteStore(Shard):
    """A store as one process reaches it."""

    keeps_order = False
    has_own_clock = True

    def __init__(self, network: Network, process: str, shard_id: str) -> None:
        self.shard_id = shard_id
        self.events: ShardEvents = NoEvents()
        self._network, self._process = network, process
        for name in OPERATIONS:
            setattr(self, name, self._method(name))

    def _method(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._network.call(self._process, self.shard_id, name, args, kwargs)

        return call

    async def subscribe(self, queue: str, on_event: OnNotification | None) -> bool:
        return await self._network.subscribe(self._process, self.shard_id, queue, on_event)

    async def close(self) -> None:
        """There is nothing to close."""
