"""A cluster whose alarms are looked at from everywhere: three servers over two stores of one kind, and a receiver of
webhooks. A store or a whole server can be taken away.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from pinlater import Ack, Client, DequeueRequest, ExtendedJob, Job
from pinlater.errors import PinLaterError
from pinlater.model import QueueStatus
from pinlater.model.alarm_views import Alarm, AlarmsPage, Severity
from tests.cluster.proof_stand import HASH, Server
from tests.drill.stand import Receiver, until
from tests.server.commands import Shell
from tests.stores.places import start_server
from tests.stores.process import StoreServer
from tests.workers.command import WorkerCommand, working

SETTINGS = (
    *("--processes", "1", "--lease", "3s", "--stats-interval", "500ms", "--maintenance-interval", "500ms"),
    *("--call-timeout", "3s", "--health-pause", "1s", "--admin-password-hash", HASH),
    *("--api", "127.0.0.1:0", "--http", "127.0.0.1:0"),
)
APP = """
from pinlater_workers import App

app = App()

@app.job(queue="mail", name="send")
async def send(number: int) -> None:
    pass
"""
BATCH = 1_000
AGE = re.compile(r'^pinlater_queue_count_age_seconds\{[^}]*shard="([^"]+)"[^}]*\} (\S+)$', re.MULTILINE)


class Said(NamedTuple):
    """What one face says of one alarm. Ages and numbers of jobs go on meanwhile."""

    name: str
    subject: str
    severity: str
    since_ms: int
    title: str

    @classmethod
    def of(cls, alarm: Any) -> Said:
        """An alarm, or its JSON."""
        found = alarm if isinstance(alarm, dict) else {name: getattr(alarm, name) for name in cls._fields}
        return cls(*(str(found[name]) if name == "severity" else found[name] for name in cls._fields[:4]), "")._replace(
            title=untimed(found["title"])
        )


def untimed(text: str) -> str:
    return re.sub(r"[0-9][0-9.,]*( ?(ms|s|min|m|h|d)\b)?", "N", text)


class JudgedCluster:
    """`stores[0]` is shard 1. `receiver` is told of all alarms."""

    def __init__(self, folder: Path, stores: list[StoreServer]) -> None:
        self.folder = folder
        self.stores = stores
        self.receiver = Receiver()
        shards = [word for number, store in enumerate(stores, 1) for word in ("--store", f"{number}={store.url()}")]
        options = (*shards, *SETTINGS, "--alarm-webhook", self.receiver.url)
        self.servers = [Server(folder / name, *options) for name in "abc"]
        self.restarts = contextlib.ExitStack()

    def close(self) -> None:
        self.restarts.close()
        for store in self.stores:
            store.resume()
        for server in self.servers:
            server.running.clean_up()
        self.receiver.close()

    @property
    def living(self) -> list[Server]:
        return [each for each in self.servers if each.running.process.poll() is None]

    def client(self, server: Server | None = None) -> Client:
        """Of one server, or of all that live."""
        return Client(servers=[each.address for each in ([server] if server else self.living)], timeout=20.0)

    def ready(self) -> None:
        for server in self.living:
            server.running.wait_for("ready")
        with self.client() as client:
            until(lambda: len(client.cluster_status(queues=[]).servers) == len(self.living), "all know each other")

    def worker(self, queue: str) -> WorkerCommand:
        (self.folder / "judged_app.py").write_text(APP)
        addresses = ",".join(each.address for each in self.servers)
        arguments = ("--app", "judged_app:app", "--server", addresses, "--queues", queue)
        return self.restarts.enter_context(working(self.folder, *arguments))

    # -- what is said ------------------------------------------------------------------------------------------------

    def pages(self) -> list[AlarmsPage]:
        """What each server answers."""
        pages = []
        for server in self.living:
            with self.client(server) as client:
                pages.append(client.get_alarms())
        return pages

    def jobs_at(self, shard: int) -> list[int | None]:
        """How many a shard holds, by its place, as each server knows it."""
        jobs = []
        for server in self.living:
            with self.client(server) as client:
                jobs.append(client.cluster_status().shards[shard - 1].jobs)
        return jobs

    def page_when(self, client: Client, holds: Callable[[AlarmsPage], bool]) -> AlarmsPage:
        """The first answer that is so."""
        pages: list[AlarmsPage] = []

        def look() -> bool:
            pages[:] = [client.get_alarms()]
            return holds(pages[0])

        try:
            until(look, "an answer")
        except AssertionError as late:
            raise AssertionError(pages) from late
        return pages[0]

    def judged(self) -> None:
        """There is a judgement that began from now on."""
        with self.client() as client:
            now_ms = client.get_alarms().now_ms
            self.page_when(client, lambda page: (page.judged_at_ms or 0) > now_ms)

    def alarm(self, name: str, subject: str) -> Alarm | None:
        """As one of the servers has it."""
        with self.client() as client:
            return {each.key: each for each in client.get_alarms().alarms}.get((name, subject))

    def when(self, name: str, subject: str, holds: Callable[[Alarm], bool] = lambda _: True) -> Alarm:
        """The first that is so."""
        found: list[Alarm] = []

        def look() -> bool:
            alarm = self.alarm(name, subject)
            if alarm is not None and holds(alarm):
                found.append(alarm)
            return bool(found)

        try:
            until(look, f"{name} of {subject}")
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.pages()}") from late
        return found[0]

    def over(self, name: str, subject: str) -> None:
        until(lambda: self.alarm(name, subject) is None, f"{name} of {subject} is over")

    def judge(self) -> Server:
        """The one whose process has judged last."""
        with self.client() as client:
            process = client.get_alarms().judged_by.rpartition("/")[2]
        (found,) = [each for each in self.living if int(process) in each.processes()]
        return found

    def faces(self) -> list[set[Said]]:
        """Of each server, what the wire, the HTTP interface and the command line say of all alarms."""
        said = [{Said.of(each) for each in page.alarms} for page in self.pages()]
        for server in self.living:
            site = str(server.running.wait_for("api_ready")["address"]).rstrip("/")
            answer = httpx.get(f"{site}/v1/alarms", headers={"Accept": "application/json"}, timeout=20.0).json()
            said.append({Said.of(each) for each in answer["alarms"]})
        said.append({Said.of(each) for each in json.loads(self.shell()("alarms", "-o", "json").out)})
        return said

    def shell(self) -> Shell:
        return Shell(self.folder, ",".join(each.address for each in self.living))

    def agree(self, *keys: tuple[str, str]) -> set[Said]:
        """Until all faces say the same, and these alarms are all that there are."""
        last: list[list[set[Said]]] = []

        def look() -> bool:
            last[:] = [self.faces()]
            first = last[0][0]
            return {each[:2] for each in first} == set(keys) and all(each == first for each in last[0])

        try:
            until(look, "all faces say the same")
        except AssertionError as late:
            raise AssertionError(f"{keys}: {last}") from late
        said = last[0][0]
        top = untimed(self.shell()("top", "--once", COLUMNS="4000").out)
        worst = min((Severity[each.severity.upper()] for each in said), default=Severity.INFO)
        code = {Severity.CRITICAL: 2, Severity.WARNING: 1, Severity.INFO: 0}[worst]
        checked = untimed(self.shell()("check", code=code).out)
        for each in said:
            assert each.title in top, top
            if each.severity != "info" and each.name != "shard_out":  # `check` has words of its own for shards
                assert each.title in checked, checked
        return said

    # -- jobs --------------------------------------------------------------------------------------------------------

    def queue(self, client: Client, queue: str) -> QueueStatus:
        (found,) = client.cluster_status(queues=[queue]).queues
        return found

    def create(self, queue: str) -> None:
        """Every server knows it then."""
        with self.client() as client:
            client.create_queue(queue)
        for server in self.living:
            with self.client(server) as client:
                until(lambda client=client: queue in client.queue_names(), "it is known")  # type: ignore[misc]

    def fill(self, client: Client, queue: str, jobs: int) -> None:
        for _ in range(jobs // BATCH):
            client.enqueue(queue, [Job(b"x")] * BATCH)

    def drain(self, client: Client, queue: str) -> int:
        """How many there were."""
        done = 0
        while jobs := client.dequeue(DequeueRequest(queue, BATCH)):
            client.ack(queue, [Ack(each.descriptor, claim_descriptor=each.claim_descriptor) for each in jobs], [])
            done += len(jobs)
        return done

    def key_of(self, client: Client, queue: str, shard: str) -> str:
        """A serialize key whose jobs live on that shard."""
        for number in range(100):
            (found,) = client.enqueue(queue, [ExtendedJob(b"x", serialize_key=f"tenant:{number}")])
            if found.split(":")[1].removeprefix("s") == shard:
                return f"tenant:{number}"
        raise AssertionError(shard)

    def count_ages(self) -> dict[str, float]:
        """By shard, as the metrics of the server that counts it say."""
        found: dict[str, float] = {}
        for server in self.living:
            _, text = server.get("/metrics")
            found |= {shard: float(age) for shard, age in AGE.findall(text)}
        return found


@contextlib.contextmanager
def judged_cluster(folder: Path, kind: str) -> Iterator[JudgedCluster]:
    with contextlib.ExitStack() as stack:
        stores = []
        for _ in range(2):
            stores.append(start_server(kind))
            stack.callback(stores[-1].stop)
            stores[-1].empty(0)
        cluster = JudgedCluster(folder, stores)
        stack.callback(cluster.close)
        cluster.ready()
        until(lambda: all(page.judged_at_ms is not None for page in cluster.pages()), "it is judged")
        yield cluster


def refused(cluster: JudgedCluster, queue: str, key: str) -> bool:
    """Whether a job with this key is; who calls waits for it no longer than that."""
    with Client(servers=[each.address for each in cluster.living], timeout=2.0) as client:
        try:
            client.enqueue(queue, [ExtendedJob(b"x", serialize_key=key)])
        except PinLaterError:
            return True
    return False
