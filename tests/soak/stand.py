"""Everything that a soak runs: stores, servers with their HTTP interfaces, workers; and what happens to them.

Two sites, which know nothing of each other:

    shared   servers a (two processes) and b (one) over a Redis, a MariaDB and a PostgreSQL, which also keeps the flows;
             bodies in one folder; two workers
    alone    a server over SQLite, with all in its data folder: such a file belongs to one process; one worker
"""

from __future__ import annotations

import os
import random
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from pinlater.data_folder.password import hash_password
from tests.faults.operated import Operated
from tests.faults.recorded_run import RecordedRun
from tests.soak.jobs import JOURNAL, QUEUES
from tests.soak.measures import Process, family
from tests.stores.places import start_server
from tests.stores.process import StoreServer, free_port
from tests.workers.command import WorkerCommand

ROOT = Path(__file__).parents[2]
OWN_SESSION = ("setsid",)
"""Before each program: a Ctrl-C at the terminal is for the soak alone. It also has programs started by exec."""

PASSWORD = "open sesame"
WITHIN_S = 90.0
"""A server of a machine that is busy may take that long to start."""

LARGE_BYTES = 16 * 1024
ORPHAN_AGE_S = 60
SETTINGS = (
    *("--claim-timeout", "10s", "--lease", "3s", "--maintenance-interval", "500ms", "--stats-interval", "1s"),
    *("--health-pause", "1s", "--crash-budget", "0", "--log-level", "warning"),
    *("--admin-password-hash", hash_password(PASSWORD), "--body-orphan-age", f"{ORPHAN_AGE_S}s"),
    *("--body-rules", f"file: size > {LARGE_BYTES // 1024}KiB", "--body-cache", "1MiB"),
)
WORKER = (
    *("--app", "tests.soak.jobs:app", "--concurrency", "8"),
    *("--lease", "6s", "--grace", "5s", "--queues", ",".join(QUEUES)),
)
QUIET = ("--log-level", "error")
STORES = {"1": "redis", "2": "mysql", "3": "postgres"}
"""Shards of the site `shared`, by their ids."""

ALONE = "4"


class Server:
    """One of a site. `processes`: how many serve, beside that of HTTP."""

    def __init__(
        self, name: str, folder: Path, processes: int, arguments: Sequence[str], variables: dict[str, str]
    ) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.processes = processes
        self.api_port, self.http_port = free_port(), free_port()
        listening = ["--api", f"127.0.0.1:{self.api_port}", "--http", f"127.0.0.1:{self.http_port}"]
        given = [*arguments, *listening, *SETTINGS, "--processes", str(processes)]
        self.operated = Operated(self.folder, given, before=OWN_SESSION, **variables)

    def family(self) -> list[Process]:
        return [*family(self.name, "supervisor", self.operated.pid)]

    def of(self, kind: str) -> list[int]:
        """The processes of this kind that live just now."""
        return [each.pid for each in self.family() if each.role == f"{kind} of {self.name}"]

    def is_whole(self) -> bool:
        """All its processes are there, and it is ready."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/readyz", timeout=5) as answer:
                is_ready = answer.status == 200
        except (OSError, urllib.error.HTTPError):
            return False
        return is_ready and len(self.of("server process")) == self.processes and len(self.of("HTTP process")) == 1


class Site:
    """Servers that know each other, over stores of their own; all that their callers ask is one history."""

    def __init__(self, name: str, folder: Path, stores: dict[str, str], flows: str) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.run = RecordedRun(self.folder)
        self.stores = stores
        self.flows = flows
        self.bodies = self.folder / "bodies"
        self.bodies.mkdir()
        self.servers: list[Server] = []

    @property
    def addresses(self) -> list[str]:
        return [server.operated.address for server in self.servers]

    @property
    def databases(self) -> dict[str, str]:
        """The addresses of all that has rows."""
        return {f"{self.name} {each.partition('+')[0].partition(':')[0]}": each for each in self.stores.values()} | {
            f"{self.name} flows": self.flows
        }


class Stand:
    """Started whole, and ended whole. `ttl_s`: how long jobs that have ended are kept. `planted`: variables of the
    environment of servers, by which tests plant a fault.
    """

    def __init__(
        self, folder: Path, *, ttl_s: int, is_small: bool, dice: random.Random, planted: Mapping[str, str]
    ) -> None:
        """`is_small`: the site `alone`, and no other."""
        self.folder = folder
        self._dice = dice
        self._stack = ExitStack()
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.work = folder / "work"
        self.work.mkdir()
        self.journal = self.work / JOURNAL
        self.kept = ["--succeeded-ttl", f"{ttl_s}s", "--failed-ttl", f"{ttl_s}s"]
        self._planted = planted
        self._workers: list[tuple[Site, WorkerCommand]] = []
        self.said: list[str] = []
        """What workers wrote that have ended."""

        self.sites: list[Site] = []
        self._stores: list[StoreServer] = []
        try:
            self._start(is_small)
        except BaseException:
            self.close()
            raise

    def _start(self, is_small: bool) -> None:
        if not is_small:
            self._start_shared()
        self._start_alone()
        for site in self.sites:
            for _ in range(2 if len(site.servers) > 1 else 1):
                self._start_worker(site)
        for server in self.servers:
            self.until(server.is_whole, f"server {server.name} is ready")

    def _start_shared(self) -> None:
        urls, flows = {}, ""
        for shard, kind in STORES.items():
            store = start_server(kind, durable=True)
            self._stack.callback(store.stop)
            self._stores.append(store)
            store.empty(0)
            urls[shard] = store.url(0)
            if kind == "postgres":
                store.empty(1)
                flows = store.url(1)
        site = Site("shared", self.folder, urls, flows)
        self.sites.append(site)
        arguments = [word for shard, url in urls.items() for word in ("--store", f"{shard}={url}")]
        for name, processes in (("a", 2), ("b", 1)):
            self._serve(site, name, processes, [*arguments, "--flows", flows])

    def _start_alone(self) -> None:
        where = self.folder / "alone" / "s"
        site = Site(
            "alone", self.folder, {ALONE: f"sqlite:///{where}/jobs.db"}, f"sqlite:///{where}/pinlater-data/flows.db"
        )
        self.sites.append(site)
        self._serve(site, "s", 1, ["--store", f"{ALONE}={site.stores[ALONE]}"])

    def _serve(self, site: Site, name: str, processes: int, arguments: Sequence[str]) -> None:
        variables = {"PINLATER_HISTORY": str(site.run.folder), "TMPDIR": str(self.temporary), **self._planted}
        more = ["--bodies", f"file://{site.bodies}", *self.kept]
        server = Server(name, site.folder, processes, [*arguments, *more], variables)
        site.servers.append(server)
        self._stack.callback(server.operated.stop)

    def _start_worker(self, site: Site) -> None:
        variables = {
            "PINLATER_HISTORY": str(site.run.folder),
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
        }
        arguments = [*WORKER, "--server", site.servers[0].operated.address, *QUIET]
        for server in site.servers[1:]:
            arguments += ["--server", server.operated.address]
        self._workers.append((site, WorkerCommand(self.work, *arguments, before=OWN_SESSION, **variables)))

    def close(self) -> None:
        for _, worker in self._workers:
            worker.clean_up()
            self.said += worker.lines
        self._workers.clear()
        self._stack.close()

    # -- what there is -----------------------------------------------------------------------------------------------

    @property
    def servers(self) -> list[Server]:
        return [server for site in self.sites for server in site.servers]

    def processes(self) -> Iterator[Process]:
        for server in self.servers:
            yield from server.family()
        for site, worker in self._workers:
            yield from family(site.name, "worker", worker.process.pid)
        for store in self._stores:
            yield Process(f"store {store.name}", store.pid)

    def until(self, holds: Callable[[], object], what: str) -> None:
        """TimeoutError."""
        deadline_s = time.monotonic() + WITHIN_S
        while not holds():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"within {WITHIN_S:.0f} s it did not come to pass: {what}")
            time.sleep(0.1)

    # -- what happens to it ------------------------------------------------------------------------------------------

    def victims(self) -> list[str]:
        """What can be killed, by a name for `kill`."""
        of_servers = [f"{kind} of {each.name}" for each in self.servers for kind in ("server process", "HTTP process")]
        whole = [f"whole server {each.name}" for each in self.servers]
        of_workers = [f"{kind} of {site.name}" for site in self.sites for kind in ("worker", "pool process")]
        return [*of_servers, *whole, *of_workers, *(f"heartbeat process of {site.name}" for site in self.sites)]

    async def kill(self, victim: str) -> None:
        """kill -9. What a supervisor does not replace is started again."""
        kind, _, name = victim.partition(" of ")
        if victim.startswith("whole server "):
            await self._server(victim.rpartition(" ")[2]).operated.kill_all()
        elif any(server.name == name for server in self.servers):
            self._kill_one(self._server(name).of(kind))
        elif kind == "worker":
            await self._replace_worker(name)
        else:
            processes = [each for each in self.processes() if each.role == f"{kind} of {name}"]
            self._kill_one([each.pid for each in processes])

    def _server(self, name: str) -> Server:
        return next(server for server in self.servers if server.name == name)

    def _kill_one(self, pids: Sequence[int]) -> None:
        if pids:  # none, where it has just been killed
            os.kill(self._dice.choice(pids), signal.SIGKILL)

    async def _replace_worker(self, site_name: str) -> None:
        """The eldest of a site."""
        entry = next(entry for entry in self._workers if entry[0].name == site_name)
        self._workers.remove(entry)
        entry[1].clean_up()
        self.said += entry[1].lines
        self._start_worker(entry[0])

    async def roll(self, server: Server) -> None:
        """By turns: b is ended and started again; the supervisors of the others stay, and replace their processes."""
        if server.name == "b":
            await server.operated.restart()
        else:
            await server.operated.roll()

    def end_workers(self) -> list[str]:
        """SIGTERM, when all is done; what did not end as it should."""
        wrong = []
        for _, worker in self._workers:
            worker.send(signal.SIGTERM)
        for site, worker in self._workers:
            code = worker.ended()
            if code != 0:
                wrong.append(f"a worker of {site.name} ended with {code}: {worker.lines[-3:]}")
        return wrong

    def remarks(self) -> list[str]:
        """What servers and workers wrote of errors of their own."""
        of_servers = [str(each) for server in self.servers for each in server.operated.said]
        found = [text for text in [*of_servers, *self.said] if "Traceback" in text or "never retrieved" in text]
        return list(dict.fromkeys(found))


def rolled(server: Server, before: Sequence[int]) -> bool:
    """Whether other processes serve now than these, and all of them."""
    return not set(before) & {*server.of("server process")} and server.is_whole()
