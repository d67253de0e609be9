"""The circuit breaker of a queue at a real server of two processes: how it is set, and what every face shows of it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import httpx
import pytest

from pinlater import Client, DequeueRequest, Job
from pinlater.data_folder.password import hash_password
from pinlater.errors import DequeueRateLimited
from pinlater.model import Ack, DequeuedJob
from tests.server.commands import Shell
from tests.server.running import running
from tests.stores.places import Places

PASSWORD = "correct horse"
RULE = "50%/4/30s/2s"
REASON = re.compile(r"(\d+) of \1 attempts failed in 30s; one job is tried every 2s until one succeeds")


class Place(NamedTuple):
    client: Client
    shell: Shell
    api: str
    site: str

    def shown(self, queue: str) -> dict[str, str]:
        """Its settings, as the command line shows them."""
        (view,) = json.loads(self.shell("queue", "show", queue, "-o", "json").out)
        return {key: each["value"] for key, each in view["settings"].items()}

    def queue(self, *words: str, code: int = 0) -> str:
        return self.shell("queue", *words, code=code, PINLATER_ADMIN_PASSWORD=PASSWORD).err


def until(check: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


@pytest.fixture(scope="module")
def place(redis_places: Places, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("breakers")
    stores = ("--store", f"1={redis_places.fresh()}", "--store", f"2={redis_places.fresh()}")
    options = ("--api", "127.0.0.1:0", "--http", "127.0.0.1:0", "--processes", "2")
    options += ("--admin-password-hash", hash_password(PASSWORD))
    with running(folder, *stores, *options) as server:
        server.wait_for("ready")
        api = str(server.wait_for("api_ready")["address"]).rstrip("/")
        site = str(server.wait_for("http_ready")["address"]).rstrip("/")
        address = f"127.0.0.1:{server.port}"
        with Client(address) as client:
            yield Place(client, Shell(folder, address), api, site)


def taken(place: Place, queue: str, jobs: int) -> list[DequeuedJob]:
    found: list[DequeuedJob] = []
    until(lambda: len(found) >= jobs or found.extend(place.client.dequeue(DequeueRequest(queue, jobs - len(found)))))
    return found


def fail(place: Place, queue: str, jobs: list[DequeuedJob]) -> None:
    place.client.ack(queue, (), [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs])


def fail_until_open(place: Place, queue: str) -> None:
    """Each process begins to count when it knows the setting, which nothing shows."""

    def is_open() -> bool:
        with suppress(DequeueRateLimited):
            fail(place, queue, place.client.dequeue(DequeueRequest(queue, 4)))
        return place.shown(queue)["paused_by"] == "@breaker"

    until(is_open)


def test_it_opens_tries_and_closes_and_every_face_says_so(place: Place) -> None:
    place.queue("create", "mail")
    place.queue("set", "mail", f"pause_on_failures={RULE}")
    place.client.enqueue("mail", [Job(b"", attempts_allowed=1_000)] * 6)
    fail_until_open(place, "mail")
    shown = place.shown("mail")
    assert (shown["paused"], shown["pause_on_failures"]) == ("true", RULE)
    assert REASON.fullmatch(shown["paused_why"])
    until(lambda: "paused by @breaker" in place.shell("cluster", "status").out)
    (waiting, *_) = place.client.enqueue("mail", [Job(b"")])
    why = place.shell("job", "get", waiting).out
    assert "why it waits   The circuit breaker of its queue is open since" in why
    assert REASON.search(why)
    until(lambda: "mail: its circuit breaker is open" in place.shell("alarms").out)
    until(lambda: "by @breaker" in httpx.get(place.site).text)
    settings = httpx.get(f"{place.api}/v1/queues/mail/settings").json()["settings"]
    assert settings["paused"] == {"value": "true", "source": "breaker"}

    (first,) = place.client.dequeue(DequeueRequest("mail", 10, wait_ms=30_000))
    began_s = time.monotonic()
    fail(place, "mail", [first])
    (second,) = place.client.dequeue(DequeueRequest("mail", 10, wait_ms=30_000))
    assert time.monotonic() - began_s > 1
    place.client.ack("mail", [Ack(second.descriptor, claim_descriptor=second.claim_descriptor)], ())
    until(lambda: place.shown("mail")["paused"] == "false")
    assert len(taken(place, "mail", 6)) == 6
    rows = [each for each in json.loads(place.shell("audit", "-o", "json").out) if each["who"] == "@breaker"]
    assert [each["action"] for each in rows] == ["close_breaker", "open_breaker"]


def test_resume_does_not_wait_for_a_try(place: Place) -> None:
    place.queue("create", "sms")
    place.queue("set", "sms", "pause_on_failures=50%/4/30s/1h")
    place.client.enqueue("sms", [Job(b"", attempts_allowed=1_000)] * 5)
    fail_until_open(place, "sms")
    place.queue("resume", "sms")
    assert place.shown("sms")["paused"] == "false"
    assert len(taken(place, "sms", 5)) == 5


@pytest.mark.parametrize("rule", ["50%", "0%/1/1m/1m", "50%/0/1m/1m", "50%/1/2d/1m", "50%/1/1m/1ms", "half/1/1m/1m"])
def test_what_is_no_rule_is_refused_with_what_is_one(place: Place, rule: str) -> None:
    place.client.create_queue("bad")
    error = place.queue("set", "bad", f"pause_on_failures={rule}", code=2)
    assert "SHARE%/ATTEMPTS/WINDOW/PROBE as in 50%/100/1m/30s, with a share of 1% to 100%" in error
    assert place.shown("bad")["pause_on_failures"] == "none"
