"""The shares of groups in the hand-outs of the last minute, over processes."""

from __future__ import annotations

import pytest

from pinlater.backends.extended import Offer
from pinlater.cluster.group_gauges import GroupGauges
from pinlater.model import DequeuedJob, ExtendedJob, Job
from pinlater.model.jobs import GroupedJob, give_groups
from pinlater.queues import group_hand_outs
from pinlater.queues.group_hand_outs import KEPT_MS, KIND, REFRESH_MS, STEP_MS, WINDOW_MS, GroupHandOuts, HandOuts
from pinlater.queues.group_limits import GroupLimits
from tests.unit.cluster_stand import cluster_stand
from tests.unit.stand import Stand, stand


def named(found: HandOuts | None) -> tuple[int, dict[str, int]] | None:
    return None if found is None else (found.jobs, found.groups)


def jobs(**groups: int) -> list[DequeuedJob]:
    names = [name for name, count in groups.items() for _ in range(count)]
    made: list[DequeuedJob] = [GroupedJob("mail:s1:p1:1", b"", 1, 1, 1, 0, 0) for _ in names]
    give_groups(made, names)
    return made


def process(at: Stand, name: str) -> GroupHandOuts:
    return GroupHandOuts(at.members, at.service.queues, at.clock, at.service.metrics, name)


async def test_what_each_process_handed_out_in_the_last_minute_is_added_up() -> None:
    async with stand(2) as at:
        one, other, reader = (process(at, name) for name in ("one", "other", "reader"))
        assert await one.of_all("mail") is None
        one.count("mail", jobs(acme=3, betty=1))
        other.count("mail", jobs(acme=1, carl=2))
        other.count("news", jobs(acme=9))
        await one.publish()
        await other.publish()
        assert named(await reader.of_all("mail")) == (7, {"acme": 4, "betty": 1, "carl": 2})
        assert named(await reader.of_all("news")) == (9, {"acme": 9})
        assert await reader.of_all("other") is None
        at.clock.tick(STEP_MS)
        one.count("mail", jobs(betty=5))
        assert named(await one.of_all("mail")) == (12, {"acme": 4, "betty": 6, "carl": 2})  # its own as they are now
        at.clock.tick(WINDOW_MS - STEP_MS)
        assert named(await one.of_all("mail")) == (5, {"betty": 5})  # the other one has not published since
        at.clock.tick(STEP_MS)
        assert await one.of_all("mail") is None


async def test_shares_are_no_older_than_30_seconds() -> None:
    assert KEPT_MS + REFRESH_MS <= 30_000
    async with stand(2) as at:
        one, reader = process(at, "one"), process(at, "reader")
        one.count("mail", jobs(acme=3))
        await one.publish()
        at.clock.tick(KEPT_MS - 1)
        assert named(await reader.of_all("mail")) == (3, {"acme": 3})
        at.clock.tick(REFRESH_MS)
        assert await reader.of_all("mail") is None


async def test_a_process_keeps_a_minute_and_no_more_names_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_hand_outs, "MOST_IN_STEP", 3)
    monkeypatch.setattr(group_hand_outs, "MOST_PUBLISHED", 2)
    async with stand(2) as at:
        one, reader = process(at, "one"), process(at, "reader")
        one.count("mail", jobs(a=1, b=2, c=3, d=4))
        one.count("mail", jobs(a=4, e=1))
        assert named(await one.of_all("mail")) == (15, {"a": 5, "b": 2, "c": 3})
        await one.publish()
        assert named(await reader.of_all("mail")) == (15, {"a": 5, "c": 3})
        assert one.queues == {"mail"}
        at.clock.tick(WINDOW_MS)
        await one.publish()
        assert not one.queues


async def test_a_dequeue_counts_the_groups_of_its_jobs_and_nothing_without_any() -> None:
    async with stand(1) as at:
        await at.service.enqueue("mail", [Job(b"x")] * 3)
        assert len(await at.dequeue(9)) == 3
        assert not at.service.limits.hand_outs.queues
        await at.service.enqueue("mail", [ExtendedJob(b"x", group=group) for group in ("acme", "acme", "betty", "")])
        assert len(await at.dequeue(9)) == 4
        found = await at.service.limits.hand_outs.of_all("mail")
        assert named(found) == (4, {"acme": 2, "betty": 1, "": 1})
        await at.service.limits.hand_outs.publish()
        assert sum([len(await member.shard.kv_list(KIND, at.clock.now_ms())) for member in at.members.all]) == 1


async def test_entries_that_are_not_understood_count_nothing() -> None:
    async with stand(2) as at:
        one, reader = process(at, "one"), process(at, "reader")
        one.count("mail", jobs(acme=3))
        await one.publish()
        now_ms = at.clock.now_ms()
        for member in at.members.all:
            for number, body in enumerate((b"", b"{}", b"x\x9c\xab\xae\x05\x00\x01u\x00\xf9")):
                await member.shard.kv_put(KIND, f"new{number}", body, now_ms + 9_000, now_ms)
        assert named(await reader.of_all("mail")) == (3, {"acme": 3})


async def test_the_metrics_name_groups_with_settings_of_their_own() -> None:
    async with stand(2) as at:
        queues, one = at.service.queues, process(at, "one")
        await queues.change_group("mail", "acme", {"weight": "3"}, [], "anna")
        await queues.change_group("mail", "b*", {"weight": "2"}, [], "anna")
        one.count("mail", jobs(acme=3, betty=1, carl=2))
        counters = at.service.metrics.counters
        assert counters["group_jobs_dequeued", "mail", "acme"] == 3
        assert counters["group_jobs_dequeued", "mail", "other"] == 3
        await queues.change_group("mail", "acme", {}, ["weight"], "anna")
        await one.publish()
        one.count("mail", jobs(acme=3))
        assert [key for key in counters if key[0] == "group_jobs_dequeued"] == [
            ("group_jobs_dequeued", "mail", "other")
        ]
        assert counters["group_jobs_dequeued", "mail", "other"] == 6


async def test_the_metrics_name_no_more_than_100_groups_of_a_queue() -> None:
    async with stand(2) as at:
        for number in range(101):
            await at.service.queues.change_group("mail", f"g{number:03}", {"weight": "3"}, [], "anna")
        labelled = at.service.queues.group_rules.labelled("mail")
        assert (len(labelled), "g099" in labelled, "g100" in labelled) == (100, True, False)
        at.clock.tick(1_000)
        await at.service.queues.delete("mail", "anna")
        assert not at.service.queues.group_rules.labelled("mail")


async def test_the_server_that_counts_shows_groups_of_all_shards_and_the_rest_as_other() -> None:
    async with cluster_stand(2) as at:
        server = await at.server("one")
        queues, clock, metrics = server.queues, server.time, server.metrics
        limits = GroupLimits(server.router, queues, clock)
        hand_outs = GroupHandOuts(server.members, queues, clock, metrics, "one")
        gauges = GroupGauges(server.members, queues, limits, hand_outs, server.stats, clock, metrics, (1, 2, 3))
        await queues.change("mail", {}, [], True, "anna")
        assert gauges.is_idle()
        await queues.change_group("mail", "acme", {"paused": "true"}, [], "anna")
        await queues.change_group("mail", "b*", {"weight": "2"}, [], "anna")
        for store in at.stores:
            offers = [Offer(ExtendedJob(b"x", group=group)) for group in ("acme", "acme", "betty", "carl", "carl")]
            await store.enqueue_extended("mail", offers, at.clock.now_ms())
        await server.membership.renew()
        await server.stats.tick()
        await server.stats.drain()
        await gauges.tick(lambda shard_id: True)
        shown = {key: value for key, value in metrics.gauges.items() if key[0].startswith("group_")}
        assert shown == {
            ("group_ready_jobs", "mail", "acme"): 4,
            ("group_ready_jobs", "mail", "other"): 6,
            ("group_ready_limited_jobs", "mail", "acme"): 4,
            ("group_ready_limited_jobs", "mail", "other"): 0,
            ("group_running_jobs", "mail", "other"): 0,
        }
        assert not gauges.is_idle()
        await gauges.tick(lambda shard_id: False)
        assert not any(key[0].startswith("group_") for key in metrics.gauges)
