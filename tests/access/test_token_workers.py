"""Workers and relays that show a token: it is exchanged under way, and revoked."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Job, JobFilter, JobState
from pinlater.errors import Forbidden
from pinlater_workers import App
from tests.access.cluster import Cluster, private, two_servers, until
from tests.server.running import BY_EXEC
from tests.workers.command import working
from tests.workers.outbox_stand import OutboxPlace, Shop

APP = """
from pinlater_workers import App

app = App()


@app.job(queue="mail")
def letter(to: str) -> None:
    print("letter to", to, flush=True)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with two_servers(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def enqueue(cluster: Cluster, token: str, to: str) -> None:
    with cluster.client(0, token) as client:
        client.enqueue("mail", Job(b'PINLATER/1 application/json\n{"job": "letter", "args": ["%s"]}' % to.encode()))


def test_a_worker_takes_a_new_token_from_its_file_and_ends_when_that_is_revoked(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "letters.py").write_text(APP)
    producer = cluster.make("shop", "producer")
    token, next_token = cluster.make("mailer", "worker"), cluster.make("mailer-2", "worker")
    file = private(tmp_path / "worker.token", token)
    arguments = ("--app", "letters:app", "--server", cluster.address(1), "--token-file", "worker.token")
    with working(
        tmp_path, *arguments, "--pool", "process", "--concurrency", "1", "--poll-wait", "500ms", before=BY_EXEC
    ) as worker:
        worker.ready()
        enqueue(cluster, producer, "ada")
        worker.wait_for("letter to ada")
        family = [worker.process.pid, *worker.children()]
        assert len(family) > 2
        for pid in family:
            assert token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        file.write_text(next_token)
        cluster.revoke("mailer")
        until(lambda: "mailer" not in cluster.uses(1))
        enqueue(cluster, producer, "bob")
        worker.wait_for("letter to bob")
        until(lambda: cluster.uses(1).get("mailer-2"))
        cluster.revoke("mailer-2")
        assert worker.ended() == 1
        assert "the worker ends, as the servers do not know its token: the token is wrong" in worker.lines[-1]
        said = "\n".join(worker.lines)
        assert token not in said
        assert next_token not in said


def test_a_worker_that_rules_refuse_goes_on_until_they_do_not(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "letters.py").write_text(APP)
    private(tmp_path / "worker.token", cluster.make("hopeful", "producer"))
    arguments = ("--app", "letters:app", "--server", cluster.address(1), "--token-file", "worker.token")
    with working(tmp_path, *arguments, "--poll-wait", "500ms") as worker:
        worker.wait_for("token:hopeful may not consume on queue 'mail'")
        enqueue(cluster, cluster.make("shop", "producer"), "eve")
        cluster.make("hopeful", "worker")
        worker.wait_for("letter to eve")
        worker.wait_for("servers answer again")
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0


def test_schedules_of_an_app_are_applied_with_a_token(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "letters.py").write_text(APP.replace('queue="mail"', 'queue="mail", every="1h"').replace("to: str", ""))
    private(tmp_path / "ops.token", cluster.make("release", "operator"))
    arguments = ("--app", "letters:app", "--server", cluster.address(0), "--token-file", "ops.token", "--apply")
    with working(tmp_path, "schedules", *arguments) as applied:
        assert applied.ended() == 0
        assert "applied: 1 set, 0 removed" in applied.lines


def test_a_producer_that_may_create_no_queue_is_told_so(cluster: Cluster) -> None:
    app = App(servers=[cluster.address(0)], token=cluster.make("eager", "producer"), create_queues=True)
    send = app.job(queue="missing")(print)
    with pytest.raises(Forbidden, match="queue 'missing' does not exist, and this client may not create it, as create"):
        send.enqueue()
    app.close()


def test_a_relay_keeps_its_jobs_while_its_token_is_wrong(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "letters.py").write_text(APP)
    place = OutboxPlace(f"sqlite:///{tmp_path}/shop.db")
    with place.engine.begin() as connection:
        Shop().outbox.create_table(connection)
        Shop().outbox.enqueue_jobs(connection, "mail", [Job(b"kept")])
    file = private(tmp_path / "relay.token", "plt_" + "w" * 43)
    arguments = ("outbox", "--database", place.url, "--server", cluster.address(0), "--token-file", str(file))
    with working(tmp_path, *arguments, "--poll", "100ms") as relay:
        relay.wait_for("the token is wrong")
        file.write_text(cluster.make("relay", "producer"))
        with cluster.client(0, cluster.reader) as client:
            until(lambda: client.count(JobFilter("mail", JobState.PENDING, body_regex="^kept$")))
        relay.send(signal.SIGTERM)
        assert relay.ended() == 0
