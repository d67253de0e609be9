"""A queue as operators see it: every setting, as people write it, and where it comes from."""

from __future__ import annotations

from pinlater.model import QueueView, SettingView
from pinlater.queues.layers import Layers
from pinlater.queues.settings import SETTINGS, QueueSettings


def queue_view(name: str, version: str, settings: QueueSettings, layers: Layers) -> QueueView:
    """`settings` are those that count for the queue now."""
    sources = list(layers.sources(name))
    return QueueView(
        name,
        version,
        {
            each.name: SettingView(
                each.text(getattr(settings, each.field)),
                next((source for source, layer in sources if each.field in layer), "server"),
            )
            for each in SETTINGS
        },
    )
