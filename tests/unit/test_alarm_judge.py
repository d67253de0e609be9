"""The judge: one process of the cluster judges, all know what it found, and another one goes on where it left off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from pinlater.alarms.alarm_entries import (
    KEPT_ENDED,
    StandingEntry,
    put_ended,
    put_standing,
    read_ended,
    read_mutes,
    read_standing,
)
from pinlater.alarms.judge import JUDGE_EVERY_MS, JUDGES, LOST_AFTER_MS, SLOW_BAD, SLOW_SHARDS, WORK, WRITE_EVERY_MS
from pinlater.alarms.judgement import Mute
from pinlater.backends.requests import AckRequest
from pinlater.errors import NoHealthyShards
from pinlater.model import ANONYMOUS, Job, WorkerReport, parse_descriptor
from pinlater.model.alarm_views import Severity
from tests.unit.alarm_stand import MINUTE, AlarmStand, alarm_stand
from tests.unit.breaking import HeldClock
from tests.unit.cluster_stand import cluster_stand


@asynccontextmanager
async def one_alarm() -> AsyncIterator[AlarmStand]:
    """Three jobs that no worker takes, for two minutes."""
    async with alarm_stand() as at:
        first = at.cluster.servers[0]
        await first.queues.create("mail", "me")
        await first.router.enqueue("mail", [Job(b"x")] * 3, first.time.now_ms())
        await at.pass_time()
        await at.pass_time(2 * MINUTE)
        yield at


async def test_all_servers_show_what_one_of_them_judged() -> None:
    async with one_alarm() as stand:
        pages = await stand.pages()
        assert [[alarm.key for alarm in page.alarms] for page in pages] == [[("no_worker", "mail")]] * 2
        assert {page.judged_by for page in pages} == {stand.judging().membership.me.lease_name}
        assert [page.is_alone for page in pages] == [False, False]
        assert pages[0].alarms == pages[1].alarms


async def test_an_alarm_that_ended_can_be_read() -> None:
    async with one_alarm() as stand:
        server = stand.cluster.servers[0]
        await server.queues.change("mail", {"paused": "true"}, (), False, "me")
        await stand.settle()
        ended_ms = server.time.now_ms() - JUDGE_EVERY_MS
        assert [page.alarms for page in await stand.pages()] == [[], []]
        for judge in stand.judges.values():
            (ended,) = (await judge.ended_page(10)).alarms
            assert (ended.key, ended.ended_ms, ended.peak) == (("no_worker", "mail"), ended_ms, 3)


async def test_another_server_goes_on_where_the_judge_left_off() -> None:
    async with one_alarm() as stand:
        judging = stand.judging()
        (before,) = (await stand.pages())[0].alarms
        stand.cluster.kill(judging)
        await stand.pass_time(MINUTE)
        (page,) = await stand.pages()
        (alarm,) = page.alarms
        assert (alarm.since_ms, page.judged_by) == (before.since_ms, stand.judging().membership.me.lease_name)
        assert stand.judging() is not judging


async def test_an_older_server_that_owns_the_shards_keeps_nobody_from_judging() -> None:
    async with cluster_stand() as cluster:
        stand = AlarmStand(cluster)
        new = await stand.server("a")
        for number in range(5):
            await cluster.server(f"old{number}")
        try:
            await stand.pass_time()
            assert new.membership.owner("1") not in (None, "a/1")
            assert (await stand.judges["a"].page(10)).judged_by == "a/1"
        finally:
            await stand.judges["a"].close()
            await stand.workers["a"].close()


async def test_the_first_shard_of_the_leases_may_go() -> None:
    async with one_alarm() as stand:
        (before,) = (await stand.pages())[0].alarms
        first = stand.cluster.servers[0].membership.places()[0].shard.shard_id
        for server in stand.cluster.servers:
            (member,) = [each for each in server.members.all if each.shard.shard_id == first]
            member.eject("it is gone")
        await stand.pass_time()
        alarms = {alarm.name: alarm for alarm in (await stand.pages())[0].alarms}
        assert alarms.keys() == {"no_worker", "shard_out"}
        assert alarms["no_worker"].since_ms == before.since_ms


async def test_a_mute_is_shown_until_it_ends() -> None:
    async with one_alarm() as stand:
        server, judge = stand.cluster.servers[0], stand.judges["b"]
        until_ms = server.time.now_ms() + 10 * MINUTE
        await judge.mute(Mute("no_worker", "mail", until_ms, "me", "known"))
        await stand.pass_time()
        (alarm,) = (await stand.pages())[0].alarms
        assert (alarm.muted_until_ms, alarm.muted_by, alarm.muted_why) == (until_ms, "me", "known")
        await stand.pass_time(10 * MINUTE)
        assert not (await stand.pages())[0].alarms[0].is_muted


async def test_a_mute_is_ended_by_one_that_has_ended() -> None:
    async with one_alarm() as stand:
        server, judge = stand.cluster.servers[0], stand.judges["a"]
        await judge.mute(Mute("no_worker", "", server.time.now_ms() + MINUTE, "me", "known"))
        await stand.pass_time()
        assert (await stand.pages())[0].alarms[0].is_muted
        await judge.mute(Mute("no_worker", "", server.time.now_ms(), "me", ""))
        await stand.pass_time()
        assert not (await stand.pages())[0].alarms[0].is_muted
        (kept,) = await read_mutes(server.members.healthy(), server.time.now_ms())
        assert kept.until_ms <= server.time.now_ms()


async def test_a_healthy_cluster_is_written_once_a_minute() -> None:
    async with alarm_stand() as stand:
        await stand.pass_time()
        versions = []
        for _ in range(WRITE_EVERY_MS // JUDGE_EVERY_MS):
            await stand.pass_time()
            entries = await stand.cluster.stores[0].kv_list("alarm", stand.cluster.clock.now_ms())
            versions.append(entries["standing"].version)
        assert versions[-1] == versions[0] + 1


async def test_with_no_shard_each_server_judges_by_itself() -> None:
    async with one_alarm() as stand:
        for server in stand.cluster.servers:
            for member in server.members.all:
                member.eject("it is gone")
        await stand.pass_time()
        for page in await stand.pages():
            assert page.is_alone
            assert [alarm.name for alarm in page.alarms if alarm.name == "shard_out"] == ["shard_out"] * 2
        with pytest.raises(NoHealthyShards):
            await stand.judges["a"].ended_page(10)
        with pytest.raises(NoHealthyShards):
            await stand.judges["a"].mute(Mute("no_worker", "", 1, "me", "x"))


async def test_a_queue_that_fails_keeps_no_server_from_judging_without_shards() -> None:
    async with alarm_stand() as stand:
        first = stand.cluster.servers[0]
        await first.queues.create("mail", "me")
        await first.router.enqueue("mail", [Job(b"x")], first.time.now_ms())
        await stand.pass_time()
        for server in stand.cluster.servers:
            server.metrics.add(12, "jobs_acked", "mail", 1, "failed")
        await stand.pass_time()
        for server in stand.cluster.servers:
            server.metrics.add(12, "jobs_acked", "mail", 1, "failed")
            for member in server.members.all:
                member.eject("it is gone")
        await stand.pass_time(MINUTE)
        for page in await stand.pages():
            assert "shard_out" in {alarm.name for alarm in page.alarms}


async def test_the_last_that_ended_are_kept() -> None:
    async with one_alarm() as stand:
        server = stand.judging()
        (alarm,) = (await stand.pages())[0].alarms
        now_ms = server.time.now_ms()
        for number in range(KEPT_ENDED + 5):
            await put_ended(server.membership.places(), replace(alarm, ended_ms=now_ms + number), now_ms + number)
        kept = await read_ended(server.membership.places(), now_ms)
        assert [each.ended_ms for each in kept] == [now_ms + number for number in range(KEPT_ENDED + 4, 4, -1)]


async def test_the_type_of_job_that_fails_is_found_in_the_store() -> None:
    async with alarm_stand() as stand:
        first = stand.cluster.servers[0]
        await first.queues.create("mail", "me")
        await stand.pass_time()
        body = b'PINLATER/1 application/json\n{"job": "invoice"}'
        jobs = [Job(body, attempts_allowed=1)] * 12 + [Job(body.replace(b"invoice", b"greet"))] * 4
        store = stand.cluster.stores[0]
        await store.enqueue("mail", jobs, stand.cluster.clock.now_ms())
        claimed = await stand.cluster.claimed(store, "mail", 16)
        failed = [job.descriptor for job in claimed if job.body == body][:4]
        acks = [
            AckRequest(ref.priority, ref.id, job.descriptor not in failed, append_status="Refused: no")
            for job in claimed
            if (ref := parse_descriptor(job.descriptor))
        ]
        await store.ack("mail", acks, stand.cluster.clock.now_ms())
        first.metrics.add(12, "jobs_acked", "mail", 1, "succeeded")
        first.metrics.add(4, "jobs_acked", "mail", 1, "failed")
        await stand.pass_time()
        await stand.pass_time()
        (alarm,) = (await stand.pages())[0].alarms
        assert (alarm.name, alarm.subject, alarm.size) == ("failing", "mail/invoice", 4)
        assert "Refused: no" in alarm.error


async def test_jobs_that_expire_or_crash_are_counted_by_the_leases() -> None:
    async with alarm_stand() as stand:
        first, second = stand.cluster.servers
        await first.queues.create("mail", "me")
        await stand.pass_time()
        first.metrics.add(30, "jobs_acked", "mail", 1, "succeeded")
        first.metrics.add(1, "jobs_acked", "mail", 1, "failed")
        first.metrics.add(4, "claims_expired", "mail", "retried")
        await stand.pass_time()
        assert (await stand.pages())[0].alarms == []
        first.metrics.add(2, "jobs_expired", "mail")
        second.metrics.add(1, "claims_expired", "mail", "failed")
        first.metrics.add(1, "claims_released", "mail", "failed")
        await stand.pass_time()
        alarms = (await stand.pages())[0].alarms
        assert {alarm.key: alarm.size for alarm in alarms} == {("jobs_expired", "mail"): 2, ("jobs_crashed", "mail"): 2}
        assert [lease.more.get("lost") for lease in first.membership.alive()] == [{"mail": (2, 1)}, {"mail": [0, 1]}]


async def test_what_was_counted_before_a_judgement_that_failed_is_judged_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(_: object) -> None:
        raise RuntimeError("the list of workers")

    async with alarm_stand() as stand:
        first = stand.cluster.servers[0]
        await first.queues.create("mail", "me")
        await stand.pass_time()
        first.metrics.add(12, "jobs_acked", "mail", 1, "failed")
        with monkeypatch.context() as breaking:
            breaking.setattr(stand.workers[stand.judging().membership.me.server], "observed", fail)
            with pytest.raises(RuntimeError, match="the list of workers"):
                await stand.pass_time()
            with pytest.raises(RuntimeError, match="the list of workers"):
                await stand.pass_time(MINUTE)
        await stand.pass_time()
        assert [alarm.key for alarm in (await stand.pages())[0].alarms] == [("failing", "mail")]


async def test_a_server_that_is_killed_is_told_of_and_one_that_leaves_is_not() -> None:
    for is_killed in (True, False):
        async with alarm_stand() as stand:
            leaving, staying = stand.cluster.servers
            await stand.pass_time()
            stand.cluster.kill(leaving)
            if not is_killed:
                await leaving.membership.drain()
                await leaving.membership.give_up()
            await stand.cluster.round()
            for _ in range(5):
                await stand.pass_time()
            alarms = [alarm.key for alarm in (await stand.pages())[0].alarms]
            assert alarms == ([("server_gone", leaving.membership.me.server)] if is_killed else [])
            assert staying.membership.owns("1")


async def test_a_server_that_came_back_is_not_told_of_when_nobody_can_be_seen() -> None:
    async with alarm_stand() as stand:
        gone, staying = stand.cluster.servers
        await stand.pass_time()
        stand.cluster.kill(gone)
        for _ in range(5):
            await stand.pass_time()
        name = gone.membership.me.server
        assert [alarm.key for alarm in (await stand.pages())[0].alarms] == [("server_gone", name)]
        await stand.judges[name].close()
        back = await stand.server(name)
        await stand.settle()
        assert (await stand.pages())[0].alarms == []
        for server in (staying, back):
            for member in server.members.all:
                member.eject("it is gone")
        await stand.settle()
        for page in await stand.pages():
            assert {alarm.name for alarm in page.alarms} == {"shard_out"}


async def test_a_queue_that_is_limited_to_nothing_wants_no_worker() -> None:
    async with one_alarm() as stand:
        await stand.cluster.servers[0].queues.change("mail", {"max_jobs_per_second": "0/s"}, (), False, "me")
        await stand.settle()
        assert [alarm.name for alarm in (await stand.pages())[0].alarms] == ["throttled"]


async def test_calls_that_a_shard_is_needed_for_are_counted_while_it_is_out() -> None:
    async with alarm_stand() as stand:
        for server in stand.cluster.servers:
            server.members.all[0].eject("it is gone")
            server.members.all[0].refused_calls += 7
        assert [stand.judges[name].describe() for name in ("a", "b")] == [{JUDGES: True, "refused_calls": {"1": 7}}] * 2
        stand.cluster.servers[0].members.all[0].readmit()
        assert stand.judges["a"].describe() == {JUDGES: True}


async def test_a_shard_at_which_many_calls_go_wrong_is_told_of_while_it_is_in() -> None:
    async with alarm_stand() as stand:
        first = stand.cluster.servers[0]
        health = first.members.all[0].health
        for number in range(SLOW_BAD + 1):
            assert stand.judges["a"].describe().get(SLOW_SHARDS) == (None if number < SLOW_BAD else {"1": ""})
            health.failed("enqueue", first.time.now_ms())
            health.answered("enqueue")
        assert health.is_healthy


async def test_a_worker_that_was_killed_is_told_of_soon_after_its_connection_broke() -> None:
    async with alarm_stand() as stand:
        first, report = stand.cluster.servers[0], WorkerReport("w1", "shop", 5_000, "host-1", 7, {"mail": 1}, 4)
        await first.queues.create("mail", "me")
        stand.workers["a"].receive(report)
        await stand.pass_time()
        stand.workers["a"].connection_lost(ANONYMOUS, "w1")
        await stand.pass_time(LOST_AFTER_MS - 1)
        assert (await stand.pages())[0].alarms == []
        await stand.pass_time()
        (alarm,) = (await stand.pages())[0].alarms
        assert (alarm.key, alarm.severity) == (("worker_gone", "mail"), Severity.CRITICAL)
        stand.workers["a"].receive(replace(report, up_ms=25_000))  # it was only cut off
        await stand.settle()
        assert (await stand.pages())[0].alarms == []


async def test_a_worker_that_reconnects_or_has_stopped_is_not_gone() -> None:
    async with alarm_stand() as stand:
        report = WorkerReport("w1", "shop", 5_000, "host-1", 7, {"mail": 1}, 4)
        await stand.cluster.servers[0].queues.create("mail", "me")
        stand.workers["a"].receive(report)
        await stand.pass_time()
        stand.workers["a"].connection_lost(ANONYMOUS, "w1")
        stand.workers["a"].receive(replace(report, up_ms=6_000))
        await stand.pass_time(LOST_AFTER_MS)
        assert (await stand.pages())[0].alarms == []
        stand.workers["a"].receive(replace(report, up_ms=7_000, has_stopped=True))
        stand.workers["a"].connection_lost(ANONYMOUS, "w1")
        await stand.pass_time(LOST_AFTER_MS)
        assert (await stand.pages())[0].alarms == []


async def test_a_worker_that_rests_takes_no_jobs_and_may_go() -> None:
    async with one_alarm() as stand:
        report = WorkerReport("w1", "shop", 5_000, "host-1", 7, {"mail": 1}, 4)
        stand.workers["a"].receive(report)
        await stand.settle()
        assert (await stand.pages())[0].alarms == []
        stand.workers["a"].receive(replace(report, up_ms=6_000, is_quiet=True))
        await stand.pass_time()
        assert [alarm.name for alarm in (await stand.pages())[0].alarms] == ["no_worker"]
        await stand.pass_time(2 * MINUTE)
        assert [alarm.name for alarm in (await stand.pages())[0].alarms] == ["no_worker"]


# -- several that judge ------------------------------------------------------------------------------------------------


async def test_one_process_judges_where_a_shard_is_out_at_some() -> None:
    for number in (0, 1):
        async with one_alarm() as stand:
            for server in stand.cluster.servers:
                member = server.members.all[number]
                member.eject("it cannot be reached from here")
                await stand.settle()
                turns = [each.membership.does_among(WORK, JUDGES) for each in stand.cluster.servers]
                assert turns.count(True) == 1
                pages = await stand.pages()
                assert len({page.judged_by for page in pages}) == 1
                alarm = {each.name: each for each in pages[0].alarms}["shard_out"]
                assert alarm.title == f"Shard {number + 1} is out at {server.membership.me.lease_name}"
                member.readmit()
                await stand.settle()


async def test_two_that_judge_at_once_tell_of_the_same_beginnings() -> None:
    """One stood still, and goes on in the middle of its judgement: the other one has judged meanwhile."""
    async with one_alarm() as stand:
        first = stand.judging()
        (other,) = [each for each in stand.cluster.servers if each is not first]
        (before,) = (await stand.pages())[0].alarms
        old = StandingEntry(first.membership.me.lease_name, first.time.now_ms())
        stand.cluster.servers.remove(first)
        await stand.settle()
        await put_standing(other.membership.places(), old, other.time.now_ms())
        await stand.pass_time()
        stored = await read_standing(other.membership.places(), other.time.now_ms())
        assert stored is not None
        assert before.key in {each.key for each in stored.alarms}
        stand.cluster.servers.append(first)
        await stand.settle()
        found = {each.key: each.since_ms for each in (await stand.pages())[0].alarms}
        assert found[before.key] == before.since_ms


async def test_servers_whose_clocks_differ_tell_of_the_same_beginnings() -> None:
    async with cluster_stand(2) as cluster:
        stand = AlarmStand(cluster)
        ahead = HeldClock(cluster.clock.now_ms() + 3_000)
        try:
            first = await stand.server("a", clock=ahead)
            await stand.server("b")
            await cluster.round()
            await first.queues.create("mail", "me")
            await first.router.enqueue("mail", [Job(b"x")] * 3, first.time.now_ms())
            for _ in range(16):
                ahead.tick(JUDGE_EVERY_MS)
                await stand.pass_time()
            judging = stand.judging()
            before = {each.key: each.since_ms for each in (await stand.pages())[0].alarms}
            assert ("no_worker", "mail") in before
            cluster.kill(judging)
            for _ in range(4):
                ahead.tick(JUDGE_EVERY_MS)
                await stand.pass_time()
            after = {each.key: each.since_ms for each in (await stand.pages())[0].alarms}
            assert after["no_worker", "mail"] == before["no_worker", "mail"]
            assert stand.judging() is not judging
        finally:
            for judge in stand.judges.values():
                await judge.close()
            for workers in stand.workers.values():
                await workers.close()


async def test_without_shards_what_stood_keeps_its_beginning_and_its_end_is_sent() -> None:
    async with one_alarm() as stand:
        (before,) = (await stand.pages())[0].alarms
        assert await stand.heard() == [(["mail"], [])]
        judging = stand.judging()
        for server in stand.cluster.servers:
            for member in server.members.all:
                member.eject("it is gone")
        await stand.pass_time()
        for page in await stand.pages():
            assert {each.key: each.since_ms for each in page.alarms}[before.key] == before.since_ms
        stand.cluster.kill(judging)
        (left,) = stand.cluster.servers
        for member in left.members.all:
            member.readmit()
        await left.queues.change("mail", {"paused": "true"}, (), False, "me")
        await stand.heard()
        for _ in range(8):
            await stand.pass_time(MINUTE // 2)
        ended = [subject for _, subjects in await stand.heard() for subject in subjects]
        assert "mail" in ended


async def test_a_mute_outlives_a_shard_that_was_out_when_it_was_set() -> None:
    async with one_alarm() as stand:
        first = stand.judging().membership.places()[0].shard.shard_id
        members = [
            member for each in stand.cluster.servers for member in each.members.all if member.shard.shard_id == first
        ]
        judge, server = stand.judges["b"], stand.cluster.servers[0]
        for is_set in (True, False):
            for member in members:
                member.eject("it is gone")
            await stand.pass_time()
            now_ms = server.time.now_ms()
            await judge.mute(Mute("no_worker", "mail", now_ms + is_set * 60 * MINUTE, "me", "known", now_ms))
            for member in members:
                member.readmit()
            if is_set:
                stand.cluster.kill(stand.judging())
            await stand.settle()
            await stand.pass_time(MINUTE)
            (alarm,) = [each for each in (await stand.pages())[0].alarms if each.name == "no_worker"]
            assert alarm.is_muted == is_set


# -- webhooks ----------------------------------------------------------------------------------------------------------


async def test_one_process_sends_and_another_one_sends_the_end() -> None:
    async with one_alarm() as stand:
        assert await stand.heard() == [(["mail"], [])]
        stand.cluster.kill(stand.judging())
        await stand.pass_time(MINUTE)
        assert await stand.heard() == []
        server = stand.judging()
        await server.queues.change("mail", {"paused": "true"}, (), False, "me")
        await stand.pass_time(MINUTE)
        gone = stand.cluster.killed[0].membership.me.server
        assert await stand.heard() == [([], ["mail"]), ([gone], [])]


async def test_a_webhook_that_fails_is_an_alarm_until_it_takes_what_it_missed() -> None:
    async with one_alarm() as stand:
        await stand.heard()
        stand.failure = "it answered 500"
        server = stand.judging()
        await server.queues.create("other", "me")
        await server.router.enqueue("other", [Job(b"x")], server.time.now_ms())
        for _ in range(8):
            await stand.pass_time(MINUTE)
            assert await stand.heard() == []
        (alarm,) = [each for each in (await stand.pages())[0].alarms if each.name == "webhook_failing"]
        assert (alarm.subject, "it answered 500" in alarm.why) == ("ops.example", True)
        stand.failure = ""
        await stand.pass_time(MINUTE)
        assert (["other"], []) in await stand.heard()
        await stand.pass_time(MINUTE)
        assert "webhook_failing" not in {each.name for each in (await stand.pages())[0].alarms}
        assert (["ops.example"], []) not in await stand.heard()


async def test_alarms_are_metrics_of_the_process_that_judges() -> None:
    async with one_alarm() as stand:
        judging = stand.judging().membership.me.server
        for name, metrics in stand.metrics.items():
            alarms = [key for key in metrics.gauges if key[0] == "alarms"]
            expected = [("alarms", "no_worker", Severity.CRITICAL, "mail", "mail")] if name == judging else []
            assert alarms == expected
        await stand.judges[judging].mute(Mute("no_worker", "", stand.judging().time.now_ms() + MINUTE, "me", "known"))
        await stand.pass_time()
        assert not [key for key in stand.metrics[judging].gauges if key[0] == "alarms"]
