"""A server for rows of the trial, with what the driver does there by the Python client."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from pinlater import Client, Tls
from pinlater.data_folder.password import hash_password
from pinlater.model import ExtendedJob, JobInfo, RescheduleJob
from pinlater_workers.envelope import Envelope, write_envelope
from tests.faults.proxy import Proxy
from tests.kits.columns import Column
from tests.kits.ledger import WITHIN_S, until
from tests.kits.programs import TrialProducer, TrialWorker
from tests.server.certificates import Authority
from tests.server.running import RunningServer
from tests.stores.process import free_port

PASSWORD = "open sesame"
HOST = "127.0.0.1"
ATTEMPTS = 11
"""Of a job whose producer says nothing of them: the default policy has ten retries."""

RULES = """
[[rules]]
who = ["token:nobody"]
may = ["read"]
queues = ["nothing"]
"""
_numbers = count(1)


class Site:
    """A server and its HTTP interface, on ports that it keeps when it is started again. It stands for one kit, which
    calls the port of what it speaks; `address` is that one.
    """

    def __init__(self, folder: Path, column: Column, command: Sequence[str], *, secure: bool = False) -> None:
        """`command`: of the kit's program. `secure`: over TLS alone, and for callers with a token."""
        self.folder, self.column, self.command = folder, column, command
        self._ports = {"thrift": free_port(), "http": free_port()}
        self.ca: str | None = None
        tls: list[str] = []
        if secure:
            authority = Authority(folder)
            cert, key = authority.issue("server", HOST, "localhost")
            (folder / "rules.toml").write_text(RULES)
            self.ca = authority.ca
            tls = ["--tls-cert", cert, "--tls-key", key, "--rules", str(folder / "rules.toml")]
        self._arguments = [
            *("--store", f"sqlite://{folder}/jobs.db", "--api", f"{HOST}:{self._ports['http']}", *tls),
            *("--bodies", f"file://{folder}/bodies", "--body-rules", "file: size > 1KiB and queue kits_tier*"),
            *("--maintenance-interval", "200ms", "--admin-password-hash", hash_password(PASSWORD)),
        ]
        (folder / "bodies").mkdir()
        self.server = self._serving()
        self.client = self._client()
        if secure:
            token = self.token("driver", "admin")
            self.client.close()
            self.client = self._client(token)

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.client.close()
        self.server.clean_up()

    def _client(self, token: str = "") -> Client:
        tls = Tls(ca=self.ca) if self.ca else None
        return Client(f"{HOST}:{self.thrift_port}", timeout=60.0, tls=tls, token=token or None)

    # -- the server ------------------------------------------------------------------------------------------------

    def _serving(self) -> RunningServer:
        server = RunningServer(self.folder, *self._arguments, port=self._ports["thrift"])
        try:
            server.wait_for("ready")
            server.wait_for("api_ready")
        except AssertionError:
            server.clean_up()
            raise
        return server

    def stop(self) -> None:
        """It answers what it has read, and ends."""
        assert self.server.stop() == 0, self.server.events[-20:]
        self.server.clean_up()

    def kill(self) -> None:
        """kill -9, of all its processes."""
        pid = self.server.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            os.kill(each, signal.SIGKILL)
        self.server.clean_up()

    def start(self) -> None:
        """Again, with the same jobs; returns when it answers."""
        self.server = self._serving()

    def roll(self) -> None:
        """SIGHUP; returns when the processes are new ones."""
        before = len(self.server.events)
        self.server.send(signal.SIGHUP)
        self.server.wait_for("rolled", after=before)

    @property
    def port(self) -> int:
        """That the kit calls."""
        return self._ports[self.column.speaks]

    @property
    def thrift_port(self) -> int:
        return self._ports["thrift"]

    @property
    def address(self) -> str:
        return self.address_of(self.port)

    def address_of(self, port: int) -> str:
        """As the kit's configuration names a server."""
        scheme = "https" if self.ca else "http"
        return f"{scheme}://{HOST}:{port}" if self.column.speaks == "http" else f"{HOST}:{port}"

    def token(self, name: str, *roles: str) -> str:
        made = f"plt_{hashlib.sha256(name.encode()).hexdigest()[:43]}"
        hashed = hashlib.sha256(made.encode()).hexdigest()
        self.client.update_token(name, hashed, roles, PASSWORD, replace=True)
        return made

    # -- programs --------------------------------------------------------------------------------------------------

    def _config(self, role: str, **given: Any) -> tuple[Path, dict[str, Any]]:
        number = next(_numbers)
        folder = self.folder / f"{role}-{number}"
        folder.mkdir()
        config = {
            "servers": [self.address],
            "token_file": None,
            "ca_file": self.ca,
            "queues": {},
            "raw_queues": [],
            "slots": 8,
            "drain_ms": 20_000,
            "failing_hooks": False,
            "name": f"{self.column.name}-{role}-{number}",
            "ledger": str(folder / "ledger.jsonl"),
        }
        assert given.keys() <= config.keys(), given
        return folder, config | {name: value for name, value in given.items() if value is not None}

    @contextlib.contextmanager
    def worker(self, *queues: str, command: Sequence[str] = (), **given: Any) -> Iterator[TrialWorker]:
        """One that takes from these queues, and polls; killed with the block, unless it has ended. `given`: what else
        its configuration says.
        """
        folder, config = self._config("worker", **({"queues": dict.fromkeys(queues, 1)} | given))
        worker = TrialWorker(command or self.command, folder, config)
        try:
            worker.started()
            yield worker
        except BaseException:
            print(f"{worker.name} said, in {worker.log}:\n{worker.text()}")
            raise
        finally:
            worker.clean_up()

    @contextlib.contextmanager
    def producer(self, **given: Any) -> Iterator[TrialProducer]:
        folder, config = self._config("producer", **given)
        producer = TrialProducer(self.command, folder, config)
        try:
            yield producer
        finally:
            producer.clean_up()

    @contextlib.contextmanager
    def proxy(self) -> Iterator[tuple[Proxy, str]]:
        """One before the port that the kit calls, and its address."""
        with Proxy(self.port) as proxy:
            yield proxy, self.address_of(proxy.port)

    # -- what the driver does by the Python client -----------------------------------------------------------------

    def queue(self, name: str = "kits") -> str:
        """A new queue."""
        made = f"{name}_{next(_numbers)}"
        self.client.create_queue(made)
        return made

    def enqueue(self, queue: str, name: str, kwargs: Mapping[str, Any] | None = None, **fields: Any) -> str:
        """A job as the Python framework writes it. `fields`: those of ExtendedJob."""
        return self.enqueue_body(queue, write_envelope(Envelope(job=name, kwargs=dict(kwargs or {}))), **fields)

    def enqueue_body(self, queue: str, body: bytes, **fields: Any) -> str:
        return self.client.enqueue(queue, ExtendedJob(body, **({"attempts_allowed": ATTEMPTS} | fields)))

    def info(self, job: str, **wanted: bool) -> JobInfo:
        return self.client.lookup([job], **wanted)[job]

    def infos(self, jobs: Sequence[str]) -> dict[str, JobInfo]:
        return self.client.lookup(list(jobs))

    def ended(self, jobs: Sequence[str]) -> dict[str, JobInfo]:
        """What is known of these jobs, once all have ended."""
        try:
            found = self.client.wait(list(jobs), timeout=WITHIN_S)
        except TimeoutError:
            found = {}
        open_jobs = set(jobs) - {job for job, info in found.items() if info is not None}
        assert not open_jobs, [self.info(job) for job in sorted(open_jobs)[:5]]
        return {job: info for job, info in found.items() if info is not None}

    def hasten(self, job: str) -> None:
        """A job that waits for its next attempt is due now."""
        queue = job.partition(":")[0]
        self.client.reschedule(queue, [RescheduleJob(job, run_after_ms=int(time.time() * 1000))])

    def runs(self, job: str) -> JobInfo:
        """Once it is claimed."""
        until(lambda: self.info(job).claimed_at_ms is not None, lambda: f"a worker has {self.info(job)}")
        return self.info(job)
