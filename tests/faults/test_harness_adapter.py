"""The adapter for somebody else's harness, held to the protocol of that harness: a process of it on a real PostgreSQL,
with the variables that the harness sets, and the signals that it sends; and what stands in for Docker there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pinlater import Client, JobState
from tests.bench.harness import docker
from tests.bench.harness.__main__ import drained
from tests.bench.harness.adapter import QUEUE, served
from tests.bench.harness.ledger import account
from tests.bench.harness.samples import MANIFEST, OF_ALL_REPLICAS
from tests.stores.places import Places
from tests.stores.process import free_port

pytestmark = pytest.mark.store("postgres")

METRICS = {"claim_p50_ms", "claim_p95_ms", "claim_p99_ms", "enqueue_rate", "completion_rate", *OF_ALL_REPLICAS}
ENDS_WITHIN_S = 5.0
"""The harness's document; a busy machine is given six times that."""


class Replica:
    """A process of the adapter, and what it has said."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []

    def wait_for(self, is_there: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Read on until so much was said."""
        assert self.process.stdout is not None
        while not is_there(self.said):
            line = self.process.stdout.readline()
            assert line, f"the adapter ended with {self.process.wait()}"
            self.said.append(json.loads(line))

    def samples(self, metric: str) -> list[dict[str, Any]]:
        return [each for each in self.said if each.get("metric") == metric]


@pytest.fixture
def database(postgres_places: Places) -> str:
    return postgres_places.fresh().replace("+psycopg", "")


@contextmanager
def replica(database: str, ledger: Path, **variables: object) -> Iterator[Replica]:
    env = {"DATABASE_URL": database, "SCENARIO": "long_horizon", "PRODUCER_MODE": "fixed", "PRODUCER_RATE": "100"}
    env |= {"WORKER_COUNT": "8", "SAMPLE_EVERY_S": "1", "PRODUCER_PACING": "harness", "HARNESS_LEDGER": str(ledger)}
    env |= {name: str(value) for name, value in variables.items()}
    command = [sys.executable, "-m", "tests.bench.harness.adapter"]
    process = subprocess.Popen(
        command, env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Replica(process)
    finally:
        process.kill()
        process.communicate()


def test_the_adapter_says_what_the_protocol_wants(database: str, tmp_path: Path) -> None:
    with replica(database, tmp_path) as running:
        running.wait_for(lambda said: len(said) >= 1)
        descriptor = running.said[0]
        assert descriptor["kind"] == "descriptor"
        assert descriptor["system"] == MANIFEST["system"] == "pinlater"
        assert set(MANIFEST["event_tables"]) <= set(descriptor["event_tables"])
        assert database.endswith(f"/{descriptor['db_name']}")
        with closing(psycopg.connect(database)) as connection:
            for relation in (*MANIFEST["event_tables"], *MANIFEST["event_indexes"]):
                assert connection.execute("SELECT to_regclass(%s)", [relation]).fetchall() != [(None,)], relation
        assert running.process.stdin is not None
        running.process.stdin.write("ENQUEUE 5\n" * 50_000)  # more than a pipe holds
        running.process.stdin.flush()
        running.wait_for(lambda said: len(running.samples("producer_target_rate")) >= 3)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.stdout is not None
        rest = [json.loads(line) for line in running.process.stdout]
        assert running.process.wait(6 * ENDS_WITHIN_S) == 0
    for sample in running.said[1:] + rest:
        assert (sample["system"], sample["kind"], sample["subject_kind"]) == ("pinlater", "adapter", "adapter")
        assert (type(sample["value"]), sample["instance_id"], sample["t"][-1]) == (float, 0, "Z")
    assert {sample["metric"] for sample in running.said[1:]} == METRICS
    for name in METRICS - OF_ALL_REPLICAS:
        assert max(sample["value"] for sample in running.samples(name)) > 0, name
    found = account(tmp_path)
    assert found.stored > 0
    assert found.not_run <= found.stored - found.repeated


def test_a_further_replica_leaves_to_the_first_what_is_of_all(database: str, tmp_path: Path) -> None:
    with replica(database, tmp_path, BENCH_INSTANCE_ID=1) as running:
        running.wait_for(lambda said: len(running.samples("completion_rate")) >= 2)
    assert {sample["metric"] for sample in running.said[1:-1]} <= METRICS - OF_ALL_REPLICAS
    assert {sample["instance_id"] for sample in running.said} == {1}


def test_the_rate_follows_the_file_of_the_harness(database: str, tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    control = tmp_path / "rate"
    control.write_text("0")
    with replica(database, tmp_path / "ledger", PRODUCER_RATE_CONTROL_FILE=control) as running:
        running.wait_for(lambda said: len(running.samples("producer_target_rate")) >= 2)
        assert account(tmp_path / "ledger").stored == 0
        control.write_text("300.0")
        running.wait_for(lambda said: account(tmp_path / "ledger").stored > 300)
        running.wait_for(lambda said: running.samples("producer_target_rate")[-1]["value"] == 300)


def test_a_target_of_depth_is_kept(database: str, tmp_path: Path) -> None:
    variables: Mapping[str, object] = {"PRODUCER_MODE": "depth-target", "TARGET_DEPTH": 50, "JOB_WORK_MS": 500}
    with replica(database, tmp_path, **variables) as running:
        running.wait_for(lambda said: any(sample["value"] > 0 for sample in running.samples("queue_depth")))
        running.wait_for(lambda said: len(running.samples("queue_depth")) >= 6)
    # a depth that was read before the last enqueues lets them pass it, by a few batches
    assert 0 < running.samples("queue_depth")[-1]["value"] <= 50 * 10


@pytest.mark.slow
def test_a_killed_replica_loses_nothing(database: str, tmp_path: Path) -> None:
    _kill_in_jobs(database, tmp_path)
    assert drained(tmp_path, database).not_run == 0


@pytest.mark.slow
def test_a_worker_that_acks_too_early_is_found(database: str, tmp_path: Path) -> None:
    _kill_in_jobs(database, tmp_path, HARNESS_FAULT="early-acks")
    found = drained(tmp_path, database, patience_s=10)
    with served(database) as (_, address), Client(address) as client:
        assert client.count(QUEUE, JobState.SUCCEEDED) >= found.stored - found.not_run
        assert client.count(QUEUE, JobState.PENDING) == 0
    assert found.not_run > 0


@pytest.mark.slow
def test_upkeep_that_locks_the_table_stands_still_beside_a_reader(database: str, tmp_path: Path) -> None:
    with replica(database, tmp_path, HARNESS_FAULT="whole-locks") as running:

        def goes_on(*, at_all: bool) -> None:
            count = len(running.samples("completion_rate"))
            running.wait_for(
                lambda _: any((each["value"] > 0) == at_all for each in running.samples("completion_rate")[count:])
            )

        goes_on(at_all=True)
        with closing(psycopg.connect(database)) as reader:
            reader.execute(f"SELECT count(*) FROM {MANIFEST['event_tables'][0]}")
            goes_on(at_all=False)
        goes_on(at_all=True)


def _kill_in_jobs(database: str, ledger: Path, **variables: object) -> None:
    """Kill a replica whose worker is always at a job; what belongs to it goes with it."""
    with replica(database, ledger, JOB_WORK_MS=100, **variables) as running:
        running.wait_for(lambda said: any(sample["value"] > 0 for sample in running.samples("completion_rate")))
        children = _children(running.process.pid)
        assert children
        running.process.kill()
        running.process.wait()
    until_s = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        assert time.monotonic() < until_s, "a process of the replica goes on"
        time.sleep(0.05)


def _children(pid: int) -> list[int]:
    own = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return own + [further for child in own for further in _children(child)]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """The store's user may read what is in it, as nobody may in the folders of pytest."""
    with tempfile.TemporaryDirectory(prefix="pinlater-harness-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_what_stands_in_for_docker_keeps_the_data_until_it_is_taken_down(open_folder: Path) -> None:
    checkout, state = open_folder / "checkout", open_folder / "state"
    checkout.mkdir()
    (checkout / "postgres.conf").write_text("max_connections = 12\nfsync = off\n")
    port = free_port()
    env = {**os.environ, docker.CHECKOUT: str(checkout), docker.STATE: str(state), "HARNESS_PORT": str(port)}

    def answer(statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(f"postgresql://bench:bench@127.0.0.1:{port}/postgres", autocommit=True) as connection:
            done = connection.execute(statement)
            return done.fetchall() if done.description else []

    def compose(*words: str) -> int:
        return subprocess.run(
            [sys.executable, "-m", docker.__name__, "compose", *words], env=env, check=False
        ).returncode

    try:
        assert compose("up", "-d", "--wait") == 0
        assert answer("SHOW max_connections") == [("12",)]
        answer("CREATE TABLE kept (number INT)")
        assert compose("stop", "postgres") == 0
        assert compose("exec", "-T", "postgres", "pg_isready", "-U", "bench") == 1
        assert compose("start", "postgres") == 0
        assert compose("exec", "-T", "postgres", "pg_isready", "-U", "bench") == 0
        assert answer("SELECT count(*) FROM kept") == [(0,)]
    finally:
        assert compose("down", "-v") == 0
    assert not (state / "postgres").exists()
