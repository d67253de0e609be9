"""Queues and their settings as all servers and shards agree on them."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.backends.base import ConfigEntry
from pinlater.errors import NoHealthyShards, QueueNotFound, RequestInvalid, ShardNotFound
from pinlater.model import Job, JobFilter, JobState, new_version
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.replication import READ_AT_ONCE
from pinlater.queues.settings import QueueSettings
from tests.queues import record_of
from tests.unit.several import AWAY, Server, several


async def polled(servers: list[Server]) -> None:
    """Every server polls; then what one of them had to tell the shards, the others learn."""
    for server in [*servers, *servers]:
        await server.queues.poll()


async def records(server: Server, name: str) -> list[ConfigEntry | None]:
    """What each shard has of a name."""
    return [await record_of(way.inner, name) for way in server.ways]


async def change(server: Server, name: str = "mail", **settings: str) -> list[str]:
    """Set something; the shards that were missed."""
    return (await server.queues.change(name, settings, [], False, "ann")).missed_shards


# -- reading


def read(server: Server) -> list[int]:
    """How many pages were read of each shard since the last time."""
    counts = [way.begun["list_config"] for way in server.ways]
    for way in server.ways:
        way.begun["list_config"] = 0
    return counts


async def test_a_poll_reads_some_shards_in_turn_and_all_of_them_when_there_is_something_new() -> None:
    shards = 2 * READ_AT_ONCE + 1
    async with several(2, shards) as (one, two):
        await polled([one, two])
        read(two)
        await two.queues.poll()
        assert sum(read(two)) == READ_AT_ONCE
        for _ in range(3):
            await two.queues.poll()
        assert min(read(two)) >= 1
        await one.queues.create("mail", "ann")
        for way in two.ways:
            way.begun["put_config"] = 0
        await two.queues.poll()
        assert two.queues.names() == {"mail"}
        assert min(read(two)) >= 1
        assert [way.begun["put_config"] for way in two.ways] == [0] * shards


# -- agreeing


async def test_another_server_knows_within_a_poll_what_this_one_changed() -> None:
    async with several() as (one, two):
        await one.queues.create("mail", "ann")
        assert await change(one, max_jobs_per_second="100/s", claim_timeout="5s") == []
        assert one.queues.settings("mail").claim_timeout_ms == 5_000
        assert two.queues.settings("mail") == QueueSettings()
        await two.queues.poll()
        assert two.queues.names() == {"mail"}
        assert two.queues.settings("mail") == one.queues.settings("mail")
        assert two.queues.settings("mail").max_jobs_per_second == 100
        await two.queues.delete("mail", "bob")
        await one.queues.poll()
        assert one.queues.names() == set()
        assert one.queues.settings("mail") == QueueSettings()
        assert one.queues.was_deleted("mail")
        assert not one.queues.was_deleted("never")


async def test_two_operators_at_once_end_the_same_everywhere_and_neither_is_lost() -> None:
    async with several(3, 3) as servers:
        one, two, three = servers
        await one.queues.create("mail", "ann")
        await polled(servers)
        await asyncio.gather(
            change(one, max_pending="5"), change(two, max_attempts="3"), change(three, claim_timeout="7s")
        )
        await polled(servers)
        for server in servers:
            settings = server.queues.settings("mail")
            assert (settings.max_pending, settings.max_attempts, settings.claim_timeout_ms) == (5, 3, 7_000)
        assert len({str(await records(server, "mail")) for server in servers}) == 1
        assert len(set(await records(one, "mail"))) == 1


async def test_two_that_make_the_same_queue_at_once_make_one() -> None:
    async with several() as (one, two):
        made = await asyncio.gather(one.queues.create("mail", "ann"), two.queues.create("mail", "bob"))
        await polled([one, two])
        assert len(set(await records(one, "mail"))) == 1
        assert any(each.is_new for each in made)


async def test_changes_of_one_millisecond_keep_their_order() -> None:
    async with several(1) as (one,):
        await one.queues.create("mail", "ann")
        for amount in range(20):
            await change(one, max_pending=str(amount))
        assert one.queues.settings("mail").max_pending == 19


async def test_a_queue_that_is_there_is_no_change_but_is_put_on_shards_that_lack_it() -> None:
    async with several(1) as (one,):
        one.ways[1].failures["put_config"] = [AWAY]
        made = await one.queues.create("mail", "ann")
        assert (made.is_new, made.missed_shards) == (True, ["2"])
        again = await one.queues.create("mail", "ann")
        assert (again.is_new, again.missed_shards, again.version) == (False, [], made.version)
        assert len(set(await records(one, "mail"))) == 1


async def test_a_poll_tells_a_shard_what_it_missed() -> None:
    async with several() as (one, two):
        one.ways[1].failures["put_config"] = [AWAY]
        assert (await one.queues.create("mail", "ann")).missed_shards == ["2"]
        await two.queues.poll()
        first, second = await records(one, "mail")
        assert first == second is not None


async def test_a_poll_of_what_did_not_change_is_one_look_per_shard() -> None:
    async with several(1) as (one,):
        await one.queues.create("mail", "ann")
        await one.queues.poll()
        begun = [way.begun.copy() for way in one.ways]
        await one.queues.poll()
        assert [way.begun - before for way, before in zip(one.ways, begun, strict=True)] == [{"list_config": 1}] * 2


async def test_more_entries_than_one_page_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinlater.queues.replication.PAGE", 3)
    async with several() as (one, two):
        one.lose(2)
        names = {f"queue{number}" for number in range(10)}
        for name in names:
            await one.queues.create(name, "ann")
        await one.find(2)
        assert None not in await records(one, "queue9")
        await two.queues.poll()
        assert two.queues.names() == names


# -- shards that are away


async def test_what_was_made_paused_and_deleted_while_a_shard_was_away_is_so_when_it_is_back() -> None:
    async with several() as (one, two):
        await one.queues.create("old", "ann")
        await one.queues.create("paused", "ann")
        await polled([one, two])
        for number in range(20):
            await one.service.enqueue("old", [Job(str(number).encode())])
        for server in (one, two):
            server.lose(2)
        made = await one.queues.create("new", "ann")
        assert made.missed_shards == ["2"]
        assert await change(one, "paused", paused="true", paused_why="an incident") == ["2"]
        assert (await one.queues.delete("old", "ann")).missed_shards == ["2"]
        await two.find(2)
        assert await one.ways[0].inner.count("new", JobState.PENDING, [1], False, one.clock.now_ms()) == 0
        assert {each.name for each in [*(await records(two, "new")), *(await records(two, "paused"))] if each}
        assert len(set(await records(two, "old"))) == 1
        assert two.queues.names() == {"new", "paused"}
        assert two.queues.settings("paused").paused_why == "an incident"
        with pytest.raises(QueueNotFound):
            await two.service.count(JobFilter("old", JobState.PENDING))


async def test_a_queue_deleted_and_made_anew_while_a_shard_was_away_has_none_of_its_old_jobs_there() -> None:
    async with several(1) as (one,):
        await one.queues.create("mail", "ann")
        for number in range(20):
            await one.service.enqueue("mail", [Job(str(number).encode())])
        one.lose(2)
        await one.queues.delete("mail", "ann")
        await one.queues.create("mail", "ann")
        await one.find(2)
        assert await one.service.count(JobFilter("mail", JobState.PENDING)) == 0


async def test_a_deletion_that_a_change_overtook_still_counts_for_what_the_queue_held() -> None:
    """Another server had read the queue, and put its change when the deletion was answered already."""
    async with several() as (one, two):
        await one.queues.create("mail", "ann")
        await polled([one, two])
        await one.members.all[1].shard.enqueue("mail", [Job(b"old")], one.clock.now_ms())
        for server in (one, two):
            server.lose(2)
        await one.queues.delete("mail", "ann")
        late = new_version(one.clock.now_ms() + 1)
        await two.members.all[0].shard.put_config([ConfigEntry("mail", late, '{"set": {"draining": "true"}}')], 0)
        await polled([one, two])
        assert one.queues.names() == two.queues.names() == {"mail"}
        for server in (one, two):
            await server.find(2)
        first, second = await records(one, "mail")
        assert first == second
        assert first is not None
        assert first.deleted_version
        assert not first.is_deleted
        assert await one.service.count(JobFilter("mail", JobState.PENDING)) == 0
        assert one.queues.settings("mail").draining


async def test_a_shard_that_comes_with_news_tells_all_others_before_it_serves() -> None:
    async with several() as (one, two):
        await one.queues.create("mail", "ann")
        await polled([one, two])
        one.lose(2)
        two.lose(1)
        await change(two, paused="true")
        await one.find(2)
        assert one.queues.settings("mail").paused
        assert len(set(await records(one, "mail"))) == 1


async def test_what_is_changed_while_a_shard_is_brought_up_reaches_it_before_it_serves() -> None:
    async with several(1) as (one,):
        one.lose(2)
        await one.queues.create("mail", "ann")
        gate = one.ways[1].hold("put_config")
        coming = asyncio.create_task(one.find(2))
        await one.ways[1].until_begun("put_config", 1 + one.ways[1].begun["put_config"])
        await change(one, paused="true")
        gate.set()
        await coming
        assert len(set(await records(one, "mail"))) == 1


async def test_a_shard_that_cannot_be_told_stays_out() -> None:
    async with several(1) as (one,):
        one.lose(2)
        await one.queues.create("mail", "ann")
        one.ways[1].broken = None
        one.ways[1].failures["put_config"] = [AWAY]
        await one.members.let_in(one.members.all[1])
        assert not one.members.all[1].is_healthy
        await one.find(2)


async def test_a_change_needs_one_shard_that_takes_it() -> None:
    async with several(1) as (one,):
        await one.queues.create("mail", "ann")
        for way in one.ways:
            way.failures["put_config"] = [AWAY]
        with pytest.raises(NoHealthyShards, match="no shard took the change: it is away"):
            await change(one, paused="true")
        assert not one.queues.settings("mail").paused
        one.lose(1)
        one.lose(2)
        with pytest.raises(NoHealthyShards):
            await change(one, paused="true")
        with pytest.raises(NoHealthyShards):
            await one.queues.create("other", "ann")


async def test_a_shard_that_does_not_answer_holds_no_change_up() -> None:
    async with several() as (one, two):
        await one.queues.create("mail", "ann")
        for name in ("list_config", "put_config"):
            one.ways[1].hold(name)
        assert await change(one, paused="true") == ["2"]
        assert one.queues.settings("mail").paused
        await two.queues.poll()
        assert two.queues.settings("mail").paused
        await one.queues.poll()
        begun = one.ways[1].begun["list_config"]
        await one.queues.poll()
        assert one.ways[1].begun["list_config"] == begun  # the look that is under way is waited for


# -- what it is asked for


async def test_changed_queues_are_told_by_name() -> None:
    async with several() as (one, two):
        told: list[str] = []
        two.queues.on_change(told.append)
        await one.queues.create("mail", "ann")
        await two.queues.poll()
        assert told == ["mail"]
        await change(one, max_pending="5")
        await two.queues.poll()
        assert told == ["mail"] * 2
        await change(one, "@defaults", max_pending="6")
        await two.queues.poll()
        assert told == ["mail"] * 2 + [""]
        await one.queues.delete("mail", "ann")
        await two.queues.poll()
        assert told[3:] == ["mail"]
        await two.queues.poll()
        assert len(told) == 4


async def test_a_pause_ends_by_itself() -> None:
    async with several(1) as (one,):
        await one.queues.create("mail", "ann")
        until_ms = one.clock.now_ms() + 1_000
        await change(one, paused="true", paused_until=str(until_ms), paused_why="a while")
        told: list[str] = []
        one.queues.on_change(told.append)
        assert one.queues.settings("mail").paused_until_ms == until_ms
        one.clock.tick(999)
        await one.queues.poll()
        assert one.queues.settings("mail").paused
        assert told == []
        one.clock.tick(1)
        assert not one.queues.settings("mail").paused
        assert one.queues.view("mail").settings["paused"].value == "false"
        await one.queues.poll()
        assert not one.queues.settings("mail").paused
        assert told == ["mail"]


async def test_pausing_keeps_who_and_when_and_resuming_forgets_it() -> None:
    async with several(1) as (one,):
        await one.queues.create("mail", "ann")
        await one.queues.change(
            "mail", {"paused": "true", "paused_why": 'the "disk"', "max_pending": "5"}, [], False, "ann"
        )
        settings = one.queues.settings("mail")
        assert (settings.paused_by, settings.paused_at_ms, settings.paused_why) == (
            "ann",
            one.clock.now_ms(),
            'the "disk"',
        )
        await one.queues.change("mail", {"paused_why": "é"}, [], False, "bob")
        assert (one.queues.settings("mail").paused_by, one.queues.settings("mail").paused_why) == ("ann", "é")
        await one.queues.change("mail", {"paused": "true"}, [], False, "bob")
        assert (one.queues.settings("mail").paused_by, one.queues.settings("mail").paused_why) == ("bob", "")
        for ending in ({"paused": "false"}, {}):
            await one.queues.change("mail", ending, [] if ending else ["paused"], False, "ann")
            assert one.queues.settings("mail") == QueueSettings(max_pending=5)


async def test_rules_follow_the_settings() -> None:
    async with several(1) as (one,):
        for name in ("mail", "dead", "plain"):
            await one.queues.create(name, "ann")
        rules = one.queues.end_rules()
        assert one.queues.end_rules() is rules
        assert rules.of == {}
        await change(one, succeeded_ttl="0s", dead_letter_queue="dead", crash_budget="5", max_in_progress="2")
        found = one.queues.end_rules().get("mail")
        assert (found.keep_succeeded, found.keep_failed, found.dead_letters, found.crash_budget) == (
            False,
            True,
            True,
            5,
        )
        assert one.queues.end_rules().get("plain") == rules.default
        assert one.queues.retention().get("mail") == (0, 7 * 86_400_000)
        assert one.queues.retention().get("plain").succeeded_ms == 86_400_000
        assert one.queues.dead_letter_targets() == {"mail": ("dead", 2)}
        await change(one, "dead", max_attempts="7")
        assert one.queues.dead_letter_targets() == {"mail": ("dead", 7)}
        assert one.queues.limited() == {"mail"}


async def test_a_bound_for_all_queues_counts_for_those_that_are_there() -> None:
    async with several(1) as (one,):
        for name in ("mail", "other"):
            await one.queues.create(name, "ann")
        assert one.queues.bounded() == one.queues.limited() == set()
        await change(one, "@defaults", max_pending="5")
        assert one.queues.bounded() == {"mail", "other"}
        await one.queues.delete("other", "ann")
        await one.queues.create("third", "ann")
        assert one.queues.bounded() == {"mail", "third"}
        assert one.queues.limited() == set()


async def test_tombstones_are_kept_for_thirty_days() -> None:
    async with several(1) as (one,):
        await one.queues.create("mail", "ann")
        made = await one.queues.delete("mail", "ann")
        days = 86_400_000
        assert one.queues.tombstones_before(one.clock.now_ms() + 30 * days) <= made.version
        assert one.queues.tombstones_before(one.clock.now_ms() + 30 * days + 1) > made.version
        await one.queues.poll()
        assert one.queues.was_deleted("mail")
        one.clock.tick(30 * days + 1)
        await one.queues.poll()
        assert not one.queues.was_deleted("mail")
        assert (await one.queues.create("mail", "ann")).is_new


async def test_a_queue_that_is_made_again_is_not_forgotten_with_its_old_tombstone() -> None:
    async with several(1) as (one,):
        await one.queues.create("mail", "ann")
        await one.queues.delete("mail", "ann")
        await one.queues.create("mail", "ann")
        one.clock.tick(31 * 86_400_000)
        await one.queues.poll()
        assert one.queues.has("mail")
        assert one.queues.view("mail").version


async def test_a_shard_is_ordered_to_take_no_new_jobs_on_every_server() -> None:
    async with several() as (one, two):
        made = await one.queues.override_shard("2", True, "ann")
        assert made.is_new
        assert not (await one.queues.override_shard("2", True, "ann")).is_new
        assert [member.dequeue_only for member in one.members.all] == [False, True]
        await two.queues.poll()
        assert [member.dequeue_only for member in two.members.all] == [False, True]
        await two.queues.override_shard("2", False, "bob")
        await one.queues.poll()
        assert not one.members.all[1].dequeue_only
        with pytest.raises(ShardNotFound, match="there is no shard '9'; the shards of this server: 1, 2"):
            await one.queues.override_shard("9", True, "ann")
        assert one.queues.names() == set()


async def test_what_a_newer_server_wrote_is_left_alone() -> None:
    async with several(1) as (one,):
        made = await one.queues.create("mail", "ann")
        text = '{"set":{"of_tomorrow":"1","max_pending":"5","paused":"perhaps"}}'
        version = f"{int(made.version[:16]) + 5:016d}-00000000"
        for way in one.ways:
            await way.inner.put_config([ConfigEntry("mail", version, text)], one.clock.now_ms())
        await one.queues.poll()
        assert one.queues.settings("mail") == QueueSettings(max_pending=5)
        await change(one, max_attempts="2")
        assert "of_tomorrow" in str(await records(one, "mail"))


@pytest.mark.parametrize("text", ["", "[]", '{"set":7}', '{"set":{"max_pending":null}}', "{"])
async def test_an_entry_that_makes_no_sense_sets_nothing(text: str) -> None:
    async with several(1) as (one,):
        for way in one.ways:
            await way.inner.put_config([ConfigEntry("mail", "1790000000000000-00000000", text)], one.clock.now_ms())
        await one.queues.poll()
        assert one.queues.names() == {"mail"}
        assert one.queues.settings("mail") == QueueSettings()


# -- where a value comes from


async def test_a_view_says_where_each_value_comes_from() -> None:
    server = QueueSettings(claim_timeout_ms=9_000)
    async with several(1, make_queues=lambda members, clock: QueueDirectory(members, clock, server)) as (one,):
        await one.queues.create("mail", "ann")
        await change(one, "@defaults", max_pending="5", max_attempts="6")
        await change(one, max_pending="7")
        shown = one.queues.view("mail").settings
        assert shown["max_pending"] == ("7", "queue")
        assert shown["max_attempts"] == ("6", "default")
        assert shown["claim_timeout"] == ("9s", "server")
        assert one.queues.view("@defaults").settings["max_pending"] == ("5", "default")
        assert one.queues.settings("unheard_of").max_pending == 5
        with pytest.raises(QueueNotFound):
            one.queues.view("nowhere")
        await one.queues.change("mail", {}, ["max_pending"], False, "ann")
        assert one.queues.view("mail").settings["max_pending"] == ("5", "default")


async def test_a_queue_is_made_by_a_change_that_says_so() -> None:
    async with several(1) as (one,):
        with pytest.raises(QueueNotFound):
            await change(one)
        made = await one.queues.change("mail", {"max_pending": "5"}, [], True, "ann")
        assert made.is_new
        assert one.queues.settings("mail").max_pending == 5
        await one.queues.delete("mail", "ann")
        await one.queues.change("mail", {"max_attempts": "5"}, [], True, "ann")
        assert one.queues.settings("mail") == QueueSettings(max_attempts=5)


async def test_a_change_to_what_is_so_already_is_none() -> None:
    async with several(1) as (one,):
        await one.queues.create("mail", "ann")
        first = await one.queues.change("mail", {"max_jobs_per_second": "60/m"}, [], False, "ann")
        again = await one.queues.change("mail", {"max_jobs_per_second": "1/s"}, [], False, "ann")
        assert (again.is_new, again.version) == (False, first.version)
        gone = await one.queues.delete("nowhere", "ann")
        assert (gone.is_new, gone.version, gone.missed_shards) == (False, "", [])


# -- what may not be set


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"max_pendng": "5"}, "'max_pendng'; allowed: a known key (did you mean max_pending?)"),
        ({"zzz": "5"}, "allowed: one of paused, paused_why"),
        ({"max_pending": "many"}, "max_pending is 'many'; allowed: 0 to"),
        ({"claim_timeout": "5"}, "claim_timeout is '5'; allowed: 1s to 30d"),
        ({"max_jobs_per_second": "-1/s"}, "max_jobs_per_second"),
        ({"max_body": "2MiB"}, "max_body is '2MiB'; allowed: at most 1MiB, the server's own bound"),
        ({"paused_by": "me"}, "allowed: nothing: the server writes it itself"),
        ({"paused_why": "so"}, "paused_why is 'so'; allowed: only together with paused=true"),
        ({"paused": "false", "paused_until": "5"}, "only together with paused=true"),
        ({"paused": "true", "paused_until": "5"}, "paused_until is '5'; allowed: a time to come"),
        ({"paused": "true", "paused_why": "x" * 501}, "a line of up to 500 characters"),
        ({"dead_letter_queue": "mail"}, "another queue than the queue itself"),
        ({"dead_letter_queue": "nowhere"}, "a queue that exists"),
        ({"dead_letter_queue": "a b"}, "dead_letter_queue is 'a b'"),
        ({"dead_letter_queue": "chained"}, "a queue that has none of its own (it has dead)"),
    ],
)
async def test_what_is_wrong_is_named_with_what_is_allowed_and_changes_nothing(
    settings: dict[str, str], says: str
) -> None:
    async with several(1) as (one,):
        for name in ("mail", "dead", "chained"):
            await one.queues.create(name, "ann")
        await change(one, "chained", dead_letter_queue="dead")
        with pytest.raises(RequestInvalid) as refused:
            await one.queues.change("mail", {"max_attempts": "3", **settings}, [], False, "ann")
        assert says in refused.value.message
        assert one.queues.settings("mail") == QueueSettings()


async def test_unsetting_what_is_no_setting_is_refused() -> None:
    async with several(1) as (one,):
        await one.queues.create("mail", "ann")
        with pytest.raises(RequestInvalid, match="did you mean max_pending"):
            await one.queues.change("mail", {}, ["max_pendin"], False, "ann")


async def test_a_dead_letter_queue_gets_none_of_its_own_and_is_not_deleted() -> None:
    async with several(1) as (one,):
        for name in ("mail", "dead", "other"):
            await one.queues.create(name, "ann")
        await change(one, dead_letter_queue="dead")
        with pytest.raises(RequestInvalid, match="nothing: dead is itself the dead-letter queue of mail"):
            await change(one, "dead", dead_letter_queue="other")
        with pytest.raises(RequestInvalid, match="is not the dead-letter queue of others; mail"):
            await one.queues.delete("dead", "ann")
        await change(one, dead_letter_queue="")
        await one.queues.delete("dead", "ann")
        assert one.queues.dead_letter_targets() == {}


async def test_a_dead_letter_queue_for_all_is_none_for_itself() -> None:
    async with several(1) as (one,):
        for name in ("mail", "dead", "other", "dead2"):
            await one.queues.create(name, "ann")
        await change(one, "@defaults", dead_letter_queue="dead")
        await change(one, "other", dead_letter_queue="dead2")
        assert {name: target.queue for name, target in one.queues.dead_letter_targets().items()} == {
            "mail": "dead",
            "other": "dead2",
        }
        with pytest.raises(RequestInvalid):
            await one.queues.delete("dead", "ann")
        await change(one, "@defaults", dead_letter_queue="dead2")
        assert one.queues.settings("dead").dead_letter_queue == "dead2"
