"""A server and workers as they are run, and what happens to them in a proof: all by real processes and kill -9."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import pytest

from pinlater import Client, JobFilter, JobInfo, JobState
from tests.server.running import RunningServer
from tests.stores.process import free_port
from tests.workers.apps.proof_jobs import FATES, FUNCTIONS, app, job_name
from tests.workers.apps.proof_journal import BEGUN, Journal, Line
from tests.workers.command import WorkerCommand
from tests.workers.proof_judge import Given

ROOT = Path(__file__).parents[2]
WITHIN_S = 90.0
SLICE = 1_000
PARTS = 8

SERVER = ("--maintenance-interval", "200ms", "--crash-budget", "0")
WORKER = """\
app = "tests.workers.apps.proof_jobs:app"
servers = ["127.0.0.1:{port}"]
import_paths = ["{root}"]
[worker]
queues = {{ process = 3, thread = 2, async = 1 }}
concurrency = {slots}
lease = "{lease}"
"""


def until(check: Callable[[], object], what: str | Callable[[], object], every_s: float = 0.02) -> None:
    """Fails after a while, and says what."""
    deadline = time.monotonic() + WITHIN_S
    while not check():
        assert time.monotonic() < deadline, f"it did not come to pass: {what() if callable(what) else what}"
        time.sleep(every_s)


class ProofStand:
    """`workers` are replaced when they are killed; the server keeps its port and its store. `history`: the folder where
    all callers record.
    """

    def __init__(
        self, folder: Path, url: str, *, workers: int = 2, slots: int = 8, lease: str = "5s", history: str = ""
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self._url = url
        self._history = history
        self._environment = pytest.MonkeyPatch()
        self._environment.setenv("PINLATER_HISTORY", history)
        self.server = self._serving()
        self.server.wait_for("ready")
        (folder / "proof.toml").write_text(WORKER.format(port=self.port, root=ROOT, slots=slots, lease=lease))
        self.client = Client(f"127.0.0.1:{self.port}")
        for queue in FUNCTIONS:
            self.client.create_queue(queue)
        app.use(servers=[f"127.0.0.1:{self.port}"])
        self.journal = Journal(folder)
        self.done: Counter[str] = Counter()
        self.said: list[str] = []
        self._given = 0
        self.workers: list[WorkerCommand] = []
        for _ in range(workers):
            self.start_worker()

    def __enter__(self) -> ProofStand:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        app.close()
        self.client.close()
        self._environment.undo()
        for worker in self.workers:
            worker.clean_up()
        self.server.clean_up()

    def _serving(self) -> RunningServer:
        return RunningServer(self.folder, "--store", f"1={self._url}", *SERVER, port=self.port)

    def start_worker(self, *arguments: str) -> WorkerCommand:
        worker = WorkerCommand(self.folder, "--config", "proof.toml", *arguments, PINLATER_HISTORY=self._history)
        self.workers.append(worker)
        return worker

    def start_ready_worker(self, slots: int, *arguments: str) -> WorkerCommand:
        """One that takes jobs when this returns."""
        worker = self.start_worker("--concurrency", str(slots), *arguments)
        worker.ready()
        return worker

    # -- what happens ----------------------------------------------------------------------------------------------

    def kill_worker(self, rng: random.Random) -> None:
        """kill -9; all its processes are gone when this returns, as they have let go of its output."""
        worker = self.workers.pop(rng.randrange(len(self.workers)))
        worker.process.kill()
        self._end(worker)
        self.start_worker()

    def stop_worker(self, rng: random.Random) -> None:
        """SIGTERM: what runs may end. The oldest, as one that has just begun to start knows of no signals yet."""
        worker = self.workers.pop(0)
        worker.send(signal.SIGTERM)
        assert self._end(worker) == 0, worker.lines[-50:]
        self.start_worker()

    def kill_pool_process(self, rng: random.Random) -> None:
        self._kill_child(rng, b"pools.child")

    def kill_heartbeat(self, rng: random.Random) -> None:
        self._kill_child(rng, b"heartbeat.process")

    def kill_server(self, rng: random.Random) -> None:
        self._kill_server()
        self._serve_again()

    def kill_both(self, rng: random.Random) -> None:
        """The server and a worker: nobody is left who could release that worker's claims."""
        self._kill_server()
        self.kill_worker(rng)
        self._serve_again()

    def _kill_server(self) -> None:
        pid = self.server.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            os.kill(each, signal.SIGKILL)
        self.server.clean_up()

    def _serve_again(self) -> None:
        self.server = self._serving()
        self.server.wait_for("ready")

    def _kill_child(self, rng: random.Random, program: bytes) -> None:
        """One that runs that program, if there is one just now."""
        worker = rng.choice(self.workers)
        for child in rng.sample(children := worker.children(), len(children)):
            if program in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, signal.SIGKILL)
                return

    def _end(self, worker: WorkerCommand) -> int:
        code = worker.ended()
        assert worker.is_silent, "processes have outlived their worker"
        worker.clean_up()
        self.said += worker.lines
        return code

    # -- from the first job to the last ----------------------------------------------------------------------------

    def give_one(self, queue: str, fate: str) -> int:
        """Its number, once its first attempt has begun."""
        self._given += 1
        number = self._given
        app.job_types[job_name(queue, fate)].enqueue(number, fate)
        until(lambda: self.begun(number), f"{fate} begins")
        return number

    def begun(self, number: int) -> list[Line]:
        """The attempts of that job."""
        return [line for line in self.journal.lines() if line.what == BEGUN and line.number == number]

    def give(self, counts: Mapping[tuple[str, str], int]) -> list[Given]:
        """So many jobs of each queue and fate, well mixed."""
        jobs: list[Given] = []
        for part in range(PARTS):
            for (queue, fate), count in counts.items():
                first, last = -(-count * part // PARTS), -(-count * (part + 1) // PARTS)
                calls = [(len(jobs) + number, fate) for number in range(last - first)]
                descriptors = app.job_types[job_name(queue, fate)].enqueue_many(calls)
                jobs += [Given(n, queue, fate, d) for (n, _), d in zip(calls, descriptors, strict=True)]
        return jobs

    def go_through(self, steps: list[str], rng: random.Random, jobs: int) -> None:
        """Each step when its share of so many attempts has ended."""
        for number, step in enumerate(steps, 1):
            share = jobs * number // (len(steps) + 1)
            until(lambda share=share: self._ended() >= share, f"{share} attempts have ended")  # type: ignore[misc]
            getattr(self, step)(rng)
            self.done[step] += 1

    def _ended(self) -> int:
        self.journal.lines()
        return self.journal.ended

    def finish(self, jobs: list[Given]) -> dict[str, JobInfo]:
        """When every job has ended and the workers have stopped: what the server says of each."""
        wanted = Counter(FATES[job.fate].state for job in jobs)
        until(lambda: self.counts() == wanted, lambda: f"{wanted} jobs, but {self.counts()}: {self._open(jobs)}", 0.2)
        for worker in self.workers:
            worker.ready()
            worker.send(signal.SIGTERM)
        while self.workers:
            worker = self.workers.pop()
            assert self._end(worker) == 0, (worker.process.returncode, worker.lines[-20:])
        return self._found(jobs)

    def _found(self, jobs: list[Given]) -> dict[str, JobInfo]:
        found: dict[str, JobInfo] = {}
        for start in range(0, len(jobs), SLICE):
            found |= self.client.lookup([job.descriptor for job in jobs[start : start + SLICE]])
        return found

    def _open(self, jobs: list[Given]) -> list[object]:
        """Jobs that have not ended as they should, some of them."""
        found = self._found(jobs)
        wrong = [
            (job, info)
            for job in jobs
            if not ((info := found.get(job.descriptor)) and info.state is FATES[job.fate].state)
        ]
        return [*wrong[:10]]

    def counts(self) -> Counter[JobState]:
        """By state, of all queues."""
        counts: Counter[JobState] = Counter()
        for queue in FUNCTIONS:
            for state in JobState:
                counts[state] += self.client.count(JobFilter(queue, state))
            counts[JobState.PENDING] += self.client.count(JobFilter(queue, JobState.PENDING, future=True))
        return +counts

    def tracebacks(self) -> list[str]:
        """What workers said of errors of their own."""
        own = [line for line in self.said if '"logger": "pinlater_workers.jobs"' not in line]
        return [line for line in own if "Traceback" in line or "never retrieved" in line]
