"""Webhooks of alarms: receivers that an operator names hear of each alarm and of its end, at least once.

Only the process that judges sends. A receiver hears of a condition once a minute at most, of all its alarms at once.
What was sent is kept in the shards, so another process that comes to judge goes on from there, and what
could not be sent is sent when the receiver answers again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import structlog

from pinlater.alarms.alarm_entries import put_sent, read_sent
from pinlater.alarms.cluster_conditions import WEBHOOK_TRIES
from pinlater.alarms.webhook_bodies import WebhookMessage, webhook_body
from pinlater.background_tasks import BackgroundTasks, exponential_backoff_s
from pinlater.clock import Clock
from pinlater.config.webhook_urls import ALERTMANAGER, WebhookTarget
from pinlater.model.alarm_views import Alarm
from pinlater.shards.handle import ShardHandle
from pinlater.signed_post import SIGNATURE_HEADER, PostOutcome, post_json, signature

_log = structlog.get_logger("pinlater.alarms")
ID_HEADER, CONDITION_HEADER = "PinLater-Webhook", "PinLater-Condition"
POST_TIMEOUT_S = 5.0
SEND_EVERY_MS = 60_000
"""Of one condition, to one receiver."""

REFRESH_MS = 120_000
"""Alerts that stand are sent again to an Alertmanager so often."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
_LONGEST_PAUSE_MS = round(LONGEST_PAUSE_S * 1_000)

AlarmKey = tuple[str, str]
PostJson = Callable[[str, bytes, Mapping[str, str], float], Awaitable[PostOutcome]]


class WebhookSettings(NamedTuple):
    """`links`: the address of the dashboard, without a path. `with_errors`: texts that jobs left are sent too."""

    targets: Sequence[WebhookTarget] = ()
    secret: str = ""
    links: str = ""
    with_errors: bool = False


class AlarmWebhook:
    """One receiver, and what it was sent."""

    def __init__(self, target: WebhookTarget, settings: WebhookSettings, clock: Clock, post: PostJson) -> None:
        self.target = target
        self.name = hashlib.sha256(f"{target.form} {target.url}".encode()).hexdigest()[:16]
        """That of its entry in the shards: it says nothing of the URL."""
        self.problem = ""
        """Why nothing arrives there; "" where it does, or was not tried often enough."""
        self._settings = settings
        self._clock = clock
        self._post = post
        self._sent: dict[AlarmKey, Alarm] = {}
        self._elsewhere: dict[AlarmKey, Alarm] = {}
        """What other processes may have sent, and nobody knows."""
        self._standing: dict[AlarmKey, Alarm] = {}
        self._sent_ms: dict[str, int] = {}
        self._tries = 0
        self._tried: dict[str, int] = {}
        """The number of the last try of each condition."""
        self._failures = 0
        self._try_after_ms = 0
        self.is_busy = False

    @property
    def sent(self) -> list[Alarm]:
        """The alarms whose end is still to be sent."""
        return [*self._sent.values()]

    def resume(self, sent: Iterable[Alarm], elsewhere: Iterable[Alarm] = ()) -> None:
        """Go on with what another process has sent, beside what this one has; of `elsewhere` others may have sent any,
        so their ends are sent in any case.
        """
        self._elsewhere |= {each.key: each for each in elsewhere if not each.is_muted}
        self._sent = {**{each.key: each for each in sent}, **self._sent}

    def forget(self) -> None:
        """Another process sends from now on."""
        self._sent, self._standing, self._elsewhere = {}, {}, {}

    def take(self, standing: Iterable[Alarm]) -> None:
        """The alarms as they stand now."""
        self._standing = {each.key: each for each in standing}

    async def send_due(self) -> bool:
        """Send what is due, a condition after the other; whether anything arrived. It raises nothing."""
        has_sent, self.is_busy = False, True
        try:
            names = {name for name, _ in (*self._standing, *self._sent, *self._elsewhere)}
            for name in sorted(names, key=lambda name: (self._tried.get(name, 0), name)):  # one may never be taken
                message = self._due(name)
                if message is None:
                    continue
                if not await self._send(message):
                    break
                has_sent = True
        finally:
            self.is_busy = False
        return has_sent

    def _due(self, name: str) -> WebhookMessage | None:
        """What is to be said of a condition now."""
        now_ms = self._clock.now_ms()
        sent_ms = self._sent_ms.get(name)
        if 0 < self._try_after_ms - now_ms <= _LONGEST_PAUSE_MS or (
            sent_ms is not None and 0 <= now_ms - sent_ms < SEND_EVERY_MS
        ):
            return None
        standing = [each for each in self._standing.values() if each.name == name and not each.is_muted]
        news = [each for each in standing if self._is_news(each)]
        ended = [
            replace(each, ended_ms=now_ms)
            for key, each in {**self._elsewhere, **self._sent}.items()
            if each.name == name and key not in self._standing
        ]
        says_all = self.target.form == ALERTMANAGER
        is_stale = says_all and bool(standing) and (sent_ms is None or now_ms - sent_ms >= REFRESH_MS)
        if not news and not ended and not is_stale:
            return None
        return WebhookMessage(name, standing if says_all else news, ended, now_ms, self._settings.links)

    def _is_news(self, alarm: Alarm) -> bool:
        before = self._sent.get(alarm.key)
        return before is None or alarm.severity < before.severity or alarm.since_ms != before.since_ms

    async def _send(self, message: WebhookMessage) -> bool:
        body = webhook_body(self.target.form, message if self._settings.with_errors else message.without_errors())
        self._tries += 1
        self._tried[message.name] = self._tries
        outcome = await self._post(self.target.url, body, self._headers(message, body), POST_TIMEOUT_S)
        if outcome.failure:
            self._failures += 1
            pause_s = exponential_backoff_s(self._failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)
            if self._failures >= WEBHOOK_TRIES:
                pause_s, self.problem = LONGEST_PAUSE_S, outcome.failure
            self._try_after_ms = self._clock.now_ms() + round(pause_s * 1_000)
            _log.warning("webhook_failed", host=self.target.host, tries=self._failures, error=outcome.failure)
            return False
        self._failures, self._try_after_ms, self.problem = 0, 0, ""
        self._sent_ms[message.name] = message.now_ms
        self._sent |= {each.key: each for each in message.standing}
        for each in message.ended:
            self._sent.pop(each.key, None)
            self._elsewhere.pop(each.key, None)
        return True

    def _headers(self, message: WebhookMessage, body: bytes) -> dict[str, str]:
        alarms = ((*each.key, each.since_ms, each.ended_ms) for each in (*message.standing, *message.ended))
        message_id = hashlib.sha256(repr(sorted(alarms, key=repr)).encode()).hexdigest()[:32]
        headers = {ID_HEADER: message_id, CONDITION_HEADER: message.name}
        if self._settings.secret:
            signed = (message_id, message.name, self.target.url)
            signed_s = self._clock.now_ms() // 1_000
            headers[SIGNATURE_HEADER] = signature(self._settings.secret, signed_s, signed, body)
        return headers


class AlarmWebhooks:
    """All receivers, for the process that judges. `places`: the shards where alarms are kept."""

    def __init__(self, settings: WebhookSettings, clock: Clock, post: PostJson = post_json) -> None:
        self._receivers = [AlarmWebhook(target, settings, clock, post) for target in settings.targets]
        self._clock = clock
        self._tasks = BackgroundTasks()

    @property
    def problems(self) -> dict[str, str]:
        """Why nothing arrives, by the receiver's host."""
        return {each.target.host: each.problem for each in self._receivers if each.problem}

    async def resume(self, places: Sequence[ShardHandle], elsewhere: Sequence[Alarm] = ()) -> None:
        """This process judges from now on; of `elsewhere` others may have sent any. PinLaterError: no shard says what
        was sent before.
        """
        if self._receivers and places:
            sent = await read_sent(places, self._clock.now_ms())
            for each in self._receivers:
                each.resume(sent.get(each.name, ()), elsewhere)

    def take(self, standing: Sequence[Alarm], places: Sequence[ShardHandle]) -> None:
        """Begin to send what is due, to receivers that are not busy."""
        for each in self._receivers:
            each.take(standing)
            if not each.is_busy:
                self._tasks.start(self._send(each, places))

    async def _send(self, receiver: AlarmWebhook, places: Sequence[ShardHandle]) -> None:
        if await receiver.send_due():
            await put_sent(places, receiver.name, receiver.sent, self._clock.now_ms())

    async def forget(self) -> None:
        """Another process judges from now on, and sends what this one was about to send."""
        await self._tasks.cancel()
        for each in self._receivers:
            each.forget()

    async def drain(self) -> None:
        """Until nothing is under way."""
        await self._tasks.drain()

    async def close(self) -> None:
        """What is under way is broken off: whoever judges next sends it."""
        await self._tasks.cancel()
