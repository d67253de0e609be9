"""Settings of queues from a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import structlog

from pinlater.config.loader import ConfigInvalid
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.file import QueueFile
from pinlater.queues.settings import QueueSettings
from tests.unit.several import Server, several

EXAMPLE = Path(__file__).parents[2] / "conf" / "queues.toml"
TEXT = """
[defaults]
max_pending = 5
claim_timeout = "7s"

[queues.mail]
max_pending = 6
max_jobs_per_second = 0.5
"""


def write(path: Path, text: str) -> Path:
    """As an editor does it: another file takes its place."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, path)
    return path


def wrong(path: Path, text: str) -> list[str]:
    """What is said of a file."""
    with pytest.raises(ConfigInvalid) as invalid:
        QueueFile(write(path, text))
    return [str(mistake) for mistake in invalid.value.mistakes]


async def polled(server: Server) -> list[str]:
    """The events that a poll logs."""
    with structlog.testing.capture_logs() as logs:
        await server.queues.poll()
    return [str(log["event"]) for log in logs if log["log_level"] != "debug"]


async def test_the_stores_setting_wins_and_a_view_says_where_each_value_comes_from(tmp_path: Path) -> None:
    path = write(tmp_path / "queues.toml", TEXT)
    async with several(1, make_queues=lambda *parts: QueueDirectory(*parts, QueueSettings(), QueueFile(path))) as (
        one,
    ):
        assert one.queues.names() == set()
        assert one.queues.settings("mail").max_jobs_per_second == 0.5
        for name in ("mail", "other"):
            await one.queues.create(name, "ann")
        await one.queues.change("@defaults", {"max_pending": "50", "claim_timeout": "8s"}, [], False, "ann")
        await one.queues.change("mail", {"max_attempts": "3"}, [], False, "ann")
        shown = one.queues.view("mail").settings
        assert shown["max_attempts"] == ("3", "queue")
        assert shown["max_pending"] == ("6", "file")
        assert shown["max_jobs_per_second"] == ("30/m", "file")
        assert shown["claim_timeout"] == ("8s", "default")
        assert shown["crash_budget"] == ("3", "server")
        assert one.queues.view("other").settings["max_pending"] == ("50", "default")
        await one.queues.change("@defaults", {}, ["max_pending", "claim_timeout"], False, "ann")
        assert one.queues.view("other").settings["claim_timeout"] == ("7s", "file default")
        assert one.queues.settings("other").max_pending == 5
        await one.queues.change("mail", {"max_pending": "7"}, [], False, "ann")
        assert one.queues.view("mail").settings["max_pending"] == ("7", "queue")


async def test_a_file_that_changes_is_read_again_and_a_bad_one_changes_nothing_and_says_so_once(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "queues.toml", TEXT)
    async with several(1, make_queues=lambda *parts: QueueDirectory(*parts, QueueSettings(), QueueFile(path))) as (
        one,
    ):
        told: list[str] = []
        one.queues.on_change(told.append)
        assert await polled(one) == []
        write(path, TEXT.replace("max_pending = 6", "max_pending = 66"))
        assert await polled(one) == ["queue_file_read"]
        assert one.queues.settings("mail").max_pending == 66
        assert told == ["mail"]
        write(path, "[defaults]\nmax_pendng = 1\n")
        assert await polled(one) == ["queue_file_invalid"]
        assert await polled(one) == []
        path.unlink()
        assert await polled(one) == ["queue_file_not_read"]
        assert await polled(one) == []
        assert one.queues.settings("mail").max_pending == 66
        write(path, "")
        assert await polled(one) == ["queue_file_read"]
        assert one.queues.settings("mail") == QueueSettings()
        assert set(told[1:]) == {"", "mail"}


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="No such file"):
        QueueFile(tmp_path / "nowhere.toml")


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    text = """
    [default]
    [defaults]
    max_pendng = 5
    paused_by = "me"
    [queues]
    loose = 5
    [queues."a b"]
    [queues.mail]
    claim_timeout = 5
    dead_letter_queue = "dead"
    [queues.dead]
    dead_letter_queue = "other"
    """
    said = "\n".join(wrong(tmp_path / "queues.toml", text))
    for part in (
        "default = {}",
        "the tables defaults and queues.NAME",
        "defaults.max_pendng = 5",
        "did you mean max_pending?",
        "defaults.paused_by = 'me'",
        "queues.loose = 5",
        "queues.a b = 'a b'",
        "queues.mail.claim_timeout = 5",
        "queues.mail.dead_letter_queue = 'dead'",
    ):
        assert part in said
    assert "TOML" in wrong(tmp_path / "queues.toml", "[")[0]
    assert "tables queues.NAME" in wrong(tmp_path / "queues.toml", "queues = 5")[0]
    (tmp_path / "binary.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigInvalid, match="TOML"):
        QueueFile(tmp_path / "binary.toml")


async def test_a_body_bound_above_the_server_s_own_is_the_server_s_own(tmp_path: Path) -> None:
    path = write(tmp_path / "queues.toml", '[queues.mail]\nmax_body = "5MiB"\n')
    async with several(1, make_queues=lambda *parts: QueueDirectory(*parts, QueueSettings(), QueueFile(path))) as (
        one,
    ):
        assert one.queues.settings("mail").max_body_bytes == 1024 * 1024


async def test_dead_letter_queues_of_file_and_stores_that_make_a_circle_are_none(tmp_path: Path) -> None:
    path = write(tmp_path / "queues.toml", '[queues.mail]\ndead_letter_queue = "dead"\n')
    async with several(1) as (one,):
        for name in ("mail", "dead"):
            await one.queues.create(name, "ann")
        await one.queues.change("dead", {"dead_letter_queue": "mail"}, [], False, "ann")
        with_file = QueueDirectory(one.members, one.clock, QueueSettings(), QueueFile(path))
        await with_file.poll()
        assert with_file.dead_letter_targets() == {}
        await with_file.close()


async def test_a_dead_letter_queue_that_is_not_there_is_told_once(tmp_path: Path) -> None:
    path = write(tmp_path / "queues.toml", '[queues.mail]\ndead_letter_queue = "letters"\n')
    async with several(1, make_queues=lambda *parts: QueueDirectory(*parts, QueueSettings(), QueueFile(path))) as (
        one,
    ):
        assert await polled(one) == []
        await one.queues.create("mail", "ann")
        assert await polled(one) == ["dead_letter_queues_missing"]
        await one.queues.create("other", "ann")
        assert await polled(one) == []
        await one.queues.create("letters", "ann")
        assert await polled(one) == []


def test_the_example_works() -> None:
    layers = QueueFile(EXAMPLE).layers
    assert layers.queues["mail"]["dead_letter_queue"] == "mail_dead"
    assert layers.defaults["max_attempts"] == 20
