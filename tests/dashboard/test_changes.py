"""Changes by pages: what each does, that it is in the audit, and what is refused."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from html import unescape
from urllib.parse import quote

import pytest

from pinlater.errors import DequeueRateLimited, QueueNotFound
from pinlater.model import Ack, DequeueRequest, ExtendedJob, Job
from pinlater.model.job_selection import JobSelection
from tests.dashboard.conftest import Place
from tests.dashboard.test_pages import until
from tests.dashboard.visitor import OF_A_BROWSER, Visitor, csrf_of


def settings(place: Place, queue: str) -> dict[str, str]:
    (view,) = place.client.get_queues([queue])
    return {name: each.value for name, each in view.settings.items()}


def noted(place: Place, queue: str) -> list[str]:
    """What the audit has of a queue, under the name that the visitor's link was asked for with."""
    entries = [each for each in place.client.audit(limit=50) if each.target == queue]
    return [f"{each.action} {each.detail}".strip() for each in entries if each.who == "anna@laptop"]


def test_a_queue_is_made(place: Place, visitor: Visitor) -> None:
    shown = visitor.press("/dashboard/queues", "/dashboard/queues", name="made-here")
    assert "Queue made-here is there." in shown
    assert "made-here" in place.client.queue_names()
    assert "name 'a b'" in visitor.press("/dashboard/queues", "/dashboard/queues", name="a b")
    assert noted(place, "made-here") == ["create_queue"]


def test_a_pause_has_a_reason_and_an_end(place: Place, visitor: Visitor, queue: str) -> None:
    path = f"/dashboard/queues/{queue}"
    shown = visitor.press(path, f"{path}/pause", why="the provider is down", **{"for": "2h"})
    assert f"Queue {queue} is paused for 2h" in shown
    assert "Paused by anna@laptop" in shown
    assert "the provider is down" in shown
    assert "ends in 1 h 59 min" in shown
    found = settings(place, queue)
    assert (found["paused"], found["paused_why"]) == ("true", "the provider is down")
    assert 7_100_000 < int(found["paused_until"]) - time.time() * 1000 < 7_200_000
    assert "is paused" not in visitor.text(path).replace("Paused by", "")
    shown = visitor.press(path, f"{path}/resume")
    assert "hands out jobs again" in shown
    assert settings(place, queue)["paused"] == "false"
    shown = visitor.press(path, f"{path}/pause", **{"for": "soon"})
    assert "the length of the pause is 'soon'; allowed:" in shown
    assert settings(place, queue)["paused"] == "false"
    shown = visitor.press(path, f"{path}/pause")
    assert "until it is resumed" in shown
    assert len(noted(place, queue)) == 3


def test_a_group_is_paused_weighed_and_resumed(place: Place, visitor: Visitor, queue: str) -> None:
    path = f"/dashboard/queues/{queue}"
    assert "Groups" not in visitor.text(path)
    place.client.enqueue(queue, [ExtendedJob(b"x", group=group) for group in ("acme <b>", "betty", "betty")])
    place.client.enqueue(queue, [Job(b"x")])
    assert "takes its turns" in visitor.text(path)
    (listed,) = re.findall(r'href="(/dashboard/jobs[?][^"]+)">acme &lt;b', visitor.get(path).text)
    (job,) = place.client.search_jobs(JobSelection(queue, group="acme <b>")).jobs
    (linked,) = re.findall(r'href="([^"]+)">acme &lt;b', visitor.get(f"/dashboard/jobs/{quote(job.descriptor)}").text)
    assert listed == linked
    jobs = visitor.get(unescape(listed)).text
    assert f"queue:{queue} group:" in unescape(jobs)
    assert set(re.findall(rf"{queue}:s\d+:p\d+:\d+", jobs)) == {job.descriptor}
    shown = visitor.press(path, f"{path}/groups/pause", group="acme <b>", why="they asked", **{"for": "2h"})
    assert "Group acme <b> is paused" in shown
    assert "paused by anna@laptop: they asked; ends in 1 h 59 min" in shown
    assert " limited)" not in visitor.text(path)
    shown = visitor.press(path, f"{path}/groups/pause", group="betty")
    assert "paused by anna@laptop" in visitor.text(path)
    assert len(place.client.dequeue(DequeueRequest(queue, 9))) == 1
    for page in (path, f"/dashboard/queues?name={queue}"):
        until(lambda page=page: "3 (3 limited)" in visitor.text(page))
    for sort in ("name", "ready", "limited", "running", "oldest", "share", "none"):
        shown = visitor.text(f"{path}?groups={sort}&groups_page=9")
        acme, betty = shown.index("acme <b> 1 1"), shown.index("betty 2 2")
        assert (acme < betty) == (sort in ("name", "running", "oldest", "share"))
    visitor.press(path, f"{path}/groups/resume", group="betty")
    limited = visitor.press(path, f"{path}/groups/set", group="betty", weight="3", concurrency="2", rate="50/s")
    assert "Group betty has other settings now" in limited
    assert "at most 50/s" in limited
    assert "weight is '0'; allowed: 1 to 1000" in visitor.press(path, f"{path}/groups/set", group="betty", weight="0")
    acme, betty = place.client.get_groups(queue, ["acme <b>", "betty"]).groups
    assert (acme.settings["paused"].value, betty.settings["weight"].value) == ("true", "3")
    assert [betty.settings[key] for key in ("concurrency", "rate")] == [("2", "group"), ("50/s", "group")]
    visitor.press(path, f"{path}/groups/set", group="betty", weight="", concurrency="", rate="")
    assert "gets its turns again" in visitor.press(path, f"{path}/groups/resume", group="acme <b>")
    acme, betty = place.client.get_groups(queue, ["acme <b>", "betty"]).groups
    assert (acme.settings["paused"].value, betty.settings["weight"].value) == ("false", "1")
    assert len(noted(place, queue)) == 6


def test_an_open_circuit_breaker_is_shown_as_a_pause_and_resumed(place: Place, visitor: Visitor, queue: str) -> None:
    path = f"/dashboard/queues/{queue}"
    visitor.press(path, f"{path}/settings", key="pause_on_failures", value="50%/1/1h/24h")
    assert "is '50%'; allowed: SHARE%/ATTEMPTS/WINDOW/PROBE" in visitor.press(
        path, f"{path}/settings", key="pause_on_failures", value="50%"
    )
    place.client.enqueue(queue, [Job(b"", attempts_allowed=10_000)])
    with suppress(DequeueRateLimited):
        while True:
            jobs = place.client.dequeue(DequeueRequest(queue, 1, wait_ms=5_000))
            place.client.ack(queue, [], [Ack(job.descriptor, retry_delay_ms=100) for job in jobs])
    shown = visitor.text(path)
    assert "Paused by @breaker" in shown
    assert "attempts failed in 1h; one job is tried every 1d until one succeeds." in shown
    assert "hands out jobs again" in visitor.press(path, f"{path}/resume")
    assert settings(place, queue)["paused"] == "false"


def test_a_pause_for_all_queues_is_lifted_for_one(place: Place, visitor: Visitor, queue: str) -> None:
    path = f"/dashboard/queues/{queue}"
    place.client.update_queue("@defaults", place.password, set={"draining": "true"})
    try:
        assert "takes new jobs again" in visitor.press(path, f"{path}/undrain")
        assert settings(place, queue)["draining"] == "false"
    finally:
        place.client.update_queue("@defaults", place.password, unset=["draining"])


def test_a_queue_is_drained_and_takes_jobs_again(place: Place, visitor: Visitor, queue: str) -> None:
    path = f"/dashboard/queues/{queue}"
    assert "refuses new jobs" in visitor.press(path, f"{path}/drain")
    assert settings(place, queue)["draining"] == "true"
    assert "draining" in visitor.text(path)
    assert "takes new jobs again" in visitor.press(path, f"{path}/undrain")
    assert settings(place, queue)["draining"] == "false"


def test_settings_are_set_and_taken_back(place: Place, visitor: Visitor, queue: str) -> None:
    path = f"/dashboard/queues/{queue}"
    for key, value in (("max_jobs_per_second", "30/m"), ("max_in_progress", "7"), ("claim_timeout", "90s")):
        shown = visitor.press(path, f"{path}/settings", key=key, value=value)
        assert f"{key} of queue {queue} is {value} now." in shown
        assert settings(place, queue)[key] == value
    assert "30/m set for this queue" in visitor.text(path)
    shown = visitor.press(path, f"{path}/settings", key="max_in_progress", value="7", unset="1")
    assert "comes from elsewhere again" in shown
    assert settings(place, queue)["max_in_progress"] == "none"
    refused = visitor.press(path, f"{path}/settings", key="claim_timeout", value="soon")
    assert "claim_timeout is 'soon'; allowed:" in refused
    assert "did you mean" in visitor.press(path, f"{path}/settings", key="claim_timout", value="1m")
    assert settings(place, queue)["claim_timeout"] == "90s"


def test_a_queue_is_deleted_by_its_name_alone(place: Place, visitor: Visitor, queue: str) -> None:
    place.client.enqueue(queue, [Job(b"x")])
    path = f"/dashboard/queues/{queue}"
    until(lambda: "and 1 jobs" in visitor.text(path))
    assert "nothing was deleted" in visitor.press(path, f"{path}/delete", name="another")
    assert queue in place.client.queue_names()
    assert f"Queue {queue} was deleted" in visitor.press(path, f"{path}/delete", name=queue)
    assert queue not in place.client.queue_names()
    with pytest.raises(QueueNotFound):
        place.client.get_queues([queue])
    visitor.get(path, status=404)


def test_a_shard_is_drained_and_takes_jobs_again(place: Place, visitor: Visitor) -> None:
    page, path = "/dashboard/cluster", "/dashboard/cluster/shards/1"
    assert "It is the only one that takes new jobs" in visitor.text(page)
    try:
        assert "Shard 1 stores no new jobs" in visitor.press(page, f"{path}/drain")
        assert place.client.cluster_status(queues=[]).shards[0].dequeue_only
    finally:
        assert "Shard 1 stores new jobs again" in visitor.press(page, f"{path}/undrain")
    assert not place.client.cluster_status(queues=[]).shards[0].dequeue_only
    token = {"csrf": csrf_of(visitor.get(page).text)}
    other = visitor.send("/dashboard/cluster/shards/9/drain", token)
    assert "no shard '9'" in visitor.text(other.headers["Location"])


@pytest.mark.parametrize(
    ("form", "headers"),
    [
        ({}, OF_A_BROWSER),
        ({"csrf": "x" * 43}, OF_A_BROWSER),
        ({"csrf": ""}, {}),
        (None, {"Sec-Fetch-Site": "cross-site"}),
        (None, {"Sec-Fetch-Site": "same-site"}),
        (None, {"Origin": "https://evil.example"}),
        (None, {"Origin": "null"}),
    ],
)
def test_no_other_page_changes_anything(
    place: Place, visitor: Visitor, queue: str, form: dict[str, str] | None, headers: dict[str, str]
) -> None:
    path = f"/dashboard/queues/{queue}"
    right = {"csrf": csrf_of(visitor.get(path).text)}
    response = visitor.client.post(f"{path}/pause", data=right if form is None else form, headers=headers)
    assert (response.status_code, response.json()["reason"]) == (403, "FORBIDDEN")
    assert settings(place, queue)["paused"] == "false"


def test_what_is_no_form_is_refused(place: Place, visitor: Visitor, queue: str) -> None:
    path = f"/dashboard/queues/{queue}"
    token = csrf_of(visitor.get(path).text)
    json = visitor.client.post(f"{path}/pause", json={"csrf": token}, headers=OF_A_BROWSER)
    assert json.status_code == 403
    many = {"csrf": token} | {f"f{number}": "" for number in range(2_000)}
    assert "at most" in visitor.text(visitor.send(f"{path}/pause", many).headers["Location"])
    assert settings(place, queue)["paused"] == "false"


def test_a_reader_has_no_button_and_is_refused(ruled: Place) -> None:
    reader = ruled.visitor("viewer")
    for page in ("", "/queues", "/queues/mail", "/workers", "/cluster"):
        assert reader.actions(f"/dashboard{page}") == set()
        assert "read-only" in reader.text(f"/dashboard{page}")
    assert "Audit" not in reader.text("/dashboard")
    reader.get("/dashboard/audit", status=403)
    token = {"csrf": csrf_of(reader.get("/dashboard").text)}
    for path in (
        *("queues/mail/pause", "queues/mail/resume", "queues/mail/drain", "queues/mail/undrain"),
        *("queues/mail/settings", "queues/mail/delete", "cluster/shards/1/drain", "queues"),
    ):
        sent = reader.send(f"/dashboard/{path}", {**token, "name": "mail", "key": "max_attempts", "value": "3"})
        assert sent.status_code == 403, path
    assert settings(ruled, "mail")["max_attempts"] == "none"


def test_an_operator_may_not_delete_and_is_in_the_audit(ruled: Place) -> None:
    operator = ruled.visitor("operator")
    path = "/dashboard/queues/mail"
    offered = operator.actions(path)
    assert f"{path}/pause" in offered
    assert f"{path}/delete" not in offered
    assert operator.actions("/dashboard/cluster") == set()
    operator.press(path, f"{path}/settings", key="max_attempts", value="9")
    operator.press(path, f"{path}/settings", key="max_attempts", value="", unset="1")
    assert "token:operator" in operator.text("/dashboard/audit?filter=max_attempts")


def test_who_may_see_one_queue_sees_that_one(ruled: Place) -> None:
    partial = ruled.visitor("of-mail")
    shown = partial.text("/dashboard/queues")
    assert "1 of 1 queue" in shown
    assert "sms" not in shown
    assert "mail" in partial.text("/dashboard")
    partial.get("/dashboard/queues/sms", status=403)
    path = "/dashboard/queues/mail"
    assert f"{path}/pause" in partial.actions(path)
    partial.press(path, f"{path}/pause", why="mine")
    partial.press(path, f"{path}/resume")
