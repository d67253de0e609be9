"""The cluster of the drill: a server over SQLite and a Redis of its own, workers, a receiver of webhooks, and all that
an operator looks at.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import StorageState

from pinlater import Client
from pinlater.config import Config, StoreConfig
from pinlater.data_folder.password import hash_password
from pinlater.model.alarm_views import Alarm
from pinlater.queues.directory import QueueDirectory
from pinlater.shard_factory import shard_set
from pinlater_workers import App
from pinlater_workers.outbox import Outbox
from tests.dashboard.visitor import Visitor
from tests.server.commands import Shell
from tests.server.running import RunningServer, running
from tests.stores.process import StoreServer
from tests.unit.breaking import HeldClock
from tests.workers.command import WorkerCommand, working

PASSWORD = "open sesame"
WITHIN_S = 90.0
LOOK_EVERY_S = 0.25
DISK_MIB = 64
HOUR_MS = 3_600_000
OUTBOX = "sqlite:///shop.db/pinlater_outbox"
MANY = ("resize", "greet", "report", "index", "sync")
"""Types of job beside the one that fails."""

APP = """
import asyncio
from pinlater_workers import App
from pinlater_workers.outbox import Outbox

app = App()
outbox = Outbox(app)

@app.job(queue="mail", name="send")
async def send(number: int) -> None:
    await asyncio.sleep(0.2)

@app.job(queue="shop", name="invoice", attempts=1)
async def invoice(number: int) -> None:
    if number % 10 < 5:
        raise ValueError("the tax service refused invoice %d" % number)

@app.job(queue="orders", name="order")
async def order(number: int) -> None:
    if number == 0:
        await asyncio.sleep(3600)

@app.job(queue="nightly", name="close")
async def close() -> None:
    pass

def of_type(name: str) -> None:
    @app.job(queue="shop", name=name, attempts=1)
    async def done(number: int) -> None:
        pass

for name in MANY:
    of_type(name)
"""


def call(job: str, *arguments: object) -> bytes:
    """A body as the worker framework takes it."""
    return b"PINLATER/1 application/json\n" + json.dumps({"job": job, "args": arguments}).encode()


def until(check: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> float:
    """How long it took. Fails after a while."""
    began_s = time.monotonic()
    while not check():
        assert time.monotonic() < began_s + within_s, what
        time.sleep(LOOK_EVERY_S)
    return time.monotonic() - began_s


class Receiver:
    """Takes what webhooks send."""

    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.posts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """It says nothing."""

        self._site = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._site.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._site.server_port}/hook"

    def sent(self, kind: str = "alarms") -> dict[tuple[str, str], dict[str, Any]]:
        """The last that was said of each alarm; of each end with `ended`."""
        return {(each["name"], each["subject"]): each for post in list(self.posts) for each in post[kind]}

    def close(self) -> None:
        self._site.shutdown()
        self._site.server_close()
        self._thread.join()


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A file system of its own for this folder; False: this user may mount none here."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(words, check=False).returncode:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def pause_long_ago(folder: Path, queue: str, why: str) -> None:
    """Make a queue that was paused two hours ago, with the product's own steps and a clock that is so far behind."""
    clock = HeldClock(int(time.time() * 1000) - 2 * HOUR_MS)
    members = shard_set(Config(stores=(StoreConfig("1", f"sqlite:///{folder}/jobs.db"),)), {}, clock=clock)
    await members.open()
    queues = QueueDirectory(members, clock)
    try:
        await queues.sync(members.all[0])
        await queues.create(queue, "anna")
        await queues.change(queue, {"paused": "true", "paused_why": why}, (), False, "anna")
    finally:
        await queues.close()
        await members.close()


@dataclass
class Drill:
    """`site`: where the dashboard and the HTTP interface are. `has_disk`: that of the data folder can be filled."""

    folder: Path
    server: RunningServer
    client: Client
    shell: Shell
    site: str
    store: StoreServer
    receiver: Receiver
    visitor: Visitor
    workers: dict[str, WorkerCommand]
    has_disk: bool
    relay: WorkerCommand
    subjects: dict[str, str] = field(default_factory=dict)
    """Of the alarms whose things have names that they are given, by the fault."""

    restarts: ExitStack = field(default_factory=ExitStack)

    @property
    def disk(self) -> Path:
        return self.folder / "data"

    def alarms(self) -> dict[tuple[str, str], Alarm]:
        return {each.key: each for each in self.client.get_alarms().alarms}

    def until_alarms(self, check: Callable[[Set[tuple[str, str]]], bool], what: str) -> None:
        """Of their keys. Fails after a while, and says what stands then."""
        try:
            until(lambda: check(self.alarms().keys()), what)
        except AssertionError as late:
            raise AssertionError(f"{what}: {[*self.alarms().values()]}") from late

    def operate(self, *arguments: str) -> str:
        """A command with the admin password."""
        return self.shell(*arguments, PINLATER_ADMIN_PASSWORD=PASSWORD).out

    def session(self) -> StorageState:
        """A browser's, of the visitor."""
        ((name, value),) = self.visitor.client.cookies.items()
        return {"cookies": [{"name": name, "value": value, "url": self.site}]}

    def start_worker(self, queue: str) -> None:
        """In place of the one of this queue."""
        arguments = worker_options(self.server.port, queue)
        self.workers[queue] = self.restarts.enter_context(working(self.folder, *arguments))

    def start_relay(self) -> None:
        """In place of the one of the outbox."""
        self.relay = self.restarts.enter_context(working(self.folder, *relay_options(self.server.port)))

    def judged(self) -> None:
        """There is a judgement that began from now on."""
        now_ms = self.client.get_alarms().now_ms
        until(lambda: (self.client.get_alarms().judged_at_ms or 0) > now_ms, "it is judged again")


def worker_options(port: int, *queues: str) -> list[str]:
    named = ["--queues", ",".join(queues)]
    return ["--app", "drill_app:app", "--server", f"127.0.0.1:{port}", *named]


def relay_options(port: int) -> list[str]:
    return ["outbox", "--app", "drill_app:app", "--server", f"127.0.0.1:{port}", "--database", "sqlite:///shop.db"]


@contextlib.contextmanager
def drill(folder: Path, store: StoreServer) -> Iterator[Drill]:
    """With a queue that was paused two hours ago, before anything is wrong."""
    asyncio.run(pause_long_ago(folder, "later", "the provider is down"))
    (folder / "drill_app.py").write_text(f"MANY = {MANY!r}\n{APP}")
    with ExitStack() as stack:
        receiver = Receiver()
        stack.callback(receiver.close)
        has_disk = stack.enter_context(small_disk(folder / "data"))
        options = ["--store", f"1=sqlite:///{folder}/jobs.db", "--store", f"2={store.url(0)}", "--data", "data"]
        options += ["--api", "127.0.0.1:0", "--processes", "1", "--admin-password-hash", hash_password(PASSWORD)]
        options += ["--alarm-webhook", receiver.url, "--blocked-chain-jobs", "5", "--call-timeout", "3s"]
        options += ["--flows", "sqlite"]
        server = stack.enter_context(running(folder, *options))
        site = str(server.wait_for("api_ready")["address"]).rstrip("/")
        client = stack.enter_context(Client(f"127.0.0.1:{server.port}"))
        shell = Shell(folder, f"127.0.0.1:{server.port}")
        visitor = Visitor(site).open(password=PASSWORD)
        stack.callback(visitor.client.close)
        for queue in ("mail", "shop", "orders", "nightly"):
            client.create_queue(queue)
        workers = {
            name: stack.enter_context(working(folder, *worker_options(server.port, *queues)))
            for name, queues in (("mail", ("mail",)), ("shop", ("shop", "later", "orders", "nightly")))
        }
        with sqlite3.connect(folder / "shop.db") as shop:
            Outbox(App()).create_table(shop)
        relay = stack.enter_context(working(folder, *relay_options(server.port)))
        at = Drill(folder, server, client, shell, site, store, receiver, visitor, workers, has_disk, relay)
        stack.enter_context(at.restarts)
        until(lambda: len(client.get_workers().workers) == 1 + len(workers), "the workers and the relay are listed")
        at.judged()
        assert at.alarms() == {}
        yield at
