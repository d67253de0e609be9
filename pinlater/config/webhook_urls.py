"""Receivers of alarms as settings name them: a URL, and before it the form in which it takes them."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from pinlater.setting_kinds import Words

PINLATER, SLACK, ALERTMANAGER = WEBHOOK_FORMS = ("pinlater", "slack", "alertmanager")


class WebhookTarget(NamedTuple):
    """A receiver of alarms. Its URL may hold a secret."""

    form: str
    url: str

    @property
    def host(self) -> str:
        """What may be shown of it."""
        return urlsplit(self.url).netloc.rpartition("@")[2]


def webhook_target(text: str) -> WebhookTarget:
    """
    >>> webhook_target("slack=https://hooks.example/x"), webhook_target("https://ops.example/a=b").form
    (WebhookTarget(form='slack', url='https://hooks.example/x'), 'pinlater')
    """
    form, found, url = text.partition("=")
    return WebhookTarget(form, url) if found and form in WEBHOOK_FORMS else WebhookTarget(PINLATER, text)


class WebhookUrls(Words):
    """Receivers of alarms."""

    metavar = "URL"

    def __init__(self) -> None:
        forms = "|".join(WEBHOOK_FORMS)
        super().__init__(rf"(({forms})=)?https?://\S+", f"URL or FORM=URL, FORM one of {', '.join(WEBHOOK_FORMS)}")
