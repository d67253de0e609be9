"""The bodies of webhooks: what receivers of each form take.

`pinlater` is the JSON of `GET /v1/alarms`, `slack` the text of an incoming webhook, as Mattermost and others take it
too, and `alertmanager` the alerts of Prometheus' Alertmanager (`POST /api/v2/alerts`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec

from pinlater.config.webhook_urls import ALERTMANAGER, PINLATER, SLACK
from pinlater.model.alarm_views import Alarm

SLACK_CHARS = 12_000
"""Of all texts in one message: Slack and Mattermost refuse one that is much longer."""

ALERT_ENDS_MS = 300_000
"""Alertmanager takes an alert for over when nothing was said of it for so long."""


class WebhookMessage(NamedTuple):
    """What a webhook says of a condition: alarms that stand, and those that ended. `links` stands before paths of the
    dashboard; "" where nobody said where that is.
    """

    name: str
    standing: Sequence[Alarm]
    ended: Sequence[Alarm]
    now_ms: int
    links: str = ""

    def without_errors(self) -> WebhookMessage:
        """The same, without what jobs said."""
        return self._replace(
            standing=[replace(each, error="") for each in self.standing],
            ended=[replace(each, error="") for each in self.ended],
        )


def alarm_document(alarm: Alarm) -> dict[str, Any]:
    """As the HTTP interface says it."""
    document: dict[str, Any] = msgspec.to_builtins(alarm)
    document["severity"] = str(alarm.severity)
    return {name: value for name, value in document.items() if value is not None}


def _pinlater(message: WebhookMessage) -> Any:
    return {
        "condition": message.name,
        "now_ms": message.now_ms,
        "alarms": [alarm_document(each) for each in message.standing],
        "ended": [alarm_document(each) for each in message.ended],
        "links": message.links,
    }


def _slack(message: WebhookMessage) -> Any:
    texts = [_slack_text(each, message.links) for each in message.standing]
    texts += [f":white_check_mark: *over* {_slack_escaped(each.title)}" for each in message.ended]
    sizes = accumulate(len(text) + 2 for text in texts)
    shown = [text for text, size in zip(texts, sizes, strict=True) if size <= SLACK_CHARS] or [texts[0][:SLACK_CHARS]]
    if len(texts) > len(shown):
        shown.append(f"and {len(texts) - len(shown):,} more: `pinlater alarms`")
    return {"text": "\n\n".join(shown)}


_SLACK_MARKS = (":rotating_light:", ":warning:", ":information_source:")


def _slack_text(alarm: Alarm, links: str) -> str:
    title = _slack_escaped(alarm.title)
    if links and alarm.path:
        title = f"<{links}{alarm.path}|{title}>"
    lines = [f"{_SLACK_MARKS[alarm.severity]} *{alarm.severity}* {title}"]
    lines += [f"&gt; {_slack_escaped(text)}" for text in (alarm.why, alarm.impact, alarm.error) if text]
    lines += [f"&gt; also: {_slack_escaped(each.title)}" for each in alarm.absorbed]
    if alarm.action:
        lines.append(_slack_escaped(alarm.action))
    if alarm.command:
        lines.append(f"`{_slack_escaped(alarm.command)}`")
    return "\n".join(lines)


def _slack_escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _alertmanager(message: WebhookMessage) -> Any:
    standing = [_alert(each, message, message.now_ms + ALERT_ENDS_MS) for each in message.standing]
    return standing + [_alert(each, message, each.ended_ms or message.now_ms) for each in message.ended]


def _alert(alarm: Alarm, message: WebhookMessage, ends_ms: int) -> dict[str, Any]:
    labels = {
        "alertname": alert_name(alarm.name),
        "severity": str(alarm.severity),
        "subject": alarm.subject,
        "queue": alarm.queue,
    }
    annotations = {
        "summary": alarm.title,
        "description": "\n".join(filter(None, (alarm.why, alarm.impact, alarm.error))),
        "action": alarm.action,
        "command": alarm.command,
        "absorbed": "\n".join(each.title for each in alarm.absorbed),
    }
    alert: dict[str, Any] = {
        "labels": {name: value for name, value in labels.items() if value},
        "annotations": {name: value for name, value in annotations.items() if value},
        "startsAt": _rfc3339(alarm.since_ms),
        "endsAt": _rfc3339(max(ends_ms, alarm.since_ms)),  # by the clocks of two servers
    }
    if message.links and alarm.path:
        alert["generatorURL"] = message.links + alarm.path
    return alert


def alert_name(condition: str) -> str:
    """As Prometheus names alerts.

    >>> alert_name("shard_out")
    'PinLaterShardOut'
    """
    return "PinLater" + "".join(word.capitalize() for word in condition.split("_"))


def _rfc3339(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


FORMS: Mapping[str, Callable[[WebhookMessage], Any]] = {
    PINLATER: _pinlater,
    SLACK: _slack,
    ALERTMANAGER: _alertmanager,
}


def webhook_body(form: str, message: WebhookMessage) -> bytes:
    """What a receiver of this form is sent."""
    return msgspec.json.encode(FORMS[form](message))
