"""One set of kinds of values: servers, queues and workers take the same texts."""

from __future__ import annotations

import pytest

from pinlater.queues.settings import BY_NAME
from pinlater_workers.app.settings import worker_settings
from pinlater_workers.errors import ConfigurationError


@pytest.mark.parametrize("written", [5, "5"])
def test_a_number_may_be_written_as_text(written: object) -> None:
    assert BY_NAME["crash_budget"].kind.parse(written) == 5
    assert worker_settings({"concurrency": written}, "a test").concurrency == 5


@pytest.mark.parametrize("written", [True, "true"])
def test_a_switch_may_be_written_as_text(written: object) -> None:
    assert BY_NAME["paused"].kind.parse(written) is True
    assert worker_settings({"create_queues": written}, "a test").create_queues is True


@pytest.mark.parametrize("written", ["x", "5x", "", " 5", "-1", None, 1.5, True])
def test_what_is_no_number_is_none_for_all(written: object) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        BY_NAME["crash_budget"].kind.parse(written)
    with pytest.raises(ConfigurationError, match="allowed: 1 to 10000"):
        worker_settings({"concurrency": written}, "a test")


@pytest.mark.parametrize("written", ["90s", "1m30s", "1.5m"])
def test_a_duration_with_a_unit_is_the_same_for_all_and_a_bare_one_is_seconds_of_a_worker_alone(written: str) -> None:
    assert BY_NAME["claim_timeout"].kind.parse(written) == 90_000
    assert worker_settings({"lease": written}, "a test").lease_s == 90.0
    assert worker_settings({"lease": "90"}, "a test") == worker_settings({"lease": 90}, "a test")
    with pytest.raises(ValueError, match=r"^$"):
        BY_NAME["claim_timeout"].kind.parse("90")
