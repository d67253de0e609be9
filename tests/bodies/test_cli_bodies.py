"""A server with a tier as clients, workers and operators use it, on each kind of store."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from pinlater import Ack, Checkpoint, Client, DequeueRequest, Job
from pinlater.data_folder.password import hash_password
from pinlater.errors import PinLaterError, RequestInvalid
from pinlater.model import ExtendedJob, JobFilter, JobState, OnDuplicate, RequestContext, RescheduleJob
from pinlater.model.body_words import BodiesAction, BodiesChange
from pinlater.model.flow_words import NewFlow, NewItem, Stage
from tests.server.commands import Shell
from tests.server.running import RunningServer, running
from tests.stores.places import Places

LARGE = os.urandom(300_000)
HOUR_MS = 3_600_000
WITHIN_S = 60.0
PASSWORD = "correct horse"


class Stand:
    """A server with a `file:///` tier, a client of it, and the command line."""

    def __init__(self, server: RunningServer, client: Client, folder: Path) -> None:
        self.server = server
        self.client = client
        self.shell = Shell(folder, f"127.0.0.1:{server.port}")
        self.tier = folder / "tier"

    def objects(self) -> list[Path]:
        return [each for each in self.tier.rglob("*") if each.is_file() and not each.name.startswith(".")]

    def wait_for(self, holds: Callable[[], bool]) -> None:
        until_s = time.monotonic() + WITHIN_S
        while not holds():
            assert time.monotonic() < until_s, [*self.objects(), self.server.events[-5:]]
            time.sleep(0.05)

    def take(self, queue: str, limit: int = 10) -> list[bytes]:
        """The bodies of jobs, which are acked."""
        jobs = self.client.dequeue(DequeueRequest(queue, limit, wait_ms=5_000))
        self.client.ack(queue, [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs], [])
        return [job.body for job in jobs]


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("redis_places", marks=pytest.mark.store("redis")),
        pytest.param("mysql_places", marks=pytest.mark.store("mysql")),
    ]
)
def stand(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stand]:
    yield from served(request, request.param, tmp_path)


@pytest.fixture
def embedded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stand]:
    yield from served(request, "sqlite", tmp_path)


def served(request: pytest.FixtureRequest, store: str, tmp_path: Path) -> Iterator[Stand]:
    arguments = ["--bodies", (tmp_path / "tier").as_uri(), "--admin-password-hash", hash_password(PASSWORD)]
    if store != "sqlite":
        places: Places = request.getfixturevalue(store)
        arguments += ["--store", f"1={places.fresh()}", "--processes", "1"]
    with running(tmp_path, *arguments) as server, Client(f"127.0.0.1:{server.port}") as client:
        made = Stand(server, client, tmp_path)
        client.create_queue("images")
        client.update_queue("images", PASSWORD, set={"succeeded_ttl": "0s"})
        yield made


def test_a_large_body_lies_in_the_tier_until_its_job_is_gone(stand: Stand) -> None:
    small, large = stand.client.enqueue("images", [Job(b"small"), Job(LARGE)])
    assert [each.stat().st_size for each in stand.objects()] == [len(LARGE)]
    found = stand.client.lookup([small, large], include_body=True)
    assert (found[small].body, found[small].body_stored_at) == (b"small", None)
    assert found[large].body == LARGE
    assert (found[large].body_stored_at or "").startswith("file::images::")
    assert f"{found[large].body_stored_at}" in stand.shell("job", "get", large).out
    assert sorted(stand.take("images")) == sorted([b"small", LARGE])
    stand.wait_for(lambda: not stand.objects())


def test_jobs_for_later_leave_their_store_from_four_kib_on(embedded: Stand) -> None:
    later_ms = int(time.time() * 1000) + HOUR_MS
    bodies = [os.urandom(size) for size in (4_000, 5_000, 100_000)]
    embedded.client.enqueue("images", [Job(body, run_after_ms=later_ms) for body in bodies])
    embedded.client.enqueue("images", [Job(body) for body in bodies])
    assert sorted(each.stat().st_size for each in embedded.objects()) == [5_000, 100_000]


def test_every_way_of_a_body_passes_the_tier(stand: Stand) -> None:
    """An extended job, REPLACE, a new body by a checkpoint, by a reschedule, and a result."""
    client, bodies = stand.client, [os.urandom(300_000 + number) for number in range(6)]
    keyed = ExtendedJob(bodies[0], dedupe_key="a")
    (descriptor,) = client.enqueue("images", [keyed], resend=True)
    client.enqueue("images", [ExtendedJob(bodies[1], dedupe_key="a", on_duplicate=OnDuplicate.REPLACE)], resend=True)
    client.enqueue("images", [ExtendedJob(bodies[2], dedupe_key="a")], resend=True)
    stand.wait_for(lambda: len(stand.objects()) == 1)
    assert client.lookup([descriptor], include_body=True)[descriptor].body == bodies[1]
    client.reschedule("images", [RescheduleJob(descriptor, body=bodies[3])])
    (job,) = client.dequeue(DequeueRequest("images", 1))
    assert job.body == bodies[3]
    client.checkpoint("images", [Checkpoint(descriptor, new_body=bodies[4], claim_descriptor=job.claim_descriptor)])
    assert client.lookup([descriptor], include_body=True)[descriptor].body == bodies[4]
    client.update_queue("images", PASSWORD, set={"max_result": "512KiB"})
    client.ack("images", [Ack(descriptor, claim_descriptor=job.claim_descriptor, result=bodies[5])], [])
    found = client.lookup([descriptor], include_result=True)
    assert found[descriptor].result == bodies[5]
    stand.wait_for(lambda: [each.stat().st_size for each in stand.objects()] == [300_005])


def test_patterns_and_scans_see_bodies_in_the_tier(stand: Stand) -> None:
    body = b"needle " + LARGE
    (descriptor,) = stand.client.enqueue("images", [Job(body)])
    found = stand.client.scan(JobFilter("images", JobState.PENDING, body_regex="needle"), limit=10)
    assert [info.descriptor for info in found.jobs] == [descriptor]
    assert stand.shell("job", "delete", "images", "--state", "pending", "--match", "needle", "--yes").err
    stand.wait_for(lambda: not stand.objects())


def test_operators_see_sweep_verify_and_move_bodies(stand: Stand) -> None:
    client, shell = stand.client, stand.shell
    client.update_queue("images", PASSWORD, set={"bodies": "shard"})
    stand.wait_for(lambda: client.get_queues(["images"])[0].settings["bodies"].value == "shard")
    later_ms = int(time.time() * 1000) + HOUR_MS
    client.enqueue("images", [Job(os.urandom(5_000), run_after_ms=later_ms) for _ in range(30)])
    client.enqueue("images", [Job(LARGE)])
    assert stand.objects() == []
    client.update_queue("images", PASSWORD, unset=["bodies"])
    assert "31 that belong elsewhere" in shell("bodies", "move", "--queue", "images", "--dry-run").err
    assert "31 moved" in shell("bodies", "move", "--all", "--rate", "1000").err
    assert len(stand.objects()) == 31
    status = json.loads(shell("bodies", "status", "-o", "json").out)
    (tier,) = status["tiers"]
    assert (tier["name"], tier["bodies"], tier["orphans"], tier["trouble"]) == ("file", 31, 0, "")
    assert tier["bytes"] == 30 * 5_000 + len(LARGE)
    assert "31 references examined, 0 that cannot be read" in shell("bodies", "verify").err
    assert "31 objects examined, 0 that no job refers to" in shell("bodies", "sweep", "--dry-run").err
    assert stand.take("images") == [LARGE]
    damaged, gone = sorted(each for each in stand.objects() if each.stat().st_size == 5_000)[:2]
    damaged.write_bytes(os.urandom(5_000))
    gone.unlink()
    told = shell("bodies", "verify", code=5).err
    assert "2 that cannot be read" in told
    assert "has other bytes" in told
    assert "does not have it" in told
    client.update_queue("images", PASSWORD, set={"bodies": "shard"})
    stand.wait_for(lambda: "28 moved" in shell("bodies", "move", "--queue", "images", code=5).err)
    stand.wait_for(lambda: stand.objects() == [damaged])
    assert len(client.scan(JobFilter("images", JobState.PENDING, future=True), limit=28).jobs) == 28


def test_the_payloads_of_flows_pass_the_tier(embedded: Stand) -> None:
    client = embedded.client
    client.create_queue("steps")
    client.update_queue("steps", PASSWORD, set={"bodies": "file: size > 16KiB"})
    payload = json.dumps(LARGE.hex()[:60_000]).encode()
    flow = NewFlow("photos", [Stage("only", "", "steps")], items={"only": [NewItem(payload)]})
    made = client.create_flow(flow)
    (job,) = client.dequeue(DequeueRequest("steps", 1, wait_ms=10_000))
    assert payload in job.body
    (info,) = client.lookup([job.descriptor]).values()
    assert info.body_stored_at
    client.ack("steps", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)], [])
    client.seal_stage(made.id, "only")


def test_a_rule_may_go_by_the_caller_and_http_is_one_like_any_other(tmp_path: Path) -> None:
    rules = ("--body-rules", "file: caller nightly-* and size > 1KiB", "--api", "127.0.0.1:0")
    tier = ("--bodies", (tmp_path / "tier").as_uri())
    with running(tmp_path, *tier, *rules) as server, Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("images")
        by_night = client.enqueue("images", [Job(bytes(5_000))], context=RequestContext("nightly-report"))
        by_day = client.enqueue("images", [Job(bytes(5_000))], context=RequestContext("shop"))
        places = [client.lookup(names)[names[0]].body_stored_at for names in (by_night, by_day)]
        assert places[0]
        assert "(size, caller)" in places[0]
        assert places[1] is None
        address = str(server.wait_for("api_ready")["address"]).rstrip("/")
        with httpx.Client(base_url=address, trust_env=False) as http:
            assert http.get(f"/v1/jobs/{by_night[0]}").json()["body_stored_at"] == places[0]
            assert [each["bodies"] for each in http.get("/v1/bodies").json()["tiers"]] == [1]
            step = http.post("/v1/bodies/changes", json={"action": "verify"}).json()
            assert (step["looked_at"], step["found"]) == (1, 0)


def test_mistakes_are_told(embedded: Stand) -> None:
    shell = embedded.shell
    assert "one of file" in shell("bodies", "sweep", "--tier", "s3", code=2).err
    assert "a store id" in shell("bodies", "sweep", "--store", "../..", "--yes", code=2).err
    assert "name a --queue, or give --all" in shell("bodies", "move", code=2).err
    with pytest.raises(RequestInvalid, match="limit"):
        embedded.client.change_bodies(BodiesChange(BodiesAction.VERIFY, limit=0))
    for action in BodiesAction:
        for continuation in ("x", "-1", "a/b/c/d/e", "0:1:2"):
            with pytest.raises(PinLaterError):
                embedded.client.change_bodies(BodiesChange(action, continuation=continuation))


def test_a_server_without_tiers_says_how_to_have_some(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        shell = Shell(tmp_path, f"127.0.0.1:{server.port}")
        assert "has no tiers" in shell("bodies", "status").err
        assert "--bodies URL" in shell("bodies", "sweep", code=2).err


def test_a_server_without_the_tiers_leaves_a_store_with_references_alone(tmp_path: Path) -> None:
    tier = ("--bodies", (tmp_path / "tier").as_uri())
    with running(tmp_path, *tier) as server, Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("images")
        client.enqueue("images", [Job(LARGE)])
    with running(tmp_path) as server:
        told = server.wait_for("shard_out")
        assert "--bodies" in told["error"]
    with running(tmp_path, *tier) as server, Client(f"127.0.0.1:{server.port}") as client:
        (job,) = client.dequeue(DequeueRequest("images", 1))
        assert job.body == LARGE
