"""A cluster as it is run: two servers of two processes over four shards, two of them behind a network that breaks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from pinlater import AsyncClient
from pinlater.data_folder.password import hash_password
from pinlater.model import ClusterStatus, JobFilter, JobState
from tests.cluster.proof_stores import SHARDS, FourStores
from tests.faults.proxy import Proxy
from tests.server.running import Plain, RunningServer
from tests.stores.process import free_port

DEADLINE_S = 2.0
PAUSE_S = 2.0
LEASE_S = 2.0
CLAIM_S = 3.0
SLACK_S = 2.0
"""What the machine may take for itself, times `slower(time.monotonic)`."""

WITHIN_S = 120.0
"""A server of four processes alone may need most of a minute to start, on a machine with many times more to do."""

PROCESSES = 4
PASSWORD = "open sesame"
HASH = hash_password(PASSWORD)
SETTINGS = (
    *("--processes", "2", "--http", "127.0.0.1:0", "--admin-password-hash", HASH),
    *("--call-timeout", f"{DEADLINE_S:.0f}s", "--health-pause", f"{PAUSE_S:.0f}s", "--lease", f"{LEASE_S:.0f}s"),
    *("--health-window", "20", "--health-min-good", "15"),
    *("--claim-timeout", f"{CLAIM_S:.0f}s", "--maintenance-interval", "200ms", "--stats-interval", "500ms"),
)
PATIENT = ("--call-timeout", "10s")
"""For proofs that no store is slow in: a busy machine may stop for a second, and then no call must fail."""


async def until(holds: Callable[[], Awaitable[bool]], within_s: float = WITHIN_S) -> float:
    """The moment when it was so, on the monotonic clock."""
    deadline = time.monotonic() + within_s
    while not await holds():
        assert time.monotonic() < deadline, f"{holds} did not come to pass"
        await asyncio.sleep(0.05)
    return time.monotonic()


class Server:
    """`pinlater serve` on a port that it keeps, in a folder of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        folder.mkdir(exist_ok=True)
        self.port = free_port()
        self.folder = folder
        self._arguments = arguments
        self.running = self._started()

    def _started(self) -> RunningServer:
        return RunningServer(self.folder, *self._arguments, port=self.port)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def is_ready(self) -> bool:
        """AssertionError for one that has ended."""
        assert self.running.process.poll() is None, self.running.events
        return any(event["event"] == "ready" for event in self.running.events)

    def processes(self) -> list[int]:
        pid = self.running.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def kill(self) -> None:
        """All of it at once, as when the machine is gone."""
        for pid in (self.running.process.pid, *self.processes()):
            os.kill(pid, signal.SIGKILL)
        self.running.clean_up()

    def start_again(self) -> None:
        """After a kill or an end; one that still runs is ended first."""
        self.running.clean_up()
        self.running = self._started()

    def get(self, path: str) -> tuple[int, str]:
        """The status and text of a page beside the server."""
        address = self.running.wait_for("http_ready")["address"]
        try:
            with urllib.request.urlopen(f"{address.rstrip('/')}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


class Stand:
    """The servers, and the proxies by the shard that they stand before. `config` is the file that both servers read."""

    def __init__(
        self,
        folder: Path,
        stores: FourStores,
        *arguments: str,
        proxied: Iterable[str] = (),
        shards: Iterable[str] = SHARDS,
    ) -> None:
        self.stores = stores
        self.direct = stores.fresh()
        self.config = folder / "pinlater.toml"
        self.proxies: dict[str, Proxy] = {}
        self._urls = dict(self.direct)
        for shard in proxied:
            port = stores.servers[shard].port
            proxy = self.proxies[shard] = Proxy(port).__enter__()
            self._urls[shard] = self.direct[shard].replace(f":{port}/", f":{proxy.port}/")
        self.configure(dict.fromkeys(shards, ""))
        self.servers = [Server(folder / name, "--config", str(self.config), *SETTINGS, *arguments) for name in "ab"]

    def configure(self, shards: dict[str, str], more: str = "") -> None:
        """Write the file anew: these shards, each with further lines; in one step, as an editor or git does."""
        tables = [f'[[store]]\nid = "{each}"\nurl = "{self._urls[each]}"\n{lines}\n' for each, lines in shards.items()]
        new = self.config.with_suffix(".new")
        new.write_text(f"{more}\n" + "".join(tables))
        os.replace(new, self.config)

    def add_place(self, shard: str, url: str) -> None:
        """Another shard, to be named in the file later."""
        self._urls[shard] = self.direct[shard] = url

    def __enter__(self) -> Stand:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self.servers:
            server.running.clean_up()
        for proxy in self.proxies.values():
            proxy.__exit__(None, None, None)

    @property
    def ports(self) -> list[int]:
        return [server.port for server in self.servers]

    @contextlib.asynccontextmanager
    async def clients(self, history: Path | str = "") -> AsyncIterator[list[AsyncClient]]:
        """One for each server, once all processes serve and know each other. `history`: where they record."""
        async with contextlib.AsyncExitStack() as stack:
            made = [
                await stack.enter_async_context(AsyncClient(server.address, source="operator", history=history))
                for server in self.servers
            ]
            for server in self.servers:
                await until(server.is_ready)
            try:
                for client in made:
                    await all_agree(client, PROCESSES)
            except AssertionError as late:
                raise AssertionError(f"{late}\nThe servers wrote of their shards: {self.shard_events()}") from late
            yield made

    def shard_events(self) -> list[dict[str, Any]]:
        """What each server wrote of a shard since it was started last: why one is out, and when it came in."""
        return [event for server in self.servers for event in server.running.events if "shard" in event]


async def status_when(
    client: AsyncClient, holds: Callable[[ClusterStatus], bool], within_s: float = WITHIN_S
) -> ClusterStatus:
    """The first status of the cluster that is so."""
    deadline = time.monotonic() + within_s
    while True:
        status = await client.cluster_status()
        if holds(status):
            return status
        assert time.monotonic() < deadline, f"it did not come to pass: {status}"
        await asyncio.sleep(0.05)


async def all_agree(client: AsyncClient, processes: int, *, out: Iterable[str] = ()) -> ClusterStatus:
    """When so many processes live, and each of them has just these shards out."""
    wanted = sorted(out)
    return await status_when(
        client,
        lambda status: (
            len(status.servers) == processes and all(sorted(each.shards_out) == wanted for each in status.servers)
        ),
    )


async def count(client: AsyncClient, queue: str, *states: JobState) -> int:
    """Jobs in these states, whenever they may run."""
    filters = [JobFilter(queue, state, future=future) for state in states for future in (False, True)]
    return sum(await client.counts(filters))


async def everywhere(stand: Stand, method: str, holds: Callable[[Any], bool], **arguments: Any) -> None:
    """Until every process answers so; connections are dealt to the processes of a server in turn."""
    async with contextlib.AsyncExitStack() as stack:
        connections = []
        for port in stand.ports * 4:
            connections.append(await Plain.to(port))
            stack.push_async_callback(connections[-1].close)

        async def is_so() -> bool:
            return all([holds(await each.call(method, **arguments)) for each in connections])

        await until(is_so)


async def known_everywhere(stand: Stand, queue: str) -> None:
    """Until every process knows of the queue."""
    await everywhere(stand, "getQueueNames", lambda names: queue in names)
