"""The judge of alarms on real stores of each kind: servers and stores go, and every face tells the same of it."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from pinlater import Job
from pinlater.model.alarm_views import Severity
from tests.cluster.judged_cluster import JudgedCluster, judged_cluster, refused
from tests.cluster.proof_stand import PASSWORD
from tests.drill.faults import call
from tests.drill.stand import until

pytestmark = [pytest.mark.slow]
KINDS = ("redis", "mysql", "postgres")
BURST = {"redis": 30_000, "mysql": 30_000, "postgres": 100_000}
"""More than one call counts, on each of two shards: those are counted by runs of their own. So many took PostgreSQL
minutes to see gone, when a count waited for a share of the time alone.
"""

COUNTED_WITHIN_S = 30.0
SLACK_S = 5.0


class CountAge(NamedTuple):
    """What was said of the age of a count, and when."""

    at_s: float
    age_s: float

    def is_younger_than(self, shown: CountAge) -> bool:
        """Whether this tells of a count that is still not shown, when it should long be: the server that counts knows
        of it before it is published, and the others read it a moment later.
        """
        return shown.at_s - self.at_s > SLACK_S and shown.at_s - shown.age_s < self.at_s - self.age_s - SLACK_S


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgedCluster]:
    with judged_cluster(tmp_path_factory.mktemp(request.param), request.param) as made:
        yield made


def test_a_burst_is_seen_to_be_drained_in_half_a_minute_and_ages_are_true(cluster: JudgedCluster) -> None:
    cluster.create("burst")
    with cluster.client() as client:
        jobs = BURST[cluster.stores[0].name]
        cluster.fill(client, "burst", jobs)
        until(lambda: sum(each.ready for each in cluster.queue(client, "burst").levels) == jobs, "the burst is counted")
        assert cluster.drain(client, "burst") == jobs
        drained_s, drained_ms = time.monotonic(), client.cluster_status(queues=[]).now_ms
        ages: list[CountAge] = []
        while True:
            status = client.cluster_status(queues=["burst"])
            (queue,) = status.queues
            age_s = (status.now_ms - queue.counted_at_ms) / 1000
            shown = CountAge(time.monotonic(), age_s)
            younger = [each for each in ages if each.is_younger_than(shown)]
            assert younger == [], (younger, shown)
            ages.append(CountAge(time.monotonic(), max(cluster.count_ages().values())))  # that of all queues
            assert ages[-1].age_s < COUNTED_WITHIN_S + SLACK_S, ages
            left = sum(each.ready + each.in_progress for each in queue.levels)
            if queue.counted_at_ms > drained_ms:
                assert left == 0
                break
            assert time.monotonic() - drained_s < COUNTED_WITHIN_S, (left, age_s)
            time.sleep(0.5)
    assert '"ready": 0' in cluster.shell()("queue", "stats", "burst", "-o", "json").out
    cluster.agree()


def test_killed_workers_are_told_of_by_the_next_judge_too(cluster: JudgedCluster) -> None:
    cluster.create("mail")
    with cluster.client() as client:
        worker = cluster.worker("mail")
        until(lambda: len(client.get_workers().workers) == 1, "the worker is listed")
        cluster.judged()
        for pid in (worker.process.pid, *worker.children()):
            os.kill(pid, signal.SIGKILL)
        client.enqueue("mail", [Job(call("send", number)) for number in range(7)])
    alarm = cluster.when("worker_gone", "mail")
    assert (alarm.severity, alarm.size >= 1) == (Severity.CRITICAL, True)
    cluster.agree(("worker_gone", "mail"))
    gone = cluster.judge()
    gone.kill()
    after = cluster.when("server_gone", gone_name(cluster), lambda each: each.since_ms > 0)
    assert after.severity is Severity.INFO
    said = {each[:2]: each for each in cluster.agree(("worker_gone", "mail"), ("server_gone", after.subject))}
    assert said["worker_gone", "mail"].since_ms == alarm.since_ms
    assert cluster.judge() is not gone
    gone.start_again()
    cluster.ready()
    cluster.over("server_gone", after.subject)
    cluster.worker("mail")
    cluster.over("worker_gone", "mail")
    cluster.agree()


def gone_name(cluster: JudgedCluster) -> str:
    """The subject of the one alarm of its kind."""
    found: list[str] = []

    def look() -> bool:
        found[:] = [each.subject for page in cluster.pages() for each in page.alarms if each.name == "server_gone"]
        return bool(found)

    until(look, "a server is gone")
    return found[0]


def test_a_shard_that_stands_still_is_told_of_with_all_that_an_operator_needs(cluster: JudgedCluster) -> None:
    cluster.create("orders")
    with cluster.client() as client:
        client.update_queue("orders", PASSWORD, set={"paused": "true"})  # nobody is to take these
        key = cluster.key_of(client, "orders", "2")
        until(lambda: all(cluster.jobs_at(2)), "each server has read how many jobs shard 2 holds")
        cluster.judged()
        cluster.stores[1].pause()
        stopped_ms = int(time.time() * 1000)
        until(lambda: cluster.alarm("shard_out", "2") is not None, "shard 2 is out")
        until(lambda: refused(cluster, "orders", key), "its keys are refused")
    alarm = cluster.when("shard_out", "2", lambda each: "refused" in each.impact and each.title == "Shard 2 is out")
    assert alarm.since_ms >= stopped_ms - 1_000
    assert "held there" in alarm.impact
    assert alarm.size > 0
    assert "comes back by itself" in alarm.action
    assert alarm.command == "pinlater shard health"
    said = cluster.agree(("shard_out", "2"))
    assert {each.since_ms for each in said} == {alarm.since_ms}
    cluster.stores[1].resume()
    cluster.over("shard_out", "2")
    cluster.agree()


def test_without_any_shard_each_server_judges_and_says_so(cluster: JudgedCluster) -> None:
    for store in cluster.stores:
        store.pause()
    until(lambda: all(page.is_alone for page in cluster.pages()), "each server is alone")
    for server in cluster.living:
        with cluster.client(server) as client:
            page = cluster.page_when(
                client, lambda page: {each.key for each in page.alarms} == {("shard_out", "1"), ("shard_out", "2")}
            )
            assert int(page.judged_by.rpartition("/")[2]) in server.processes()
            assert {each.severity for each in page.alarms} == {Severity.CRITICAL}
        assert "no shard can be reached" in cluster.shell()("alarms").err
    assert "CRITICAL" in cluster.shell()("check", code=2).out
    for store in cluster.stores:
        store.resume()
    cluster.over("shard_out", "1")
    cluster.over("shard_out", "2")
    cluster.agree()
    assert not any(page.is_alone for page in cluster.pages())


def test_no_alarm_was_raised_twice_and_webhooks_heard_of_each_and_of_its_end(cluster: JudgedCluster) -> None:
    with cluster.client() as client:
        ended = client.get_alarms(ended=True).alarms
    times = Counter(each.key for each in ended)
    assert times["shard_out", "1"] <= 1
    assert times["shard_out", "2"] <= 2
    assert max(times.values(), default=0) <= 2, times
    until(lambda: cluster.receiver.sent().keys() >= times.keys(), "the webhook is told of all")
    until(lambda: cluster.receiver.sent("ended").keys() >= times.keys(), "the webhook is told of all ends", 120.0)
