"""The table of what can be set for a queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pinlater.queues.settings import BY_NAME, SETTINGS, QueueSetting, QueueSettings
from pinlater.queues.settings_page import docs_page

ROOT = Path(__file__).parents[2]


def test_the_page_of_settings_is_current() -> None:
    assert (ROOT / "docs" / "queues.md").read_text() == docs_page(), "run: python -m pinlater.queues > docs/queues.md"


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: str(setting.name))
def test_a_default_is_read_back_as_it_was_written(setting: QueueSetting) -> None:
    default = getattr(QueueSettings(), setting.field)
    assert setting.kind.parse(setting.text(default)) == default


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("max_jobs_per_second", 100.0, "100/s"),
        ("max_jobs_per_second", 0.0, "0/s"),
        ("max_jobs_per_second", 0.5, "30/m"),
        ("paused_why", 'a "quoted" \\ word, é', 'a "quoted" \\ word, é'),
        ("paused_until", 1_790_000_000_000, "1790000000000"),
        ("claim_timeout", 90_000, "90s"),
        ("max_body", 65_536, "64KiB"),
        ("max_pending", None, "none"),
        ("dead_letter_queue", "dead", "dead"),
    ],
)
def test_a_value_is_written_as_people_write_it_and_read_back(key: str, value: Any, text: str) -> None:
    assert BY_NAME[key].text(value) == text
    assert BY_NAME[key].kind.parse(text) == value
