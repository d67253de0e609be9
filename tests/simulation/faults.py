"""The faults of a plan: what happens to machines, servers, stores and the ways between them.

Each is a method of `Faults` that begins it, waits, and ends it; its docstring is what `--help` says of it. Several may
last at a time. Whatever lasts when the plan is over is ended then (`heal`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from pinlater.errors import PinLaterError, ShardNotFound
from pinlater.history.recorder import Recorder
from tests.simulation.caller_network import CallerFault, CallerNetwork, FaultKind
from tests.simulation.cluster import Cluster
from tests.simulation.network import CALL_S, FLOWS, QUIET, TIER, Noise, Way
from tests.simulation.plan import Fault
from tests.simulation.server import SimulatedServer
from tests.simulation.store import SimulatedStore

START_AGAIN_S = 1.0
CLOCKS_AHEAD_MS = (-3_600_000, 3_600_000)
DRIFT_PPM = 500
"""A machine whose clock is so bad loses two seconds in an hour."""

SLOWEST_S = 1.0
"""Of one call of a slow place."""

NOISIEST = 0.2
"""The part of all calls that go wrong at most."""

FAIL_OVER_LOSES_S = 2.0
FULL = "the disk is full: free some space"
ROLL_PAUSE_S = 2.0
"""Between two servers that an operator restarts."""


class Faults:
    """`client` calls as an operator does. `recorder` notes what no caller can see."""

    def __init__(self, cluster: Cluster, callers: CallerNetwork, recorder: Recorder, operate: Operate) -> None:
        self._cluster, self._network = cluster, cluster.network
        self._callers, self._recorder, self._operate = callers, recorder, operate
        self._tasks: list[asyncio.Task[None]] = []
        self._wrong_clock = False
        self._changing = asyncio.Lock()
        """Whether an operator is restarting servers one by one."""
        self.met: dict[str, int] = {}
        """How often each kind began."""

    def start(self, faults: Sequence[Fault]) -> None:
        """Let each begin at its time from now on."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._carry_out(fault)) for fault in faults]

    async def _carry_out(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at_s)
        self.met[fault.kind] = self.met.get(fault.kind, 0) + 1
        await KINDS[fault.kind](self, fault)

    async def heal(self) -> None:
        """End all of them: what was killed lives again, clocks are right, nothing is cut."""
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome
        self._network.heal()
        self._callers.heal()
        for server in self._cluster.servers:
            server.thaw()
        for machine in self._cluster.machines.values():
            machine.clock.set_ahead(0)
        for store in self._cluster.stores:
            store.clock.set_ahead(0)
            store.full = ""
        for server in list(self._cluster.servers):
            if server.shard_ids != self._cluster.shard_ids:  # an operator was about to restart it
                await self._cluster.stop(server)
        for name in self._cluster.machines:
            if not self._lives(name):
                await self._start(name)

    # -- whom it befalls -----------------------------------------------------------------------------------------------

    def _server(self, fault: Fault) -> SimulatedServer | None:
        """None: none lives at the moment."""
        servers = self._cluster.servers
        return servers[fault.server % len(servers)] if servers else None

    def _store(self, fault: Fault) -> SimulatedStore:
        return self._network.stores[self._shard(fault)]

    def _shard(self, fault: Fault) -> str:
        ids = self._cluster.shard_ids
        return ids[fault.shard % len(ids)]

    def _lives(self, name: str) -> bool:
        return any(server.name == name for server in self._cluster.servers)

    async def _start(self, name: str) -> None:
        """As a supervisor does, again and again until it serves."""
        while not self._lives(name):
            try:
                await self._cluster.start(name)
            except Exception:
                await asyncio.sleep(START_AGAIN_S)

    # -- servers -------------------------------------------------------------------------------------------------------

    async def kill(self, fault: Fault) -> None:
        """A server is killed, and started again on its machine."""
        server = self._server(fault)
        if server is not None:
            self._cluster.kill(server)
            await asyncio.sleep(fault.lasts_s)
            await self._start(server.name)

    async def kill_all(self, fault: Fault) -> None:
        """All servers are killed at once, and started again one after the other."""
        dying = list(self._cluster.servers)
        for server in dying:
            self._cluster.kill(server)
        await asyncio.sleep(fault.lasts_s)
        for server in dying:
            await self._start(server.name)

    async def restart(self, fault: Fault) -> None:
        """A server drains and ends, and is started again."""
        server = self._server(fault)
        if server is not None:
            await self._cluster.stop(server)
            await asyncio.sleep(fault.lasts_s)
            await self._start(server.name)

    async def roll(self, fault: Fault) -> None:
        """All servers are restarted, one after the other."""
        await self._roll()

    async def _roll(self) -> None:
        async with self._changing:
            for server in list(self._cluster.servers):
                if server in self._cluster.servers:
                    await self._cluster.stop(server)
                    await self._start(server.name)
                    await asyncio.sleep(ROLL_PAUSE_S)

    async def freeze(self, fault: Fault) -> None:
        """A server stands still, as by SIGSTOP, and goes on."""
        server = self._server(fault)
        if server is not None:
            server.freeze()
            await asyncio.sleep(fault.lasts_s)
            if server.is_alive:
                server.thaw()

    async def join(self, fault: Fault) -> None:
        """A further server joins, and leaves again."""
        name = f"j{len(self._cluster.machines) + 1}"
        await self._start(name)
        await asyncio.sleep(fault.lasts_s)
        for server in self._cluster.servers:
            if server.name == name:
                await self._cluster.stop(server)
                break

    # -- clocks --------------------------------------------------------------------------------------------------------

    async def server_clock(self, fault: Fault) -> None:
        """The clock of a machine is set wrong, by up to an hour, and right again."""
        server = self._server(fault)
        if server is not None:
            await self._wrong(server.machine.clock.set_ahead, fault)

    async def store_clock(self, fault: Fault) -> None:
        """The clock of a store is set wrong, by up to an hour, and right again."""
        await self._wrong(self._store(fault).clock.set_ahead, fault)

    async def drift(self, fault: Fault) -> None:
        """The clock of a machine goes too fast or too slow, and is set right."""
        server = self._server(fault)
        if server is not None:
            drift_ppm = round((2 * fault.amount - 1) * DRIFT_PPM)
            await self._wrong(
                lambda _: server.machine.clock.set_ahead(0, drift_ppm), fault, server.machine.clock.set_ahead
            )

    async def _wrong(
        self, begin: Callable[[int], object], fault: Fault, end: Callable[[int], object] | None = None
    ) -> None:
        """One clock at a time: where most are wrong, nobody can tell."""
        if self._wrong_clock or len(self._cluster.servers) + len(self._cluster.shard_ids) < 3:
            return
        self._wrong_clock = True
        first, last = CLOCKS_AHEAD_MS
        try:
            begin(round(first + (last - first) * fault.amount))
            await asyncio.sleep(fault.lasts_s)
            (end or begin)(0)
            await asyncio.sleep(10)  # until all have compared
        finally:
            self._wrong_clock = False

    # -- ways ----------------------------------------------------------------------------------------------------------

    async def cut(self, fault: Fault) -> None:
        """The way from a server to a shard is refused, or silent."""
        server = self._server(fault)
        if server is not None:
            shard_id = self._shard(fault)
            self._network.cut(server.process, shard_id, Way.REFUSED if fault.amount < 0.5 else Way.LOST)
            await asyncio.sleep(fault.lasts_s)
            self._network.mend(server.process, shard_id)

    async def partition(self, fault: Fault) -> None:
        """A server reaches no store, no tier and no database of flows."""
        server = self._server(fault)
        if server is not None:
            places = [*self._network.stores, FLOWS, TIER]
            for place in places:
                self._network.cut(server.process, place, Way.LOST)
            await asyncio.sleep(fault.lasts_s)
            for place in places:
                self._network.mend(server.process, place)

    async def noise(self, fault: Fault) -> None:
        """A part of all calls from servers come late, have no answer, or do not arrive."""
        part = fault.amount * NOISIEST / 3
        self._network.noise = Noise(part, part, part)
        await asyncio.sleep(fault.lasts_s)
        self._network.noise = QUIET

    # -- stores --------------------------------------------------------------------------------------------------------

    async def dead(self, fault: Fault) -> None:
        """A store refuses every connection."""
        await self._down(self._shard(fault), Way.REFUSED, fault)

    async def hang(self, fault: Fault) -> None:
        """A store answers nothing."""
        await self._down(self._shard(fault), Way.LOST, fault)

    async def all_dead(self, fault: Fault) -> None:
        """All stores refuse every connection."""
        await asyncio.gather(*[self._down(shard_id, Way.REFUSED, fault) for shard_id in self._cluster.shard_ids])

    async def _down(self, place: str, way: Way, fault: Fault) -> None:
        self._network.cut_store(place, way)
        await asyncio.sleep(fault.lasts_s)
        self._network.mend_store(place)

    async def slow(self, fault: Fault) -> None:
        """A store takes up to a second for each call."""
        await self._slow(self._shard(fault), fault)

    async def _slow(self, place: str, fault: Fault) -> None:
        self._network.slow[place] = max(1.0, fault.amount * SLOWEST_S / CALL_S)
        await asyncio.sleep(fault.lasts_s)
        self._network.slow.pop(place, None)

    async def full(self, fault: Fault) -> None:
        """A store has no room for new jobs."""
        store = self._store(fault)
        store.full = FULL
        await asyncio.sleep(fault.lasts_s)
        store.full = ""

    async def roll_back(self, fault: Fault) -> None:
        """A store loses its last seconds, and is dead for a moment."""
        await self._set_back(fault, fault.lasts_s, fault.amount * 5)

    async def fail_over(self, fault: Fault) -> None:
        """A store is silent, and its replica takes over, which lacks up to two seconds."""
        await self._set_back(fault, fault.amount * FAIL_OVER_LOSES_S, fault.lasts_s, moves=True)

    async def _set_back(self, fault: Fault, loses_s: float, down_s: float, *, moves: bool = False) -> None:
        store = self._store(fault)
        if store.is_marked:
            return
        marked_ms = store.mark()
        await asyncio.sleep(loses_s)
        self._network.cut_store(store.shard_id, Way.LOST if moves else Way.REFUSED)
        store.roll_back()
        self._recorder.note("rollback", shard=store.shard_id, to_ms=marked_ms)
        await asyncio.sleep(down_s)
        self._network.mend_store(store.shard_id)
        if moves:
            self._network.store_moved(store.shard_id)

    # -- shards that come and go ---------------------------------------------------------------------------------------

    async def add_shard(self, fault: Fault) -> None:
        """A shard is added, and all servers are restarted with it."""
        self._cluster.add_shard()
        await self._roll()

    async def drain_shard(self, fault: Fault) -> None:
        """A shard takes no new jobs, and then does again."""
        shard_id = self._shard(fault)
        if len(self._cluster.shard_ids) > 1:
            self._recorder.note("drain", shard=shard_id)
            await self._until_done(shard_id, dequeue_only=True)
            await asyncio.sleep(fault.lasts_s)
            await self._until_done(shard_id, dequeue_only=False)

    async def give_up_shard(self, fault: Fault) -> None:
        """A store is dead for good, its shard is given up, and all servers are restarted without it."""
        if len(self._cluster.shard_ids) < 2:
            return
        shard_id = self._shard(fault)
        self._network.cut_store(shard_id, Way.REFUSED)
        self._cluster.shard_ids.remove(shard_id)  # whoever starts from here on starts without it
        self._recorder.note("lost", shard=shard_id)
        await asyncio.sleep(fault.lasts_s)
        await self._until_done(shard_id, dequeue_only=True, give_up=True)
        await self._roll()

    async def _until_done(self, shard_id: str, *, dequeue_only: bool, give_up: bool = False) -> None:
        """As an operator who is told that it did not work."""
        while True:
            try:
                await self._operate(shard_id, dequeue_only, give_up)
            except ShardNotFound:  # the servers were restarted without it, and nothing lives there
                return
            except PinLaterError:
                await asyncio.sleep(START_AGAIN_S)
            else:
                return

    # -- what is beside the shards -------------------------------------------------------------------------------------

    async def flows_down(self, fault: Fault) -> None:
        """The database of flows refuses, or is silent."""
        await self._down(FLOWS, Way.REFUSED if fault.amount < 0.5 else Way.LOST, fault)

    async def flows_slow(self, fault: Fault) -> None:
        """The database of flows takes up to a second for each call."""
        await self._slow(FLOWS, fault)

    async def tier_down(self, fault: Fault) -> None:
        """The tier of bodies refuses, or is silent."""
        await self._down(TIER, Way.REFUSED if fault.amount < 0.5 else Way.LOST, fault)

    async def tier_slow(self, fault: Fault) -> None:
        """The tier of bodies takes up to a second for each call."""
        await self._slow(TIER, fault)

    # -- between callers and servers -----------------------------------------------------------------------------------

    async def _callers_meet(self, kind: FaultKind, fault: Fault) -> None:
        now_s = asyncio.get_running_loop().time()
        chance = fault.amount * NOISIEST
        self._callers.add(CallerFault(kind, now_s, now_s + fault.lasts_s, chance))
        await asyncio.sleep(fault.lasts_s)


Operate = Callable[[str, bool, bool], Awaitable[object]]
"""Changes a shard: its id, whether it takes no new jobs, and whether it is given up."""

Kind = Callable[[Faults, Fault], Awaitable[None]]


def _of_callers(kind: FaultKind) -> Kind:
    async def meet(faults: Faults, fault: Fault) -> None:
        await faults._callers_meet(kind, fault)

    meet.__doc__ = f"Between callers and servers: {kind.value}."
    return meet


KINDS: Mapping[str, Kind] = {
    **{
        name: getattr(Faults, name)
        for name in (
            *("kill", "kill_all", "restart", "roll", "freeze", "join"),
            *("server_clock", "store_clock", "drift", "cut", "partition", "noise"),
            *("dead", "hang", "all_dead", "slow", "full", "roll_back", "fail_over"),
            *("add_shard", "drain_shard", "give_up_shard"),
            *("flows_down", "flows_slow", "tier_down", "tier_slow"),
        )
    },
    **{f"callers_{kind.value}": _of_callers(kind) for kind in FaultKind},
}

WEIGHTS = dict.fromkeys(KINDS, 1.0) | {"kill": 4.0, "freeze": 2.0, "noise": 2.0, "roll_back": 2.0, "add_shard": 0.5}
"""How often each is drawn."""
