"""Alarms of a real server, as every face shows them: the command line, HTTP, `check`, `top` and the status page.

What they are raised for, and the times that takes, is in tests/unit/test_alarm_*.py, and with real processes that are
killed in tests/drill: here a judgement is waited for twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from pinlater import Client, DequeueRequest, Job
from pinlater.errors import PasswordInvalid, RequestInvalid
from pinlater.model import WorkerReport
from pinlater.model.alarm_views import Alarm
from tests.server.commands import Shell
from tests.server.running import running

LONG_MS = 600_000
TITLE = "mail: no worker takes its 3 ready jobs"


class Place(NamedTuple):
    client: Client
    address: str
    api: str
    site: str
    password: str

    def alarm(self, name: str, subject: str) -> Alarm | None:
        found = [each for each in self.client.get_alarms().alarms if each.key == (name, subject)]
        return found[0] if found else None


def until(check: Callable[[], bool]) -> None:
    """A judgement comes every few seconds."""
    deadline_s = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline_s
        time.sleep(0.2)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """With three jobs that became ready ten minutes ago, a letter that is as old, a queue that is paused, and one whose
    alarm was muted before it was raised.
    """
    folder = tmp_path_factory.mktemp("alarms")
    with running(folder, "--api", "127.0.0.1:0", "--http", "127.0.0.1:0") as server:
        server.wait_for("ready")
        api = str(server.wait_for("api_ready")["address"]).rstrip("/")
        site = str(server.wait_for("http_ready")["address"]).rstrip("/")
        password = (folder / "pinlater-data" / "admin-password").read_text().strip()
        with Client(f"127.0.0.1:{server.port}") as client:
            for name in ("mail", "sms", "letters", "later"):
                client.create_queue(name)
            client.update_queue("mail", password, set={"dead_letter_queue": "letters"})
            client.update_queue("later", password, set={"paused": "true"})
            address = f"127.0.0.1:{server.port}"
            mute = ("mute", "no_worker", "--subject", "sms", "--for", "2h", "--reason", "the provider is down")
            Shell(folder, address)("alarms", *mute, PINLATER_ADMIN_PASSWORD=password)
            old = Job(b"x", run_after_ms=int(time.time() * 1000) - LONG_MS)
            for name, jobs in (("mail", 3), ("sms", 1), ("letters", 1), ("later", 1)):
                client.enqueue(name, [old] * jobs)
            place = Place(client, address, api, site, password)
            until(lambda: None not in [place.alarm("no_worker", each) for each in ("mail", "sms")])
            yield place


@pytest.fixture
def shell(place: Place, tmp_path: Path) -> Shell:
    return Shell(tmp_path, place.address)


def test_the_queues_that_nobody_works_on_are_the_only_alarms(place: Place) -> None:
    page = place.client.get_alarms()
    alarm, other = [each for each in page.alarms if each.name != "exposed"]
    assert other.key == ("no_worker", "sms")
    assert (alarm.title, alarm.queue, alarm.size) == (TITLE, "mail", 3)
    assert [each.name for each in alarm.absorbed] == ["waits_long"]
    assert alarm.since_ms < page.now_ms - LONG_MS + 120_000
    assert page.judged_at_ms is not None
    assert not page.is_alone


def test_every_face_shows_it(place: Place, shell: Shell) -> None:
    listed = shell("alarms").out
    assert f"  {TITLE}\n" in listed
    assert "  $ pinlater-worker --app YOUR.MODULE:app --queues mail\n" in listed
    (row,) = [each for each in json.loads(shell("alarms", "-o", "json").out) if each["subject"] == "mail"]
    answer = httpx.get(f"{place.api}/v1/alarms").json()
    (sent,) = [each for each in answer["alarms"] if each["subject"] == "mail"]
    assert (row["title"], row["severity"], row["since_ms"]) == (TITLE, "critical", sent["since_ms"])
    assert sent["command"] == row["command"]
    assert any("alarm" in line and TITLE in line for line in shell("top", "--once").out.splitlines()[:4])
    checked = shell("check", code=2).out
    assert checked.startswith("PINLATER CRITICAL - ")
    assert TITLE in checked
    assert TITLE not in shell("check", "--no-alarms").out
    assert TITLE not in shell("check", "--queue", "later").out
    until(lambda: TITLE in httpx.get(place.site).text)


def test_a_mute_needs_a_reason_a_condition_and_the_password(place: Place, shell: Shell) -> None:
    with pytest.raises(PasswordInvalid):
        place.client.mute_alarm("no_worker", 60_000, "known", "wrong")
    wrong = (("no_workr", 1, "x"), ("no_worker", -1, "x"), ("no_worker", 2**40, "x"), ("no_worker", 1, ""))
    for name, for_ms, reason in wrong:
        with pytest.raises(RequestInvalid):
            place.client.mute_alarm(name, for_ms, reason, place.password)
    password = {"PINLATER_ADMIN_PASSWORD": place.password}
    assert (
        "did you mean no_worker?"
        in shell("alarms", "mute", "no_workr", "--for", "1h", "--reason", "x", **password, code=2).err
    )


def test_what_is_muted_is_listed_as_such_and_counts_not(place: Place, shell: Shell) -> None:
    alarm = place.alarm("no_worker", "sms")
    assert alarm is not None
    assert alarm.is_muted
    assert "muted by" in shell("alarms").out
    assert "the provider is down" in shell("alarms").out
    assert alarm.title not in shell("check", code=2).out
    (entry,) = [each for each in place.client.audit() if each.action == "mute_alarm"]
    assert (entry.target, entry.detail) == ("no_worker/sms", "for 2h: the provider is down")


def test_one_ends_when_a_worker_takes_the_jobs_and_a_mute_when_it_is_taken_back(place: Place, shell: Shell) -> None:
    """Both by the next judgement."""
    report = WorkerReport("a1", "shop", 5_000, "host-1", 7, {"mail": 1}, 4)
    place.client.dequeue(DequeueRequest("mail", 3, worker=report))
    put = httpx.put(
        f"{place.api}/v1/alarms/no_worker/mute",
        json={"for_ms": 0, "subject": "sms"},
        headers={"X-Admin-Password": place.password},
    )
    assert put.status_code in (200, 204), put.text
    until(lambda: not any(each.queue == "mail" for each in place.client.get_alarms().alarms))
    until(lambda: (alarm := place.alarm("no_worker", "sms")) is not None and not alarm.is_muted)
    assert "mail" not in shell("alarms").out
    (row,) = [each for each in json.loads(shell("alarms", "--ended", "-o", "json").out) if each["name"] == "no_worker"]
    assert (row["peak"], row["subject"]) == (3, "mail")
    assert TITLE in shell("alarms", "--ended").out
