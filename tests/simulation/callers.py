"""Callers of a cluster: the product's own client in simulated processes, which may die at any moment, and the history
of what they asked and were answered.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

from pinlater.background_tasks import BackgroundTasks
from pinlater.client.addresses import DEFAULT_PORT, DnsName
from pinlater.client.async_client import AsyncClient
from pinlater.client.dispatcher import CallSpec, CallTransport, Dispatcher, FirstAttempt
from pinlater.client.pool import PoolLimits
from pinlater.client.recorded_calls import RecordedCalls
from pinlater.client.server_list import Server, ServerList
from pinlater.errors import PinLaterError
from pinlater.history.recorder import Recorder
from pinlater.wire.methods import ACK, ENQUEUE, HEARTBEAT, LOOKUP, Idempotency
from tests.simulation.caller_network import CallerNetwork, FaultKind

_TWICE = (ACK, ENQUEUE, HEARTBEAT, LOOKUP)


class Caller:
    """A process with a client. `name` is the source of its calls, and stands in the claims made for it."""

    def __init__(self, name: str, client: AsyncClient) -> None:
        self.name = name
        self.client = client
        self.is_dead = False
        self.has_lost_connection = asyncio.Event()
        """A connection of it has closed since it was cleared."""


class Callers:
    """All callers of a run. Each choice that a client makes by chance follows from `seed` and the caller's name."""

    def __init__(self, network: CallerNetwork, seed: str, recorder: Recorder) -> None:
        self.network = network
        self.recorder = recorder
        self.errors: Counter[str] = Counter()
        """Of calls, by method and reason."""
        self._seed = seed
        self._living: dict[str, Caller] = {}
        self._ending = BackgroundTasks()

    def start(self, name: str) -> Caller:
        """A new process. A name is that of one process in a run."""
        rng = random.Random(f"{self._seed} {name}")
        caller = Caller(name, AsyncClient(source=name, token="", transport=self._transport(name, rng)))
        self._living[name] = caller
        return caller

    def _transport(self, name: str, rng: random.Random) -> CallTransport:
        limits = PoolLimits()

        def lost() -> None:
            if name in self._living:
                self._living[name].has_lost_connection.set()

        servers = ServerList(
            [DnsName("cluster", DEFAULT_PORT)],
            lambda address, _: Server(address, limits, lost),
            lambda _, __: self.network.resolve(name),
        )
        calls = _SentTwice(Dispatcher(servers, rng), partial(self.network.befalls, FaultKind.TWICE, name), self.network)
        return RecordedCalls(calls, self.recorder)

    def failed(self, error: PinLaterError, what: str) -> None:
        """A call of a caller ended with this error, as it may while there are faults."""
        self.errors[f"{what} {error.reason or type(error).__name__}"] += 1

    def kill(self, caller: Caller) -> None:
        """It dies at this moment, whatever it does. What it has asked may be carried out."""
        if not caller.is_dead:
            caller.is_dead = True
            del self._living[caller.name]
            self.network.kill_caller(caller.name)
            self._ending.start(caller.client.close())

    async def close(self, caller: Caller) -> None:
        """It ends as it should."""
        if not caller.is_dead:
            caller.is_dead = True
            del self._living[caller.name]
            await caller.client.close()

    async def close_all(self) -> None:
        for caller in list(self._living.values()):
            await self.close(caller)
        await self._ending.drain()


class _SentTwice:
    """A CallTransport by which some calls come once more."""

    def __init__(self, calls: CallTransport, befalls: Callable[[], Any], network: CallerNetwork) -> None:
        self._calls = calls
        self._befalls = befalls
        self._network = network
        self._copies = BackgroundTasks()

    async def call(self, call: CallSpec, first: FirstAttempt | None = None) -> Any:
        fault = self._befalls() if _may_come_late(call) else None
        if fault is None:
            return await self._calls.call(call, first)
        copy = replace(call, args=deepcopy(call.args), revise=None)
        success = await self._calls.call(call, first)
        self._copies.start(self._send(copy, self._network.late_s(fault)))
        return success

    async def _send(self, copy: CallSpec, late_s: float) -> None:
        await asyncio.sleep(late_s)
        try:
            await self._calls.call(copy)
        except PinLaterError:
            """Nobody waits for it."""

    def begin(self, call: CallSpec, on_end: Callable[[FirstAttempt], None]) -> bool:
        return self._calls.begin(call, on_end)

    def cancel_long_polls(self, why: str) -> None:
        self._calls.cancel_long_polls(why)

    def resume_long_polls(self) -> None:
        self._calls.resume_long_polls()

    async def close(self, why: str) -> None:
        await self._copies.cancel()
        await self._calls.close(why)


def _may_come_late(call: CallSpec) -> bool:
    """Whether a copy changes nothing, whatever came in between."""
    if call.idempotency is Idempotency.ONCE or call.method not in _TWICE:
        return False
    request = call.args.request
    acks = [*(request.succeeded or ()), *(request.failed or ())] if call.method is ACK else []
    return all(ack.claim_descriptor for ack in acks)
