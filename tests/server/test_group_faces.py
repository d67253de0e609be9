"""Weights, limits and pauses of groups, as a real server shows and changes them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pinlater.client.client import Client
from pinlater.data_folder.password import hash_password
from pinlater.errors import ContinuationInvalid, PasswordInvalid, QueueNotFound, RequestInvalid
from pinlater.model import Ack, DequeueRequest, ExtendedJob
from pinlater.model.job_holds import HoldReason
from tests.server.commands import Shell
from tests.server.running import running
from tests.server.test_faces_agree import until

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder: Path = tmp_path_factory.mktemp("served")
    shards = [f"--store={number}=sqlite:///{folder}/{number}.db" for number in (1, 2)]
    with (
        running(folder, "--admin-password-hash", hash_password(PASSWORD), *shards) as server,
        Client(f"127.0.0.1:{server.port}") as client,
    ):
        yield client


@pytest.fixture
def queue(client: Client, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:60].replace("[", "_").replace("]", "_")
    client.create_queue(name)
    return str(name)


def fill(client: Client, queue: str, **groups: int) -> list[str]:
    jobs = [ExtendedJob(group.encode(), group=group) for group, count in groups.items() for _ in range(count)]
    return client.enqueue(queue, jobs)


def taken(client: Client, queue: str, limit: int) -> Counter[str]:
    return Counter(bytes(job.body).decode() for job in client.dequeue(DequeueRequest(queue, limit)))


def test_a_group_that_weighs_more_gets_more_over_shards_too(client: Client, queue: str) -> None:
    fill(client, queue, acme=100, betty=100)
    client.update_group(queue, "acme", PASSWORD, set={"weight": "3"})
    got = taken(client, queue, 80)
    assert abs(got["acme"] - 60) <= 6


def test_a_paused_group_waits_and_says_why(client: Client, queue: str) -> None:
    (held, *_) = fill(client, queue, acme=3, betty=3)
    client.update_group(queue, "acme", PASSWORD, set={"paused": "true", "paused_why": "their provider is down"})
    assert taken(client, queue, 9) == {"betty": 3}
    (hold,) = client.explain_jobs([held])
    assert hold.reason is HoldReason.PAUSED
    assert "Its group 'acme' is paused by" in hold.text
    assert "their provider is down" in hold.text
    client.update_group(queue, "acme", PASSWORD, unset=["paused"])
    assert taken(client, queue, 9) == {"acme": 3}


def test_a_group_at_its_limit_waits_and_says_why(client: Client, queue: str) -> None:
    (*_, last) = fill(client, queue, acme=5, betty=3)[:5]
    client.update_queue(queue, PASSWORD, set={"group_concurrency": "4"})
    client.update_group(queue, "acme", PASSWORD, set={"concurrency": "2"})
    jobs = client.dequeue(DequeueRequest(queue, 20))
    assert Counter(bytes(job.body).decode() for job in jobs) == {"acme": 2, "betty": 3}
    acme, betty = client.get_groups(queue, ["acme", "betty"]).groups
    assert (acme.ready, acme.running, acme.settings["concurrency"]) == (3, 2, ("2", "group"))
    assert (betty.ready, betty.running, betty.settings["concurrency"]) == (0, 3, ("4", "queue"))
    left = {job.descriptor for job in jobs}
    (hold, *_) = client.explain_jobs([each for each in (last,) if each not in left])
    assert hold.text == "Its group 'acme' has reached its maximum of 2 jobs in progress."
    client.ack(queue, [Ack(job.descriptor) for job in jobs if bytes(job.body) == b"acme"][:1], [])
    (job,) = client.dequeue(DequeueRequest(queue, 20, wait_ms=30_000))
    assert bytes(job.body) == b"acme"


def test_a_waiting_dequeue_gets_the_jobs_of_a_group_that_is_resumed(client: Client, queue: str) -> None:
    fill(client, queue, acme=1)
    client.update_group(queue, "acme", PASSWORD, set={"paused": "true"})
    assert taken(client, queue, 1) == {}
    client.update_group(queue, "acme", PASSWORD, set={"paused": "false"})
    assert [bytes(job.body) for job in client.dequeue(DequeueRequest(queue, 1, wait_ms=30_000))] == [b"acme"]


def test_groups_are_listed_page_by_page(client: Client, queue: str) -> None:
    fill(client, queue, acme=3, betty=2, carl=1)
    client.update_group(queue, "trial-*", PASSWORD, set={"weight": "2"})
    client.update_group(queue, "dora", PASSWORD, set={"weight": "5"})
    first = client.get_groups(queue, limit=3)
    assert [(view.name, view.ready) for view in first.groups] == [("acme", 3), ("betty", 2), ("carl", 1)]
    rest = client.get_groups(queue, limit=3, continuation=first.continuation)
    assert [view.name for view in rest.groups] == ["dora", "trial-*"]
    assert rest.continuation == "-1"
    (trial, dora) = client.get_groups(queue, ["trial-7", "dora"]).groups
    assert trial.settings["weight"] == ("2", "pattern trial-*")
    assert dora.settings["weight"] == ("5", "group")
    assert (dora.ready, dora.oldest_run_after_ms) == (0, None)


@pytest.mark.parametrize(
    ("group", "settings", "message"),
    [
        ("", {"weight": "2"}, "1 to 255 bytes"),
        ("ü" * 128, {"weight": "2"}, "1 to 255 bytes"),
        ("a\n", {"weight": "2"}, "without control characters"),
        ("*", {"weight": "2"}, "fits every group"),
        ("**", {"weight": "2"}, "fits every group"),
        ("a*", {"paused": "true"}, "a group by its name"),
        ("a", {"weight": "0"}, "1 to 1000"),
        ("a", {"weight": "much"}, "1 to 1000"),
        ("a", {"concurrency": "0"}, "1 to 1000000, or none"),
        ("a", {"rate": "0/s"}, "more than 0/s"),
        ("a", {"wieght": "2"}, "did you mean weight"),
        ("a", {"paused_why": "x"}, "only together with paused=true"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_stored(
    client: Client, group: str, settings: dict[str, str], message: str
) -> None:
    client.create_queue("wrong")
    with pytest.raises(RequestInvalid, match=message):
        client.update_group("wrong", group, PASSWORD, set=settings)
    assert client.get_groups("wrong").groups == []


def test_a_change_needs_the_password_and_a_queue(client: Client, queue: str) -> None:
    with pytest.raises(PasswordInvalid):
        client.update_group(queue, "acme", "wrong", set={"weight": "2"})
    with pytest.raises(QueueNotFound):
        client.update_group("nowhere", "acme", PASSWORD, set={"weight": "2"})
    with pytest.raises(QueueNotFound):
        client.get_groups("nowhere")


def test_a_queue_made_anew_knows_no_settings_of_groups(client: Client, queue: str) -> None:
    client.update_group(queue, "acme", PASSWORD, set={"weight": "2"})
    client.delete_queue(queue, PASSWORD)
    client.create_queue(queue)
    assert client.get_groups(queue).groups == []
    client.update_group(queue, "betty", PASSWORD, set={"weight": "2"})
    assert [view.name for view in client.get_groups(queue).groups] == ["betty"]


def test_the_command_line_sets_pauses_and_lists(client: Client, queue: str, tmp_path: Path) -> None:
    server = str(client.servers[0])
    shell = partial(Shell(tmp_path, server), PINLATER_ADMIN_PASSWORD=PASSWORD)
    fill(client, queue, acme=3, betty=1)
    shell("group", "set", queue, "acme", "--weight", "3")
    shell("group", "pause", queue, "betty", "--why", "tests", "--for", "2h")
    by_ready = json.loads(shell("group", "list", queue, "--sort", "ready", "-o", "json").out)
    assert [(each["name"], each["ready"]) for each in by_ready] == [("acme", 3), ("betty", 1)]
    assert by_ready[1]["settings"]["paused_why"]["value"] == "tests"
    (changes,) = [entry for entry in client.audit(limit=1) if entry.target == queue]
    assert (changes.action, changes.detail[:19]) == ("update_group", "betty: paused=true,")
    shell("group", "unset", queue, "betty")
    assert "false   default" in shell("group", "show", queue, "betty").out
    shell("group", "set", queue, "betty", "--concurrency", "2", "--rate", "600/m")
    (row,) = shell("group", "show", queue, "betty").out.splitlines()[1:]
    assert row.split()[:4] + row.split()[5:] == ["betty", "1", "0", "0", "-", "1", "2", "10/s", "false", "group"]
    assert "name at least one of --weight" in shell("group", "set", queue, "betty", code=2).err


def test_lists_say_what_is_limited_and_who_got_how_much(client: Client, queue: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, str(client.servers[0]))
    fill(client, queue, acme=8, betty=2, carl=3)
    client.enqueue(queue, [ExtendedJob(b"", group="")])
    assert {view.last_minute_share for view in client.get_groups(queue).groups} == {None}
    client.update_group(queue, "carl", PASSWORD, set={"paused": "true"})
    client.update_group(queue, "acme", PASSWORD, set={"concurrency": "2"})
    assert len(client.dequeue(DequeueRequest(queue, 20))) == 5

    def is_counted() -> bool:
        """Jobs that got no permit are in line again, and what the server had read of shares counts no more."""
        assert client.dequeue(DequeueRequest(queue, 20)) == []
        (acme,) = client.get_groups(queue, ["acme"]).groups
        return acme.ready == 6 and acme.last_minute_share is not None

    until(is_counted)
    by_name = {view.name: view for view in client.get_groups(queue).groups}
    assert [(by_name[name].ready, by_name[name].limited) for name in ("acme", "carl")] == [(6, 6), (3, 3)]
    (betty,) = client.get_groups(queue, ["betty"]).groups
    assert (betty.ready, betty.limited, betty.last_minute_share) == (0, 0, 0.4)
    assert by_name["acme"].last_minute_share == 0.4
    assert by_name["carl"].last_minute_share == 0
    heading, *rows = [line.split() for line in shell("group", "list", queue, "--sort", "share").out.splitlines()]
    assert heading[:6] == ["GROUP", "READY", "LIMITED", "RUNNING", "OLDEST", "SHARE"]
    assert rows[0][:4] == ["acme", "6", "6", "2"]
    assert rows[0][5] == "0.40"
    for order, first in (("name", "acme"), ("ready", "acme"), ("limited", "acme"), ("running", "acme")):
        assert shell("group", "list", queue, "--sort", order).out.splitlines()[1].split()[0] == first
    (shown, *_) = json.loads(shell("group", "show", queue, "carl", "-o", "json").out)
    assert (shown["limited"], shown["last_minute_share"]) == (3, 0)


def test_limited_jobs_stand_beside_the_ready_ones_of_a_queue(client: Client, queue: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, str(client.servers[0]))
    fill(client, queue, acme=6, betty=2)
    assert "LIMITED" not in shell("queue", "stats", queue).out
    assert "ready_limited" not in shell("queue", "stats", queue, "-o", "json").out
    client.update_group(queue, "acme", PASSWORD, set={"paused": "true"})
    assert taken(client, queue, 1) == {"betty": 1}
    until(lambda: "LIMITED" in shell("queue", "stats", queue).out)
    heading, row = shell("queue", "stats", queue, "--totals").out.splitlines()
    shown = dict(zip(heading.split(), row.split(), strict=True))
    assert (shown["READY"], shown["LIMITED"]) == ("7", "6")
    (found,) = json.loads(shell("queue", "stats", queue, "--totals", "-o", "json").out)
    assert (found["ready"], found["ready_limited"]) == (7, 6)
    assert "LIMITED" in shell("top", "--once").out


def test_the_command_line_takes_the_groups_off_all_jobs(client: Client, queue: str, tmp_path: Path) -> None:
    shell = partial(Shell(tmp_path, str(client.servers[0])), PINLATER_ADMIN_PASSWORD=PASSWORD)
    jobs = fill(client, queue, acme=700, betty=300)
    client.update_group(queue, "betty", PASSWORD, set={"paused": "true"})
    shell("group", "set", queue, "trial-*", "--weight", "3")
    assert "1,000 jobs" in shell("group", "clear", queue, "--dry-run").out
    assert client.lookup(jobs[:1])[jobs[0]].group == "acme"
    with pytest.raises(PasswordInvalid):
        client.clear_groups(queue, "wrong")
    cleared = json.loads(shell("group", "clear", queue, "-o", "json").out)
    assert cleared == {"jobs": 1_000, "left": 0, "missing_shards": []}
    assert {each.group for each in client.lookup(jobs).values()} == {None}
    assert client.get_groups(queue).groups == []
    assert taken(client, queue, 2_000) == {"acme": 700, "betty": 300}
    (entry,) = [each for each in client.audit(limit=1) if each.target == queue]
    assert entry.action == "clear_groups"


def test_a_step_may_come_again_and_one_of_another_queue_does_not(client: Client, queue: str) -> None:
    fill(client, queue, acme=1_200)
    first = client.clear_groups(queue, PASSWORD, limit=10)
    for _ in range(2):
        again = client.clear_groups(queue, PASSWORD, limit=10, continuation=first.continuation)
    assert again.continuation not in ("-1", first.continuation)
    client.create_queue("other")
    with pytest.raises(ContinuationInvalid):
        client.clear_groups("other", PASSWORD, continuation=first.continuation)
    with pytest.raises(ContinuationInvalid):
        client.clear_groups(queue, PASSWORD, continuation=first.continuation, dry_run=True)
    with pytest.raises(QueueNotFound):
        client.clear_groups("nowhere", PASSWORD)
    with pytest.raises(RequestInvalid):
        client.clear_groups(queue, PASSWORD, limit=0)
