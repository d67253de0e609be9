"""What receivers of alarms are sent, when, and how often."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pinlater.alarms.cluster_conditions import WEBHOOK_TRIES
from pinlater.alarms.webhook_bodies import ALERT_ENDS_MS, SLACK_CHARS, WebhookMessage, webhook_body
from pinlater.alarms.webhooks import (
    REFRESH_MS,
    SEND_EVERY_MS,
    AlarmWebhook,
    WebhookSettings,
)
from pinlater.config.webhook_urls import webhook_target
from pinlater.http.model_map import answer_of
from pinlater.http.operator_answers import AlarmAnswer
from pinlater.model.alarm_views import AbsorbedAlarm, Alarm, Severity
from pinlater.signed_post import SIGNATURE_HEADER, PostOutcome, signature
from tests.unit.breaking import HeldClock

GONE = Alarm(
    "worker_gone",
    "mail",
    Severity.CRITICAL,
    "mail: 2 workers are gone, and none is left",
    1_000,
    "mail",
    size=41,
    peak=50,
    why="w1 on <host>: no report any more.",
    impact="41 ready jobs wait",
    error="Traceback: secret",
    action="Start it again.",
    command="pinlater worker list --queue mail",
    path="/dashboard/workers",
    absorbed=(AbsorbedAlarm("backlog_grows", "mail: its backlog grows", "mail"),),
)
OTHER = replace(GONE, subject="invoices", queue="invoices", title="invoices: 1 worker is gone")
FULL = Alarm("shard_full", "2", Severity.WARNING, "Shard 2 is full", 2_000)
URL = "https://ops.example/hook"


class Receiver:
    """Takes POSTs while `failure` is ""."""

    def __init__(self, text: str = URL, settings: WebhookSettings | None = None) -> None:
        self.clock = HeldClock()
        self.failure = ""
        self.tries = 0
        self.taken: list[tuple[dict[str, Any], Mapping[str, str]]] = []
        self.settings = settings or WebhookSettings(secret="s" * 16, links="https://jobs.example")
        self.webhook = AlarmWebhook(webhook_target(text), self.settings, self.clock, self._post)

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> PostOutcome:
        self.tries += 1
        if not self.failure:
            self.taken.append((json.loads(body), headers))
        return PostOutcome(self.failure, has_answered=not self.failure)

    async def hear(self, *standing: Alarm, after_ms: int = 0) -> list[Any]:
        """What is sent when these alarms stand, so much later."""
        self.clock.tick(after_ms)
        before = len(self.taken)
        self.webhook.take(standing)
        await self.webhook.send_due()
        return [body for body, _ in self.taken[before:]]


def titles(body: Any) -> tuple[list[str], list[str]]:
    return [each["title"] for each in body["alarms"]], [each["title"] for each in body["ended"]]


async def test_an_alarm_and_its_end_are_sent_once_each() -> None:
    receiver = Receiver()
    (begun,) = await receiver.hear(GONE)
    assert titles(begun) == ([GONE.title], [])
    assert await receiver.hear(replace(GONE, size=60), after_ms=10 * SEND_EVERY_MS) == []
    (ended,) = await receiver.hear(after_ms=1)
    assert titles(ended) == ([], [GONE.title])
    assert ended["ended"][0]["ended_ms"] == receiver.clock.now_ms()
    assert await receiver.hear(after_ms=10 * SEND_EVERY_MS) == []


async def test_a_condition_is_sent_once_a_minute_with_all_its_alarms() -> None:
    receiver = Receiver()
    await receiver.hear(GONE)
    assert await receiver.hear(GONE, OTHER, after_ms=SEND_EVERY_MS - 1) == []
    (full,) = await receiver.hear(GONE, OTHER, FULL)
    assert full["condition"] == "shard_full"
    (late,) = await receiver.hear(OTHER, FULL, after_ms=1)
    assert titles(late) == ([OTHER.title], [GONE.title])


async def test_worse_is_news_and_a_muted_alarm_is_none() -> None:
    receiver = Receiver()
    muted = replace(FULL, muted_until_ms=10**12)
    assert await receiver.hear(muted) == []
    (begun,) = await receiver.hear(FULL)
    (worse,) = await receiver.hear(replace(FULL, severity=Severity.CRITICAL), after_ms=SEND_EVERY_MS)
    assert (begun["alarms"][0]["severity"], worse["alarms"][0]["severity"]) == ("warning", "critical")
    assert await receiver.hear(muted, after_ms=SEND_EVERY_MS) == []
    (ended,) = await receiver.hear(after_ms=SEND_EVERY_MS)
    assert titles(ended) == ([], [FULL.title])


async def test_what_did_not_arrive_is_tried_again_and_then_told_as_a_problem() -> None:
    receiver = Receiver()
    receiver.failure = "it answered 500"
    for number in range(1, WEBHOOK_TRIES + 1):
        assert not receiver.webhook.problem
        await receiver.hear(GONE, after_ms=60_000)
        assert receiver.tries == number
        await receiver.hear(GONE)  # the pause is not over
        assert receiver.tries == number
    assert receiver.webhook.problem == "it answered 500"
    receiver.failure = ""
    assert await receiver.hear(GONE, after_ms=59_999) == []
    (begun,) = await receiver.hear(GONE, after_ms=1)
    assert titles(begun) == ([GONE.title], [])
    assert not receiver.webhook.problem


async def test_another_process_goes_on_with_what_was_sent() -> None:
    first, second = Receiver(), Receiver()
    await first.hear(GONE, FULL)
    second.webhook.resume(first.webhook.sent)
    (ended,) = await second.hear(GONE)
    assert titles(ended) == ([], [FULL.title])
    assert first.webhook.name == second.webhook.name != Receiver("https://ops.example/other").webhook.name


async def test_a_receiver_can_check_who_sent_it() -> None:
    receiver = Receiver()
    message = WebhookMessage(
        "worker_gone", [replace(GONE, error="")], [], receiver.clock.now_ms(), "https://jobs.example"
    )
    body = webhook_body("pinlater", message)
    await receiver.hear(GONE)
    ((sent, headers),) = receiver.taken
    signed = (headers["PinLater-Webhook"], "worker_gone", URL)
    signed_s = receiver.clock.now_ms() // 1_000
    assert headers[SIGNATURE_HEADER] == signature("s" * 16, signed_s, signed, body)
    assert sent == json.loads(body)


@pytest.mark.parametrize("text", [URL, f"slack={URL}", f"alertmanager={URL}"])
@pytest.mark.parametrize("with_errors", [True, False])
async def test_texts_that_jobs_left_are_sent_only_where_that_is_set(text: str, with_errors: bool) -> None:
    receiver = Receiver(text, WebhookSettings(with_errors=with_errors))
    (body,) = await receiver.hear(GONE)
    assert ("secret" in json.dumps(body)) == with_errors


def test_an_alarm_has_the_same_json_as_over_http() -> None:
    sent = json.loads(webhook_body("pinlater", WebhookMessage("worker_gone", [GONE], [], 5_000)))
    answer = json.loads(msgspec.json.encode(answer_of(AlarmAnswer, GONE)))
    assert sent["alarms"] == [answer]


def test_slack_gets_a_text_with_links_and_without_markup_of_others() -> None:
    message = WebhookMessage("worker_gone", [GONE], [FULL], 5_000, "https://jobs.example")
    text = json.loads(webhook_body("slack", message))["text"]
    assert "<https://jobs.example/dashboard/workers|mail: 2 workers are gone, and none is left>" in text
    assert "w1 on &lt;host&gt;" in text
    assert "also: mail: its backlog grows" in text
    assert "*over* Shard 2 is full" in text


async def test_alertmanager_hears_again_of_what_stands_before_it_takes_it_for_over() -> None:
    receiver = Receiver(f"alertmanager={URL}")
    ((first,),) = await receiver.hear(GONE)
    assert first["labels"] == {
        "alertname": "PinLaterWorkerGone",
        "severity": "critical",
        "subject": "mail",
        "queue": "mail",
    }
    assert first["startsAt"] == "1970-01-01T00:00:01.000Z"
    assert first["generatorURL"] == "https://jobs.example/dashboard/workers"
    assert await receiver.hear(GONE, after_ms=REFRESH_MS - 1) == []
    ((again,),) = await receiver.hear(GONE, after_ms=1)
    assert again["labels"] == first["labels"]
    assert REFRESH_MS + SEND_EVERY_MS < ALERT_ENDS_MS
    ((over,),) = await receiver.hear(after_ms=SEND_EVERY_MS)
    assert over["endsAt"] < again["endsAt"]


async def test_a_condition_that_is_never_taken_keeps_back_no_other() -> None:
    receiver = Receiver()
    taken = receiver.webhook._post

    async def refuse_first(url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> PostOutcome:
        if headers["PinLater-Condition"] == "shard_full":
            return PostOutcome("it answered 400", True)
        return await taken(url, body, headers, timeout_s)

    receiver.webhook._post = refuse_first
    await receiver.hear(FULL, GONE)
    (begun,) = await receiver.hear(FULL, GONE, after_ms=SEND_EVERY_MS)
    assert titles(begun) == ([GONE.title], [])


async def test_what_is_to_be_sent_waits_for_no_clock_that_was_set_back() -> None:
    receiver = Receiver()
    receiver.failure = "it answered 500"
    await receiver.hear(GONE)
    receiver.failure = ""
    (begun,) = await receiver.hear(GONE, after_ms=-3_600_000)
    assert titles(begun) == ([GONE.title], [])


async def test_who_sends_no_more_leaves_the_ends_to_who_does() -> None:
    receiver = Receiver()
    await receiver.hear(GONE)
    receiver.webhook.forget()
    receiver.webhook.resume([FULL])
    (ended,) = await receiver.hear(after_ms=SEND_EVERY_MS)
    assert titles(ended) == ([], [FULL.title])


async def test_what_others_may_have_sent_is_told_to_be_over_and_is_news_all_the_same() -> None:
    """With no shard each process sends what it finds, and one of them the ends."""
    receiver = Receiver()
    receiver.webhook.resume([], [GONE, FULL])
    begun, over = await receiver.hear(FULL)
    assert (titles(begun), titles(over)) == (([FULL.title], []), ([], [GONE.title]))
    assert await receiver.hear(FULL, after_ms=SEND_EVERY_MS) == []
    (ended,) = await receiver.hear(after_ms=SEND_EVERY_MS)
    assert titles(ended) == ([], [FULL.title])


def test_slack_takes_the_text_of_two_hundred_alarms() -> None:
    many = [replace(GONE, subject=f"q{number}", title=f"q{number}: `x` <!channel> & it") for number in range(200)]
    text = json.loads(webhook_body("slack", WebhookMessage("worker_gone", many, many, 5_000)))["text"]
    assert len(text) < SLACK_CHARS + 100
    shown = text.count("rotating_light")
    assert text.endswith(f"and {400 - shown} more: `pinlater alarms`")
    assert "<!channel>" not in text


def test_an_alert_ends_not_before_it_began() -> None:
    """By the clocks of two servers it would: Alertmanager takes none of them then."""
    ended = replace(GONE, since_ms=4_000, ended_ms=1_000)
    (alert,) = json.loads(webhook_body("alertmanager", WebhookMessage("worker_gone", [], [ended], 1_000)))
    assert alert["startsAt"] == alert["endsAt"]
